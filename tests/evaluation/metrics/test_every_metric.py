"""What holds for every metric, whoever wrote it: a metric in `METRICS` is tested here without another line."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from dpfedvis import FederatedData
from dpfedvis.evaluation.metrics import METRICS, Evaluated, Metric, Need
from dpfedvis.evaluation.scores import score
from dpfedvis.numerics.kernels import Kernel

RECORDS, CLIENTS = 300, 3


def federation(y: np.ndarray | None, X: np.ndarray) -> FederatedData:
    return FederatedData.split(X, y, clients=CLIENTS, seed=1)


def good() -> Evaluated:
    """Three classes far apart, a map that shows them as they are, and landmarks among the records."""
    rng, y = np.random.default_rng(0), np.arange(RECORDS) % 3
    X = rng.normal(0, 0.05, (RECORDS, 2)) + np.array([[0, 0], [9, 0], [0, 9]])[y]
    fed = federation(y, X)
    records = fed.pooled()[0]
    return Evaluated(fed, records, landmarks=records[::3], kernel=Kernel.gaussian(0.1), seed=2)


def random() -> Evaluated:
    """The same records, with a map and landmarks that know nothing of them."""
    rng, known = np.random.default_rng(3), good()
    return replace(known, embedding=rng.normal(size=(RECORDS, 2)), landmarks=rng.normal(30, 1, (10, 2)))


@pytest.fixture(params=METRICS)
def metric(request: pytest.FixtureRequest) -> Metric:
    return METRICS[request.param]


def value(metric: Metric, evaluated: Evaluated) -> float:
    found = metric.function(evaluated)
    assert found is not None
    return found


def test_it_is_found_by_its_key_and_says_what_it_is(metric: Metric) -> None:
    assert METRICS[metric.key] is metric
    assert metric.key.isidentifier()
    assert metric.name
    assert metric.title
    assert metric.needs
    assert set(metric.needs) <= set(get_args(Need))


def test_it_is_a_number_within_its_limits(metric: Metric) -> None:
    low, high = metric.limits
    for evaluated in (good(), random()):
        found = value(metric, evaluated)
        assert type(found) is float
        assert low <= found <= high


def test_the_faithful_result_is_better_than_the_random_one(metric: Metric) -> None:
    assert metric.better(value(metric, good()), value(metric, random()))
    assert not metric.better(value(metric, good()), value(metric, good()))


def test_the_random_result_scores_about_what_chance_does(metric: Metric) -> None:
    if metric.chance is None:
        pytest.skip("has no level of chance")
    assert value(metric, random()) == pytest.approx(metric.chance(random()), abs=0.06)


def test_the_same_seed_gives_the_same_score(metric: Metric) -> None:
    assert value(metric, random()) == value(metric, random())


def test_it_changes_nothing_of_what_it_looks_at(metric: Metric) -> None:
    evaluated, untouched = random(), random()
    value(metric, evaluated)
    np.testing.assert_array_equal(evaluated.places, untouched.places)
    np.testing.assert_array_equal(evaluated.X, untouched.X)
    np.testing.assert_array_equal(evaluated.classes, untouched.classes)


def test_it_is_skipped_where_what_it_needs_is_missing(metric: Metric) -> None:
    fed, embedding = good().fed, good().embedding
    unlabelled = federation(None, good().X)
    labels = np.arange(RECORDS) % 3
    partial = {
        frozenset({"map", "clusters", "classes"}): Evaluated(fed, embedding),
        frozenset({"map"}): Evaluated(unlabelled, embedding),
        frozenset({"clusters", "classes"}): Evaluated(fed, labels=labels),
        frozenset({"landmarks", "classes"}): Evaluated(fed, landmarks=good().landmarks, kernel=good().kernel),
    }
    for has, evaluated in partial.items():
        assert evaluated.has == has
        assert (metric.key in score(evaluated)) == has.issuperset(metric.needs)


@pytest.mark.parametrize("records", [1, 2, 3, 5, 14])
def test_few_records_give_a_number_or_nothing(metric: Metric, records: int) -> None:
    rng = np.random.default_rng(4)
    fed = FederatedData.split(rng.normal(size=(records, 3)), np.arange(records) % 2, clients=1)
    few = Evaluated(fed, rng.normal(size=(records, 2)), landmarks=rng.normal(size=(2, 3)), kernel=Kernel.gaussian(1.0))
    found = score(few).get(metric.key)
    assert found is None or math.isfinite(found)


def test_each_metric_of_a_table_stands_in_the_order_of_the_registry() -> None:
    assert list(score(good())) == list(METRICS)
