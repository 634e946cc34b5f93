"""How much of a map comes back, and whether its anchors lie among the records."""

from __future__ import annotations

import numpy as np
import pytest

from accounting import Budget
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.evaluation.bootstrap import MOST, _sizes, agreement, drawn, drawn_again
from dpfedvis.evaluation.coverage import NEIGHBOURS, anchor_coverage

FAST = {"private_map": {"placement": "weights", "anchors": 60}, "tsne": {"n_iter": 20}, "n_jobs": 1}


def blobs(n: int = 1500) -> FederatedData:
    rng = np.random.default_rng(0)
    centres = rng.random((4, 8)) * 0.8 + 0.1
    X = np.clip(centres[rng.integers(4, size=n)] + 0.03 * rng.normal(size=(n, 8)), 0, 1).astype(np.float32)
    return FederatedData.split(X, clients=3, partition="iid", seed=0)


def fitted(epsilon: float) -> FedTSNE:
    return FedTSNE(budget=Budget(epsilon, 1e-5), feddl={"bounds": (0.0, 1.0)}, **FAST).watch(warns=False).fit(blobs())


def test_a_clear_map_comes_back_and_one_of_noise_is_not_asked() -> None:
    good = fitted(20.0)
    told: list[tuple[str, int, int]] = []
    first = drawn_again(good, lambda *each: told.append(each))
    assert first.comes_back is not None
    assert first.comes_back > 0.7
    assert told == [("drawn again", 0, 1), ("drawn again", 1, 1)]
    assert drawn_again(good) == first  # from a stream of its own
    assert first.signal == good.verdict_.signal
    assert first.sentence == (
        f"{good.verdict_.sentence} Made again from records drawn from it, about {100 * first.comes_back:.0f} % of the "
        "map comes back."
    )
    noise = drawn_again(fitted(0.05))
    assert noise.comes_back is None
    assert "comes back" not in noise.sentence


def test_records_are_drawn_with_the_shares_and_the_spread_of_the_map() -> None:
    good = fitted(20.0)
    rng = np.random.default_rng(1)
    landmarks, subspace = good.feddl_.landmarks, good.published_map_.subspace
    origins, points = drawn(good.verdict_, landmarks, subspace, 4000, rng)
    shares = np.bincount(origins, minlength=len(landmarks)) / 4000
    for region in good.verdict_.regions:
        assert shares[list(region.landmarks)].sum() == pytest.approx(region.share, abs=0.05)
    own = blobs().pooled()[0]
    assert points.var(axis=0).sum() == pytest.approx(own.var(axis=0).sum(), rel=0.35)
    assert points.mean(axis=0) == pytest.approx(own.mean(axis=0), abs=0.12)


def test_fewer_records_get_the_same_noise() -> None:
    """Noise in a mean over n records is as 1/(n·μ)."""
    budget = Budget(1.0, 1e-5)
    sizes, larger = _sizes([20_000.0, 5000.0], budget)
    assert sum(sizes) == MOST
    assert larger.mu * sum(sizes) == pytest.approx(budget.mu * 25_000, rel=1e-6)
    assert _sizes([300.0, 200.0], budget) == ([300, 200], budget)
    huge = [4e6, 4e6]
    assert _sizes(huge, budget)[1].epsilon <= 500
    whole = Budget(1.0, 1e-5, unit="client")
    assert _sizes([1.0] * 10, whole)[1] == whole


def test_agreement_is_one_for_cells_of_one_group_and_nothing_by_chance() -> None:
    rng = np.random.default_rng(3)
    groups = rng.integers(4, size=4000)
    assert agreement(groups, 7 - groups) == 1.0
    assert agreement(groups, 2 * groups + rng.integers(2, size=4000)) == 1.0
    assert agreement(groups, rng.integers(20, size=4000)) < 0.1
    assert agreement(np.zeros(40, dtype=np.int64), rng.integers(3, size=40)) == 0.0


def slow_coverage(anchors: np.ndarray, records: np.ndarray) -> float:
    covered = 0
    for anchor in anchors:
        for record in records:
            own = np.sort(np.linalg.norm(records - record, axis=1))[NEIGHBOURS]
            if np.linalg.norm(anchor - record) <= own:
                covered += 1
                break
    return covered / len(anchors)


def test_coverage_is_what_it_says() -> None:
    rng = np.random.default_rng(2)
    records, anchors = rng.normal(size=(60, 3)), 1.5 * rng.normal(size=(40, 3))
    assert anchor_coverage(anchors, records, rng) == pytest.approx(slow_coverage(anchors, records))
    assert anchor_coverage(records[:9] + 1e-6, records, rng) == 1.0
    assert anchor_coverage(anchors + 50, records, rng) == 0.0
    assert anchor_coverage(anchors, records[:1], rng) == 0.0


@pytest.mark.parametrize(
    "budget",
    [
        Budget(60.0, 1e-5, unit="person", rows_per_person=2),
        Budget(30.0, 1e-5, adjacency="add-remove"),
        Budget(400.0, 1e-5, unit="client"),
    ],
    ids=["person", "add-remove", "client"],
)
@pytest.mark.parametrize("trust", ["local", "aggregate"])
def test_every_unit_can_be_drawn_again_and_planned(budget: Budget, trust: str) -> None:
    own = blobs(1200)
    persons = [np.arange(len(client.X)) // 2 for client in own.clients]
    fed = FederatedData([client.X for client in own.clients], persons=persons, bounds=(0.0, 1.0))
    further = {"public_records": 400} if budget.adjacency == "add-remove" else {}
    estimator = FedTSNE(budget=budget, trust=trust, feddl=further, **FAST).watch(warns=False)
    planned = estimator.plan(fed)
    estimator.fit(fed)
    result = estimator.feddl_
    stage = next(each for each in planned.stages if each.what == "cluster sums")
    assert stage.noise == pytest.approx(result.tally.noise[-1], rel=1e-6)
    sizes, _ = _sizes([each.denominator for each in result.contract.members], budget)
    assert all(size % budget.rows == 0 for size in sizes)
    found = drawn_again(estimator)
    assert (found.comes_back is None) == (estimator.verdict_.signal == "no")
    if budget.unit != "client":
        assert (found.comes_back or 0) > 0.5
