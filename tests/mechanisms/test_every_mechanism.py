"""One suite for all mechanisms: the protocol, the shapes, and what the ledger says of each."""

from __future__ import annotations

import dataclasses
import math
import pickle

import numpy as np
import pytest

from accounting import (
    Budget,
    InvalidParameter,
    Ledger,
    PostProcessing,
    Unprotected,
    UnprotectedReleaseError,
    nominal_mu,
)
from dpfedvis.data import FederatedData
from dpfedvis.mechanisms import MECHANISMS, HeuristicNoise, InputPerturbation, PublishedFedDL, mechanism
from dpfedvis.mechanisms.base import PreparedRecords
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.scale import MedianDistance, Moments
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.mmd import mmd2
from dpfedvis.numerics.optimisers import Plain
from dpfedvis.numerics.random_streams import Streams

SETTING = PublicParameters(Kernel((0.2,)), landmarks=7, features=4, rounds=3, local_steps=1, step_size=0.5)
RELEASES = {**MECHANISMS, "moments": Moments, "median": MedianDistance}
UNPROTECTED = [name for name, kind in MECHANISMS.items() if kind().protection == "none"]


def points(dtype=np.float32, records=20):
    rng = np.random.default_rng(0)
    return rng.normal(size=(records, 4)).astype(dtype), rng.normal(size=(7, 4)).astype(dtype)


@pytest.fixture(params=sorted(RELEASES))
def each(request):
    return RELEASES[request.param]()


@pytest.fixture(params=sorted(MECHANISMS))
def name(request):
    return request.param


def message(chosen, X, Y, public=SETTING, seed=0, denominator=None):
    local = PreparedRecords(chosen.prepare(X), denominator or len(X))
    return chosen.message(local, Y, public, np.random.default_rng(seed))


def test_names_are_the_keys(name):
    assert MECHANISMS[name]().name == name
    assert mechanism(name) == MECHANISMS[name]()
    chosen = MECHANISMS[name]()
    assert mechanism(chosen) is chosen


def test_an_unknown_name_is_refused():
    with pytest.raises(InvalidParameter) as caught:
        mechanism("gradeint")
    assert caught.value.value == "gradeint"


def test_a_mechanism_is_plain_frozen_data(each):
    assert dataclasses.is_dataclass(each)
    assert pickle.loads(pickle.dumps(each)) == each
    assert repr(each) == repr(type(each)())
    with pytest.raises(dataclasses.FrozenInstanceError):
        each.trust = "central"
    assert each.what
    assert each.protection in ("upload", "home", "none")
    assert each.protection != "none" or each.why, "an unprotected upload must say why"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_message_has_the_stated_shape_and_leaves_its_input_alone(each, dtype):
    X, Y = points(dtype)
    before = X.copy(), Y.copy()
    values = message(each, X, Y).values
    assert values.shape == each.shape(SETTING)
    assert values.dtype in (np.float32, np.float64)
    assert np.isfinite(values).all()
    np.testing.assert_array_equal(X, before[0])
    np.testing.assert_array_equal(Y, before[1])


def test_a_message_is_a_function_of_its_arguments(each):
    X, Y = points()
    np.testing.assert_array_equal(message(each, X, Y).values, message(each, X, Y).values)


@pytest.mark.parametrize("name", sorted(name for name, kind in RELEASES.items() if kind().protection != "none"))
def test_messages_of_protected_mechanisms_take_no_random_numbers(name):
    each = RELEASES[name]()
    X, Y = points()
    np.testing.assert_array_equal(message(each, X, Y, seed=0).values, message(each, X, Y, seed=1).values)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_update_gives_landmarks_of_the_same_kind(each, dtype):
    X, Y = points(dtype)
    average = message(each, X, Y).values.astype(np.float64)
    step = each.update(Y, average, SETTING, Plain(0.5))
    assert step.landmarks.shape == Y.shape
    assert step.landmarks.dtype == dtype
    assert step.gradient is None or step.gradient.shape == Y.shape


def test_sensitivity_is_stated_where_protection_is_claimed(each):
    delta = each.sensitivity(SETTING, 20)
    if each.protection == "none":
        assert delta is None or delta > 0
        return
    assert 0 < delta < math.inf
    if each.protection == "upload":
        assert each.sensitivity(SETTING, 40) == pytest.approx(delta / 2), "a mean over twice the records"


def test_uploads_are_counted_beforehand(name, configure, fed):
    chosen, seen = MECHANISMS[name](), []
    budget = None if chosen.protection == "none" else Budget(2.0, 1e-5)
    result = configure(name, budget=budget, rounds=4).run(fed, witness=lambda events, values: seen.append(events))
    assert len(seen) == 3 * chosen.uploads(4)
    assert len(result.trace) == chosen.uploads(4)
    assert result.landmarks.shape == (12, 6)
    assert np.isfinite(result.landmarks).all()
    assert len(result.ledger) == len(seen) + (3 if chosen.protection == "home" else 0)


@pytest.mark.parametrize("scope", ["end-to-end", "landmarks"])
@pytest.mark.parametrize("unprotected", UNPROTECTED)
def test_nothing_unprotected_passes_under_a_budget(unprotected, scope, configure, fed):
    seen, ledger = [], Ledger(budget=(budget := Budget(2.0, 1e-5, scope=scope)))
    with pytest.raises(UnprotectedReleaseError, match="no guarantee") as caught:
        configure(unprotected, budget=budget).run(
            fed, ledger=ledger, witness=lambda events, values: seen.append(values)
        )
    assert not seen
    assert len(ledger) == 0
    assert caught.value.requested == math.inf


@pytest.mark.parametrize("unprotected", UNPROTECTED)
def test_unprotected_uploads_are_in_the_ledger_without_a_budget(unprotected, configure, fed):
    result = configure(unprotected, budget=None, rounds=3).run(fed)
    events = list(result.ledger.events())
    assert len(events) == 9
    assert {type(event) for event in events} == {Unprotected}
    assert {event.why for event in events} == {MECHANISMS[unprotected]().why}
    assert result.ledger.spent(1e-5) == math.inf
    assert result.plan is None


# What is particular to each


@pytest.mark.parametrize("chosen", [HeuristicNoise(beta=0.7), PublishedFedDL(batch=15, beta=0.7)])
def test_noise_of_a_data_dependent_scale_is_priced_with_the_tight_sensitivity(chosen, configure, fed):
    """nominal_mu is √Σ_s (Δ*/σ_s)², with σ_s = β·sd of the exact gradient."""
    seen = []
    result = configure(chosen, budget=None, rounds=6).run(
        fed, witness=lambda events, values: seen.append((events[0], values.astype(np.float64)))
    )
    for name, records in zip(("client-0", "client-1", "client-2"), fed.records, strict=True):
        n = min(records, 15) if isinstance(chosen, PublishedFedDL) else records
        star = 8 * math.sqrt(0.2 / (2 * math.e)) / (n * math.sqrt(12))
        mine = list(result.ledger.events(client=name))
        price = math.sqrt(sum((star / event.nominal_sigma) ** 2 for event in mine))
        assert nominal_mu(mine) == pytest.approx(price, rel=1e-9)
        # What is left of the upload's variance after the noise is the gradient's: (1 + β²) of it in all.
        for event, values in seen:
            if event.client == name:
                assert values.std() == pytest.approx(event.nominal_sigma * math.sqrt(1 + 1 / 0.7**2), rel=0.5)


def test_heuristic_noise_has_the_stated_scale():
    X, Y = points(np.float64, 50)
    exact = message(MECHANISMS["none"](), X, Y).values
    draws = [message(HeuristicNoise(beta=0.5), X, Y, seed=s) for s in range(200)]
    scale = 0.5 * exact.std()
    assert [draw.nominal_sigma for draw in draws] == pytest.approx([scale] * 200)
    noise = np.stack([draw.values for draw in draws]) - exact
    assert noise.std() == pytest.approx(scale, rel=6 / math.sqrt(2 * noise.size))
    assert np.abs(noise.mean(axis=0)).max() < 6 * scale / math.sqrt(200)


def test_a_gradient_of_zero_has_no_nominal_price(configure):
    """All records far from all landmarks: nothing to scale the noise by, and nothing to price."""
    far = FederatedData([np.full((5, 6), 1e3), np.full((5, 6), 1e3)])
    result = configure("heuristic", budget=None, rounds=1).run(far)
    assert nominal_mu(result.ledger.events(client="client-0")) is None
    assert np.isfinite(result.landmarks).all()


def test_published_takes_the_largest_discrepancy():
    X, Y = points(np.float64, 30)
    public = dataclasses.replace(SETTING, kernel=Kernel((0.05, 0.2, 0.8)))

    def discrepancy(gamma):
        def mean(A, B):
            return np.mean([math.exp(-gamma * float((a - b) @ (a - b))) for a in A for b in B])

        return mean(X, X) - 2 * mean(X, Y) + mean(Y, Y)

    gamma, step = max(public.kernel.gammas, key=discrepancy), 1e-6
    values = message(PublishedFedDL(batch=30), X, Y, public).values
    for i, k in ((0, 0), (3, 2), (6, 3)):
        original = Y[i, k]
        Y[i, k] = original + step
        above = discrepancy(gamma)
        Y[i, k] = original - step
        below = discrepancy(gamma)
        Y[i, k] = original
        assert values[i, k] == pytest.approx((above - below) / (2 * step), rel=1e-5)


def test_published_draws_batches_without_replacement():
    X, Y = points(np.float64, 40)
    several = {message(PublishedFedDL(batch=10), X, Y, seed=s).values.tobytes() for s in range(5)}
    assert len(several) == 5
    whole = [message(PublishedFedDL(batch=40), X, Y, seed=s).values for s in range(2)]
    np.testing.assert_allclose(whole[0], whole[1], rtol=1e-9, atol=1e-15)


def test_rounds_of_input_perturbation_are_post_processing(configure, fed):
    seen = []
    config = configure(InputPerturbation(tau_x=2.0), rounds=5)
    result = config.run(fed, witness=lambda events, values: seen.append(events[0]))
    assert {type(event) for event in seen} == {PostProcessing}
    assert {event.of for event in seen} == {"records"}
    events = list(result.ledger.events())
    assert [type(event).__name__ for event in events[:3]] == ["GaussianRelease"] * 3, "the noise comes first"
    assert {event.sensitivity for event in events[:3]} == {4.0}
    assert len(events) == 3 + 15
    assert result.ledger.spent() == pytest.approx(2.0, rel=1e-6)
    once = configure(InputPerturbation(tau_x=2.0), rounds=1).run(fed)
    assert once.ledger.spent() == result.ledger.spent(), "rounds cost nothing"


def test_the_ledger_refuses_post_processing_of_nothing():
    ledger = Ledger(budget=Budget(1.0, 1e-5))
    with pytest.raises(InvalidParameter, match="a release that the client has made"):
        ledger.record(PostProcessing(what="gradient", client="client-0", of="records"))
    assert len(ledger) == 0


def test_input_uses_the_same_perturbed_records_in_all_rounds(configure, fed):
    """One landmark far from everything does not move, so that equal uploads show equal records."""
    seen = []
    start = np.full((12, 6), 0.1)
    config = configure(InputPerturbation(tau_x=2.0), rounds=3, start=start, step_size=1e-12)
    config.run(fed, witness=lambda events, values: seen.append(values.copy()))
    for p in range(3):
        np.testing.assert_allclose(seen[p], seen[p + 3], rtol=1e-5, atol=1e-9)


def test_clipping_to_the_largest_norm_is_no_clipping():
    X, Y = points(np.float64)
    clipped, exact = (MECHANISMS[name]() for name in ("clipped", "gradient"))
    whole = dataclasses.replace(clipped, clip=1.0)
    np.testing.assert_allclose(message(whole, X, Y).values, message(exact, X, Y).values, rtol=1e-12)
    assert whole.sensitivity(SETTING, 20) == pytest.approx(exact.sensitivity(SETTING, 20))
    assert clipped.sensitivity(SETTING, 20) == pytest.approx(exact.sensitivity(SETTING, 20) / 2)


def test_mean_embedding_fits_landmarks_to_the_data(configure, federation_of):
    fed = federation_of((300, 300), dtype=np.float64)
    config = configure("mean-embedding", budget=Budget(500, 1e-5), start=None)
    result = config.run(fed)
    X = np.concatenate([client.X for client in fed.clients])
    start = np.random.default_rng(0).normal(size=(12, 6)) / math.sqrt(2 * 0.2 * 6)
    assert mmd2(X, result.landmarks, Kernel((0.2,))) < 0.1 * abs(mmd2(X, start, Kernel((0.2,))))
    assert result.landmarks.dtype == np.float64


def test_streams_of_messages_and_noise_differ():
    streams = Streams(0)
    assert streams.generator("noise", "g", 0, 1).random() != streams.generator("message", "g", 0, 1).random()


BAD = [
    (lambda: MECHANISMS["gradient"](bound="loose"), "loose"),
    (lambda: MECHANISMS["gradient"](bound="theorem"), None),
    (lambda: MECHANISMS["gradient"](bound="theorem", tau_x=1.0, tau_y=2.0), None),
    (lambda: MECHANISMS["gradient"](bound="theorem", tau_x=1.0, tau_y=-2.0, upsilon=2.0), -2.0),
    (lambda: MECHANISMS["gradient"](bound="theorem", tau_x=2.0, tau_y=2.0, upsilon=2.0), 2.0),
    (lambda: MECHANISMS["clipped"](clip=0.0), 0.0),
    (lambda: MECHANISMS["clipped"](clip=1.5), 1.5),
    (lambda: MECHANISMS["heuristic"](beta=-1.0), -1.0),
    (lambda: MECHANISMS["input"](tau_x=0.0), 0.0),
    (lambda: MECHANISMS["mean-embedding"](frequencies=0), 0),
    (lambda: MECHANISMS["mean-embedding"](steps=0), 0),
    (lambda: MECHANISMS["published"](batch=0), 0),
    (lambda: MECHANISMS["published"](beta=math.nan), math.nan),
    (lambda: Moments(tau_x=-1.0), -1.0),
]


@pytest.mark.parametrize(("build", "value"), BAD)
def test_a_bad_parameter_is_named(build, value):
    with pytest.raises(InvalidParameter) as caught:
        build()
    assert caught.value.value is value or caught.value.value == value or value != value
