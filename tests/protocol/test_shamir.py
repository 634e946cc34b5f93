"""Shamir's sharing: vectors worked out by hand, any t shares, and nothing from fewer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from accounting.errors import InvalidParameter
from dpfedvis.protocol.shamir import PRIME, combine, draw, split

SECRETS = st.one_of(st.sampled_from([0, 1, PRIME - 1]), st.integers(0, PRIME - 1))


class Numbers:
    """Entropy that gives these numbers, one after the other, in 32 bytes each."""

    def __init__(self, *numbers: int) -> None:
        self._numbers: Iterator[int] = iter(numbers)

    def __call__(self, size: int) -> bytes:
        return next(self._numbers).to_bytes(size, "big")


def seeded(seed: int):
    return np.random.default_rng(seed).bytes


def slow_secret(shares: dict[int, int]) -> int:
    """Solve the linear equations for the polynomial's coefficients, by elimination modulo the prime."""
    size = len(shares)
    rows = [[pow(x, power, PRIME) for power in range(size)] + [y] for x, y in shares.items()]
    for column in range(size):
        pivot = next(row for row in range(column, size) if rows[row][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        inverse = pow(rows[column][column], -1, PRIME)
        rows[column] = [value * inverse % PRIME for value in rows[column]]
        for row in range(size):
            if row != column:
                factor = rows[row][column]
                pairs = zip(rows[row], rows[column], strict=True)
                rows[row] = [(value - factor * other) % PRIME for value, other in pairs]
    return rows[0][size]


def test_vectors_by_hand() -> None:
    """1234 + 166 x + 94 x²; and, near the prime, −1 − x, whose values are −2, −3, −4."""
    assert split(1234, 3, 5, Numbers(166, 94)) == [1494, 1942, 2578, 3402, 4414]
    assert combine({2: 1942, 4: 3402, 5: 4414}) == 1234
    assert split(PRIME - 1, 2, 3, Numbers(PRIME - 1)) == [PRIME - 2, PRIME - 3, PRIME - 4]
    assert combine({1: PRIME - 2, 3: PRIME - 4}) == PRIME - 1
    assert split(7, 1, 3, Numbers()) == [7, 7, 7]


def test_a_drawn_number_is_below_the_prime_and_uniform() -> None:
    assert draw(Numbers(PRIME, 2**255 - 1, 5)) == 5  # the first two are not below
    assert draw(Numbers(2**255 + 6)) == 6  # of 256 bits the highest is not used
    top = np.array([draw(entropy) >> 247 for entropy in [seeded(1)] for _ in range(20_000)])
    counts = np.bincount(top, minlength=256)
    assert ((counts - 20_000 / 256) ** 2 / (20_000 / 256)).sum() < chi2.isf(1e-9, 255)


@given(SECRETS, st.integers(1, 12), st.data())
def test_any_t_shares_give_the_secret_back(secret: int, count: int, data: st.DataObject) -> None:
    threshold = data.draw(st.integers(1, count))
    shares = split(secret, threshold, count, seeded(data.draw(st.integers(0, 2**32 - 1))))
    places = data.draw(st.permutations(range(1, count + 1)))
    for size in {threshold, count}:
        chosen = {place: shares[place - 1] for place in places[:size]}
        assert combine(chosen) == secret == slow_secret(chosen)


def test_every_set_of_t_and_no_set_of_fewer() -> None:
    shares = dict(enumerate(split(42, 4, 7, seeded(2)), start=1))
    for size in range(1, 8):
        for places in combinations(shares, size):
            assert (combine({place: shares[place] for place in places}) == 42) == (size >= 4)


def test_fewer_shares_are_independent_of_the_secret() -> None:
    """With t − 1 shares fixed, one share more can make any secret; and each single share is uniform."""
    shares = dict(enumerate(split(42, 3, 5, seeded(3)), start=1))
    for other in (0, 41, PRIME - 1):
        last = slow_value({0: other, 1: shares[1], 2: shares[2]}, 3)
        assert combine({1: shares[1], 2: shares[2], 3: last}) == other
    entropy = seeded(4)
    top = np.array([split(0, 2, 3, entropy)[1] >> 247 for _ in range(20_000)])
    counts = np.bincount(top, minlength=256)
    assert ((counts - 20_000 / 256) ** 2 / (20_000 / 256)).sum() < chi2.isf(1e-9, 255)


def slow_value(points: dict[int, int], at: int) -> int:
    """Value of the polynomial through these points, shifted so that it is asked for at 0."""
    return slow_secret({x - at: y for x, y in points.items()})


def test_a_wrong_share_gives_another_secret() -> None:
    shares = dict(enumerate(split(42, 3, 5, seeded(5)), start=1))
    for place in (1, 2, 3):
        assert combine({1: shares[1], 2: shares[2], 3: shares[3]} | {place: shares[place] ^ 1}) != 42


@pytest.mark.parametrize(("secret", "threshold"), [(-1, 2), (PRIME, 2), (5, 0), (5, 4)])
def test_what_cannot_be_shared_is_refused_without_showing_it(secret: int, threshold: int) -> None:
    with pytest.raises(InvalidParameter) as refused:
        split(secret, threshold, 3, seeded(6))
    assert str(PRIME) not in str(refused.value)
