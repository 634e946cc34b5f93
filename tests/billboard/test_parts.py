"""Second moments, principal subspace, counts on a grid: bounds, edges, and slow references."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from accounting import Budget, InvalidParameter, Ledger
from dpfedvis.billboard import Billboard, Density, Grid, Learner, Recipe, Shares, Subspace, landmarks_for
from dpfedvis.billboard import learn as learn_module
from dpfedvis.billboard.anchors import spread_out
from dpfedvis.billboard.density import LEAST_CELLS, MOST_CELLS, GridCounts, cells_for, numbered
from dpfedvis.billboard.learn import LEAST_LANDMARKS, MOST_LANDMARKS
from dpfedvis.billboard.subspace import SecondMoments, principal_subspace
from dpfedvis.federation import Door, Streams
from dpfedvis.kernels import Kernel
from dpfedvis.mechanisms import KMeans, Local
from dpfedvis.projections import clip_norms
from dpfedvis.releases import Releases
from dpfedvis.scale import Moments, ScaleHistogram
from dpfedvis.setting import Setting


def message(release, X, setting, denominator=None):
    local = Local.of(release.prepare(X), float(denominator or len(X)))
    return release.message(local, np.zeros((1, X.shape[1])), setting, np.random.default_rng(0)).values


# Second moments


def test_second_moments_are_the_mean_of_outer_products(setting_of):
    X = np.random.default_rng(0).normal(1, 2, (40, 5))
    release = SecondMoments(centre=np.full(5, 0.5), clip=3.0)
    expected = np.zeros((5, 5))
    for x in X:
        x = (x - 0.5) * min(1.0, 3.0 / np.linalg.norm(x - 0.5))
        expected += np.outer(x, x) / 40
    upload = message(release, X, setting_of(5))
    assert upload.shape == release.shape(setting_of(5)) == (15,)
    np.testing.assert_allclose(release.matrix(upload, 5), expected, rtol=1e-9)


@given(npst.arrays(np.float64, (4, 4), elements=st.floats(-10, 10)), st.floats(0.1, 10))
def test_uploads_have_the_norm_of_their_matrix(values, clip):
    """An isometry: noise on the upload is noise of the same size in the matrix, and Δ carries over."""
    release, upload = SecondMoments(clip=clip), np.random.default_rng(0).normal(size=10)
    assert np.linalg.norm(release.matrix(upload, 4)) == pytest.approx(clip**2 * np.linalg.norm(upload), rel=1e-9)
    there = release.matrix(values[np.triu_indices(4)], 4)
    np.testing.assert_array_equal(there, there.T)


def test_second_moments_attain_their_sensitivity(setting_of):
    """Two orthogonal records at the clipping radius; adding one of them moves the mean by 1/n."""
    X = np.zeros((6, 3))
    X[-1, 0] = 50.0
    other = X.copy()
    other[-1] = 0, 50.0, 0
    release = SecondMoments(clip=2.0)
    for adjacency, second in (("replace-one", other), ("add-remove", X[:-1])):
        setting = setting_of(3, adjacency=adjacency)
        moved = np.linalg.norm(message(release, X, setting, 6) - message(release, second, setting, 6))
        assert moved == pytest.approx(release.sensitivity(setting, 6.0), rel=1e-9)


@pytest.mark.parametrize("clip", [0.0, -1.0, math.nan])
def test_a_clip_that_is_none_is_named(clip):
    with pytest.raises(InvalidParameter, match="clip"):
        SecondMoments(clip=clip)


# Single releases: the noise that is stated is the noise that is there


@pytest.mark.parametrize("trust", ["local", "aggregate", "central"])
@pytest.mark.parametrize(
    "release", [Moments(tau_x=12.0), SecondMoments(clip=3.0), ScaleHistogram(), GridCounts(cells=300)]
)
def test_the_variance_that_is_stated_is_that_of_the_average(release, trust, federation_of, setting_of):
    """Over 30 seeds, around the weighted mean of the clients' exact messages."""
    release = type(release)(**{**vars(release), "trust": trust})
    fed = federation_of(features=20)
    if isinstance(release, GridCounts):
        fed = fed.transformed(lambda X: np.arange(len(X))[:, None] % 300.0)
    weights, setting = [n / fed.n_records for n in fed.records], setting_of(fed.n_features)
    learner = Learner(budget=Budget(1.0, 1e-5), mechanism=KMeans(trust=trust), density=True)
    noise = []
    for seed in range(30):
        streams, ledger = Streams(seed), Ledger(budget=Budget(1.0, 1e-5))
        releases = Releases(fed, learner.plan(), Door(ledger), streams, list(fed.records), weights, "seeded")
        average, failures = releases.once(release, setting)
        assert not failures
        exact = 0.0
        for p, client in enumerate(fed.clients):
            generator = streams.generator("message", release.what, p, 0)
            local = Local.of(release.prepare(client.X), float(len(client.X)))
            exact = exact + weights[p] * release.message(local, np.zeros((1, 1)), setting, generator).values
        noise.append(average - exact)
    drawn, stated = np.concatenate(noise), releases.variance(release, setting)
    assert np.mean(drawn**2) == pytest.approx(stated, rel=7 * math.sqrt(2 / drawn.size))
    if trust != "local":
        assert {event.sigma**2 for event in ledger.events()} == {stated}


# The subspace


def test_directions_above_the_edge_are_kept_and_no_more():
    """m = 8 and noise 0.5: noise alone reaches 2·√4·0.5 = 2, and a tenth more is asked for."""
    moments = np.diag([9.0, 2.1, 5.0, 2.3, 0.5, 0.1, 0.0, -1.0])
    found = principal_subspace(np.zeros(8), moments, 0.5, 12)
    np.testing.assert_array_equal(np.flatnonzero(np.abs(found.axes).sum(axis=1)), [0, 2, 3])
    lifted = found.variances + 2.0**2 / (4 * found.variances)
    np.testing.assert_allclose(lifted, [9.0, 5.0, 2.3], rtol=1e-12, err_msg="λ + edge²/(4λ) is what noise makes of λ")
    assert principal_subspace(np.zeros(8), moments, 0.5, 2).axes.shape == (8, 2), "no more than asked for"


@pytest.mark.parametrize("features", [2, 3, 60])
def test_noise_alone_keeps_two_directions(features):
    """And its eigenvalues do end at the edge, so that a larger one means something."""
    release, noise, most = SecondMoments(clip=2.0), 0.3, []
    for seed in range(20):
        upload = np.random.default_rng(seed).normal(0, noise / 4, features * (features + 1) // 2)
        moments = release.matrix(upload, features)
        most.append(np.linalg.eigvalsh(moments)[-1])
        found = principal_subspace(np.zeros(features), moments, noise, 12)
        if features == 60:
            assert found.axes.shape == (60, 2)
        assert (found.variances > 0).all()
    if features == 60:
        assert 0.8 < np.mean(most) / (2 * math.sqrt(features / 2) * noise) < 1


def test_a_seen_direction_has_its_variance_back():
    """One direction of variance 4 under noise whose edge is 2: its eigenvalue is lifted, and that is undone."""
    rng, found = np.random.default_rng(0), []
    release, features = SecondMoments(), 50
    for _ in range(30):
        moments = np.zeros((features, features))
        moments[0, 0] = 4.0
        noise = release.matrix(rng.normal(0, 0.2, features * (features + 1) // 2), features)
        found.append(principal_subspace(np.zeros(features), moments + noise, 0.2, 12).variances[0])
    assert np.mean(found) == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize("moments", [np.zeros((3, 3)), np.full((3, 3), 1e-300), -np.eye(3)])
def test_degenerate_moments_still_give_a_plane(moments):
    found = principal_subspace(np.zeros(3), moments, 0.0, 12)
    kept = found.axes.shape[1]
    assert kept >= 2
    np.testing.assert_allclose(found.axes.T @ found.axes, np.eye(kept), atol=1e-12)
    assert (found.variances > 0).all()


@given(npst.arrays(np.float64, (5, 5), elements=st.floats(-3, 3)), st.integers(1, 9), st.floats(0, 1))
def test_axes_are_orthonormal_and_coordinates_invert(values, most, noise):
    moments = values @ values.T
    found = principal_subspace(np.ones(5), moments, noise, most)
    kept = found.axes.shape[1]
    assert 2 <= kept <= max(2, min(most, 5))
    np.testing.assert_allclose(found.axes.T @ found.axes, np.eye(kept), atol=1e-9)
    Z = np.random.default_rng(0).normal(size=(4, kept)).astype(np.float32)
    np.testing.assert_allclose(found.coordinates(found.points(Z)), Z, atol=1e-5)
    assert found.coordinates(found.points(Z)).dtype == np.float32
    np.testing.assert_array_equal(principal_subspace(np.ones(5), moments.copy(), noise, most).axes, found.axes)


def test_components_must_be_some():
    with pytest.raises(InvalidParameter, match="components"):
        principal_subspace(np.zeros(3), np.eye(3), 0.1, 0)


# Landmarks


@given(st.floats(1e-9, 1e3), st.floats(1.0, 100.0))
def test_more_noise_gives_no_more_landmarks(noise, factor):
    few, many = landmarks_for(noise * factor), landmarks_for(noise)
    assert LEAST_LANDMARKS <= few <= many <= MOST_LANDMARKS == landmarks_for(0.0)
    if many > LEAST_LANDMARKS:
        assert 1 / many >= 1.5 * noise, "a landmark's records stand out"


def test_spread_out_points_follow_their_landmarks():
    subspace = Subspace(np.zeros(3), np.eye(3)[:, :2], np.array([4.0, 1.0]))
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


# The grid


def test_cells_are_rows_of_the_second_coordinate():
    grid, eps = Grid(2.0, 4), 1e-9
    points = np.array([(-2, -2), (2, -2), (-2, 2), (2, 2), (0, 0), (-eps, -eps), (-1.5, 0.5), (1 - eps, -1)])
    np.testing.assert_array_equal(grid.cell(points), [0, 3, 12, 15, 10, 5, 8, 6])


def test_what_lies_outside_is_counted_at_the_edge_and_what_is_nowhere_is_counted_too():
    grid = Grid(1.0, 3)
    outside = np.array([(-9.0, 0.0), (1e300, 0.0), (0.0, np.inf), (-np.inf, -np.inf)])
    np.testing.assert_array_equal(grid.cell(outside), [3, 5, 7, 0])
    assert 0 <= grid.cell(np.array([[np.nan, np.nan]]))[0] < 9


@given(npst.arrays(np.float64, (7, 2), elements=st.floats(-3, 3)), st.integers(1, 20))
def test_every_point_of_the_square_is_in_its_cell(points, cells):
    numbers, side = Grid(3.0, cells).cell(points), 6.0 / cells
    lower = np.stack([numbers % cells, numbers // cells], axis=1) * side - 3
    assert (points >= lower - 1e-9).all()
    assert (points <= lower + side + 1e-9).all()


@pytest.mark.parametrize(("half", "cells", "name"), [(0.0, 3, "half"), (np.inf, 3, "half"), (1.0, 0, "cells")])
def test_a_grid_that_is_none_is_named(half, cells, name):
    with pytest.raises(InvalidParameter) as caught:
        Grid(half, cells)
    assert caught.value.name == name


@given(st.lists(st.integers(0, 8), min_size=2, max_size=6), st.integers(0, 8))
def test_neighbours_change_counts_by_at_most_delta(cells, replaced):
    """And by exactly Δ unless the record stays in its cell."""
    counts, n = GridCounts(cells=9), len(cells)
    setting = Setting(Kernel((1.0,)), 1, 1, 1, 1, 1.0)
    here, there = (np.array(each, float)[:, None] for each in (cells, [*cells[:-1], replaced]))
    moved = np.linalg.norm(message(counts, here, setting) - message(counts, there, setting))
    expected = 0.0 if replaced == cells[-1] else counts.sensitivity(setting, n)
    assert moved == pytest.approx(expected, rel=1e-9)
    add = Setting(Kernel((1.0,)), 1, 1, 1, 1, 1.0, adjacency="add-remove")
    moved = np.linalg.norm(message(counts, here, add, 7) - message(counts, here[:-1], add, 7))
    assert moved == pytest.approx(counts.sensitivity(add, 7), rel=1e-9)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.lists(st.integers(0, 4), min_size=1, max_size=6))
def test_whole_clients_change_counts_by_at_most_the_delta_of_one_record(cells, others):
    counts, setting = GridCounts(cells=5), Setting(Kernel((1.0,)), 1, 1, 1, 1, 1.0)
    here, there = (message(counts, np.array(each, float)[:, None], setting) for each in (cells, others))
    assert np.linalg.norm(here - there) <= counts.sensitivity(setting, 1.0) * (1 + 1e-9)


@given(st.floats(1e-12, 1e6), st.floats(1.0, 100.0))
def test_more_noise_gives_no_more_cells(noise, factor):
    assert LEAST_CELLS <= cells_for(noise * factor) <= cells_for(noise) <= MOST_CELLS == cells_for(0.0)
    if LEAST_CELLS < cells_for(noise) < MOST_CELLS:
        assert 1 / cells_for(noise) ** 2 >= 2 * noise


def test_classes_are_counted_apart_and_strangers_with_the_last():
    grid, cells = Grid(1.0, 2), np.array([0, 1, 2, 3, 3])
    labels = np.array([7, 2, 5, 3, 99])
    numbers = numbered(cells, grid, labels, (2, 5, 7))
    assert numbers.shape == (5, 1)
    np.testing.assert_array_equal(numbers[:, 0], [8 + 0, 0 + 1, 4 + 2, 8 + 3, 8 + 3])
    np.testing.assert_array_equal(numbered(cells, grid, None, ()), cells[:, None])
    with pytest.raises(InvalidParameter, match="classes"):
        numbered(cells, grid, labels, ())


def test_the_total_is_over_classes():
    shares = np.arange(8.0).reshape(2, 2, 2)
    np.testing.assert_array_equal(Density(Grid(1.0, 2), shares, 0.1, (0, 1)).total, shares[0] + shares[1])


# The board


def test_nobody_moves_the_board():
    board = Billboard(
        Subspace(np.zeros(3), np.eye(3)[:, :2], np.ones(2)), np.zeros((4, 2), np.float32), np.ones((4, 2)), 0
    )
    arrays = (board.anchors, board.places, board.subspace.centre, board.subspace.axes, board.subspace.variances)
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5
    with pytest.raises(AttributeError):
        board.places = np.zeros((4, 2))
    assert board.half == pytest.approx(1.1)


@pytest.mark.parametrize("places", [np.ones((3, 2)), np.full((4, 2), np.nan)])
def test_a_board_that_is_none_is_named(places):
    subspace = Subspace(np.zeros(3), np.eye(3)[:, :2], np.ones(2))
    with pytest.raises(InvalidParameter):
        Billboard(subspace, np.zeros((4, 2), np.float32), places, 0)


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
        ("factors", {"factors": ()}),
        ("factor", {"factors": (1.0, -1.0)}),
        ("shares", {"shares": {"frame": 0.1}}),
        ("shares", {"shares": 3}),
        ("share of subspace", {"shares": {"subspace": 0.0}}),
        ("share of density", {"shares": {"density": 1.0}}),
        ("share of scale", {"shares": {"scale": math.nan}}),
        ("classes", {"classes": (0, 1)}),
        ("classes", {"classes": (1, 0, 1), "density": True}),
    ],
)
def test_bad_settings_are_named(name, settings):
    with pytest.raises(InvalidParameter) as caught:
        Recipe(**settings)
    assert caught.value.name == name


def test_shares_may_be_given_in_part():
    assert Recipe(shares={"subspace": 0.4}).shares == Shares(subspace=0.4)


def test_shares_leave_something_for_the_landmarks(fed, map_of):
    for density, allowed in ((False, True), (True, False)):
        shares = {"scale": 0.3, "moments": 0.3, "subspace": 0.3, "density": 0.2}
        estimator = map_of(billboard={"shares": shares, "density": density})
        if allowed:
            estimator.fit(fed)
        else:
            with pytest.raises(InvalidParameter, match="below 1 together"):
                estimator.fit(fed)


def test_records_a_client_are_what_is_public(federation_of):
    fed, chosen = federation_of((10, 20, 60)), KMeans()
    for budget, given_, expected in (
        (Budget(1, 1e-5), None, 30.0),
        (Budget(1, 1e-5), 99, 30.0),
        (Budget(1, 1e-5, adjacency="add-remove"), 99, 99.0),
        (Budget(1, 1e-5, unit="client"), 99, 99.0),
    ):
        learner = Learner(budget=budget, mechanism=chosen, public_records=given_)
        assert learner.records_a_client(fed) == expected
    whole = Learner(budget=Budget(1, 1e-5, unit="client"), mechanism=chosen)
    assert whole.records_a_client(fed) == whole.records_a_client(federation_of((1, 2, 3)))


@pytest.mark.parametrize("trust", ["local", "aggregate"])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_choices_rest_on_the_noise_of_the_ledger(trust, adjacency, federation_of, monkeypatch):
    """The number of landmarks, and which directions are kept, from σ as it was accounted for."""
    seen = {}

    def moments(**settings):
        seen.update(settings)
        return SecondMoments(**settings)

    def kept(centre, matrix, noise, most):
        seen["subspace"] = noise
        return principal_subspace(centre, matrix, noise, most)

    def chosen(noise):
        seen["landmarks"] = noise
        return landmarks_for(noise)

    for name, spy in (("SecondMoments", moments), ("principal_subspace", kept), ("landmarks_for", chosen)):
        monkeypatch.setattr(learn_module, name, spy)
    fed = federation_of((40, 20, 60), features=6)
    public = 50 if adjacency == "add-remove" else None
    learner = Learner(
        budget=Budget(5, 1e-5, adjacency=adjacency), mechanism=KMeans(trust=trust), tau_x=20.0, public_records=public
    )
    learned = learner.run(fed)
    weights = [1 / 3] * 3 if public else [40 / 120, 20 / 120, 60 / 120]

    def noise(what):
        events = {event.client: event for event in learned.feddl.ledger.events(what=what)}
        sigmas = [events[client.name].sigma for client in fed.clients]
        if trust == "aggregate":
            return sigmas[0]
        return math.sqrt(sum((weight * sigma) ** 2 for weight, sigma in zip(weights, sigmas, strict=True)))

    assert seen["landmarks"] == pytest.approx(noise("cluster sums"), rel=1e-9)
    assert seen["subspace"] == pytest.approx(noise("second moments") * seen["clip"] ** 2, rel=1e-9)
