"""The end-to-end private map as a whole: its limits in ε, odd federations, newcomers, and the picture for everyone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from openTSNE import TSNE
from scipy.linalg import subspace_angles
from sklearn.base import clone
from sklearn.cluster import KMeans as Lloyd
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier

from accounting import Budget, InvalidParameter, Ledger
from dpfedvis import FederatedData, FedTSNE, FedUMAP
from dpfedvis.data import load
from dpfedvis.data.features import with_features
from dpfedvis.estimators.simulation import simulated
from dpfedvis.evaluation.metrics import cross_client_accuracy
from dpfedvis.mechanisms import KMeans
from dpfedvis.numerics.layouts import TSNELayout, UMAPLayout
from dpfedvis.numerics.projections import clip_norms
from dpfedvis.server.private_map import LEAST_LANDMARKS, Learner
from dpfedvis.server.subspace import MANY_VALUES, MOST_UNSEEN, low_frequencies
from dpfedvis.site.placement import Anchored, ByTransform, ByWeights
from tests.makers import digits

SHORT = Anchored(exaggerated=20, plain=30)
HUGE, TINY = Budget(500, 1e-5), Budget(1e-3, 1e-5)


def learn(fed, budget, **settings):
    learner = Learner(**{"budget": budget, "mechanism": KMeans(), "rounds": 10, "components": 8, **settings})
    return learner.run(simulated(fed, budget=budget, noise="seeded"))


def repeated(fed, times):
    """Each record many times over: what a mean tells stays, and the noise falls by as much."""
    labels = [np.tile(client.y, times) for client in fed.clients]
    return FederatedData([np.tile(client.X, (times, 1)) for client in fed.clients], labels)


def quantisation(Z, landmarks):
    return np.mean([np.min(np.sum((landmarks - z) ** 2, axis=1)) for z in Z.astype(np.float64)])


# Budget alone is enough


def test_a_budget_alone_gives_a_map_that_is_private_end_to_end():
    fed = digits(300, 3)
    estimator = FedTSNE(budget=Budget(1, 1e-5), private_map={"placement": SHORT, "anchors": 60})
    Z = estimator.fit_transform(fed)
    assert Z.shape == (300, 2)
    assert np.isfinite(Z).all()
    assert estimator.ledger_.spent(end_to_end=True) == pytest.approx(1.0, rel=1e-6)
    facts = estimator.statement_.to_dict()["facts"]
    assert (facts["release"], facts["mechanism"]) == ("none", "k-means")
    assert estimator.density_ is None
    assert [len(view) for view in estimator.views().values()] == list(fed.records)
    assert estimator.landmarks_.shape == (LEAST_LANDMARKS, 64)
    assert clone(estimator).get_params() == estimator.get_params()


def test_clients_at_work_at_the_same_time_place_as_one_after_another():
    fed = digits(200, 4)
    common = {"n_landmarks": 20, "budget": Budget(10, 1e-5), "private_map": {"placement": SHORT, "anchors": 40}}
    one, three = (FedTSNE(n_jobs=jobs, **common).fit_transform(fed) for jobs in (1, 3))
    np.testing.assert_array_equal(one, three)


def test_a_map_at_a_large_budget_keeps_classes_together_across_clients():
    fed = digits(600, 3)
    estimator = FedTSNE(n_landmarks=60, budget=Budget(100, 1e-5), private_map={"placement": SHORT, "anchors": 150})
    views, labels = list(estimator.fit(fed).views().values()), [client.y for client in fed.clients]
    others = KNeighborsClassifier(10).fit(np.concatenate(views[1:]), np.concatenate(labels[1:]))
    assert others.score(views[0], labels[0]) > 0.7


def test_one_seed_one_map(fed, map_of):
    options = {"private_map": {"density": True, "placement": SHORT}}
    first, second = (map_of(**options).fit(fed) for _ in range(2))
    np.testing.assert_array_equal(first.embedding_, second.embedding_)
    np.testing.assert_array_equal(first.published_map_.places, second.published_map_.places)
    np.testing.assert_array_equal(first.density_.shares, second.density_.shares)
    other = map_of(random_state=1, **options).fit(fed)
    assert not np.allclose(other.landmarks_, first.landmarks_, atol=1e-3)


def test_views_are_what_each_client_makes_of_the_board(fed, map_of):
    estimator = map_of(private_map={"placement": SHORT}).fit(fed)
    for client in fed.clients:
        np.testing.assert_array_equal(estimator.views()[client.name], SHORT(estimator.published_map_, client.X))


def test_umap_has_a_private_map_too(fed):
    estimator = FedUMAP(
        n_landmarks=20, budget=Budget(3, 1e-5), private_map={"anchors": 30, "density": True}, umap={"n_epochs": 30}
    ).fit(fed)
    assert estimator.embedding_.shape == (fed.n_records, 2)
    assert np.isfinite(estimator.embedding_).all()
    assert estimator.ledger_.spent(end_to_end=True) == pytest.approx(3.0, rel=1e-6)
    before = len(estimator.ledger_)
    assert estimator.transform(fed.clients[0].X[:7]).shape == (7, 2)
    assert len(estimator.ledger_) == before


def test_transform_is_that_of_the_map_that_was_asked_for(fed, map_of):
    private_map = {"placement": "transform", "anchors": 24}
    umap = FedUMAP(n_landmarks=20, budget=Budget(3, 1e-5), n_neighbors=8, min_dist=0.3, private_map=private_map,
                   umap={"n_epochs": 30}).fit(fed)  # fmt: skip
    tsne = map_of(private_map=private_map).fit(fed)
    for estimator, place in ((umap, ByTransform(UMAPLayout(8, 0.3))), (tsne, ByTransform(TSNELayout()))):
        view = estimator.views()["client-1"]
        np.testing.assert_array_equal(view, place(estimator.published_map_, fed.clients[1].X))
        assert np.isfinite(estimator.transform(fed.clients[0].X[:1])).all()


def test_one_absurd_record_stops_no_client_with_umaps_transform(federation_of):
    parts = [client.X.copy() for client in federation_of().clients]
    parts[1][3] = 1e30
    private_map = {"placement": "transform", "anchors": 24}
    estimator = FedUMAP(n_landmarks=20, budget=Budget(1, 1e-5), private_map=private_map, umap={"n_epochs": 30})
    assert np.isfinite(estimator.fit(FederatedData(parts)).embedding_).all()


@pytest.mark.parametrize("place", ["anchored", "weights", "transform"])
def test_placements_run_by_name(place, fed, map_of):
    estimator = map_of(private_map={"placement": place}).fit(fed)
    assert np.isfinite(estimator.embedding_).all()


# Limits


@pytest.mark.parametrize("trust", ["local", "aggregate"])
def test_without_noise_the_subspace_is_that_of_the_clipped_records(trust):
    """The leading eigenvectors of (1/n) Σ (x − c)(x − c)ᵀ, with x − c clipped to the root of its mean square."""
    fed = digits()
    found = learn(repeated(fed, 100), HUGE, landmarks=20, mechanism=KMeans(trust=trust)).subspace
    X = fed.pooled()[0].astype(np.float64)
    np.testing.assert_allclose(found.centre, X.mean(axis=0), atol=1e-3)
    centred = X - X.mean(axis=0)
    clipped = clip_norms(centred, np.sqrt(np.mean(np.sum(centred**2, axis=1))))
    values, vectors = np.linalg.eigh(clipped.T @ clipped / len(X))
    assert np.rad2deg(subspace_angles(found.axes, vectors[:, -8:])).max() < 2
    np.testing.assert_allclose(found.variances, values[::-1][:8], rtol=0.01)


def test_without_noise_the_subspace_is_close_to_principal_components(federation_of):
    """Clipping bends it a little: less than 8 degrees where three directions stand out, as the groups' do."""
    fed = federation_of((300, 200))
    found = learn(fed, HUGE, components=3).subspace
    components = PCA(3).fit(fed.pooled()[0]).components_.T
    assert np.rad2deg(subspace_angles(found.axes, components)).max() < 8


def test_without_noise_landmarks_quantise_almost_as_well_as_k_means():
    """Within 1.3 of scikit-learn's k-means in the same subspace, which takes ten starts and runs to the end."""
    fed = digits()
    learned = learn(fed, HUGE, landmarks=20, mechanism=KMeans(sweeps=10))
    Z = learned.subspace.coordinates(fed.pooled()[0])
    best = quantisation(Z, Lloyd(20, n_init=10, random_state=0).fit(Z).cluster_centers_)
    assert quantisation(Z, learned.feddl.landmarks) < 1.3 * best


def test_the_subspace_gets_better_with_the_budget():
    fed = digits(800)
    components = PCA(8).fit(fed.pooled()[0]).components_.T

    def kept(epsilon):
        """Share of the principal components that the subspace holds."""
        axes = [learn(fed, Budget(epsilon, 1e-5), seed=s).subspace.axes for s in range(3)]
        return np.mean([np.sum((each.T @ components) ** 2) / 8 for each in axes])

    assert kept(3) < kept(10) < kept(500)
    assert kept(500) > 0.9


def test_where_no_direction_is_seen_the_map_is_one_without_data():
    """All features, alike and around the public middle: at ε = 0.001 only the public range is left."""
    fed = digits(800)
    found = learn(fed, TINY, tau_x=8.0, bounds=(0.0, 1.0))
    np.testing.assert_allclose(found.subspace.axes, np.eye(64), atol=1e-3)
    np.testing.assert_allclose(found.subspace.centre, 0.5, atol=0.05)
    np.testing.assert_allclose(found.subspace.variances, 1 / 12, rtol=1e-12)
    # Steps are mostly noise, and are taken as such: landmarks stay about as far apart as they began.
    assert 0.8 < np.std(found.feddl.landmarks) * math.sqrt(12) < 1.5


def test_of_very_many_features_random_directions_are_taken():
    fed = FederatedData.split(np.random.default_rng(0).random((90, 200)), clients=3, partition="iid", seed=0)
    axes = learn(fed, TINY, tau_x=15.0, bounds=(0.0, 1.0)).subspace.axes
    assert axes.shape == (200, MOST_UNSEEN)
    np.testing.assert_allclose(axes.T @ axes, np.eye(MOST_UNSEEN), atol=1e-2)


def test_without_noise_the_map_is_about_as_good_as_one_of_the_pooled_records():
    """Accuracy of 10-NN within 0.05 of a t-SNE of all records in one place, among all and across clients.

    Over three seeds it was 0.03 below at most. With landmarks left where they start, a turned subspace, or anchors or
    records placed in another order, it is at least 0.06 below among all, and 0.11 across clients.
    """
    fed = digits(600, 3)
    X, y = fed.pooled()
    ends = np.cumsum(fed.records)[:-1]

    def accuracies(Z):
        everywhere = KNeighborsClassifier(10).fit(Z, y).score(None, y)  # each record by the others
        return np.array([everywhere, cross_client_accuracy(np.split(Z, ends), np.split(y, ends), 10)])

    def private(budget):
        return accuracies(FedTSNE(budget=budget, n_jobs=1).fit_transform(fed))

    central = accuracies(np.array(TSNE(n_jobs=1, random_state=0).fit(X)))
    assert (central > 0.95).all()
    rich, poor = private(HUGE), private(Budget(0.1, 1e-5))
    assert (rich > central - 0.05).all()
    assert (rich - poor > np.array([0.1, 0.25])).all()


def test_with_nothing_to_spend_the_map_is_made_of_noise(federation_of):
    """One seed, two data sets: the same map at ε = 0.001 up to a few per cent; another one where there is budget."""
    one, other = federation_of(features=12), federation_of(features=12, seed=9)
    here, there = (learn(fed, TINY) for fed in (one, other))
    assert here.subspace.axes.shape == (12, 12)
    assert len(here.feddl.landmarks) == LEAST_LANDMARKS
    assert np.rad2deg(subspace_angles(here.subspace.axes, there.subspace.axes)).max() < 3
    scale = np.abs(here.feddl.landmarks).max()
    np.testing.assert_allclose(here.feddl.landmarks, there.feddl.landmarks, atol=0.1 * scale)
    rich = [learn(fed, HUGE).subspace.axes for fed in (one, other)]
    assert np.rad2deg(subspace_angles(*rich)).max() > 6
    assert len(learn(repeated(one, 10), HUGE).feddl.landmarks) > 10 * LEAST_LANDMARKS


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 500.0])
def test_no_budget_is_too_small_or_too_large(epsilon, fed, map_of):
    estimator = map_of(Budget(epsilon, 1e-5), private_map={"density": True, "placement": SHORT}).fit(fed)
    assert np.isfinite(estimator.embedding_).all()
    # Integers of the finest density are charged beforehand, which shows in so small a budget.
    assert estimator.ledger_.spent(end_to_end=True) == pytest.approx(epsilon, rel=1e-5, abs=1e-10)
    assert estimator.ledger_.spent(end_to_end=True) <= epsilon


# Odd federations


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([np.random.default_rng(p).normal(size=(1, 3)) for p in range(5)], id="one record each"),
        pytest.param([np.ones((1, 3)), np.random.default_rng(0).normal(size=(30, 3))], id="one with one record"),
        pytest.param([np.ones((20, 3)), np.ones((20, 3))], id="one point"),
        pytest.param([np.zeros((20, 3)), np.zeros((20, 3))], id="nothing but zero"),
        pytest.param([np.random.default_rng(0).normal(size=(30, 2))], id="two features, one client"),
        pytest.param([1e-6 * np.random.default_rng(0).normal(size=(30, 3))], id="tiny"),
        pytest.param([1e6 * np.random.default_rng(0).normal(size=(30, 3))], id="large"),
    ],
)
@pytest.mark.parametrize("epsilon", [1.0, 500.0])
def test_odd_data_still_make_a_map(parts, epsilon, map_of):
    fed = FederatedData(parts)
    estimator = map_of(Budget(epsilon, 1e-5), private_map={"density": True, "placement": SHORT}).fit(fed)
    assert estimator.embedding_.shape == (fed.n_records, 2)
    assert np.isfinite(estimator.embedding_).all()
    assert estimator.ledger_.spent(end_to_end=True) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("place", [SHORT, "weights", "transform"])
@pytest.mark.parametrize(("value", "dtype"), [(1e19, np.float32), (1e30, np.float32), (1e100, np.float64)])
def test_one_absurd_record_stops_nobody(value, dtype, place, federation_of, map_of):
    parts = [client.X.copy() for client in federation_of(dtype=dtype).clients]
    parts[1][3] = value
    estimator = map_of(private_map={"density": True, "placement": place}).fit(FederatedData(parts, dtype=dtype))
    assert np.isfinite(estimator.embedding_).all()
    assert np.isfinite(estimator.transform(parts[1][:6].clip(max=1e30))).all()
    assert len(list(estimator.ledger_.events(client="client-1"))) == 4 + 3


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ([np.random.default_rng(0).normal(size=(30, 1))], "number of features"),
        ([np.zeros((2, 3)), np.ones((1, 3))], "number of records"),
    ],
)
def test_data_without_a_map_are_named(parts, name, map_of):
    with pytest.raises(InvalidParameter) as caught:
        map_of().fit(FederatedData(parts))
    assert caught.value.name == name


def test_few_records_are_no_reason_where_their_number_is_private(map_of):
    fed = FederatedData([np.zeros((2, 3)), np.ones((1, 3))])
    budget = Budget(1, 1e-5, adjacency="add-remove")
    assert map_of(budget, tau_x=2.0, feddl={"public_records": 30}).fit(fed).embedding_.shape == (3, 2)


def test_filled_means_are_refused(map_of):
    fed = FederatedData([np.array([[1.0, np.nan], [2.0, 3.0], [0.0, 1.0]])] * 2, missing="client-mean")
    with pytest.raises(InvalidParameter, match="public-value"):
        map_of().fit(fed)


# Newcomers


def test_a_newcomer_places_itself_and_nothing_is_spent(fed, map_of, watching):
    seen = watching()
    estimator = map_of(private_map={"placement": SHORT, "density": True}).watch(witness=seen).fit(fed)
    events, passed = [event.to_json() for event in estimator.ledger_.events()], len(seen.values)
    statement = str(estimator.statement_)
    X = fed.clients[2].X[:20]
    places = estimator.transform(X, name="late clinic")
    np.testing.assert_array_equal(places, SHORT(estimator.published_map_, X))
    assert [event.to_json() for event in estimator.ledger_.events()] == events
    assert len(seen.values) == passed
    assert str(estimator.statement_) == statement
    assert "late clinic" not in estimator.ledger_.clients
    np.testing.assert_array_equal(estimator.transform(fed.clients[2].X), estimator.views()["client-2"])


@pytest.mark.parametrize("records", [np.zeros((3, 5)), np.zeros((0, 8)), np.full((2, 8), np.nan)])
def test_odd_newcomers_are_named(records, fed, map_of):
    estimator = map_of().fit(fed)
    with pytest.raises(InvalidParameter, match="new records"):
        estimator.transform(records)


def test_a_placement_of_ones_own_sees_the_board_and_cannot_move_it(fed, map_of):
    seen = []

    def own(published, records):
        seen.append((published, len(records)))
        with pytest.raises(ValueError, match="read-only"):
            published.places += 1
        return np.zeros((len(records), 2))

    estimator = map_of(private_map={"placement": own}).fit(fed)
    assert [n for _, n in seen] == list(fed.records)
    assert all(published is estimator.published_map_ for published, _ in seen)
    assert not estimator.embedding_.any()


# The picture for everyone


@pytest.mark.parametrize("trust", ["local", "aggregate"])
def test_the_density_is_that_of_the_placed_records(trust, fed, map_of):
    fed = repeated(fed, 10)
    estimator = map_of(HUGE, mechanism=KMeans(trust=trust), private_map={"density": True}).fit(fed)
    density = estimator.density_
    side = 2 * density.grid.half / density.grid.cells
    expected = np.zeros((density.grid.cells, density.grid.cells))
    for x, y in estimator.published_map_.place(fed.pooled()[0]):
        expected[int((y + density.grid.half) // side), int((x + density.grid.half) // side)] += 1 / fed.n_records
    np.testing.assert_allclose(density.total, expected, atol=8 * density.noise)
    assert density.noise < 1e-3
    assert density.total.sum() == pytest.approx(1.0, abs=8 * density.noise * density.grid.cells)
    assert density.grid.half == estimator.published_map_.half


def test_the_density_counts_each_record_where_it_lies_by_itself(fed, map_of):
    """In a client's own layout one record moves the others, further than the counts' sensitivity allows."""
    fed = repeated(fed, 10)
    estimator = map_of(HUGE, private_map={"density": True, "placement": SHORT}).fit(fed)
    density, X, place = estimator.density_, fed.pooled()[0], estimator.published_map_.place

    def shares(places):
        return np.bincount(density.grid.cell(places), minlength=density.grid.cells**2) / fed.n_records

    alone = np.concatenate([place(x[None]) for x in X])
    np.testing.assert_allclose(density.total.ravel(), shares(alone), atol=8 * density.noise)
    assert np.abs(shares(estimator.embedding_) - shares(alone)).max() > 8 * density.noise
    replaced = X.copy()
    replaced[0] = X[-1] + 3
    change = shares(place(replaced)) - shares(alone)
    assert np.linalg.norm(change) * fed.n_records <= np.sqrt(2) + 1e-9


def test_the_density_has_the_noise_that_it_states(federation_of, map_of):
    fed, noise = federation_of(), []
    for seed in range(8):
        estimator = map_of(Budget(1, 1e-5), random_state=seed, private_map={"density": True}).fit(fed)
        density = estimator.density_
        numbers = density.grid.cell(estimator.published_map_.place(fed.pooled()[0]))
        exact = np.bincount(numbers, minlength=density.grid.cells**2) / fed.n_records
        assert density.total.sum() == pytest.approx(1.0, abs=6 * density.noise * density.grid.cells)
        noise.append((density.shares.ravel() - exact) / density.noise)
    drawn = np.concatenate(noise)
    assert np.mean(drawn**2) == pytest.approx(1.0, abs=6 * np.sqrt(2 / drawn.size))
    assert abs(drawn.mean()) < 6 / np.sqrt(drawn.size)


def test_the_density_of_each_class(fed, map_of):
    private_map, fed = {"density": True, "classes": (2, 0, 1, 3)}, repeated(fed, 10)
    estimator = map_of(HUGE, private_map=private_map).fit(fed)
    density, y = estimator.density_, fed.pooled()[1]
    assert density.classes == ("2", "0", "1", "3")  # in the order of the list
    frequencies = [*(np.mean(y == label) for label in (2, 0, 1, 3)), 0.0]
    np.testing.assert_allclose(density.shares.sum(axis=(1, 2)), frequencies, atol=0.02)
    numbers = density.grid.cell(estimator.published_map_.place(fed.pooled()[0][y == 2]))
    expected = np.bincount(numbers, minlength=density.grid.cells**2) / fed.n_records
    np.testing.assert_allclose(density.shares[0].ravel(), expected, atol=8 * density.noise)
    assert sum(event.what == "density" for event in estimator.ledger_.events(client="client-0")) == 1


def test_labels_that_are_not_public_are_counted_as_other(fed, map_of):
    density = map_of(HUGE, private_map={"density": True, "classes": (2,)}).fit(repeated(fed, 10)).density_
    share = np.mean(fed.pooled()[1] == 2)
    assert density.layers == ("2", "other")
    np.testing.assert_allclose(density.shares.sum(axis=(1, 2)), [share, 1 - share], atol=0.02)


def test_an_empty_client_takes_part_where_its_size_is_private(fed, map_of):
    """To refuse it would tell that it has no record; under replace-one the number of records is public."""
    X, y = [client.X for client in fed.clients], [client.y for client in fed.clients]
    empty = type(fed)([*X, X[0][:0]], [*y, y[0][:0]], dtype=X[0].dtype)
    budget = Budget(500, 1e-5, adjacency="add-remove")
    options = {"tau_x": 30.0, "feddl": {"public_records": 50}, "private_map": {"density": True, "classes": (2,)}}
    estimator = map_of(budget, **options).fit(empty)
    assert estimator.views()["client-3"].shape == (0, 2)
    assert "client-3" in estimator.ledger_.clients
    ledger = Ledger(budget=HUGE)
    with pytest.raises(InvalidParameter, match="number of records of 'client-3' must be at least 1"):
        map_of(HUGE).watch(ledger=ledger).fit(empty)
    assert len(ledger) == 0


def test_a_built_in_class_that_does_not_exist_is_refused(fed, map_of):
    named = type(fed)(
        [client.X for client in fed.clients], [client.y for client in fed.clients], class_names=["a", "b", "c", "d"]
    )
    with pytest.raises(InvalidParameter, match="class must be one of a, b, c, d"):
        map_of(HUGE, private_map={"density": True, "classes": (2,)}).fit(named)
    density = map_of(HUGE, private_map={"density": True, "classes": ("c",)}).fit(named).density_
    noise = density.noise * density.grid.cells  # of a sum over all cells
    assert density.shares[0].sum() == pytest.approx(np.mean(fed.pooled()[1] == 2), abs=5 * noise)


def test_weights_and_anchored_placement_share_one_frame(fed, map_of):
    """The board does not depend on how clients place themselves."""
    boards = [
        map_of(private_map={"placement": each}).fit(fed).published_map_ for each in (ByWeights(), SHORT, "transform")
    ]
    for published in boards[1:]:
        assert published.places.tobytes() == boards[0].places.tobytes()
        assert published.anchors.tobytes() == boards[0].anchors.tobytes()


# Images


def test_second_moments_of_images_are_those_of_low_frequencies():
    """Fewer values, a subspace of smooth images, and the same budget; the map then has less noise."""
    rng = np.random.default_rng(0)
    smooth = rng.standard_normal((600, 3, 3)).repeat(5, axis=1).repeat(5, axis=2).reshape(600, 225)
    fed = FederatedData.split(smooth.astype(np.float32), clients=3, partition="iid", seed=0)
    learned = {image: learn(fed, Budget(8, 1e-5), image=image) for image in (None, (15, 15))}
    values = {
        image: next(iter(found.feddl.ledger.events(what="second moments"))).values for image, found in learned.items()
    }
    assert values == {None: 225 * 226 // 2, (15, 15): MANY_VALUES * (MANY_VALUES + 1) // 2}
    for found in learned.values():
        assert found.feddl.ledger.spent() == pytest.approx(8, rel=1e-6)
    axes = learned[15, 15].subspace.axes
    basis = low_frequencies((15, 15))
    np.testing.assert_allclose(basis @ (basis.T @ axes), axes, atol=1e-3)
    eighth = {image: found.subspace.variances[7] for image, found in learned.items()}
    assert eighth[15, 15] > 10 * eighth[None], "a clear direction, where a share of what is left was"


def test_the_shape_of_images_comes_from_the_data():
    images = FederatedData.from_dataset(load("digits"), clients=2, seed=0)
    assert images.spatial_shape == (8, 8)
    hog = with_features(images, "hog", None)
    assert hog.spatial_shape == (4, 4, 8)
    assert np.prod(hog.spatial_shape) == hog.n_features
    assert with_features(images, np.log1p, None).spatial_shape is None
    assert digits(20, 2).spatial_shape is None
