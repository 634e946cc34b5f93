"""Parameters of Fed-tSNE and Fed-UMAP: conventions of scikit-learn, and bad ones named."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from accounting import Budget, InvalidParameter
from dpfedvis import FedTSNE, FedUMAP
from dpfedvis.mechanisms import InputPerturbation
from dpfedvis.numerics.distances import DpfedvisError
from tests.makers import BUDGET, SPAN, blobs, tsne, umap

# Conventions of scikit-learn


@pytest.mark.parametrize("kind", [FedTSNE, FedUMAP])
def test_init_only_stores(kind):
    """Whatever is given is kept as the same object, valid or not."""
    names = list(inspect.signature(kind).parameters)
    given = {name: object() for name in names}
    estimator = kind(**given)
    assert vars(estimator) == given
    assert estimator.get_params(deep=False) == given


@pytest.mark.parametrize("kind", [FedTSNE, FedUMAP])
def test_clone_and_set_params(kind):
    estimator = kind(n_landmarks=7, budget=BUDGET, mechanism=InputPerturbation(tau_x=2.0), feddl={"bounds": (0, 1)})
    copy = clone(estimator)
    assert copy is not estimator
    assert copy.get_params() == estimator.get_params()
    assert copy.set_params(n_landmarks=9, rank=3) is copy
    assert (copy.n_landmarks, copy.rank, estimator.n_landmarks) == (9, 3, 7)
    with pytest.raises(ValueError, match="nonsense"):
        copy.set_params(nonsense=1)


@pytest.mark.parametrize("make", [tsne, umap])
def test_clone_of_a_fitted_map_is_not_fitted(make):
    estimator = make().fit(blobs())
    copy = clone(estimator)
    assert not [name for name in vars(copy) if name.endswith("_") or name.startswith("_")]
    for call in (copy.views, lambda: copy.transform(np.zeros((1, 3)))):
        with pytest.raises(NotFittedError):
            call()
    assert estimator.get_params() == make().get_params()  # fit has changed no parameter


def test_repr_shows_what_differs_from_the_defaults():
    text = repr(FedTSNE(n_landmarks=70, budget=BUDGET))
    assert text.startswith("FedTSNE(")
    assert "n_landmarks=70" in text
    assert "epsilon=2.0" in text
    assert "perplexity" not in text


def test_fit_returns_the_estimator():
    estimator = tsne()
    assert estimator.fit(blobs(), None) is estimator


# Named errors


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tau_x", {"mechanism": "gradient", "budget": BUDGET, "release": "noisy", "feddl": {}}),
        ("budget", {"mechanism": "gradient", "release": "noisy", "tau_x": 1.0}),
        ("budget", {"mechanism": "gradient", "release": "noisy", "budget": Budget(1, 1e-5, scope="landmarks")}),
        ("release", {"release": "some"}),
        ("distances", {"distances": "euclidean"}),
        ("search", {"search": "fast"}),
        ("mechanism", {"mechanism": "magic"}),
        ("release_share", {"release_share": 1.0}),
        ("n_landmarks", {"n_landmarks": 0}),
        ("rounds", {"rounds": 0}),
        ("perplexity", {"perplexity": 0.0}),
        ("rank", {"distances": "nystrom", "rank": 0}),
        ("ridge", {"distances": "nystrom", "ridge": -1.0}),
        ("feddl", {"feddl": {"bounds": (0, 1), "landmarks": 99}}),
        ("feddl", {"feddl": {"budget": BUDGET}}),
    ],
)
def test_bad_parameters_are_named(name, options):
    with pytest.raises(InvalidParameter) as caught:
        tsne(**options).fit(blobs())
    assert caught.value.name == name


def test_n_neighbors_is_checked():
    with pytest.raises(InvalidParameter, match="n_neighbors"):
        umap(n_neighbors=0).fit(blobs())


@pytest.mark.parametrize("make", [tsne, umap])
def test_data_must_be_federated(make):
    with pytest.raises(InvalidParameter, match="FederatedData"):
        make().fit({"a": np.zeros((10, 3))})


def test_coincident_landmarks_are_refused():
    with pytest.raises(DpfedvisError, match="coincide"):
        tsne(n_landmarks=5, feddl={**SPAN, "start": np.full((5, 3), 0.3)}).fit(blobs())
