"""The loop against a slow Algorithm 1; descent, optimisers, projections, starts, callbacks, and bad input."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import numpy as np
import pytest

from accounting import Budget, BudgetExceeded, InvalidParameter, Ledger
from dpfedvis.data import FederatedData
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.evaluation.exact_trace import exact_trace
from dpfedvis.mechanisms import GradientPerturbation
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.projections import Box, SpectralBall
from dpfedvis.server.callbacks import KeepLandmarks, ProgressBar
from tests.makers import federation

SIZES, GAMMA = (12, 20, 16), 0.3
LARGE = Budget(500, 1e-5)  # the largest that noise on a grid has
COPIES = 500  # of each record: the means stay, and the noise falls by as much


@pytest.fixture
def fed():
    return federation(SIZES, 3, shift=0.4, dtype=np.float64)


@pytest.fixture
def many(fed):
    """Return the same records many times over: at `LARGE` the noise does not show."""
    return FederatedData([np.tile(client.X, (COPIES, 1)) for client in fed.clients], dtype=np.float64)


START = np.random.default_rng(2).normal(size=(5, 3))


# Algorithm 1 in float64 loops, after the paper


def slow_gradient(X, Y, gamma=GAMMA):
    """Eq. 9 of the unbiased MMD, one pair at a time."""
    n, n_y, result = len(X), len(Y), np.zeros_like(Y)
    for i, y in enumerate(Y):
        for x in X:
            result[i] -= 4 * gamma / (n * n_y) * (x - y) * math.exp(-gamma * float((x - y) @ (x - y)))
        for j, z in enumerate(Y):
            if i != j:
                result[i] += 4 * gamma / (n_y * (n_y - 1)) * (z - y) * math.exp(-gamma * float((z - y) @ (z - y)))
    return result


def slow_adam(gradients, step_size):
    """The last step of Adam on a sequence of gradients."""
    mean, square = 0.0, 0.0
    for gradient in gradients:
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient**2
    t = len(gradients)
    return -step_size * (mean / (1 - 0.9**t)) / (np.sqrt(square / (1 - 0.999**t)) + 1e-8)


def slow_momentum(gradients, step_size):
    return -step_size * sum(0.9 ** (len(gradients) - 1 - t) * gradient for t, gradient in enumerate(gradients))


def slow_feddl(parts, Y, rounds, step_size, weights, local_steps=None, server=None):
    """l. 1–15: with `local_steps` clients upload Y_p, otherwise gradients."""
    history = []
    for _ in range(rounds):
        if local_steps is not None:
            average = np.zeros_like(Y)
            for X, weight in zip(parts, weights, strict=True):
                own = Y.copy()
                for _ in range(local_steps):
                    own = own - step_size * slow_gradient(X, own)
                average += weight * own
            Y = average
        else:
            history.append(sum(w * slow_gradient(X, Y) for X, w in zip(parts, weights, strict=True)))
            Y = Y + (-step_size * history[-1] if server is None else server(history, step_size))
    return Y


def slow_step_size(n_y=5):
    return 1 / (4 * GAMMA * (2 * math.exp(-1.5) / n_y + 1 / (n_y - 1)))


@pytest.mark.parametrize("weights", ["records", "equal"])
@pytest.mark.parametrize(("mechanism", "local_steps"), [("none", 1), ("gradient", 1), ("variable", 1), ("variable", 3)])
def test_it_is_algorithm_1(mechanism, local_steps, weights, fed, many):
    omega = [n / sum(SIZES) for n in SIZES] if weights == "records" else [1 / 3] * 3
    config = FedDL(
        landmarks=5,
        mechanism=mechanism,
        budget=None if mechanism == "none" else LARGE,
        rounds=6,
        local_steps=local_steps,
        gamma=GAMMA,
        weights=weights,
        start=START,
        tau_x=6.0,  # above all norms
    )
    result = config.run(fed if mechanism == "none" else many)
    parts = [client.X for client in fed.clients]
    steps = local_steps if mechanism == "variable" else None
    expected = slow_feddl(parts, START, 6, slow_step_size(), omega, steps)
    assert result.public.step_size == pytest.approx(slow_step_size())
    # The noise of several local steps covers rounded kernels as well, which more records do not lower.
    tolerance = 1e-9 if mechanism == "none" else 1e-3 if local_steps == 1 else 5e-3
    np.testing.assert_allclose(result.landmarks, expected, atol=tolerance)


def test_one_local_step_of_variables_is_a_step_on_the_gradient(many):
    """Q = 1 and plain steps: averaging Y_p and averaging gradients are the same thing."""
    common = {"landmarks": 5, "budget": LARGE, "rounds": 4, "gamma": GAMMA, "start": START}
    ends = [FedDL(mechanism=name, **common).run(many).landmarks for name in ("gradient", "variable")]
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-3)


@pytest.mark.parametrize(("name", "server", "step"), [("adam", slow_adam, 0.1), ("momentum", slow_momentum, 0.4)])
def test_the_server_may_step_otherwise(name, server, step, fed):
    config = FedDL(landmarks=5, rounds=7, gamma=GAMMA, start=START, optimiser=name, step_size=step)
    parts, omega = [client.X for client in fed.clients], [n / sum(SIZES) for n in SIZES]
    expected = slow_feddl(parts, START, 7, step, omega, server=server)
    np.testing.assert_allclose(config.run(fed).landmarks, expected, atol=1e-9)


def test_steps_have_their_default_size(fed):
    common = {"landmarks": 5, "rounds": 1, "gamma": GAMMA, "start": START}
    adam = FedDL(**common, optimiser="adam").run(fed)
    assert adam.public.step_size == pytest.approx(slow_step_size())  # of local steps; its own is 0.1
    assert np.abs(adam.landmarks - START).max() == pytest.approx(0.1, rel=1e-3)
    assert FedDL(**common, optimiser="momentum").run(fed).public.step_size == pytest.approx(slow_step_size())
    assert FedDL(**common, step_size=0.7).run(fed).public.step_size == 0.7


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mmd", ["unbiased", "biased"])
def test_the_objective_falls_at_the_default_step(mmd, seed, fed):
    """F(Y − ∇F/L) ≤ F(Y) − ‖∇F‖²/(2L), with ‖∇F‖ = L‖step‖."""
    kept = KeepLandmarks()
    config = FedDL(landmarks=5, rounds=30, gamma=(0.1, 0.6), mmd=mmd, start="normal", seed=seed)
    result = config.run(fed, callbacks=[kept])
    values = list(exact_trace(fed, result, kept.kept).values())
    assert len(values) == 30
    for before, after, each in zip(values, values[1:], result.trace[1:], strict=False):
        assert after <= before - result.public.smoothness / 2 * each.step**2 + 1e-12


def test_the_trace_counts_steps(fed):
    kept = KeepLandmarks()
    result = FedDL(landmarks=5, rounds=4, gamma=GAMMA, start=START).run(fed, callbacks=[kept])
    points = [START, *kept.kept.values()]
    for before, after, each in zip(points, points[1:], result.trace, strict=False):
        assert each.step == pytest.approx(np.linalg.norm(after - before))
    assert [each.number for each in result.trace] == [1, 2, 3, 4]


# Sets and starts


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("projection", [Box(-0.2, 0.3), SpectralBall(0.5, 0.7)])
def test_landmarks_stay_in_their_set(projection, dtype):
    rng = np.random.default_rng(0)
    fed = FederatedData([rng.normal(2, 1, (15, 3)), rng.normal(-2, 1, (25, 3))], dtype=dtype)
    kept = KeepLandmarks()
    config = FedDL(
        landmarks=5,
        mechanism="gradient",
        budget=Budget(1.0, 1e-5),
        rounds=8,
        gamma=0.1,
        projection=projection,
        start=10 * START,
    )
    result = config.run(fed, callbacks=[kept])
    assert result.landmarks.dtype == dtype
    for Y in kept.kept.values():
        np.testing.assert_allclose(projection(Y), Y, rtol=1e-5, atol=1e-6)


def test_bounds_are_a_box_unless_another_set_is_given(fed):
    common = {"landmarks": 5, "rounds": 5, "bounds": (-0.1, 0.1)}
    assert np.abs(FedDL(**common).run(fed).landmarks).max() <= 0.1
    assert np.abs(FedDL(**common, projection=Box(-50.0, 50.0), gamma=0.3).run(fed).landmarks).max() > 0.1


def test_the_set_of_a_mechanism_comes_last(fed):
    chosen = GradientPerturbation(bound="theorem", tau_x=3.0, tau_y=0.9, upsilon=3.6)
    kept = KeepLandmarks()
    config = FedDL(
        landmarks=5,
        mechanism=chosen,
        budget=LARGE,
        rounds=4,
        gamma=GAMMA,
        projection=Box(-100.0, 100.0),
        start=10 * START,
    )
    config.run(fed, callbacks=[kept])
    for Y in kept.kept.values():
        assert np.linalg.norm(Y, axis=1).max() <= 0.6 * (1 + 1e-9)
        assert np.linalg.norm(Y, 2) <= 0.9 * (1 + 1e-9)


def still(fed, **settings):
    """Landmarks of a run that hardly moves: its start."""
    values = {"landmarks": 400, "rounds": 1, "step_size": 1e-12, "gamma": GAMMA, "start": "normal"}
    return FedDL(**{**values, **settings}).run(fed).landmarks


def test_starts(fed):
    uniform = still(fed, start="uniform", bounds=(2.0, 5.0))
    assert uniform.min() >= 2
    assert uniform.max() <= 5
    assert uniform.mean() == pytest.approx(3.5, abs=0.15)
    np.testing.assert_array_equal(uniform, still(fed, bounds=(2.0, 5.0), start=None))
    normal = still(fed, start="normal")
    # A point's squared distance from the centre is 1/(2γ) in the mean.
    assert np.mean(np.sum(normal**2, axis=1)) == pytest.approx(1 / (2 * GAMMA), rel=0.2)
    near = still(fed, start="mean", tau_x=5.0, mechanism="gradient", budget=LARGE)
    pooled = np.concatenate([client.X for client in fed.clients])
    np.testing.assert_allclose(near.mean(axis=0), pooled.mean(axis=0), atol=0.25)
    np.testing.assert_allclose(still(fed, start=START, landmarks=5), START, atol=1e-9)
    assert not np.array_equal(normal, still(fed, start="normal", seed=1))


def test_a_given_start_is_not_changed(fed):
    before = START.copy()
    FedDL(landmarks=5, rounds=3, gamma=GAMMA, start=START).run(fed)
    np.testing.assert_array_equal(START, before)


# Callbacks


def test_stopping_early_spends_less(fed):
    common = {"landmarks": 5, "mechanism": "gradient", "budget": Budget(2.0, 1e-5), "rounds": 12, "gamma": GAMMA}
    common["start"] = "normal"
    result = FedDL(**common).run(fed, callbacks=[lambda done, Y: done.number == 4])
    assert len(result.trace) == 4
    assert len(result.ledger) == 12
    # μ² is linear in the rounds.
    assert result.ledger.composition("client-0").mu2 == pytest.approx(result.ledger.budget.mu**2 / 3, rel=1e-6)
    assert 0 < result.ledger.spent() < 2


def test_landmarks_are_kept(fed):
    kept = KeepLandmarks(every=2)
    result = FedDL(landmarks=5, rounds=5, gamma=GAMMA).run(fed, callbacks=[kept])
    assert list(kept.kept) == [2, 4]
    last = KeepLandmarks()
    FedDL(landmarks=5, rounds=5, gamma=GAMMA).run(fed, callbacks=[last])
    np.testing.assert_array_equal(last.kept[5], result.landmarks)
    assert not np.shares_memory(last.kept[5], result.landmarks)


def test_all_callbacks_are_called_in_every_round(fed):
    calls = []
    FedDL(landmarks=5, rounds=3, gamma=GAMMA).run(
        fed, callbacks=[lambda done, Y: done.number == 2, lambda done, Y: calls.append(done.number)]
    )
    assert calls == [1, 2]


def test_the_bar_is_silent_without_a_terminal(fed, monkeypatch):
    monkeypatch.setattr("sys.stderr", screen := io.StringIO())
    FedDL(landmarks=5, rounds=3, gamma=GAMMA).run(fed, callbacks=[ProgressBar(3)])
    assert screen.getvalue() == ""


def test_bad_callbacks_are_named():
    with pytest.raises(InvalidParameter, match="every"):
        KeepLandmarks(every=0)


# Bad input


@pytest.mark.parametrize(
    ("settings", "value"),
    [
        ({"landmarks": 0}, 0),
        ({"landmarks": 2.5}, 2.5),
        ({"rounds": 0}, 0),
        ({"local_steps": 0}, 0),
        ({"share": 1.0}, 1.0),
        ({"weights": "sizes"}, "sizes"),
        ({"mmd": "exact"}, "exact"),
        ({"optimiser": "sgd"}, "sgd"),
        ({"step_size": -1.0}, -1.0),
        ({"noise": "loud"}, "loud"),
        ({"policy": "hope"}, "hope"),
        ({"sampling_rate": 0.0}, 0.0),
        ({"sampling_rate": 1.5}, 1.5),
        ({"bounds": (1.0, 1.0)}, (1.0, 1.0)),
        ({"public_records": 0}, 0),
        ({"start": "center"}, "center"),
    ],
)
def test_bad_settings_are_named_at_once(settings, value):
    with pytest.raises(InvalidParameter) as caught:
        FedDL(**settings)
    assert caught.value.value == value
    assert caught.value.name in str(caught.value)


PRIVATE = {"mechanism": "gradient", "budget": Budget(2.0, 1e-5)}
ADD = {"mechanism": "gradient", "budget": Budget(2.0, 1e-5, adjacency="add-remove")}


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        ({"mechanism": "magic"}, "mechanism", "magic"),
        ({"mechanism": "gradient"}, "budget", None),
        ({"mechanism": "input"}, "budget", None),
        (ADD, "public_records", None),
        ({**PRIVATE, "sampling_rate": 0.5}, "adjacency", "replace-one"),
        ({**PRIVATE, "budget": Budget(501, 1e-5)}, "epsilon", 501.0),
        ({**PRIVATE, "budget": Budget(1.0, 1e-70)}, "delta", 1e-70),
        ({"start": "uniform"}, "start", "uniform"),
        ({"start": np.zeros((2, 2))}, "start", (2, 2)),
        ({"gamma": "scott"}, "gamma", "scott"),
    ],
)
def test_bad_runs_are_named_before_anything_is_spent(settings, name, value, fed):
    ledger, seen = Ledger(budget=settings.get("budget")), []
    given = {"landmarks": 5, "rounds": 2, "gamma": GAMMA, "start": "normal", **settings}
    with pytest.raises(InvalidParameter, match=name) as caught:
        FedDL(**given).run(fed, ledger=ledger, witness=lambda events, values: seen.append(values))
    assert caught.value.value == value or (value is None and caught.value.value is None)
    assert len(ledger) == 0
    assert not seen


@pytest.mark.parametrize("bandwidth", [-1.0, 0.0, math.nan, (), (0.1, -0.1)])
def test_bad_bandwidths_are_named(bandwidth, fed):
    with pytest.raises(InvalidParameter, match="gamma"):
        FedDL(landmarks=5, rounds=1, gamma=bandwidth).run(fed)


@pytest.mark.parametrize("bandwidth", [0.3, 1, [0.1, 0.3], np.array([0.1, 0.3]), Kernel((0.1, 0.3))])
def test_bandwidths_come_in_many_forms(bandwidth, fed):
    gammas = FedDL(landmarks=5, rounds=1, gamma=bandwidth).run(fed).public.kernel.gammas
    assert gammas in ((0.3,), (1.0,), (0.1, 0.3))


def test_a_smaller_budget_in_the_ledger_holds(fed):
    ledger, seen = Ledger(budget=Budget(0.5, 1e-5)), []
    config = FedDL(landmarks=5, mechanism="gradient", budget=Budget(2.0, 1e-5), rounds=20, gamma=GAMMA)
    with pytest.raises(BudgetExceeded):
        config.run(fed, ledger=ledger, witness=lambda events, values: seen.append(values))
    assert len(seen) == len(ledger)
    assert ledger.spent() <= 0.5


def test_one_client_one_landmark_one_record():
    fed = FederatedData([np.ones((1, 2))])
    result = FedDL(landmarks=1, rounds=3, gamma=0.5, mmd="biased", start="normal").run(fed)
    assert result.landmarks.shape == (1, 2)
    assert np.isfinite(result.landmarks).all()


def test_settings_can_be_replaced():
    assert replace(FedDL(), rounds=7).rounds == 7
