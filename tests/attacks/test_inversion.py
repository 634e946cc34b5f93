"""Gradient inversion: exact where gradients are exact, no better than guessing where DP says so."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import Budget, sensitivity
from accounting.errors import InvalidParameter
from attacks import invert_gradient
from attacks.inversion.report import error_floor, information, score_inversion
from attacks.inversion.solver import Prior, meet
from attacks.shared.gradients import NothingToSee, SeenGradient, predict, pull_back, push_forward, weights
from attacks.shared.registry import NothingToAttack, Truth, kind
from dpfedvis.cli.attack import truth_of
from dpfedvis.data import FederatedData
from dpfedvis.errors import DpfedvisError
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.mechanisms import HeuristicNoise
from dpfedvis.numerics.kernels import InvalidPoints, Kernel
from dpfedvis.numerics.mmd import data_gradient, gradient
from dpfedvis.runs.execute import execute
from dpfedvis.runs.settings import RunConfig
from dpfedvis.runs.upload_reader import Recording
from tests import makers
from tests.attacks.strong_games import see

DIGITS = makers.DIGITS[np.random.default_rng(0).permutation(1797)]
FRESH = DIGITS[1000:].astype(np.float64)
PRIOR = Prior.of(FRESH)
GAMMA = 0.1
KERNEL = Kernel.gaussian(GAMMA)
KERNELS = [Kernel((0.3,)), Kernel((0.1, 0.7))]


def feddl(**settings) -> FedDL:
    return FedDL(**{"landmarks": 50, "rounds": 5, "gamma": GAMMA, "bounds": (0, 1), "seed": 1, **settings})


def dealt(size: int, clients: int) -> list[np.ndarray]:
    return [DIGITS[p * size : (p + 1) * size] for p in range(clients)]


def ratios(size: int, clients: int, **settings) -> list[float]:
    """Error of each client relative to guessing the mean of fresh records."""
    parts = dealt(size, clients)
    found = [
        invert_gradient(seen, KERNEL, records=size, prior=PRIOR, rng=np.random.default_rng(0))
        for seen in see(feddl(**settings), parts)
    ]
    return [score_inversion(each.records, part, PRIOR.mean).ratio for each, part in zip(found, parts, strict=True)]


def total(ratio: list[float]) -> float:
    return math.sqrt(float(np.mean(np.square(ratio))))


def one_round(X: np.ndarray, Y: np.ndarray, kernel: Kernel = KERNEL, sigma: float = 0.0) -> SeenGradient:
    return SeenGradient(Y, data_gradient(X, Y, kernel, denominator=len(X)), sigma)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_model_is_the_gradient_that_clients_upload(kernel):
    rng = np.random.default_rng(2)
    X, Y = rng.normal(size=(5, 3)), rng.normal(size=(4, 3))
    expected = data_gradient(X, Y, kernel, denominator=7)
    np.testing.assert_allclose(predict(X, Y, kernel, 7), expected, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_jacobian_matches_differences_and_its_transpose(kernel):
    rng = np.random.default_rng(3)
    X, Y, shift, residual = (rng.normal(size=shape) for shape in ((5, 3), (4, 3), (5, 3), (4, 3)))
    forward, step = push_forward(X, Y, weights(X, Y, kernel), shift), 1e-6
    ahead, behind = (predict(X + sign * step * shift, Y, kernel, 1) for sign in (1, -1))
    np.testing.assert_allclose(forward * (-4 / len(Y)), (ahead - behind) / (2 * step), atol=1e-8)
    back = pull_back(X, Y, weights(X, Y, kernel), residual)
    assert np.vdot(back, shift) == pytest.approx(np.vdot(residual, forward), rel=1e-11)


@pytest.mark.parametrize("estimator", ["unbiased", "biased"])
def test_terms_in_the_landmarks_alone_are_taken_away(estimator):
    rng = np.random.default_rng(4)
    X, Y = rng.normal(size=(3, 6)), rng.normal(size=(5, 6))
    seen = SeenGradient.of_full(Y, gradient(X, Y, KERNEL, estimator=estimator), KERNEL, estimator=estimator)
    np.testing.assert_allclose(seen.values, data_gradient(X, Y, KERNEL, denominator=3), atol=1e-14)


@pytest.mark.parametrize("kernel", [KERNEL, Kernel((0.05, 0.3))])
def test_one_record_is_where_two_lines_meet(kernel):
    """Exact in closed form, to 1e-9 of its norm, in 64 dimensions from two landmarks."""
    x = DIGITS[:1].astype(np.float64)
    Y = np.random.default_rng(5).random((2, 64))
    assert np.linalg.norm(meet([one_round(x, Y, kernel)]) - x) < 1e-9 * np.linalg.norm(x)


def test_the_lines_that_noise_moves_least_count_most():
    """Against equal weights, the closed form halves the error or better where most landmarks are far away."""
    rng, noise = np.random.default_rng(6), 2e-4
    gains = []
    for _ in range(20):
        x = rng.normal(size=(1, 4))
        Y = np.concatenate([x + rng.normal(size=(5, 4)), x + 6 * rng.normal(size=(45, 4))])
        exact = data_gradient(x, Y, KERNEL, denominator=1)
        seen = SeenGradient(Y, exact + noise * rng.normal(size=exact.shape), noise)
        units = seen.values / np.linalg.norm(seen.values, axis=1)[:, None]
        projections = np.eye(4) - np.einsum("ij,ik->ijk", units, units)
        equal = np.linalg.solve(projections.sum(axis=0), np.einsum("ijk,ik->j", projections, Y))
        gains.append(np.linalg.norm(meet([seen]) - x) / np.linalg.norm(equal - x))
    assert np.median(gains) < 0.5


def test_one_record_from_uploads_is_exact_up_to_float32():
    assert max(ratios(1, 3, mechanism="none", rounds=1)) < 1e-6


def test_four_records_from_exact_uploads_are_recovered():
    assert max(ratios(4, 2, mechanism="none")) < 1e-3


def test_heuristic_noise_does_not_protect_a_client_of_one_record():
    """β = 1, the paper's choice for maps, 20 rounds: a third of the trivial error at most, and far less than 1."""
    assert total(ratios(1, 4, mechanism=HeuristicNoise(beta=1.0), rounds=20)) < 0.33


@pytest.mark.parametrize("size", [1, 4])
def test_a_budget_stops_it(size):
    """ε = 1: within 2 % of guessing the mean of fresh records, which needs no gradient at all."""
    found = total(ratios(size, 6, mechanism="gradient", budget=Budget(1, 1e-5)))
    assert 0.98 < found < 1.02


def test_a_budget_that_means_nothing_does_not(hushed):
    """The test above can fail: with a hundredth of the noise of ε = 500, the same attack has half the error."""
    hushed(100)
    assert total(ratios(1, 3, mechanism="gradient", budget=Budget(500, 1e-5))) < 0.5


@given(
    gammas=st.lists(st.floats(0.01, 10), min_size=1, max_size=3),
    seed=st.integers(0, 10**6),
    spread=st.floats(0.01, 5),
    landmarks=st.integers(1, 6),
)
def test_fisher_information_is_bounded(gammas, seed, spread, landmarks):
    rng, kernel, sigma, denominator = np.random.default_rng(seed), Kernel(tuple(gammas)), 0.3, 2
    x, Y = rng.normal(size=(1, 3)), spread * rng.normal(size=(landmarks, 3))
    wv = weights(x, Y, kernel)
    columns = [push_forward(x, Y, wv, unit[None]).ravel() for unit in np.eye(3)]
    jacobian = -4 / (denominator * landmarks) * np.column_stack(columns)
    largest = np.linalg.norm(jacobian, 2) ** 2 / sigma**2
    assert largest <= information([(landmarks, sigma)], kernel, denominator) * (1 + 1e-9)


def test_information_in_terms_of_mu():
    """eγμ²/2 for one bandwidth, with μ of the tight sensitivity and replace-one neighbours."""
    rounds, sigma = 7, 0.02
    delta = sensitivity.gradient(gamma=GAMMA, records=3, landmarks=20)
    lam = information([(20, sigma)] * rounds, KERNEL, 3)
    assert lam == pytest.approx(math.e * GAMMA * rounds * (delta / sigma) ** 2 / 2, rel=1e-12)


def floor_and_error(noise: float, claimed: float) -> tuple[float, float, float]:
    """Floor for the claimed noise, error found and its standard error: Gaussian records, landmarks at their mean."""
    rng, variances = np.random.default_rng(7), np.array([1.0, 0.5, 0.25])
    kernel, Y, clients = Kernel.gaussian(0.002), np.zeros((5, 3)), 150
    prior = Prior(np.zeros(3), np.diag(variances))
    X = prior.draw(clients, rng)
    squares = []
    for x in X:
        exact = data_gradient(x[None], Y, kernel, denominator=1)
        seen = SeenGradient(Y, exact + noise * rng.normal(size=exact.shape), claimed)
        squares.append(np.sum((invert_gradient([seen], kernel, records=1, prior=prior).records[0] - x) ** 2))
    error = np.sqrt(np.mean(squares) / variances.sum())
    spread = np.std(squares) / np.sqrt(clients) / (2 * error * variances.sum())
    return error_floor(information([(5, claimed)], kernel, 1), variances), float(error), float(spread)


def test_the_floor_holds_and_is_nearly_reached():
    floor, error, spread = floor_and_error(noise=0.003, claimed=0.003)
    assert 0.3 < floor < 0.9
    assert floor - 3 * spread < error < 1.05 * floor + 3 * spread


def test_too_little_noise_shows_as_an_error_below_the_floor():
    floor, error, spread = floor_and_error(noise=0.0015, claimed=0.003)
    assert error < floor - 3 * spread


def test_records_are_matched_by_the_best_assignment():
    rng = np.random.default_rng(8)
    truth, found = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    best = min(
        sum(np.sum((found[j] - truth[i]) ** 2) for i, j in enumerate(order))
        for order in itertools.permutations(range(4))
    )
    score = score_inversion(found, truth, np.zeros(3))
    assert np.sum(score.errors**2) == pytest.approx(best, rel=1e-12)
    np.testing.assert_allclose(score.trivial, np.linalg.norm(truth, axis=1))
    assert score_inversion(truth[[2, 0, 3, 1]], truth, np.zeros(3)).ratio == 0


def test_the_same_seed_gives_the_same_records():
    seen = see(feddl(mechanism=HeuristicNoise(beta=0.5)), dealt(4, 1))[0]
    first, second = (
        invert_gradient(seen, KERNEL, records=4, starts=2, rng=np.random.default_rng(9)).records for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_bad_input_is_named():
    Y = np.random.default_rng(10).random((3, 4))
    with pytest.raises(NothingToSee, match="0 gradients"):
        invert_gradient([], KERNEL, records=1)
    with pytest.raises(NothingToSee, match="all of them 0"):
        invert_gradient([SeenGradient(Y, np.zeros_like(Y))], KERNEL, records=1)
    with pytest.raises(InvalidPoints, match="row 1 of the gradient is not finite"):
        SeenGradient(Y, np.array([[0.0] * 4, [np.nan] * 4, [0.0] * 4]))
    with pytest.raises(DpfedvisError, match=r"shape \(2, 4\)"):
        SeenGradient(Y, Y[:2])
    with pytest.raises(InvalidParameter, match="sigma"):
        SeenGradient(Y, Y, -1.0)
    with pytest.raises(InvalidParameter, match="records"):
        invert_gradient([SeenGradient(Y, Y)], KERNEL, records=0)
    with pytest.raises(DpfedvisError, match="prior"):
        invert_gradient([SeenGradient(Y, Y)], KERNEL, records=1, prior=PRIOR)
    with pytest.raises(DpfedvisError, match="positive definite"):
        invert_gradient([SeenGradient(Y, Y)], KERNEL, records=2, prior=Prior(np.zeros(4), np.zeros((4, 4))))


CONFIG = RunConfig(
    data="digits",
    records=30,
    clients=20,
    landmarks=30,
    rounds=3,
    map="clusters",
    clusters=2,
    mechanism="none",
    gamma=0.1,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(tmp_path_factory.mktemp("inversion"))


def attacked(folder: Path, name: str, **changes):
    execute(CONFIG.updated(**changes), folder / name)
    return kind("inversion")(Recording.read(folder / name), truth_of(folder / name), np.random.default_rng(0))


@pytest.mark.parametrize("mechanism", ["none", "local-steps", "published"])
def test_a_recorded_run_of_small_clients_is_inverted(folder: Path, mechanism):
    result = attacked(folder, mechanism, mechanism=mechanism)
    # Steps are uploaded as landmarks, whose rounding is that of numbers far larger than a gradient.
    assert result.summary["error ratio"] < (1e-2 if mechanism == "local-steps" else 1e-4)
    assert result.summary["recovered"] == 1
    values = json.loads(result.to_json())
    assert set(values["clients"][0]) == {
        *("client", "records", "rounds", "sigma", "ratio", "recovered", "floor", "misfit"),
    }
    assert "fresh records" in result.markdown()
    result.figure(folder / "inversion.png")


def test_a_recorded_run_under_a_budget_is_not(folder: Path):
    result = attacked(folder, "budget", mechanism="gradient", epsilon=1.0, scope="landmarks")
    assert result.summary["error ratio"] > 0.9
    assert result.summary["recovered"] == 0
    assert 0.95 < result.summary["floor"] <= 1


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"clients": 1}, "at most 16 records; the smallest here has 30"),
        ({"mechanism": "clipped", "epsilon": 1.0, "scope": "landmarks"}, "clipped"),
        ({"mechanism": "gradient", "trust": "aggregate", "epsilon": 1.0, "scope": "landmarks"}, "no single gradient"),
        ({"mechanism": "local-steps", "local_steps": 2}, "2 local steps"),
        ({"mechanism": "published", "gamma": (0.1, 0.2)}, "2 bandwidths"),
    ],
)
def test_what_cannot_be_inverted_says_why(folder: Path, changes, why):
    with pytest.raises(NothingToAttack, match=why):
        attacked(folder, "-".join(map(str, changes.values())), **changes)


def test_of_a_private_map_coordinates_in_its_subspace_are_inverted(record_private_map, hushed):
    """One record a client, and noise that hides nothing: its coordinates come back, and the page says so."""
    hushed(1e5)
    fed = FederatedData.split(DIGITS[:20], clients=20, seed=0, bounds=(0, 1))
    recording = record_private_map(fed, 500, 30)
    result = kind("inversion")(recording, Truth(fed, FRESH.astype(np.float32)), np.random.default_rng(0))
    assert result.summary["error ratio"] < 0.05
    assert result.dimensions == recording.public.features
    assert f"those in the {result.dimensions} dimensions of the published subspace" in result.markdown()
    assert json.loads(result.to_json())["subspace_dimensions"] == result.dimensions
