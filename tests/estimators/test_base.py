"""What all estimators share, tried with a small one of its own: budget, rows, newcomers, facts."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from accounting import Budget, GaussianRelease, InvalidParameter, Unprotected, UnprotectedReleaseError
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.estimators.base import FederatedEstimator, ReleaseUnavailable
from dpfedvis.estimators.given_data import as_new_records
from dpfedvis.mechanisms.rows import DistanceRows, GramRows
from dpfedvis.numerics.projections import clip_norms
from dpfedvis.server.checkpoint import SnapshotMismatch
from dpfedvis.server.session import SiteRefused

BUDGET = Budget(3.0, 1e-5)


class Rowed(FederatedEstimator):
    """Learns landmarks, releases rows, and keeps them."""

    _map = "clusters"
    _names: ClassVar[dict] = {**FederatedEstimator._names, "rows": None}

    def __init__(
        self,
        n_landmarks=6,
        mechanism="gradient",
        budget=BUDGET,
        release="noisy",
        rounds=3,
        release_share=0.5,
        tau_x=2.0,
        random_state=0,
        noise="seeded",
        feddl=None,
        rows="distance",
    ):
        self.n_landmarks = n_landmarks
        self.mechanism = mechanism
        self.budget = budget
        self.release = release
        self.rounds = rounds
        self.release_share = release_share
        self.tau_x = tau_x
        self.random_state = random_state
        self.noise = noise
        self.feddl = feddl
        self.rows = rows

    def fit(self, fed, y=None):
        fed = self._resolve(fed)
        self._check_release()
        self.program_ = self._program(fed, self.rows)
        published, _ = self._carry_out(fed, self.program_)
        self.rows_ = published.rows
        return self

    def joined(self, X, name):
        """Return the rows of a client that joins later."""
        return self._newcomer(X, name, self.program_)


@pytest.fixture
def fed():
    rng = np.random.default_rng(0)
    return FederatedData([rng.uniform(size=(n, 3)) for n in (10, 25)], names=["a", "b"], dtype=np.float64)


def rowed(**options):
    return Rowed(**{"feddl": {"bounds": (0.0, 1.0)}, **options})


def test_exact_rows_leave_as_they_are(fed):
    estimator = rowed(mechanism="none", budget=None, release="exact").fit(fed)
    for client, rows in zip(fed.clients, estimator.rows_, strict=True):
        np.testing.assert_allclose(rows, DistanceRows().of(client.X, estimator.landmarks_))
    releases = [event for event in estimator.ledger_.events() if event.stage == "release"]
    assert [(type(event), event.client) for event in releases] == [(Unprotected, "a"), (Unprotected, "b")]


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_the_share_divides_the_budget(fed, share):
    estimator = rowed(release_share=share).fit(fed)
    for client in ("a", "b"):
        events = list(estimator.ledger_.events(client=client))
        assert all(isinstance(event, GaussianRelease) for event in events)
        squares = {what: sum(e.mu**2 for e in events if e.what == what) for what in ("gradient", "distance rows")}
        assert squares["distance rows"] / sum(squares.values()) == pytest.approx(share, rel=1e-6)
    assert estimator.ledger_.spent(end_to_end=True) == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize("noise", ["seeded", "discrete"])
def test_every_source_of_noise_makes_noisy_rows(fed, noise):
    estimator = rowed(feddl={"bounds": (0.0, 1.0)}, noise=noise, rows="gram").fit(fed)
    assert estimator.ledger_.spent(end_to_end=True) <= 3.0 * (1 + 1e-9)
    event = next(event for event in estimator.ledger_.events(what="gram rows"))
    assert event.noise == noise
    exact = [GramRows().of(clip_norms(c.X, 2.0), estimator.landmarks_) for c in fed.clients]
    drawn = np.concatenate(estimator.rows_) - np.concatenate(exact)
    assert drawn.std() == pytest.approx(event.sigma, rel=0.35)


def test_moments_share_the_budget_too(fed):
    estimator = rowed(feddl={"gamma": "moments", "start": "mean", "bounds": None}).fit(fed)
    assert {event.what for event in estimator.ledger_.events()} == {"moments", "gradient", "distance rows"}
    assert estimator.ledger_.spent(end_to_end=True) == pytest.approx(3.0, rel=1e-6)


def test_an_unprotected_bandwidth_is_refused_end_to_end(fed):
    estimator = rowed(feddl={"gamma": "median"})
    with pytest.raises(SiteRefused, match="median distance would leave this site without protection"):
        estimator.fit(fed)
    assert not hasattr(estimator, "ledger_")


def test_unprotected_landmarks_are_refused_end_to_end(fed):
    with pytest.raises(UnprotectedReleaseError):
        rowed(mechanism="heuristic").fit(fed)


def test_a_run_can_be_fitted_anew(fed):
    estimator = rowed().fit(fed)
    first = estimator.ledger_
    estimator.fit(fed)
    assert estimator.ledger_ is not first
    assert len(estimator.ledger_) == len(first)


def test_newcomers_have_streams_of_their_own(fed):
    estimator = rowed().fit(fed)
    X = np.full((10, 3), 0.4)
    rows = [estimator.joined(X, name) for name in ("c", "d")]
    everything = [*estimator.rows_, *rows]
    exact = [DistanceRows().of(x, estimator.landmarks_) for x in (*[c.X for c in fed.clients], X, X)]
    drawn = [(noisy - clean)[:10] for noisy, clean in zip(everything, exact, strict=True)]
    for i, one in enumerate(drawn):
        for other in drawn[:i]:
            assert not np.allclose(one, other)
    assert set(estimator.ledger_.clients) == {"a", "b", "c", "d"}


def test_a_newcomer_needs_a_new_name(fed):
    estimator = rowed().fit(fed)
    with pytest.raises(InvalidParameter, match="new: a client of this name"):
        estimator.joined(np.zeros((1, 3)), "a")


def test_nobody_joins_after_input_perturbation(fed):
    estimator = rowed(mechanism="input", release="exact").fit(fed)
    with pytest.raises(ReleaseUnavailable, match="input perturbation"):
        estimator.joined(np.zeros((1, 3)), "c")


@pytest.mark.parametrize(
    "key", ["landmarks", "mechanism", "budget", "rounds", "tau_x", "seed", "noisy_rows", "exact_rows"]
)
def test_further_settings_cannot_override_the_estimators_own(fed, key):
    """Sensitivities use n_landmarks: another number in `feddl` would make them wrong."""
    with pytest.raises(InvalidParameter, match=key):
        rowed(feddl={"bounds": (0.0, 1.0), key: 1}).fit(fed)


@pytest.mark.parametrize(("name", "value"), [("feddl", {"nonsense": 1}), ("random_state", "x")])
def test_other_bad_settings_stop_before_anything_is_released(fed, name, value):
    estimator = rowed(**{name: value})
    with pytest.raises((TypeError, ValueError)):
        estimator.fit(fed)
    assert not hasattr(estimator, "ledger_")


def test_facts_of_the_run_are_stated(fed):
    estimator = rowed().fit(fed)
    facts = estimator.statement_.facts
    assert facts["estimator"] == "Rowed"
    assert (facts["mechanism"], facts["release"]) == ("gradient", "noisy")
    assert (facts["clients"], facts["landmarks"], facts["rounds"]) == (2, 6, 3)
    assert facts["bandwidth"] == list(estimator.feddl_.public.kernel.gammas)
    estimator.statement_.to_json()


def test_the_statement_follows_the_ledger(fed):
    estimator = rowed(mechanism="none", budget=None, release="exact").fit(fed)
    before = {line.what: line.clients for line in estimator.statement_.lines}
    estimator.joined(np.zeros((1, 3)), "c")
    after = {line.what: line.clients for line in estimator.statement_.lines}
    assert (before["distance rows"], after["distance rows"]) == (2, 3)


def test_a_fit_goes_on_from_its_checkpoint_and_spends_nothing_more(fed, tmp_path):
    """With fresh noise: a second draw would show."""
    settings = {"feddl": {"bounds": (0.0, 1.0)}, "noise": "discrete"}
    first = rowed(**settings).watch(checkpoint=tmp_path).fit(fed)
    second = rowed(**settings).watch(checkpoint=tmp_path).fit(fed)
    assert len(second.ledger_) == len(first.ledger_) == 2 * 3 + 2
    np.testing.assert_array_equal(second.landmarks_, first.landmarks_)
    for one, other in zip(first.rows_, second.rows_, strict=True):
        np.testing.assert_array_equal(one, other)
    # A client that joins later gets rows of its own, not those that are kept.
    X = np.full((10, 3), 0.4)
    rows = second.joined(X, "c")
    assert rows.shape == (10, 6)
    assert not np.array_equal(rows, second.rows_[0])
    for estimator in (first, second):
        estimator.ledger_.close()


@pytest.mark.parametrize("other", [{"rounds": 4}, {"release_share": 0.4}, {"rows": "gram"}])
def test_a_checkpoint_of_other_settings_is_refused(other, fed, tmp_path):
    first = rowed().watch(checkpoint=tmp_path).fit(fed)
    with pytest.raises(SnapshotMismatch, match="another folder"):
        rowed(**other).watch(checkpoint=tmp_path).fit(fed)
    assert len(first.ledger_) == 8
    first.ledger_.close()


def test_the_base_fits_nothing(fed):
    with pytest.raises(NotImplementedError):
        FederatedEstimator().fit(fed)


def test_new_records_become_float32():
    records = as_new_records([[1, 2], [3, 4]], 2)
    assert records.dtype == np.float32
    assert records.shape == (2, 2)


def test_sites_that_have_not_signed_are_named() -> None:
    estimator = FedTSNE()
    estimator._clients, estimator._receipts = ["a", "b", "c"], ("a",)
    assert estimator._signed_by() == {"receipts": "signed by sites a", "unsigned": ["b", "c"]}
    estimator._receipts = ("a", "b", "c")
    assert estimator._signed_by() == {"receipts": "signed by sites a, b, c"}
