"""What a map can show, before anything is spent: the noise is the run's own, and "no" holds for any data."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Budget, InvalidParameter
from dpfedvis import FederatedData, FedSpectralClustering, FedTSNE
from dpfedvis.server.forecast import Forecast, _outlook
from dpfedvis.server.regions import pooled, quantile
from dpfedvis.server.verdict import threshold

FAST = {"private_map": {"placement": "weights", "anchors": 40}, "tsne": {"n_iter": 20}, "n_jobs": 1}


def planned(epsilon: float = 2.0, *, records: object = 569, sites: int | None = 4, m: int = 30, **more) -> Forecast:
    return FedTSNE(budget=Budget(epsilon, 1e-5), **more).plan(records=records, sites=sites, features=m)


@pytest.mark.parametrize("trust", ["local", "aggregate"])
def test_noise_of_every_stage_is_what_the_run_then_has(trust: str) -> None:
    rng = np.random.default_rng(0)
    fed = FederatedData.split(rng.random((120, 6)), clients=4, partition="iid", seed=0)
    estimator = FedTSNE(budget=Budget(2.0, 1e-5), trust=trust, feddl={"bounds": (0.0, 1.0)}, **FAST)
    found = estimator.plan(fed)
    estimator.fit(fed)
    result = estimator.feddl_
    stages = {each.what: each for each in found.stages}
    assert set(stages) == {event.what for event in estimator.ledger_.events()}
    assert stages["cluster sums"].noise == pytest.approx(result.tally.noise[-1], rel=1e-6)
    assert found.landmarks == len(result.landmarks)
    assert found.count_noise == pytest.approx(pooled(result.tally)[1], rel=1e-6)
    assert found.least_share == pytest.approx(quantile(found.landmarks) * found.count_noise)
    # A direction of the least variance is seen, noise and all, right at the threshold of the verdict.
    edge, least = estimator.verdict_.edge, found.least_direction
    assert least + edge**2 / (4 * least) == pytest.approx(threshold(6) * edge, rel=1e-6)
    plan = result.plan
    for what, stage in stages.items():
        assert stage.noise_multiplier == pytest.approx(plan.multipliers[what].sigma)
        assert stage.uploads == len(list(estimator.ledger_.events(what=what))) / fed.n_clients
    assert math.fsum(each.share for each in found.stages) == pytest.approx(1)


def test_numbers_alone_are_as_good_as_data() -> None:
    rng = np.random.default_rng(0)
    fed = FederatedData.split(rng.random((122, 6)), clients=4, partition="iid", seed=0, bounds=(0.0, 1.0))
    by_data = FedTSNE(epsilon=2.0).plan(fed)
    assert by_data == FedTSNE(epsilon=2.0).plan(records=122, sites=4, features=6)
    assert by_data == FedTSNE(epsilon=2.0).plan(records=list(fed.records), features=6)
    assert str(by_data) == by_data.sentence


def test_a_plan_takes_what_a_fit_takes() -> None:
    X, groups = np.random.default_rng(0).random((60, 6)), np.repeat(["a", "b", "c"], 20)
    tsne = FedTSNE(epsilon=2.0, feddl={"bounds": (0.0, 1.0)})
    assert tsne.plan(X, groups=groups) == tsne.plan(records=[20, 20, 20], features=6)


def test_no_holds_for_the_best_of_all_data() -> None:
    """Two points, half of the records each, and half the noise is taken: neither directions nor regions are seen."""
    estimator = FedTSNE(budget=Budget(0.004, 1e-5), feddl={"bounds": (0.0, 1.0)}, **FAST)
    X = np.repeat(np.array([[0.0] * 6, [1.0] * 6], dtype=np.float32), 100, axis=0)
    fed = FederatedData.split(X, clients=2, partition="iid", seed=0)
    assert estimator.plan(fed).signal == "no"
    seen = [estimator.set_params(random_state=seed).fit(fed).verdict_.signal for seed in range(4)]
    assert seen == ["no"] * 4


@settings(max_examples=15)
@given(
    st.floats(0.01, 20),
    st.integers(40, 10**6),
    st.integers(2, 12),
    st.integers(2, 300),
    st.sampled_from(["local", "aggregate"]),
)
def test_more_of_anything_never_hurts(epsilon: float, records: int, sites: int, m: int, trust: str) -> None:
    def least(**changes) -> tuple[float, float]:
        given = {"epsilon": epsilon, "records": records, "sites": sites, "m": m, **changes}
        found = planned(trust=trust, private_map={"components": 8}, n_landmarks=20, **given)
        return found.least_direction, found.least_share or 0.0

    before = least()
    for change in ({"epsilon": 2 * epsilon}, {"records": 2 * records}, {"m": max(2, m // 2)}):
        assert all(now <= then * (1 + 1e-6) for now, then in zip(least(**change), before, strict=True))


def test_ways_out_lead_out() -> None:
    found = planned(0.5)
    assert found.signal != "yes"
    ways = {way.setting: way.value for way in found.ways}
    assert set(ways) >= {"epsilon", "records", "trust"}
    assert planned(ways["epsilon"]).signal == "yes"
    assert planned(ways["epsilon"] * 0.9).signal != "yes"
    assert planned(0.5, records=ways["records"]).signal == "yes"
    assert planned(100.0).ways == ()


def test_a_private_number_of_records_has_no_part_in_it() -> None:
    whole = FedTSNE(budget=Budget(2.0, 1e-5, unit="client"))
    assert whole.plan(records=[50, 60], features=5) == whole.plan(records=[5000, 7], features=5)
    assert whole.plan(records=[50, 60], features=5).records is None
    hidden = FedTSNE(budget=Budget(2.0, 1e-5, adjacency="add-remove"), feddl={"public_records": 80})
    assert hidden.plan(records=[50, 60], features=5) == hidden.plan(records=[500, 600], features=5)


def test_other_mechanisms_and_clusters_have_a_forecast() -> None:
    assert planned(mechanism="gradient").least_share is None
    assert planned(mechanism="mean-embedding").regions is None
    assert FedSpectralClustering(3, epsilon=2.0).plan(records=500, features=8).landmarks >= 20


def test_what_is_missing_is_named() -> None:
    with pytest.raises(InvalidParameter, match="records and features"):
        FedTSNE(epsilon=1.0).plan(records=100)
    with pytest.raises(InvalidParameter, match="release"):
        FedTSNE().plan(records=100, features=3)
    with pytest.raises(InvalidParameter, match="sites"):
        FedTSNE(epsilon=1.0).plan(records=[30, 30], sites=3, features=3)


@pytest.mark.parametrize(
    ("least", "clear", "landmarks", "outlook"),
    [
        (1.2, 1.2, 20, "no"),
        (1.2, 0.5, 20, "unlikely"),  # one landmark with all records would be seen
        (0.9, 1.2, 20, "unlikely"),  # one direction with all variance would be
        (0.3, 0.05, 20, "partly"),
        (0.3, 0.2, 20, "unlikely"),
        (0.03, 0.03, 20, "yes"),
        (0.03, 0.06, 20, "partly"),
        (0.05, 0.03, 20, "partly"),
        (1.2, None, 20, "no"),
        (0.5, None, 20, "unlikely"),
        (0.05, None, 20, "partly"),
    ],
)
def test_the_outlook_from_its_numbers(least: float, clear: float | None, landmarks: int, outlook: str) -> None:
    assert _outlook(least, clear, landmarks) == outlook
