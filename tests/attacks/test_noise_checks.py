"""The tests of noise, on noise that was drawn to be right or wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from accounting import SeededNoise
from attacks.auditing.findings import ALARM, Checked, Finding, joined
from attacks.auditing.noise_checks import check_noise, compare
from attacks.auditing.residuals import Residual

S = 50.0


def drawn(seed: int, clients: int = 40, rounds: int = 2, sizes: Sequence[int] = (12,)) -> list[Residual]:
    """Noise of some clients, whose uploads have these lengths in turn."""
    noise, found = SeededNoise(np.random.default_rng(seed)), []
    for number in range(1, rounds + 1):
        for client in range(clients):
            size = sizes[client % len(sizes)]
            cells = noise.add_integers(np.zeros(size, dtype=np.int64), S)
            found.append(Residual(f"client-{client}", ("gradient", number), cells, np.ones(size), np.full(1, S)))
    return found


def checks(noises: list[Residual]) -> set[str]:
    return {finding.check for finding in joined(check_noise(noises))[1]}


@pytest.mark.parametrize("sizes", [(12,), (12, 20), (1,)])
@pytest.mark.parametrize("seed", range(5))
def test_noise_as_stated_passes(seed: int, sizes: tuple[int, ...]) -> None:
    """Also where uploads differ in length, as runs do whose subspaces differ."""
    noises = drawn(seed, sizes=sizes)
    assert checks(noises) == set()
    assert joined([compare(noises, drawn(seed + 100, sizes=sizes), "two")])[1] == ()


def test_p_values_are_no_smaller_than_chance() -> None:
    """Of 200 sets of right noise, each test has a p-value below 1/20 in about 10 at most."""
    below: dict[str, int] = {}
    for seed in range(200):
        for part in check_noise(drawn(seed, clients=10)):
            for finding in part.odd:
                below[finding.check] = below.get(finding.check, 0) + (finding.p_value * part.tests < 0.05)
    assert max(below.values()) < 25, below


def test_each_check_sees_its_fault() -> None:
    def changed(change: object) -> set[str]:
        noises = drawn(1)
        for each in noises:
            change(each)  # type: ignore[operator]
        return checks(noises)

    def half(each: Residual) -> None:
        each.cells[:] = each.cells // 2

    def first_value(each: Residual) -> None:
        each.cells[0] = 0

    def one_client(each: Residual) -> None:
        each.cells[:] *= each.unit != "client-3"

    def even(each: Residual) -> None:
        each.cells[:] = each.cells // 2 * 2

    def along(each: Residual) -> None:
        each.cells[:] += 30

    assert "scale" in changed(half)
    assert "coordinates" in changed(first_value)
    assert "clients" in changed(one_client)
    assert changed(even) == {"low bits"}
    assert {"slope", "independence"} <= changed(along)
    twice = drawn(1, rounds=1)
    again = [Residual(each.unit, ("gradient", 2), each.cells, each.total, each.parameter) for each in twice]
    assert {"rounds", "repeated"} <= checks(twice + again)
    assert joined([compare(twice, twice, "one run and itself")])[1] != ()


def test_all_tests_share_one_false_alarm_rate() -> None:
    odd = Finding("scale", "gradient", ALARM / 50, "words")
    assert joined([Checked(10, (odd,))]) == (10, (odd,))
    assert joined([Checked(10, (odd,)), Checked(90)]) == (100, ())
    proof = Finding("ledger", "gradient", 0.0, "words")
    assert joined([Checked(0, (proof, proof))]) == (0, (proof,))
