"""What a private map is made with: noise as stated, landmarks, the board itself, settings."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import Budget, InvalidParameter, Ledger
from dpfedvis.estimators.simulation import simulated
from dpfedvis.mechanisms import KMeans, PreparedRecords
from dpfedvis.mechanisms.density import GridCounts
from dpfedvis.mechanisms.scale import Moments, ScaleHistogram
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.projections import clip_norms
from dpfedvis.numerics.random_streams import Streams
from dpfedvis.protocol.density import DensityGrid
from dpfedvis.protocol.published_map import PublishedMap
from dpfedvis.protocol.subspace import Subspace
from dpfedvis.protocol.views import RAW as RECORDS
from dpfedvis.protocol.views import DensityView
from dpfedvis.server import frame, private_map
from dpfedvis.server.members import Members
from dpfedvis.server.mirror import Mirror
from dpfedvis.server.private_map import LEAST_LANDMARKS, MOST_LANDMARKS, BudgetShares, Learner, landmarks_for
from dpfedvis.server.recipe import Recipe, spread_out
from dpfedvis.server.session import Session
from dpfedvis.server.subspace import principal_subspace
from dpfedvis.site.views import view_of

RAW = Grid.of_norm(32.0, 3)

# Single releases: the noise that is stated is the noise that is there


WIDE = Grid.of_norm(64.0, 20)
BOARD = PublishedMap(
    Subspace(np.zeros(20), np.eye(20)[:, :2], np.full(2, 4.0), WIDE),
    np.random.default_rng(0).normal(0, 3, (30, 2)).astype(np.float32),
    np.random.default_rng(1).normal(0, 3, (30, 2)),
    0,
)
COUNTED = DensityView(BOARD, DensityGrid(BOARD.half, 17))


@pytest.mark.parametrize("trust", ["local", "aggregate", "central"])
@pytest.mark.parametrize(
    "release", [Moments(tau_x=12.0), SecondMoments(clip=3.0), ScaleHistogram(), GridCounts(cells=17**2)]
)
def test_the_variance_that_is_stated_is_that_of_the_average(release, trust, federation_of):
    """Over 30 seeds, around the weighted mean of the sites' exact messages."""
    release = type(release)(**{**vars(release), "trust": trust})
    fed, budget, counted = federation_of(features=20), Budget(1.0, 1e-5), isinstance(release, GridCounts)
    weights, view = [n / fed.n_records for n in fed.records], "density" if counted else RECORDS
    parts = [view_of(COUNTED, client.X, None) if counted else client.X for client in fed.clients]
    noise = []
    for seed in range(30):
        learner = Learner(budget=budget, mechanism=KMeans(trust=trust), layers=1, seed=seed)
        public, streams = learner.public_for(parts[0].shape[1]), Streams(seed)
        session = opened(learner, fed)
        if counted:
            session.prepare(COUNTED)
        average, stated = session.once(release, public, view)
        assert not session.failures
        exact = 0.0
        for p, X in enumerate(parts):
            generator = streams.generator("message", release.what, p, 0)
            local = PreparedRecords(release.prepare(X), float(len(X)))
            exact = exact + weights[p] * release.message(local, np.zeros((1, 1)), public, generator).values
        relative = release.relative_noise(public)
        noise.append((average - exact) / (1.0 if relative is None else relative))
    drawn = np.concatenate(noise)
    assert np.mean(drawn**2) == pytest.approx(stated, rel=7 * math.sqrt(2 / drawn.size))
    if trust != "local":
        # Three sites, one of whom may collude: a sum of all has 3/2 of the variance that ε needs.
        more = 1.5 if trust == "aggregate" else 1.0
        for event in session.mirror.ledger.events():
            assert event.sigma**2 * more == pytest.approx(stated, rel=1e-12)


def opened(learner, fed):
    """A session that the sites of these data have agreed to."""
    link = simulated(fed, budget=learner.budget, noise="seeded")
    contract = learner.contract(Members.asked(link, learner.budget), "a run")
    session = Session(link, contract, Mirror(Ledger(budget=learner.budget)))
    session.open()
    return session


# Landmarks


@given(st.floats(1e-9, 1e3), st.floats(1.0, 100.0))
def test_more_noise_gives_no_more_landmarks(noise, factor):
    few, many = landmarks_for(noise * factor), landmarks_for(noise)
    assert LEAST_LANDMARKS <= few <= many <= MOST_LANDMARKS == landmarks_for(0.0)
    if many > LEAST_LANDMARKS:
        assert 1 / many >= 3 * noise, "a landmark's records stand out"
        assert many <= 5.8 / math.sqrt(noise)


def test_spread_out_points_follow_their_landmarks():
    subspace = Subspace(np.zeros(3), np.eye(3)[:, :2], np.array([4.0, 1.0]), RAW)
    landmarks = np.random.default_rng(0).normal(0, [1.9, 0.9], (10, 2))
    points = spread_out(landmarks, subspace, 4005, np.random.default_rng(1))
    assert points.shape == (4005, 2)
    assert points.dtype == np.float32
    left = np.maximum([4.0, 1.0] - landmarks.var(axis=0), [0.4, 0.1])
    for j in range(10):
        own = points[j::10]
        np.testing.assert_allclose(own.mean(axis=0), landmarks[j], atol=6 * math.sqrt(left.max() / len(own)))
    offsets = points - landmarks[np.arange(4005) % 10]
    ratio = offsets.var(axis=0) / left
    assert ratio[0] == pytest.approx(ratio[1], rel=0.15), "one part of the variance that is left, in each direction"
    np.testing.assert_array_equal(points, spread_out(landmarks, subspace, 4005, np.random.default_rng(1)))


# The board


def test_the_map_is_centred_and_has_the_room_of_a_client():
    places = np.array([(0.0, 0.0), (4.0, 0.0), (4.0, 2.0), (1.0, 1.0)])
    scaled = Recipe(radius=0.5).scaled(places, 400.0)
    np.testing.assert_allclose(scaled.max(axis=0) + scaled.min(axis=0), 0, atol=1e-12)
    assert math.sqrt(np.mean(np.sum(scaled**2, axis=1))) == pytest.approx(0.5 * 20)
    shape = clip_norms(scaled - scaled[0], 1e9) / (places[1, 0] - places[0, 0])
    np.testing.assert_allclose(shape / shape[1, 0], (places - places[0]) / 4, atol=1e-12)
    assert np.isfinite(Recipe().scaled(np.zeros((4, 2)), 400.0)).all()


# Settings


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("components", {"components": 0}),
        ("anchors", {"anchors": 3}),
        ("radius", {"radius": 0.0}),
        ("placement", {"placement": "magic"}),
        ("factors", {"factors": ()}),
        ("factor", {"factors": (1.0, -1.0)}),
        ("stage of shares", {"shares": {"frame": 0.1}}),
        ("shares", {"shares": 3}),
        ("share of subspace", {"shares": {"subspace": 0.0}}),
        ("share of density", {"shares": {"density": 1.0}}),
        ("share of scale", {"shares": {"scale": math.nan}}),
        ("classes", {"classes": (0, 1)}),
        ("classes", {"classes": (1, 0, 1), "density": True}),
        ("classes", {"classes": (1, "1"), "density": True}),
        ("classes", {"classes": ("", "a"), "density": True}),
        ("classes", {"classes": ("a", "other"), "density": True}),
        ("classes", {"classes": "ab", "density": True}),
        ("classes", {"classes": (True, False), "density": True}),
        ("classes", {"classes": (0.5,), "density": True}),
    ],
)
def test_bad_settings_are_named(name, settings):
    with pytest.raises(InvalidParameter) as caught:
        Recipe(**settings)
    assert caught.value.name == name


def test_shares_may_be_given_in_part():
    assert Recipe(shares={"subspace": 0.4}).shares == BudgetShares(subspace=0.4)


def test_shares_leave_something_for_the_landmarks(fed, map_of):
    for density, allowed in ((False, True), (True, False)):
        shares = {"scale": 0.3, "moments": 0.3, "subspace": 0.3, "density": 0.2}
        estimator = map_of(private_map={"shares": shares, "density": density})
        if allowed:
            estimator.fit(fed)
        else:
            with pytest.raises(InvalidParameter, match="below 1 together"):
                estimator.fit(fed)


def agreed_on(learner, fed):
    members = Members.asked(simulated(fed, budget=learner.budget, noise="seeded"), learner.budget)
    return learner.contract(members, "a run")


def test_records_a_client_are_what_is_public(federation_of):
    fed, chosen = federation_of((10, 20, 60)), KMeans()
    for budget, given_, expected in (
        (Budget(1, 1e-5), None, 30.0),
        (Budget(1, 1e-5), 99, 30.0),
        (Budget(1, 1e-5, adjacency="add-remove"), 99, 99.0),
        (Budget(1, 1e-5, unit="client"), 99, 99.0),
    ):
        learner = Learner(budget=budget, mechanism=chosen, public_records=given_, tau_x=9.0)
        assert learner.records_a_client(agreed_on(learner, fed)) == expected
    whole = Learner(budget=Budget(1, 1e-5, unit="client"), mechanism=chosen)
    sizes = {whole.records_a_client(agreed_on(whole, each)) for each in (fed, federation_of((1, 2, 3)))}
    assert len(sizes) == 1


@pytest.mark.parametrize("trust", ["local", "aggregate"])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_choices_rest_on_the_noise_of_the_ledger(trust, adjacency, federation_of, monkeypatch):
    """The number of landmarks, and which directions are kept, from σ as it was accounted for."""
    seen = {}

    def moments(**settings):
        seen.update(settings)
        return SecondMoments(**settings)

    def kept(centre, matrix, noise, most, raw, *further):
        seen["subspace"] = noise
        return principal_subspace(centre, matrix, noise, most, raw, *further)

    def chosen(noise):
        seen["landmarks"] = noise
        return landmarks_for(noise)

    for room, name, spy in (
        (frame, "SecondMoments", moments),
        (frame, "principal_subspace", kept),
        (private_map, "landmarks_for", chosen),
    ):
        monkeypatch.setattr(room, name, spy)
    fed = federation_of((40, 20, 60), features=6)
    public = 50 if adjacency == "add-remove" else None
    learner = Learner(
        budget=Budget(5, 1e-5, adjacency=adjacency), mechanism=KMeans(trust=trust), tau_x=20.0, public_records=public
    )
    learned = learner.run(simulated(fed, budget=learner.budget, noise="seeded"))
    weights = [1 / 3] * 3 if public else [40 / 120, 20 / 120, 60 / 120]

    def noise(what):
        events = {event.client: event for event in learned.feddl.ledger.events(what=what)}
        sigmas = [events[client.name].sigma for client in fed.clients]
        if trust == "aggregate":
            return sigmas[0] * math.sqrt(3 / 2)
        return math.sqrt(sum((weight * sigma) ** 2 for weight, sigma in zip(weights, sigmas, strict=True)))

    assert seen["landmarks"] == pytest.approx(noise("cluster sums"), rel=1e-9)
    assert seen["subspace"] == pytest.approx(noise("second moments") * seen["clip"] ** 2, rel=1e-9)


def test_records_that_fill_little_of_their_bounds_are_seen_as_small(federation_of):
    """Bounds let expect a variance of 1000²/12 a feature, and the mean square leaves 109 of all six; they have 15."""
    learner = Learner(budget=Budget(8, 1e-5), mechanism=KMeans(), landmarks=24, bounds=(-500.0, 500.0), tau_x=60.0)
    fed = federation_of((400, 400, 400), features=6)
    learned = learner.run(simulated(fed, budget=learner.budget, noise="seeded"))
    truth = float(fed.pooled()[0].var(axis=0).sum())
    assert 0.5 * truth < learned.subspace.variances.sum() < 2 * truth


def test_anchors_weigh_as_much_as_the_records_counted_near_them(federation_of):
    budget, mechanism = Budget(500, 1e-5), KMeans()
    fed = federation_of((400, 400, 400))
    learned = Learner(budget=budget, mechanism=mechanism, landmarks=24).run(
        simulated(fed, budget=budget, noise="seeded")
    )
    X = np.concatenate([client.X for client in fed.clients])
    records, places = learned.subspace.coordinates(X), learned.feddl.landmarks
    own = np.argmin([np.sum((records - place) ** 2, axis=1) for place in places], axis=0)
    true = np.bincount(own, minlength=24) / len(X)
    of = np.arange(60) % 24
    found = Recipe.weights(learned, of)
    assert found.shape == (60,)
    assert (found > 0).all()
    # Landmarks moved a little in the sweeps that were pooled.
    assert np.corrcoef(found, true[of])[0, 1] > 0.9
    np.testing.assert_array_equal(found[:12], found[48:])
    assert Recipe.weights(replace(learned, feddl=replace(learned.feddl, tally=None)), of) is None
