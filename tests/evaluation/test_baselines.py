"""What scores are held against."""

from __future__ import annotations

import pytest

from accounting import Budget, InvalidParameter
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.estimators.registry import estimator_of
from dpfedvis.estimators.settings import EstimatorSettings
from dpfedvis.evaluation.baselines import central_scores, chance_scores, no_data_scores
from dpfedvis.evaluation.scores import by_chance, evaluated_of, scores_of
from dpfedvis.mechanisms.k_means import KMeans
from dpfedvis.numerics.kernels import Kernel
from tests.makers import CLASSES, DIGITS

FED = FederatedData.split(DIGITS[:90], CLASSES[:90], clients=2)
PRIVATE = EstimatorSettings(epsilon=3.0, anchors=40, placement="weights", sweeps=2, perplexity=5, jobs=1)
FASTER = {"private_map": {"anchors": 40, "placement": "weights"}, "perplexity": 5, "n_jobs": 1}


def test_no_data_is_the_same_recipe_at_an_epsilon_that_sees_nothing() -> None:
    found = no_data_scores(PRIVATE.updated(density=True, classes=(1, 2)), FED)
    slow = FedTSNE(budget=Budget(0.001, 1e-5), mechanism=KMeans(sweeps=2), random_state=0, **FASTER)
    slow.watch(warns=False).fit(FED)
    expected = scores_of(slow, FED)
    assert found.items() <= expected.items()
    # At the kernel of one run, so that another one's is no yardstick.
    assert expected.keys() - found.keys() == {"mmd", "certificate"}


def test_beside_exact_rows_no_data_is_a_private_map_of_the_same_layout() -> None:
    """Whatever the run releases: its mechanism, its noise and its rows are not those of a private map."""
    base = {"perplexity": 5, "jobs": 1, "landmarks": 20}
    runs = [
        EstimatorSettings(**base, mechanism="heuristic", beta=1.0),
        EstimatorSettings(**base, epsilon=2.0, release="noisy", mechanism="gradient"),
        EstimatorSettings(**base, epsilon=2.0, scope="landmarks"),
    ]
    first, *others = (no_data_scores(each, FED) for each in runs)
    assert all(each == first for each in others)
    assert no_data_scores(runs[0].updated(perplexity=9), FED) != first


def test_no_data_of_the_default_recipe_is_the_same_with_and_without_a_budget() -> None:
    """Bounds of the user's own records are public, and no part of a recipe."""
    fed = FederatedData.split(DIGITS[:90] / 16, CLASSES[:90], clients=2)
    base = EstimatorSettings(perplexity=5, jobs=1, bounds=(0.0, 1.0))
    private = no_data_scores(base.updated(epsilon=3.0).resolved(fed), fed)
    assert no_data_scores(base.resolved(fed), fed) == private
    assert no_data_scores(base.updated(bounds=None, tau_x=4.0).resolved(fed), fed) == no_data_scores(
        base.updated(bounds=None, tau_x=4.0, epsilon=3.0).resolved(fed), fed
    )
    assert no_data_scores(base.updated(bounds=None), fed) != private


def test_central_clusters_take_the_kernel_of_a_run_where_its_width_is_open() -> None:
    base = EstimatorSettings(map="clusters", affinity="kernel", clusters=3)
    given = central_scores(base.updated(affinity_gamma=0.001), FED)
    assert central_scores(base, FED, kernel=Kernel.gaussian(0.001)) == given
    assert central_scores(base.updated(affinity_gamma=0.001), FED, kernel=Kernel.gaussian(0.1)) == given
    assert central_scores(base, FED, kernel=Kernel.gaussian(0.1)) != given
    with pytest.raises(InvalidParameter, match="affinity_gamma must be given"):
        central_scores(base, FED)


def test_chance_is_no_data_is_central_in_this_order() -> None:
    chance, central = chance_scores(PRIVATE, FED), central_scores(PRIVATE, FED)
    estimator = estimator_of(PRIVATE.updated(epsilon=0.001).resolved(FED)).watch(warns=False).fit(FED)
    assert chance == by_chance(evaluated_of(estimator, FED))
    free = scores_of(estimator, FED)
    assert chance["npa_10"] < free["npa_10"] < central["npa_10"]
    assert free["ca_10"] < central["ca_10"]
