"""What Fed-tSNE and Fed-UMAP release: rows refused, exact, or with noise, and what the ledger says of them."""

from __future__ import annotations

import numpy as np
import pytest

from accounting import Budget, GaussianRelease, PostProcessing, Unprotected, UnprotectedReleaseError
from dpfedvis import FederatedData
from dpfedvis.estimators.base import ReleaseUnavailable
from dpfedvis.estimators.simulation import simulated
from dpfedvis.mechanisms import InputPerturbation
from dpfedvis.mechanisms.rows import DistanceRows, GramRows
from dpfedvis.numerics.distances import GramDistances
from dpfedvis.numerics.neighbors import nearest
from dpfedvis.numerics.projections import clip_norms
from tests.makers import BUDGET, SPAN, blobs, digits, tsne, umap

TAU = 5.5


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
    estimator = tsne(**options, feddl=None, private_map=weights if mode == "none" else None).fit(blobs())
    assert estimator.statement_.to_dict()["facts"]["release"] == mode
    rows = [event for event in estimator.ledger_.events() if event.stage == "release"]
    assert bool(rows) == (mode == "exact")
    assert hasattr(estimator, "published_map_") == (mode == "none")


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
    fed = blobs()
    estimator = tsne(mechanism=InputPerturbation(tau_x=2.0), budget=BUDGET).fit(fed)
    rows = [event for event in estimator.ledger_.events() if event.stage == "release"]
    assert all(isinstance(event, PostProcessing) and event.of == "records" for event in rows)
    assert len(rows) == 3
    assert estimator.ledger_.spent(end_to_end=True) == pytest.approx(2.0, rel=1e-6)
    # The same program once more, at sites whose owners show what they keep at home: its noise is seeded.
    link = simulated(fed, budget=BUDGET, noise="seeded")
    published = link.run(estimator._row_program(fed))
    np.testing.assert_array_equal(published.landmarks, estimator.landmarks_)
    homes = [site.perturbed(published.label).floats for site in link.members]
    expected = np.concatenate([DistanceRows().of(home, estimator.landmarks_) for home in homes])
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
    huge = Budget(500, 1e-5)
    options = {"mechanism": "gradient", "budget": huge, "release": "noisy", "tau_x": 0.5, "feddl": SPAN}
    estimator = tsne(n_landmarks=10, **options).fit(far)
    clipped = np.concatenate([clip_norms(c.X, 0.5) for c in far.clients])
    drawn = estimator.distances_.left - GramRows(estimator.noise_).of(clipped, estimator.landmarks_)
    assert drawn.shape[1] == 3
    assert estimator.noise_ < 0.1
    assert drawn.std() == pytest.approx(estimator.noise_, rel=6 / np.sqrt(2 * drawn.size))
    assert np.abs(drawn).max() < 7 * estimator.noise_


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
            budget=Budget(500.0, 1e-5),
            release="noisy",
            release_share=0.95,
            tau_x=TAU,
            tsne={"early_exaggeration_iter": 1, "n_iter": 1},
        ).fit(fed)
        assert estimator.ledger_.spent(end_to_end=True) == pytest.approx(500.0, rel=1e-6)
        found = estimator.neighbors_.indices[:, :10]
        shares[distances] = (true[:, :, None] == found[:, None, :]).any(axis=2).mean()
    chance = 10 / 499
    assert shares["gram"] > 3 * chance
    assert shares["gram"] > 2 * shares["nystrom"]
