"""Maps of Fed-tSNE and Fed-UMAP: places, views, newcomers, equality with central maps, odd data."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from accounting import InvalidParameter, Unprotected
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.estimators.maps import LEAST_RECORDS
from tests.makers import CLASSES, DIGITS, FAST, SPAN, blobs, digits, tsne, umap


def accuracy(embedding, y, places, classes):
    return KNeighborsClassifier(5).fit(embedding, y).score(places, classes)


@pytest.fixture(scope="module", params=["tsne", "umap"])
def fitted(request):
    """A map of digits by each estimator."""
    fed = digits(600)
    make = tsne if request.param == "tsne" else umap
    settings = {"tsne": {"n_iter": 200}} if request.param == "tsne" else {"umap": {"n_epochs": 200}}
    estimator = make(n_landmarks=80, rounds=5, **settings)
    return estimator, fed, estimator.fit_transform(fed)


# Maps


def test_a_map_has_a_place_for_each_record_and_keeps_classes_together(fitted):
    estimator, fed, Z = fitted
    assert Z.shape == (600, 2)
    assert np.isfinite(Z).all()
    np.testing.assert_array_equal(Z, estimator.embedding_)
    y = fed.pooled()[1]
    assert accuracy(Z[::2], y[::2], Z[1::2], y[1::2]) > 0.85
    assert estimator.landmarks_.shape == (80, 64)
    assert estimator.ledger_ is estimator.feddl_.ledger
    assert estimator.neighbors_.indices.shape[0] == 600


def test_views_are_the_clients_parts(fitted):
    estimator, fed, Z = fitted
    views = estimator.views()
    assert list(views) == [client.name for client in fed.clients]
    assert [len(view) for view in views.values()] == list(fed.records)
    np.testing.assert_array_equal(np.concatenate(list(views.values())), Z)


def test_a_newcomer_is_accounted_for_and_lands_with_its_class(fitted):
    estimator, fed, Z = fitted
    before = estimator.embedding_.copy()
    places = estimator.transform(DIGITS[700:800], name="late clinic")
    assert places.shape == (100, 2)
    # UMAP's newcomers go to a mean of places, which may fall between two classes.
    assert accuracy(Z, fed.pooled()[1], places, CLASSES[700:800]) > (0.85 if isinstance(estimator, FedTSNE) else 0.75)
    (event,) = estimator.ledger_.events(client="late clinic")
    assert isinstance(event, Unprotected)
    assert (event.what, event.stage) == ("distance rows", "release")
    np.testing.assert_array_equal(estimator.embedding_, before)
    with pytest.raises(InvalidParameter, match="new: a client of this name has released before"):
        estimator.transform(DIGITS[700:710], name="late clinic")


def test_records_that_are_there_already_land_where_they_are(fitted):
    """The newcomers' map is the map as it is shown: no shift between the two."""
    estimator, fed, Z = fitted
    X = fed.pooled()[0]
    places = estimator.transform(X[:60], name="copies")
    spread = np.linalg.norm(Z - Z.mean(axis=0), axis=1).mean()
    assert np.median(np.linalg.norm(places - Z[:60], axis=1)) < 0.1 * spread
    again = estimator.transform(X[:60], name="copies once more")
    np.testing.assert_allclose(again, places, atol=1e-9)


@pytest.mark.parametrize(
    ("records", "name"),
    [
        (np.zeros((3, 5)), "shape of the new records"),
        (np.zeros(64), "shape of the new records"),
        (np.zeros((0, 64)), "number of new records"),
        (np.full((2, 64), np.nan), "the new records"),
    ],
)
def test_odd_newcomers_are_named_and_release_nothing(fitted, records, name):
    estimator, _, _ = fitted
    before = len(estimator.ledger_)
    with pytest.raises(InvalidParameter) as caught:
        estimator.transform(records, name="odd")
    assert caught.value.name == name
    assert len(estimator.ledger_) == before


@pytest.mark.parametrize("make", [tsne, umap])
def test_one_seed_one_map(make):
    fed = blobs()
    first, second = make(), make()
    np.testing.assert_array_equal(first.fit_transform(fed), second.fit_transform(fed))
    X = np.full((2, 3), 0.5)
    np.testing.assert_array_equal(first.transform(X), second.transform(X))
    assert not np.array_equal(make(random_state=1).fit_transform(fed), first.embedding_)


@pytest.mark.parametrize("distances", ["gram", "nystrom"])
def test_umap_is_made_from_our_graph(monkeypatch, distances):
    seen = {}

    class Spy:
        def __init__(self, **settings):
            seen.update(settings)

        def fit_transform(self, X):
            return np.zeros((len(X), 2))

    monkeypatch.setattr("umap.UMAP", Spy)
    estimator = umap(distances=distances, umap={"metric": "euclidean"}).fit(blobs())
    indices, lengths = seen["precomputed_knn"]
    assert indices.shape == lengths.shape == (90, seen["n_neighbors"])
    np.testing.assert_array_equal(indices[:, 0], np.arange(90))
    np.testing.assert_array_equal(indices[:, 1:], estimator.neighbors_.indices[:, :9])
    np.testing.assert_array_equal(lengths[:, 1:], estimator.neighbors_.distances[:, :9])
    assert lengths.dtype == np.float32
    assert (seen["metric"], seen["random_state"]) == ("euclidean", 0)


# One client, many clients, central


def test_one_client_equals_central():
    """Landmarks span the data: the graph is that of the raw records, and so is the map."""
    from openTSNE import TSNE, affinity, initialization, nearest_neighbors

    fed = blobs((90,))
    X = fed.pooled()[0]
    start = initialization.pca(X, random_state=0)
    estimator = tsne(n_landmarks=10, feddl=SPAN, perplexity=5.0, tsne={**FAST, "initialization": start.copy()})
    Z = estimator.fit_transform(fed)
    lengths, indices = NearestNeighbors(n_neighbors=15).fit(X).kneighbors()
    np.testing.assert_array_equal(estimator.neighbors_.indices, indices)
    np.testing.assert_allclose(estimator.neighbors_.distances, lengths, rtol=1e-3)
    affinities = affinity.PerplexityBasedNN(
        perplexity=5.0, knn_index=nearest_neighbors.PrecomputedNeighbors(indices, lengths), n_jobs=1
    )
    central = np.array(TSNE(n_jobs=1, random_state=0, **FAST).fit(affinities=affinities, initialization=start))
    scale = np.abs(central).max()
    # Maps are alike up to the shift that centres the box.
    np.testing.assert_allclose(cdist(Z, Z), cdist(central, central), atol=0.02 * scale)
    np.testing.assert_allclose((Z.max(axis=0) + Z.min(axis=0)) / 2, 0, atol=1e-9 * scale)


def test_the_map_does_not_depend_on_who_holds_which_record():
    whole, dealt = blobs((90,)), None
    X = whole.pooled()[0]
    dealt = FederatedData([X[:1], X[1:40], X[40:]], dtype=np.float64)
    one, three = (tsne(n_landmarks=10, feddl=SPAN).fit(fed) for fed in (whole, dealt))
    np.testing.assert_allclose(three.landmarks_, one.landmarks_, atol=1e-9)
    np.testing.assert_allclose(three.distances_.left, one.distances_.left, atol=1e-5)


@pytest.mark.parametrize("distances", ["gram", "nystrom"])
def test_the_order_of_clients_and_records_does_not_matter(distances):
    fed = blobs((20, 35, 15))
    rng = np.random.default_rng(3)
    orders = [rng.permutation(n) for n in fed.records]
    turned = FederatedData(
        [fed.clients[p].X[orders[p]] for p in (2, 0, 1)], names=["client-2", "client-0", "client-1"], dtype=np.float64
    )
    starts = np.cumsum([0, 20, 35])
    rows = np.concatenate([starts[p] + orders[p] for p in (2, 0, 1)])
    here, there = (tsne(n_landmarks=12, distances=distances).fit(each).distances_ for each in (fed, turned))
    expected = here.block(here.left)[np.ix_(rows, rows)]
    np.testing.assert_allclose(there.block(there.left), expected, atol=2e-3)


# Odd data


@pytest.mark.parametrize("make", [tsne, umap])
@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([np.repeat(np.random.default_rng(0).uniform(size=(4, 3)), 10, axis=0)], id="duplicates"),
        pytest.param([np.c_[np.random.default_rng(1).uniform(size=(40, 2)), np.full(40, 0.5)]], id="constant feature"),
        pytest.param([np.full((20, 3), 0.25)], id="one point"),
        pytest.param([np.random.default_rng(2).uniform(size=(12, 3))], id="fewer than 3 perplexities"),
        pytest.param(np.split(np.random.default_rng(3).uniform(size=(20, 3)), [1, 9]), id="a client with one record"),
        pytest.param([np.random.default_rng(4).uniform(size=(LEAST_RECORDS, 3))], id="as few as can be"),
    ],
)
def test_odd_data_still_make_a_map(make, parts):
    fed = FederatedData(parts)
    estimator = make()
    Z = estimator.fit_transform(fed)
    assert Z.shape == (fed.n_records, 2)
    assert np.isfinite(Z).all()
    assert [len(view) for view in estimator.views().values()] == list(fed.records)
    assert np.isfinite(estimator.transform(np.full((1, 3), 0.3))).all()


def test_constant_features_change_no_distance():
    fed = blobs()
    wider = FederatedData([np.c_[c.X, np.full((len(c.X), 2), 0.5)] for c in fed.clients], dtype=np.float64)
    start = SPAN["start"]
    narrow = tsne(n_landmarks=10, feddl=SPAN).fit(fed).distances_
    wide = tsne(n_landmarks=10, feddl={**SPAN, "start": np.c_[start, start[:, :2]]}).fit(wider).distances_
    np.testing.assert_allclose(cdist(wide.left, wide.left), cdist(narrow.left, narrow.left), atol=1e-3)


def test_one_coordinate_is_enough_for_a_map():
    """Noise, or landmarks on a line, may leave a single direction."""
    line = {"start": np.linspace(0.1, 0.9, 6)[:, None] * np.ones(3), "bounds": (0.0, 1.0), "step_size": 1e-12}
    estimator = tsne(n_landmarks=6, feddl=line)
    assert np.isfinite(estimator.fit_transform(blobs())).all()
    assert estimator.distances_.left.shape[1] == 1


@pytest.mark.parametrize("make", [tsne, umap])
def test_too_few_records_for_a_map_are_named_and_release_nothing(make):
    estimator = make()
    with pytest.raises(InvalidParameter, match="at least 4 for a map"):
        estimator.fit(FederatedData([np.zeros((2, 3)), np.ones((1, 3))]))
    assert not hasattr(estimator, "ledger_")
