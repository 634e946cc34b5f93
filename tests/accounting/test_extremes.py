"""Every float gets an answer or a named error: no other exception, no NaN, no endless search, and order is kept."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from accounting import (
    ACCOUNTANTS,
    AccountingError,
    Budget,
    Composition,
    DiscreteNoise,
    Event,
    GaussianRelease,
    InvalidParameter,
    Ledger,
    PlannedRelease,
    SampledGaussianRelease,
    SeededNoise,
    Unprotected,
    calibrate,
    compare,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_log_delta,
    gaussian_mu,
    nominal_mu,
    sensitivity,
)
from accounting.accountants.closed import theorem_sigma, zcdp_epsilon
from accounting.events import from_json
from accounting.exactness import charged_epsilon, inner_delta, shared_deviation
from accounting.noise import add_rounded, parameter
from accounting.risk_lines import risk_of
from accounting.rounding import rounded_down, rounded_up
from accounting.statement import state

CALLS = 10_000 if settings.default.max_examples > 60 else 960
SPECIAL = (
    0.0, -0.0, 5e-324, 1e-320, 1e-310, 2.2250738585072014e-308, 1e-300, 1e-200, 1e-154, 1e-100, 1e-16, 1e-5, 0.1, 0.5,
    1 - 2.0**-53, 1.0, 1 + 2.0**-52, 3.999, 4.0, 30.0, 500.0, 500.1, 709.8, 1e5, 2.0**49, 2.0**53, 1e16, 1e30, 1e100,
    1e154, 1e155, 1e200, 1e300, 1.7976931348623157e308, math.inf, -math.inf, math.nan, -1.0, -5e-324,
)  # fmt: skip
COUNTS = (1, 1, 2, 3, 50, 1000, 2**31, 2**53, 2**63, 2**64, 10**30, 10**400, 10**5000, 0, -1)
FAST = ("gdp", "zcdp", "theorem", "basic", "advanced")


class Draw:
    """Arguments: extreme floats, ordinary ones, and counts."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def number(self) -> float:
        kind = self.generator.integers(4)
        if kind == 0:
            return float(self.generator.choice(SPECIAL))
        if kind == 1:
            bits = self.generator.integers(0, 2**63, dtype=np.uint64)
            return float(np.array(bits).view(np.float64))  # any positive float, evenly over exponents
        return float(10.0 ** self.generator.uniform(-3, 3))

    def delta(self) -> float:
        return float(10.0 ** self.generator.uniform(-20, 0)) if self.generator.integers(2) else self.number()

    def count(self) -> int:
        return COUNTS[self.generator.integers(len(COUNTS))] if self.generator.integers(3) == 0 else 3

    def one(self, *choices: Any) -> Any:
        return choices[self.generator.integers(len(choices))]


def release(draw: Draw) -> Event:
    common = {"what": "x", "client": "a", "adjacency": "add-remove"}
    values = {**common, "sensitivity": draw.number(), "sigma": draw.number(), "count": draw.count()}
    if draw.generator.integers(2):
        values |= {"grid": draw.number(), "values": draw.count()}
    if draw.generator.integers(6) == 0:
        return SampledGaussianRelease(**values, sampling_rate=draw.number())
    if draw.generator.integers(6) == 0:
        return Unprotected(**common, why="exact", nominal_sensitivity=draw.number(), nominal_sigma=draw.number())
    return GaussianRelease(**values)


def planned(draw: Draw) -> PlannedRelease:
    share = draw.one(1.0, 1.0, draw.number())
    return PlannedRelease("x", draw.number(), draw.count(), share, values=draw.one(0, draw.count()))


def calibrated(draw: Draw) -> float:
    plan = calibrate(Budget(draw.number(), draw.delta()), planned(draw))
    assert plan["x"].sigma > 0
    assert plan.epsilon <= plan.budget.epsilon
    return plan["x"].sigma


def kept(draw: Draw) -> float:
    """Release until the budget is gone, and let the ledger speak."""
    with Ledger(None, Budget(draw.number(), draw.delta(), adjacency="add-remove")) as ledger:
        event = release(draw)
        if isinstance(event, SampledGaussianRelease):
            return 0.0  # by a library, and slow
        ledger.record(event)
        assert ledger.spent() <= ledger.budget.epsilon
        assert 0 <= risk_of(ledger.events()).advantage <= 1
        return ledger.remaining()


def told(draw: Draw) -> float:
    with Ledger() as ledger:
        event = release(draw)
        if isinstance(event, SampledGaussianRelease):
            return 0.0
        ledger.record(event)
        composition = ledger.composition("a", end_to_end=True)
        assert composition.releases + composition.unprotected >= 1
        return max(risk_of(ledger.events()).advantage, ledger.spent(draw.delta()))


def accounted(draw: Draw) -> float:
    events = [release(draw) for _ in range(draw.generator.integers(1, 3))]
    mu = nominal_mu(event for event in events if isinstance(event, Unprotected))
    assert mu is None or mu >= 0
    return ACCOUNTANTS[draw.one(*FAST)].epsilon(events, draw.delta())


def written(draw: Draw) -> float:
    event = release(draw)
    assert from_json(event.to_json()) == event
    return 1.0


def drawn(draw: Draw) -> float:
    values = np.array([draw.number(), 1.0])
    source = draw.one(SeededNoise(draw.generator), DiscreteNoise())
    return float(np.abs(add_rounded(values, draw.number(), draw.number(), source)).max())


def joined(draw: Draw) -> float:
    scaled = Composition([release(draw)]).scaled(draw.one(1e-10, 3.0, 1e10))
    return scaled.total_mu


GRADIENT = {"gamma": Draw.number, "records": Draw.number, "landmarks": Draw.count}
BOUNDS = {"tau_x": Draw.number, "tau_y": Draw.number, "upsilon": Draw.number}
STEPS = {"step_size": Draw.number, "local_steps": Draw.count}


def called(function: Callable[..., float], /, **arguments: Callable[[Draw], Any]) -> Callable[[Draw], float]:
    def call(draw: Draw) -> float:
        values = {name: make(draw) for name, make in arguments.items()}
        found = function(**values, **({"bound": "theorem"} if "tau_y" in values else {}))
        assert 0 < found < math.inf
        return found

    return call


PUBLIC: dict[str, Callable[[Draw], float]] = {
    "gaussian_delta": lambda draw: gaussian_delta(draw.number(), draw.number()),
    "gaussian_log_delta": lambda draw: abs(gaussian_log_delta(draw.number(), draw.number())),
    "gaussian_epsilon": lambda draw: gaussian_epsilon(draw.number(), draw.delta()),
    "gaussian_mu": lambda draw: gaussian_mu(draw.number(), draw.delta()),
    "budget": lambda draw: Budget(draw.number(), draw.delta()).mu,
    "calibrate": calibrated,
    "ledger": kept,
    "ledger without a budget": told,
    "accountants": accounted,
    "events": written,
    "scaled": joined,
    "noise": drawn,
    "parameter": lambda draw: parameter(
        draw.number(), draw.number(), parties=draw.count(), least=draw.one(1.0, draw.number())
    ),
    "charged": lambda draw: charged_epsilon(draw.count()),
    "inner": lambda draw: inner_delta(draw.count(), draw.delta()),
    "shared": lambda draw: shared_deviation(draw.number(), draw.count()),
    "zcdp": lambda draw: zcdp_epsilon(draw.number(), draw.delta()),
    "theorem_sigma": lambda draw: theorem_sigma(
        sensitivity=draw.number(), rounds=draw.count(), epsilon=draw.number(), delta=draw.delta()
    ),
    "gradient": called(sensitivity.gradient, **GRADIENT),
    "widths": called(sensitivity.gradient, **{**GRADIENT, "gamma": lambda draw: [draw.number(), draw.number()]}),
    "theorem": called(sensitivity.gradient, **GRADIENT, **BOUNDS),
    "clipped": called(sensitivity.clipped_gradient, **GRADIENT, clip=Draw.number),
    "variable": called(sensitivity.variable, **GRADIENT, **STEPS),
    "smooth": called(sensitivity.variable, **GRADIENT, **STEPS, smoothness=Draw.number),
    "input": called(sensitivity.input, tau_x=Draw.number),
    "gram": called(sensitivity.gram_rows, tau_x=Draw.number),
    "distances": called(sensitivity.distance_rows, tau_x=Draw.number, landmarks=Draw.count),
    "kernels": called(sensitivity.kernel_rows, gamma=Draw.number, tau_x=Draw.number, landmarks=Draw.count),
    "embedding": called(sensitivity.mean_embedding, records=Draw.number),
    "moments": called(sensitivity.moments, records=Draw.number),
    "clusters": called(sensitivity.cluster_sums, records=Draw.number),
    "second": called(sensitivity.second_moment, clip=Draw.number),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_call_answers_or_refuses_by_name(name: str) -> None:
    answered = 0
    for seed in range(CALLS // len(PUBLIC)):
        try:
            found = PUBLIC[name](Draw(seed))
        except AccountingError:
            continue
        assert found >= 0, (seed, found)
        answered += 1
    assert answered > 0


def test_what_is_asked_again_and_again_keeps_its_order() -> None:
    """Over all positive floats: μ grows in ε and δ, ε in μ, and no step of the search is lost."""
    numbers = sorted(value for value in SPECIAL if 0 <= value < math.inf)
    deltas = [value for value in numbers if 0 < value < 1]
    table = np.array([[gaussian_mu(epsilon, delta) for epsilon in numbers] for delta in deltas])
    assert (table > 0).all()
    assert np.isfinite(table).all()
    assert (np.diff(table, axis=1) >= -1e-9 * table[:, 1:]).all()
    assert (np.diff(table, axis=0) >= -1e-9 * table[1:]).all()
    epsilons = np.array([[gaussian_epsilon(mu, delta) for mu in numbers] for delta in deltas])
    assert (epsilons[:, 1:] >= epsilons[:, :-1] * (1 - 1e-9)).all()


def test_an_epsilon_that_is_nothing_buys_what_zero_does() -> None:
    assert gaussian_mu(5e-324, 1e-9) == pytest.approx(gaussian_mu(0, 1e-9), rel=1e-9)
    assert gaussian_mu(1e-310, 1e-5) == pytest.approx(gaussian_mu(0, 1e-5), rel=1e-9)


@pytest.mark.parametrize("epsilon", [1e-310, 1e-300, 1e-250])
def test_tiny_epsilon_and_delta_are_inverted(epsilon: float) -> None:
    delta = 1e-320
    assert gaussian_epsilon(gaussian_mu(epsilon, delta), delta) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("name", ["what", "client", "why"])
def test_a_text_that_cannot_be_written_is_named(name: str) -> None:
    values = {"what": "x", "client": "a", "why": "exact", name: "lone \ud800"}
    with pytest.raises(InvalidParameter, match=f"{name} must be a string that UTF-8 can encode"):
        Unprotected(**values)
    with pytest.raises(InvalidParameter, match="what must be a string that UTF-8"):
        PlannedRelease("\udfff", 1.0)


@pytest.mark.parametrize(
    "line",
    [
        "[" * 200_000,
        '{"a":' * 200_000,
        '{"kind":"gaussian","count":' + "9" * 5000 + "}",
        '{"what":"\\ud800"}',
        "\ud800",
    ],
    ids=["deep", "deep objects", "many digits", "escaped surrogate", "surrogate"],
)
def test_a_line_that_breaks_parsers_is_a_named_error(line: str) -> None:
    with pytest.raises(InvalidParameter) as caught:
        from_json(line)
    assert len(str(caught.value)) < 3000


def test_an_escaped_surrogate_in_an_event_is_named() -> None:
    line = Unprotected(what="x", client="a", why="exact").to_json().replace('"x"', '"\\ud800"')
    assert json.loads(line)["what"] == "\ud800"
    with pytest.raises(InvalidParameter, match="what must be"):
        from_json(line)


@pytest.mark.parametrize("path", ["nul\0byte.db", "lone \ud800.db"])
def test_a_path_that_no_file_has_is_named(path: str, tmp_path: Any) -> None:
    for open_ledger in (Ledger, Ledger.read):
        with pytest.raises(AccountingError):
            open_ledger(tmp_path / path)


@pytest.mark.parametrize(("noise", "rate", "count"), [(1.0, 5e-324, 1), (1e6, 1e-9, 10**12)])
@pytest.mark.parametrize("name", ["pld", "rdp", "opacus-rdp"])
def test_libraries_answer_or_their_errors_are_named(name: str, noise: float, rate: float, count: int) -> None:
    event = SampledGaussianRelease(
        what="x", client="a", adjacency="add-remove", sensitivity=1.0, sigma=noise, sampling_rate=rate, count=count
    )
    reading = compare([[event]], 1e-5, [name])[name]
    assert name in reading.reason if reading.epsilon is None else reading.epsilon >= 0


def test_extreme_numbers_are_told_to_people() -> None:
    for value in (5e-324, 1e-310, 1.7976931348623157e308, math.inf, 0.0):
        for shown in (rounded_up(value), rounded_down(value)):
            assert "nan" not in shown
        if 0 < value < math.inf:
            assert float(rounded_up(value).replace("∞", "inf")) >= value * (1 - 1e-9)
    if CALLS > 1000:  # every accountant reads it, and that takes seconds
        with Ledger() as ledger:
            ledger.record(GaussianRelease(what="x", client="a", sensitivity=1e150, sigma=1e-3))
            assert "nan" not in str(state(ledger))
