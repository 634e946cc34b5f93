"""Private clusters: those of the map of protected landmarks, with nothing more released; records find them at home."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from accounting import Budget, InvalidParameter
from dpfedvis import FederatedData, FedSpectralClustering, FedTSNE
from dpfedvis.estimators.base import ReleaseUnavailable
from dpfedvis.estimators.simulation import simulated
from dpfedvis.evaluation.scores import scores_of
from dpfedvis.numerics.files import read_arrays
from dpfedvis.numerics.layouts import LAYOUTS
from dpfedvis.numerics.spectral import SpectralSettings
from dpfedvis.server import Program, ProgramSettings
from dpfedvis.server.checkpoint import SnapshotMismatch
from dpfedvis.server.recipe import Recipe
from dpfedvis.site.placement import ByWeights
from tests.makers import three_blobs

FAST = {"n_landmarks": 20, "rounds": 3, "private_map": {"anchors": 40, "placement": "weights"}, "n_jobs": 1}
WIDE = Budget(200.0, 1e-5)  # noise that nothing shows of


def clustering(**options) -> FedSpectralClustering:
    return FedSpectralClustering(**{"n_clusters": 3, "budget": WIDE, **FAST, **options})


@pytest.fixture(scope="module")
def fed() -> FederatedData:
    X, y = three_blobs(sizes=(100, 120, 140), features=3)
    return FederatedData.split(X, y, clients=3, seed=0)


@pytest.fixture(scope="module")
def fitted(fed) -> FedSpectralClustering:
    return clustering().fit(fed)


def test_blobs_are_found_with_nothing_of_a_record_released(fed, fitted):
    assert fitted.settings_.release == "none"
    assert fitted.settings_.mechanism == "k-means"
    assert fitted.labels_.dtype == np.int64
    assert adjusted_rand_score(fed.pooled()[1], fitted.labels_) > 0.95
    assert fitted.ledger_.spent(end_to_end=True) == pytest.approx(200.0, rel=1e-6)
    assert all(event.stage != "release" for event in fitted.ledger_.events())
    views = fitted.views()
    assert list(views) == [client.name for client in fed.clients]
    np.testing.assert_array_equal(np.concatenate(list(views.values())), fitted.labels_)


def test_clusters_are_post_processing_of_the_map(fed, fitted):
    """The same uploads as those of the map alone, bit for bit, and the same map."""
    tsne = FedTSNE(budget=WIDE, **FAST).fit(fed)
    assert [each.to_json() for each in tsne.ledger_.events()] == [each.to_json() for each in fitted.ledger_.events()]
    np.testing.assert_array_equal(tsne.landmarks_, fitted.landmarks_)
    np.testing.assert_array_equal(tsne.published_map_.places, fitted.published_map_.places)
    np.testing.assert_array_equal(tsne.embedding_, fitted.embedding_)
    assert tsne.published_map_.centres is None
    assert fitted.published_map_.centres.shape == (3, 2)


def test_each_site_finds_its_records_at_home(fed, fitted):
    """From what is published and its own records alone, record by record."""
    published = fitted.published_map_
    for client in fed.clients:
        places = ByWeights()(published, client.X)
        expected = [int(np.argmin([np.hypot(*(place - centre)) for centre in published.centres])) for place in places]
        assert fitted.views()[client.name].tolist() == expected


def test_they_are_scored_by_their_clusters(fed, fitted):
    scores = scores_of(fitted, fed)
    assert scores["nmi"] > 0.9
    assert "ca_10" not in scores


def test_one_seed_one_result(fed, fitted):
    again = clone(fitted).fit(fed)
    np.testing.assert_array_equal(again.labels_, fitted.labels_)
    np.testing.assert_array_equal(again.published_map_.centres, fitted.published_map_.centres)


def test_an_array_keeps_the_order_of_its_rows():
    X, y = three_blobs(sizes=(100, 120, 140), features=3)
    mixed = np.random.default_rng(0).permutation(len(X))
    labels = clustering().fit_predict(X[mixed], groups=np.arange(len(X)) % 3)
    assert adjusted_rand_score(y[mixed], labels) > 0.95


def test_a_newcomer_finds_its_clusters_and_nothing_is_spent(fed, fitted):
    before = len(fitted.ledger_)
    own = fed.clients[1]
    np.testing.assert_array_equal(fitted.predict(own.X), fitted.views()[own.name])
    assert len(fitted.ledger_) == before
    rows = clustering(budget=None, private_map=None).fit(fed)
    with pytest.raises(ReleaseUnavailable, match="release='none'"):
        rows.predict(own.X)


@pytest.mark.parametrize(
    "budget",
    [Budget(200.0, 1e-5, adjacency="add-remove"), Budget(200.0, 1e-5, unit="client")],
    ids=["add-remove", "unit client"],
)
def test_budgets_that_rows_cannot_have(fed, budget):
    estimator = clustering(budget=budget, tau_x=2.0, feddl={"public_records": 120}).fit(fed)
    assert len(estimator.labels_) == fed.n_records


def test_clusters_survive_the_journey_as_bytes(fed):
    """The program, the published map and every message; at each site the same clusters as in the simulation."""
    settings = ProgramSettings(
        mechanism=clustering().fit(fed)._mechanism, budget=WIDE, release="none", landmarks=20, rounds=3,
        recipe=Recipe(anchors=40, placement="weights"), layout=LAYOUTS["tsne"](), clusters=SpectralSettings(clusters=3),
    )  # fmt: skip
    link = simulated(fed, budget=WIDE, noise="seeded")
    link._through_bytes = True
    published = link.run(Program.of_bytes(Program(settings).to_bytes()))
    assert published.map.centres.shape == (3, 2)
    for site in link.members:
        places = site.placed(published.label)
        np.testing.assert_array_equal(site.clusters(published.label), published.map.clusters_at(places))
    link.close()


def test_processes_keep_their_clusters_at_home(fed, tmp_path):
    estimator = clustering().watch(processes=tmp_path / "sites").fit(fed)
    with pytest.raises(ReleaseUnavailable, match="stay at the sites"):
        estimator.views()
    with pytest.raises(ReleaseUnavailable, match="stay at the sites"):
        clustering().watch(processes=tmp_path / "others").fit_predict(fed)
    for number, client in enumerate(fed.clients):
        kept = read_arrays(tmp_path / "sites" / str(number) / "placed.npz")
        assert kept["clusters"].shape == (len(client.X),)
        np.testing.assert_array_equal(kept["clusters"], estimator.published_map_.clusters_at(kept["places"]))


def test_a_resumed_fit_publishes_the_same_clusters_and_no_others(fed, fitted, tmp_path):
    first = clustering().watch(checkpoint=tmp_path / "kept").fit(fed)
    spent = len(first.ledger_)
    second = clustering().watch(checkpoint=tmp_path / "kept").fit(fed)
    np.testing.assert_array_equal(second.labels_, fitted.labels_)
    assert len(second.ledger_) == spent
    with pytest.raises(SnapshotMismatch, match="3 clusters"):
        clustering(n_clusters=4).watch(checkpoint=tmp_path / "kept").fit(fed)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("n_clusters", {"n_clusters": 41}),
        ("n_clusters", {"n_clusters": 361}),
        ("budget", {"budget": None, "release": "none"}),
        ("anchors", {"release": "noisy", "tau_x": 2.0}),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_spent(fed, name, options):
    estimator = clustering(**options)
    with pytest.raises(InvalidParameter) as caught:
        estimator.fit(fed)
    assert caught.value.name == name
    assert not hasattr(estimator, "ledger_")


def test_coinciding_anchors_leave_some_clusters_empty():
    """Records that are all alike: one cluster has them, and nothing warns or fails."""
    fed = FederatedData([np.ones((30, 3)), np.ones((30, 3))])
    labels = clustering(n_clusters=5).fit(fed).labels_
    assert set(labels.tolist()) <= set(range(5))
