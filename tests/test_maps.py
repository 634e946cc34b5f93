"""Fed-tSNE and Fed-UMAP: maps, views, newcomers, equality with central maps, odd data, and what they release."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors

from accounting import Budget, GaussianRelease, InvalidParameter, PostProcessing, Unprotected, UnprotectedReleaseError
from dpfedvis import FederatedData, FedTSNE, FedUMAP
from dpfedvis.distances import DpfedvisError, GramDistances
from dpfedvis.estimators import ReleaseUnavailable
from dpfedvis.federated_map import LEAST_RECORDS
from dpfedvis.mechanisms import InputPerturbation
from dpfedvis.neighbors import nearest
from dpfedvis.projections import clip_norms
from dpfedvis.rows import DistanceRows, GramRows

DIGITS, CLASSES = load_digits(return_X_y=True)
DIGITS = (DIGITS / 16).astype(np.float32)
TAU = 5.5
FAST = {"early_exaggeration_iter": 30, "n_iter": 60}
BUDGET = Budget(2.0, 1e-5)


def tsne(**options):
    given = {"n_landmarks": 40, "mechanism": "none", "rounds": 3, "perplexity": 10.0, "n_jobs": 1}
    return FedTSNE(**{**given, "feddl": {"bounds": (0.0, 1.0)}, "tsne": FAST, **options})


def umap(**options):
    given = {"n_landmarks": 40, "mechanism": "none", "rounds": 3, "n_neighbors": 10}
    return FedUMAP(**{**given, "feddl": {"bounds": (0.0, 1.0)}, "umap": {"n_epochs": 60}, **options})


def digits(n=300, clients=3, seed=0, **options):
    return FederatedData.split(DIGITS[:n], CLASSES[:n], clients=clients, seed=seed, **options)


def blobs(parts=(30, 30, 30), features=3, seed=0):
    """One blob for each client, in the unit cube, float64."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform(0.2, 0.8, (len(parts), features))
    return FederatedData(
        [c + rng.normal(0, 0.05, (n, features)) for c, n in zip(centres, parts, strict=True)],
        [np.full(n, p) for p, n in enumerate(parts)],
        dtype=np.float64,
    )


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


SPAN = {"start": np.random.default_rng(7).uniform(size=(10, 3)), "bounds": (0.0, 1.0)}


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
    np.testing.assert_allclose(dense_of(wide), dense_of(narrow), atol=1e-3)


def dense_of(estimate):
    return cdist(estimate.left, estimate.left)


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


# What is released


@pytest.mark.parametrize("make", [tsne, umap])
def test_exact_rows_are_refused_under_an_end_to_end_budget(make):
    estimator = make(mechanism="gradient", budget=BUDGET, release="exact")
    with pytest.raises(UnprotectedReleaseError) as caught:
        estimator.fit(blobs())
    for way_out in ("release='noisy'", "mechanism='input'", "release='none'", "scope='landmarks'"):
        assert way_out in str(caught.value)
    assert "nothing was released" in str(caught.value)
    assert not hasattr(estimator, "ledger_")


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("none", {"mechanism": None, "budget": BUDGET}),
        ("none", {"mechanism": "gradient", "budget": BUDGET}),
        ("exact", {"mechanism": InputPerturbation(tau_x=2.0), "budget": BUDGET}),
        ("exact", {"mechanism": "gradient", "budget": Budget(2.0, 1e-5, scope="landmarks")}),
        ("exact", {"mechanism": "none"}),
    ],
)
def test_what_is_released_by_default_is_never_refused(mode, options):
    """Under an end-to-end budget no rows leave a client, unless its records were perturbed at home."""
    weights = {"anchors": 30, "placement": "weights"}
    estimator = tsne(**options, feddl=None, billboard=weights).fit(blobs())
    assert estimator.statement_.to_dict()["facts"]["release"] == mode
    rows = [event for event in estimator.ledger_.events() if event.stage == "release"]
    assert bool(rows) == (mode == "exact")
    assert hasattr(estimator, "board_") == (mode == "none")


def test_the_papers_claim_must_be_asked_for_and_says_infinity():
    estimator = tsne(mechanism="gradient", budget=Budget(2.0, 1e-5, scope="landmarks")).fit(blobs())
    ledger, statement = estimator.ledger_, estimator.statement_
    assert ledger.spent() == pytest.approx(2.0, rel=1e-6)
    assert ledger.spent(end_to_end=True) == np.inf
    assert statement.end_to_end == np.inf
    assert statement.in_scope == pytest.approx(2.0, rel=1e-6)
    assert "ε = ∞" in statement.headline
    assert "paper's claim" in str(statement)
    rows = [event for event in ledger.events() if event.stage == "release"]
    assert [(type(event), event.client) for event in rows] == [(Unprotected, f"client-{p}") for p in range(3)]


def test_exact_rows_of_perturbed_records_are_post_processing():
    estimator = tsne(mechanism=InputPerturbation(tau_x=2.0), budget=BUDGET).fit(blobs())
    rows = [event for event in estimator.ledger_.events() if event.stage == "release"]
    assert all(isinstance(event, PostProcessing) and event.of == "records" for event in rows)
    assert len(rows) == 3
    assert estimator.ledger_.spent(end_to_end=True) == pytest.approx(2.0, rel=1e-6)
    expected = np.concatenate(
        [DistanceRows().of(c.home.values, estimator.landmarks_) for c in estimator.feddl_.clients]
    )
    coordinates = estimator._frame.coordinates(expected)
    np.testing.assert_allclose(estimator.distances_.left, coordinates, atol=1e-4)
    with pytest.raises(ReleaseUnavailable, match="not perturbed"):
        estimator.transform(np.zeros((1, 3)))


@pytest.mark.parametrize(
    ("distances", "what", "delta"), [("gram", "gram rows", 4.0), ("nystrom", "distance rows", 4.0 * np.sqrt(40))]
)
def test_noisy_rows_spend_the_budget_and_carry_the_stated_noise(distances, what, delta):
    fed = blobs((400, 300))
    options = {"mechanism": "gradient", "budget": BUDGET, "release": "noisy", "tau_x": 2.0, "distances": distances}
    estimator = tsne(**options, tsne={"early_exaggeration_iter": 1, "n_iter": 1}).fit(fed)
    ledger = estimator.ledger_
    assert ledger.spent(end_to_end=True) == pytest.approx(2.0, rel=1e-6)
    events = [event for event in ledger.events() if event.stage == "release"]
    assert all(isinstance(event, GaussianRelease) and event.what == what and event.count == 1 for event in events)
    assert [event.sensitivity for event in events] == pytest.approx([delta, delta])
    assert [event.sigma for event in events] == pytest.approx([estimator.noise_] * 2)
    if distances == "gram":
        rows = GramRows(estimator.noise_)
        exact = np.concatenate([rows.of(clip_norms(c.X, 2.0), estimator.landmarks_) for c in fed.clients])
        drawn = estimator.distances_.left - exact
    else:
        rows = DistanceRows()
        exact = np.concatenate([rows.of(clip_norms(c.X, 2.0), estimator.landmarks_) for c in fed.clients])
        # The factor of W⁺ undone: rows = left · (V |λ|^{−½})⁺
        drawn = estimator.distances_.left @ np.linalg.pinv(estimator._frame) - exact
    assert drawn.std() == pytest.approx(events[0].sigma, rel=5 / np.sqrt(2 * drawn.size))
    assert abs(drawn.mean()) < 5 * events[0].sigma / np.sqrt(drawn.size)
    # Clients draw noise of their own.
    size = min(fed.records)
    assert abs(np.corrcoef(drawn[:size].ravel(), drawn[400 : 400 + size].ravel())[0, 1]) < 5 / np.sqrt(size)


def test_records_are_clipped_before_their_rows_are_noised():
    fed = blobs()
    far = FederatedData([1000.0 * client.X for client in fed.clients], dtype=np.float64)
    huge = Budget(1e9, 1e-5)
    options = {"mechanism": "gradient", "budget": huge, "release": "noisy", "tau_x": 0.5, "feddl": SPAN}
    estimator = tsne(n_landmarks=10, **options).fit(far)
    clipped = np.concatenate([clip_norms(c.X, 0.5) for c in far.clients])
    np.testing.assert_allclose(dense_of(estimator.distances_), cdist(clipped, clipped), atol=5e-3)
    assert estimator.distances_.left.shape[1] == 3


def test_a_newcomer_pays_for_its_noisy_rows():
    estimator = tsne(mechanism="gradient", budget=BUDGET, release="noisy", tau_x=2.0).fit(blobs())
    first, second = (estimator.transform(np.full((6, 3), 0.5), name=name) for name in ("one", "two"))
    assert not np.array_equal(first, second)
    (event,) = estimator.ledger_.events(client="one")
    assert isinstance(event, GaussianRelease)
    assert event.sigma == pytest.approx(estimator.noise_)
    assert 0 < estimator.ledger_.spent(client="one", end_to_end=True) < 2.0
    assert estimator.statement_.end_to_end == pytest.approx(2.0, rel=1e-6)


def test_gram_rows_are_better_than_distance_rows_at_equal_epsilon():
    fed = digits(500)
    X = fed.pooled()[0]
    true = nearest(GramDistances(X), 10).indices
    shares = {}
    for distances in ("gram", "nystrom"):
        estimator = tsne(
            distances=distances,
            mechanism="gradient",
            budget=Budget(1000.0, 1e-5),
            release="noisy",
            tau_x=TAU,
            tsne={"early_exaggeration_iter": 1, "n_iter": 1},
        ).fit(fed)
        assert estimator.ledger_.spent(end_to_end=True) == pytest.approx(1000.0, rel=1e-6)
        found = estimator.neighbors_.indices[:, :10]
        shares[distances] = (true[:, :, None] == found[:, None, :]).any(axis=2).mean()
    chance = 10 / 499
    assert shares["gram"] > 3 * chance
    assert shares["gram"] > 2 * shares["nystrom"]


# Named errors


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("tau_x", {"mechanism": "gradient", "budget": BUDGET, "release": "noisy"}),
        ("budget", {"mechanism": "gradient", "release": "noisy", "tau_x": 1.0}),
        ("budget", {"release": "noisy", "tau_x": 1.0, "budget": Budget(1, 1e-5, scope="landmarks")}),
        ("release", {"release": "some"}),
        ("distances", {"distances": "euclidean"}),
        ("method", {"neighbors": "fast"}),
        ("mechanism", {"mechanism": "magic"}),
        ("release_share", {"release_share": 1.0}),
        ("landmarks", {"n_landmarks": 0}),
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
        make().fit(np.zeros((10, 3)))


def test_coincident_landmarks_are_refused():
    with pytest.raises(DpfedvisError, match="coincide"):
        tsne(n_landmarks=5, feddl={**SPAN, "start": np.full((5, 3), 0.3)}).fit(blobs())
