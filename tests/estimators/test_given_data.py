"""Data as scikit-learn's users have them: arrays with groups, frames, pickles, a bare ε, records that come later."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from accounting import Budget
from accounting.errors import InvalidParameter
from dpfedvis import FederatedData, FedSpectralClustering, FedTSNE, FedUMAP
from dpfedvis.data import Schema
from dpfedvis.data.features import NotByRecord
from dpfedvis.estimators.base import ReleaseUnavailable
from tests.makers import three_blobs

PRIVATE = {"private_map": {"placement": "weights", "anchors": 40}, "n_landmarks": 20, "n_jobs": 1}
X, KINDS = three_blobs()
X = X.astype(np.float32)
HOSPITALS = np.array(["north", "south", "east"])[np.random.default_rng(0).integers(0, 3, len(X))]


def private(**settings) -> FedTSNE:
    return FedTSNE(**{"epsilon": 5, "feddl": {"bounds": (0, 1)}, **PRIVATE, **settings})


@pytest.fixture(scope="module")
def fitted() -> FedTSNE:
    return private().fit(X, groups=HOSPITALS)


def test_an_array_with_groups_is_federated_by_them(fitted):
    fed = FederatedData.split(X, partition="groups", groups=HOSPITALS)
    same = private().fit(fed)
    assert fitted.embedding_.shape == (len(X), 2)
    for name in ("north", "south", "east"):
        np.testing.assert_array_equal(fitted.views()[name], fitted.embedding_[name == HOSPITALS])
        np.testing.assert_array_equal(fitted.views()[name], same.views()[name])
    assert fitted.n_features_in_ == 3


def test_an_array_without_groups_is_one_client():
    one = private().fit(X)
    assert list(one.views()) == ["client-0"]
    np.testing.assert_array_equal(one.views()["client-0"], one.embedding_)


def test_clusters_of_an_array_are_in_the_order_of_its_rows():
    clusters = FedSpectralClustering(n_clusters=3, n_landmarks=20, random_state=0)
    found = clusters.fit_predict(X, groups=HOSPITALS)
    # Far apart: each blob is one cluster.
    for kind in range(3):
        assert len(set(found[kind == KINDS].tolist())) == 1
    np.testing.assert_array_equal(clusters.views()["south"], found[HOSPITALS == "south"])


def test_a_frame_of_numbers_keeps_the_names_of_its_columns(fitted):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    of_frame = private().fit(frame, groups=HOSPITALS)
    np.testing.assert_array_equal(of_frame.embedding_, fitted.embedding_)
    assert of_frame.feature_names_in_.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize("given", ["digits", {"a": 1}, 3, None])
def test_what_is_no_data_is_named(given):
    with pytest.raises(InvalidParameter, match="data must be FederatedData, or an array or data frame of numbers"):
        FedTSNE().fit(given)


def test_groups_are_those_of_an_array():
    with pytest.raises(InvalidParameter, match="groups must be left out with FederatedData"):
        FedTSNE().fit(FederatedData([X]), groups=HOSPITALS)
    with pytest.raises(Exception, match="records and 3 groups"):
        FedTSNE().fit(X, groups=[1, 2, 3])


# ε alone


def test_epsilon_is_short_for_a_budget(fitted):
    assert fitted.statement_.end_to_end == pytest.approx(5, rel=1e-5)
    assert fitted.settings_.budget == Budget(5.0, 1e-5)
    by_budget = private(epsilon=None, budget=Budget(5, 1e-5)).fit(X, groups=HOSPITALS)
    np.testing.assert_array_equal(by_budget.embedding_, fitted.embedding_)
    assert clone(private()).epsilon == 5


@pytest.mark.parametrize("kind", [FedTSNE, FedUMAP, FedSpectralClustering])
def test_epsilon_and_a_budget_are_one_too_many(kind):
    with pytest.raises(InvalidParameter, match="epsilon must be left out where there is a budget"):
        kind(epsilon=1, budget=Budget(1, 1e-5)).fit(X)


def test_delta_is_far_below_one_over_n():
    few, many = (FederatedData([np.zeros((n, 3))]) for n in (10_000, 40_000))
    settings = FedTSNE(epsilon=1).settings()
    assert settings.resolved(few).delta == 1e-5
    assert settings.resolved(many).delta == pytest.approx(1 / 400_000)
    assert FedTSNE(budget=Budget(1, 1e-4)).settings().resolved(many).delta == 1e-4
    persons = FederatedData([np.zeros((40_000, 3))], persons=[np.arange(40_000) // 2])
    by_person = FedTSNE(budget=Budget(1, 1e-5, unit="person")).settings().updated(delta=None)
    assert by_person.resolved(persons).delta == pytest.approx(1 / 200_000)


# Pickles


@pytest.mark.parametrize("kind", ["private", "exact tsne", "exact umap", "clusters"])
def test_a_fitted_estimator_pickles_without_records(kind, fitted):
    estimator = fitted
    if kind.startswith("exact"):
        settings = {"n_landmarks": 15, "rounds": 2}
        made = FedUMAP(**settings, n_neighbors=5) if kind == "exact umap" else FedTSNE(**settings, perplexity=5)
        estimator = made.fit(X, groups=HOSPITALS)
    if kind == "clusters":
        estimator = FedSpectralClustering(n_clusters=3, n_landmarks=20).fit(X, groups=HOSPITALS)
    data = pickle.dumps(estimator)
    again = pickle.loads(data)
    assert str(again.statement_) == str(estimator.statement_)
    assert {name: part.tolist() for name, part in again.views().items()} == {
        name: part.tolist() for name, part in estimator.views().items()
    }
    if kind == "private":
        for record in X[:20]:
            assert record.tobytes() not in data
        np.testing.assert_array_equal(again.transform(X[:5]), estimator.transform(X[:5]))


def test_a_pickle_forgets_who_looked_on(tmp_path):
    estimator = private().watch(progress=lambda *_: None, checkpoint=tmp_path / "checkpoint").fit(X)
    again = pickle.loads(pickle.dumps(estimator))
    assert again._progress is None
    assert again._checkpoint is None
    assert len(again.ledger_) == len(estimator.ledger_)


# Features


def test_features_are_applied_at_home_and_named_in_the_statement():
    squares = private(features=np.square, feddl={"bounds": (0, 1)}).fit(X, groups=HOSPITALS)
    fed = FederatedData.split(np.square(X), partition="groups", groups=HOSPITALS)
    other = private(feddl=None).fit(fed)
    np.testing.assert_array_equal(squares.views()["south"], other.views()["south"])
    assert "square" in squares.statement_.facts["features"]
    assert squares.feddl_.contract.preparation.startswith("features ")
    np.testing.assert_array_equal(squares.transform(X[:4]), other.transform(np.square(X[:4])))


def test_a_feature_that_mixes_records_is_refused():
    with pytest.raises(NotByRecord):
        private(features=lambda own: own - own.mean(axis=0)).fit(X, groups=HOSPITALS)


def test_what_own_records_are_compared_by_changes_places_and_no_release():
    placed = {"private_map": {"placement": "diffused", "anchors": 40}}
    plain = private(**placed).fit(X, groups=HOSPITALS)
    other = private(**placed, compare_features=lambda own: own[:, :1]).fit(X, groups=HOSPITALS)
    np.testing.assert_array_equal(plain.landmarks_, other.landmarks_)
    assert plain.feddl_.contract.preparation == other.feddl_.contract.preparation == ""
    assert not np.array_equal(plain.embedding_, other.embedding_)


def test_bounds_beside_a_schema_are_refused():
    schema = Schema.of({"columns": {name: {"kind": "number", "range": [0, 1]} for name in "abc"}})
    pandas = pytest.importorskip("pandas")
    fed = FederatedData.from_frames({"one": pandas.DataFrame(X, columns=list("abc"))}, schema)
    with pytest.raises(InvalidParameter, match="bounds must be left out: the schema has the range"):
        private(feddl={"bounds": (0, 2)}).fit(fed)
    fitted = private(feddl=None).fit(fed)
    np.testing.assert_allclose(
        fitted.transform(pandas.DataFrame(X[:4], columns=list("abc"))), fitted.transform(fed.clients[0].X[:4])
    )
    assert fitted.settings_.tau_x == pytest.approx(np.sqrt(3))


def test_records_that_come_later_have_no_vectors(tmp_path):
    ids = [f"r{i}" for i in range(len(X))]
    np.savez(tmp_path / "v.npz", ids=np.array(ids), X=X)
    fed = FederatedData([X], ids=[ids])
    fitted = private(features=str(tmp_path / "v.npz"), feddl=None, tau_x=2.0).fit(fed)
    with pytest.raises(ReleaseUnavailable, match="new records have no vectors"):
        fitted.transform(X[:3])


# Persons, and sites as processes


def test_sites_as_processes_have_the_same_persons_and_comparisons(tmp_path):
    persons = [f"p{i // 2}" for i in range(len(X))]
    fed = FederatedData([X[::2], X[1::2]], persons=[persons[::2], persons[1::2]])
    settings = {
        "epsilon": None,
        "budget": Budget(5, 1e-5, unit="person", rows_per_person=2),
        "features": np.sqrt,
        "tau_x": 2.0,
        "compare_features": np.square,
        "private_map": {"placement": "diffused", "anchors": 40},
    }
    here = private(**settings).fit(fed)
    there = private(**settings).watch(processes=tmp_path / "sites").fit(fed)
    np.testing.assert_array_equal(here.landmarks_, there.landmarks_)
    assert here.feddl_.contract.preparation == there.feddl_.contract.preparation != ""
    with np.load(tmp_path / "sites" / "0" / "placed.npz") as placed:
        np.testing.assert_allclose(placed["places"], here.views()["client-0"])
    assert here.statement_.unit == "person"
    assert here.statement_.facts["persons"] == 2 * ((len(X) + 1) // 2)
