"""From rows to points, and from points to answers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from accounting import gaussian_epsilon, gaussian_mu
from dpfedvis.evaluation.metrics import METRICS, Metric
from dpfedvis.experiments.sweeps.choices import best, cheapest, pareto, together
from dpfedvis.experiments.sweeps.summary import Context, Estimate, Point, contexts
from dpfedvis.runs.code_version import CodeVersion

HERE = CodeVersion("1.0", "a" * 40)
NMI, MMD = METRICS["nmi"], METRICS["mmd_common"]


def point(series: str, epsilon: float, *values: float, key: str = "nmi", **facts) -> Point:
    score = Estimate.of(list(values))
    common = {"kind": "run", "in_scope": epsilon, "nominal": None, "delta": 1e-5, "seeds": len(values)}
    return Point(series=series, epsilon=epsilon, scores={key: score}, **{**common, **facts})


def context(*points: Point) -> Context:
    return Context({"data": "digits", "map": "tsne", "partition": "iid"}, points)


# Estimates


def test_intervals_are_those_of_students_t() -> None:
    values = [0.3, 0.5, 0.55, 0.2]
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    found = Estimate.of(values)
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx((low, high))
    assert (found.n, found.sd) == (4, pytest.approx(np.std(values, ddof=1)))
    assert Estimate.of([0.5]) == Estimate(0.5, None, 1, None)
    assert str(Estimate.of([0.5])) == "0.500"


# Points


def test_seeds_become_one_point_and_epsilons_several(row) -> None:
    rows = [
        row({"mechanism": "gradient", "epsilon": epsilon, "seed": seed}, scores={"nmi": epsilon / 10 + seed / 100})
        for epsilon in (1.0, 2.0)
        for seed in range(3)
    ]
    (found,) = contexts(rows, HERE)
    assert {each.series for each in found.points} == {"gradient"}
    assert [(each.epsilon, each.seeds) for each in found.points] == [(1, 3), (2, 3)]
    assert found.points[0].scores["nmi"] == Estimate.of([0.1 + seed / 100 for seed in range(3)])


def test_contexts_are_told_apart_by_data_and_map(row) -> None:
    rows = [row({"map": "umap"}), row({"partition": "by-class"}), row({"records": 500, "clients": 3}), row({"seed": 1})]
    titles = [each.title for each in contexts(rows, HERE)]
    assert titles == ["umap of digits, iid", "tsne of digits, by-class", "tsne of digits, iid, 500 records, 3 clients",
                      "tsne of digits, iid"]  # fmt: skip


def test_seeds_on_other_data_or_other_labels_are_other_experiments(row) -> None:
    """A file that was changed between two sweeps, or another column of it, gives no second seed."""
    rows = [
        row({"epsilon": 1.0, "label_column": column}, data_sha256=data) for column in ("y", "z") for data in ("a", "b")
    ]
    found = contexts(rows, HERE)
    assert [each.points[0].seeds for each in found] == [1, 1, 1, 1]
    assert len({each.title for each in found}) == 4
    assert [each.title.split(", ")[-2:] for each in found[:2]] == [["label_column y", f"data {data}"] for data in "ab"]


@pytest.mark.parametrize(("name", "values"), [("delta", (1e-5, 1e-2)), ("unit", ("record", "client")),
                                              ("adjacency", ("replace-one", "add-remove"))])  # fmt: skip
def test_epsilons_of_different_meaning_are_not_in_one_picture(name: str, values: tuple, row) -> None:
    rows = [row({"epsilon": 5.0, name: value}) for value in values]
    rows += [row({"mechanism": "none"}), row(kind="central"), row(kind="data-free")]
    first, second = contexts(rows, HERE)
    for each, value in ((first, values[0]), (second, values[1])):
        assert each.facts[name] == value
        # What has no budget stands beside both.
        assert sorted(point.kind for point in each.points) == ["central", "data-free", "run", "run"]
    assert (name in first.title, name in second.title) == (False, True)


@pytest.mark.parametrize(("name", "values"), [("delta", (1e-5, 1e-2)), ("unit", ("record", "client"))])
def test_what_has_no_budget_is_no_other_run_under_another_meaning(name: str, values: tuple, row) -> None:
    rows = [row({"mechanism": "published", "beta": 1.0, "seed": seed, name: value}, scores={"nmi": 0.4 + seed / 100})
            for value in values for seed in range(2)]  # fmt: skip
    (found,) = contexts(rows, HERE)
    assert [each.scores["nmi"] for each in found.points] == [Estimate.of([0.4 + seed / 100 for seed in range(2)])]


def test_who_is_trusted_is_named_even_if_it_is_always_the_same(row) -> None:
    rows = [row({"mechanism": "gradient", "epsilon": epsilon, "trust": "aggregate"}) for epsilon in (1.0, 2.0)]
    (found,) = contexts(rows, HERE)
    assert {(each.series, each.trust) for each in found.points} == {("gradient, aggregate", "aggregate")}


def test_series_are_named_by_what_tells_them_apart(row) -> None:
    rows = [
        row({"mechanism": "gradient", "epsilon": 1.0, "trust": "aggregate", "rounds": 9}),
        row({"mechanism": "gradient", "epsilon": 1.0, "rounds": 9}),
        row({"mechanism": "gradient", "epsilon": 1.0, "landmarks": 30, "rounds": 9}),
        row({"epsilon": 1.0, "scope": "landmarks", "rounds": 9}),
        row({"mechanism": "none", "rounds": 9}),
        row(kind="central"),
    ]
    (found,) = contexts(rows, HERE)
    assert [each.series for each in found.points] == [
        "gradient, aggregate",
        "gradient, local",
        "gradient, local, landmarks 30",
        "mean-embedding, local, scope landmarks",
        "none",
        "central",
    ]


def test_shares_tell_series_apart(row) -> None:
    shares = [{"subspace": 0.3, "density": 0.1}, {"density": 0.1, "subspace": 0.3}, {"subspace": 0.4}]
    rows = [row({"epsilon": 1.0, "shares": each, "seed": seed}) for seed, each in enumerate(shares)]
    (found,) = contexts(rows, HERE)
    assert [(each.series, each.seeds) for each in found.points] == [
        ("k-means, shares density=0.1 subspace=0.3", 2),
        ("k-means, shares subspace=0.4", 1),
    ]


def test_only_finished_rows_count_and_other_code_is_marked(row) -> None:
    rows = [
        row({"seed": 1}),
        row({"seed": 2}, version=CodeVersion("0.9")),
        row({"seed": 3}, status="failed", scores={}),
        row({"mechanism": "none"}),
    ]
    (found,) = contexts(rows, HERE)
    assert [(each.seeds, each.name.endswith("*")) for each in found.points] == [(2, True), (1, False)]


def test_a_budget_for_landmarks_alone_is_told_from_none(row) -> None:
    rows = [
        row({"epsilon": 2.0, "scope": "landmarks"}, epsilon_end_to_end=math.inf),
        row({"mechanism": "none"}),
        row({"epsilon": 2.0}),
    ]
    (found,) = contexts(rows, HERE)
    assert [each.landmarks_only for each in found.points] == [True, False, False]
    assert [each.epsilon for each in found.points] == [math.inf, math.inf, 2.0]


# Answers


def test_the_pareto_front_against_a_slow_reference() -> None:
    rng = np.random.default_rng(0)
    for metric in METRICS.values():
        points = [
            point(str(n), float(e), float(v), key=metric.key)
            for n, (e, v) in enumerate(zip(rng.integers(1, 9, 30), rng.random(30), strict=True))
        ]
        kept = [
            one
            for one in points
            if not any(
                (other.epsilon < one.epsilon and not metric.better(_mean(one, metric), _mean(other, metric)))
                or (other.epsilon == one.epsilon and metric.better(_mean(other, metric), _mean(one, metric)))
                for other in points
            )
        ]
        assert pareto(context(*points), metric) == sorted(kept, key=lambda each: each.epsilon)


def _mean(each: Point, metric: Metric) -> float:
    return each.scores[metric.key].mean


def test_a_run_with_exact_rows_is_at_infinity_on_the_front() -> None:
    private, exact = point("private", 2.0, 0.5), point("exact", math.inf, 0.4, in_scope=1.0)
    assert pareto(context(private, exact), NMI) == [private]


def test_the_cheapest_epsilon_for_a_level() -> None:
    cheap, sure, dear = point("a", 1.0, 0.2, 0.9), point("b", 2.0, 0.549, 0.551), point("c", 5.0, 0.81, 0.82, 0.815)
    free = point("exact", math.inf, 0.99, in_scope=1.0)
    found = {each.level: (each.by_mean, each.by_band) for each in cheapest(context(dear, cheap, sure, free), NMI)}
    assert found == {0.6: (dear, dear), 0.7: (dear, dear), 0.8: (dear, dear)}  # all reach 0.5, none 0.85
    low = cheapest(context(point("a", 1.0, 0.4, key=MMD.key), point("b", 3.0, 0.15, key=MMD.key)), MMD)
    assert [(each.level, each.by_mean.series, each.by_band) for each in low] == [(0.3, "b", None), (0.2, "b", None)]


def test_of_equal_epsilons_the_better_is_named() -> None:
    one, other = point("one", 1.9999999, 0.6), point("other", 2.0, 0.7)
    found = cheapest(context(one, other, point("low", 1.0, 0.1)), NMI)
    assert found[0].by_mean is other


def test_the_best_at_each_epsilon_with_its_ties() -> None:
    one, two = point("one", 1.9999999, 0.50, 0.51, 0.52), point("two", 2.0, 0.505, 0.515, 0.51)
    far = point("far", 2.0, 0.1, 0.11, 0.12)
    apart = point("apart", math.inf, 0.9, in_scope=2.0)
    (found,) = best(context(one, two, far, apart), NMI)
    assert (found.epsilon, {found.point.series, *(each.series for each in found.ties)}) == (2.0, {"one", "two"})
    (found,) = best(context(one, two, far, apart), NMI, landmarks_only=True)
    assert (found.epsilon, found.point.series, found.ties) == (2.0, "apart", ())


def test_one_seed_tells_nothing_apart() -> None:
    (found,) = best(context(point("one", 2.0, 0.5), point("two", 2.0, 0.4, 0.6)), NMI)
    assert found.ties == ()


def test_the_best_of_several_baselines_is_drawn() -> None:
    weak, strong = (point("data-free", 0.0, value, kind="data-free") for value in (0.1, 0.4))
    assert context(weak, strong).baseline("data-free", NMI) == strong.scores["nmi"]
    assert context(weak, strong).baseline("data-free", replace(NMI, higher=False)) == weak.scores["nmi"]
    assert context(weak).baseline("central", NMI) is None


def test_runs_together_compose_as_gaussian_mechanisms() -> None:
    runs = [point("a", 1.0, 0.1, 0.2), point("b", 2.0, 0.1)]
    mu = math.sqrt(2 * gaussian_mu(1.0, 1e-5) ** 2 + gaussian_mu(2.0, 1e-5) ** 2)
    ignored = [point("c", math.inf, 0.1), point("d", 0.0, 0.1), point("e", 3.0, 0.1, sampled=True)]
    assert together(runs + ignored) == pytest.approx(gaussian_epsilon(mu, 1e-5))
    assert together(ignored) is None
    assert together(runs[1:]) == pytest.approx(2.0)


def test_one_seed_can_be_told_from_nothing() -> None:
    free = point("data-free", 0.0, 0.5, kind="data-free")
    better, worse = point("better", 1.0, 0.9), point("worse", 1.0, 0.1)
    here = context(free, better, worse)
    assert here.meets_data_free(better, NMI)
    assert here.below_data_free(NMI) == []


def test_what_cannot_be_told_from_no_data_is_named() -> None:
    free = point("data-free", 0.0, 0.4, 0.5, 0.6, kind="data-free")
    good, same, worse = (
        point(name, epsilon, *values)
        for name, epsilon, values in (
            ("good", 1.0, (0.9, 0.91, 0.92)),
            ("same", 1.0, (0.5, 0.6, 0.7)),
            ("worse", 1.0, (0.1, 0.1, 0.11)),
        )
    )
    here = context(free, good, same, worse, point("worse", 2.0, 0.1, 0.12, 0.11))
    assert [here.meets_data_free(each, NMI) for each in (good, same, worse)] == [False, True, True]
    assert here.below_data_free(NMI) == ["worse"]
    # One ε at which it is not worse is enough.
    assert context(free, worse, point("worse", 2.0, 0.5, 0.6, 0.7)).below_data_free(NMI) == []
    assert not context(good).meets_data_free(good, NMI)
