"""Clients in the published map: slow references, pinned anchors, newcomers."""

from __future__ import annotations

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import openTSNE
import pytest
from hypothesis import settings
from openTSNE import tsne
from scipy.spatial import KDTree
from scipy.spatial.distance import cdist

from accounting import InvalidParameter
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.layouts import TSNELayout, UMAPLayout
from dpfedvis.protocol.published_map import MOST_TOGETHER, PublishedMap
from dpfedvis.protocol.subspace import Subspace
from dpfedvis.site import placement as module
from dpfedvis.site.placement import Anchored, ByTransform, ByWeights, Diffused, placement
from tests.protocol.boards import board_of, records_of

SHORT = Anchored(exaggerated=15, plain=20)
EVERY = [ByWeights(), ByTransform(TSNELayout()), ByTransform(UMAPLayout()), Diffused(), SHORT]


def slow_weights(distances, perplexity):
    """Gaussian weights with the given perplexity, by bisection on their precision."""
    low, high = 1e-12, 1e12
    for _ in range(400):
        beta = math.sqrt(low * high)
        weights = np.exp(-beta * (distances**2 - distances.min() ** 2))
        weights /= weights.sum()
        entropy = -sum(w * math.log(w) for w in weights if w > 0)
        low, high = (low, beta) if entropy < math.log(perplexity) else (beta, high)
    return weights


def test_weights_are_those_of_t_sne():
    published, _ = board_of()
    X = np.random.default_rng(4).normal(3, 5, (12, 5)).astype(np.float32)
    placed = ByWeights(neighbors=10, perplexity=4.0)(published, X)
    Z = published.subspace.coordinates(X)
    np.testing.assert_allclose(Z, (X - 0.5)[:, [1, 3]], atol=2 * published.subspace.grid.step)
    for z, place in zip(Z, placed, strict=True):
        distances = np.linalg.norm(published.anchors - z, axis=1)
        near = np.argsort(distances)[:10]
        expected = slow_weights(distances[near], 4.0) @ published.places[near]
        np.testing.assert_allclose(place, expected, atol=0.01)


def test_a_record_on_its_own_is_placed_as_among_others():
    """`weights` and `transform` look at each record by itself."""
    published, _ = board_of()
    X = records_of(published, 1, 6)
    np.testing.assert_allclose(ByWeights()(published, X[2:3])[0], ByWeights()(published, X)[2], atol=1e-9)
    np.testing.assert_allclose(
        ByTransform(TSNELayout())(published, X[2:3])[0], ByTransform(TSNELayout())(published, X)[2], atol=1e-6
    )


@pytest.mark.parametrize("place", EVERY, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("group", [0, 1, 2])
def test_records_land_with_the_anchors_of_their_group(place, group):
    """Also where a client has records of one group only, which a layout of its own would put in the middle."""
    published, groups = board_of()
    before = published.places.copy()
    placed = place(published, records_of(published, group))
    assert placed.shape == (30, 2)
    nearest = groups[cdist(placed, published.places).argmin(axis=1)]
    assert (nearest == group).mean() > 0.95
    middle = published.places[groups == group].mean(axis=0)
    assert np.linalg.norm(placed.mean(axis=0) - middle) < 4.0, "the groups are 30 apart"
    np.testing.assert_array_equal(published.places, before)


@pytest.mark.parametrize("place", [ByWeights(), Diffused(), SHORT], ids=lambda each: type(each).__name__)
def test_a_shifted_board_shifts_all_that_is_placed_in_it(place):
    """So that no middle but the board's own counts. (openTSNE's `transform` centres; boards are centred already.)"""
    here, there = board_of()[0], board_of(shift=(64.0, -32.0))[0]
    X = np.concatenate([records_of(here, 1, 20), records_of(here, 2, 5)])
    moved = place(there, X) - place(here, X)
    # The start is found in float32, whose digits are fewer away from the origin.
    np.testing.assert_allclose(moved, np.broadcast_to((64.0, -32.0), moved.shape), atol=2e-2)


@pytest.mark.filterwarnings("ignore:Tensorflow not installed:ImportWarning")
def test_umaps_transform_is_that_of_a_umap_with_the_published_places():
    """A umap of the anchors that has laid them out by itself, given the published places in its own units after."""
    from umap import UMAP

    published, _ = board_of()
    X = np.concatenate([records_of(published, 0, 8), records_of(published, 2, 8)])
    theirs = UMAP(n_neighbors=9, min_dist=0.3, n_epochs=30, random_state=0, n_jobs=1, transform_seed=published.seed)
    theirs.fit(published.anchors)
    unit = np.ptp(published.places, axis=0).max() / 10
    theirs.embedding_, theirs.n_epochs = (published.places / unit).astype(np.float32), None
    expected = theirs.transform(published.subspace.coordinates(X)) * unit
    placed = ByTransform(UMAPLayout(9, 0.3))(published, X)
    np.testing.assert_allclose(placed, expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(placed, ByTransform(UMAPLayout(9, 0.3))(published, X))
    assert np.abs(placed - ByTransform(UMAPLayout(9, 0.9))(published, X)).max() > 0.1


def test_umaps_transform_grows_with_the_map():
    published, _ = board_of()
    larger = PublishedMap(published.subspace, published.anchors.copy(), 8 * published.places, published.seed)
    X = records_of(published, 1, 10)
    place = ByTransform(UMAPLayout())
    np.testing.assert_allclose(place(larger, X), 8 * place(published, X), rtol=1e-4)


@pytest.mark.parametrize(("name", "settings"), [("neighbours", {"neighbours": 1}), ("min_dist", {"min_dist": -0.1})])
def test_bad_settings_of_umaps_transform_are_named(name, settings):
    with pytest.raises(InvalidParameter) as caught:
        UMAPLayout(**settings)
    assert caught.value.name == name


@pytest.mark.parametrize("schedule", [(15, 20), (0, 10), (10, 0), (0, 0)])
def test_anchors_stay_where_they_are_at_every_step(schedule, monkeypatch):
    published, _ = board_of()
    layouts, steps = [], []
    make, divergence = openTSNE.TSNEEmbedding, tsne.kl_divergence_bh

    def kept(*given, **settings):
        layouts.append(make(*given, **settings))
        return layouts[-1]

    def watched(embedding, P, **settings):
        steps.append(np.array(embedding))
        return divergence(embedding, P, **settings)

    monkeypatch.setattr(openTSNE, "TSNEEmbedding", kept)
    monkeypatch.setattr(tsne, "kl_divergence_bh", watched)
    exaggerated, plain = schedule
    X = records_of(published, 1)
    placed = Anchored(exaggerated=exaggerated, plain=plain)(published, X)
    (layout,) = layouts
    assert len(steps) == exaggerated + plain + 2
    for step in steps:
        assert step[:40].tobytes() == published.places.tobytes(), "bit for bit"
    assert np.asarray(layout)[:40].tobytes() == published.places.tobytes()
    np.testing.assert_array_equal(np.asarray(layout)[40:], placed)
    moved = np.abs(placed - Diffused()(published, X)).max()
    assert (moved > 0.1) == (exaggerated + plain > 0), "own records do move"


def test_own_neighbours_pull():
    """Two halves of a client that differ in what the subspace does not see come apart in its own view."""
    published, _ = board_of()
    X = records_of(published, 0, 80)
    X[:40, 0] += 30.0
    half = np.arange(80) < 40

    def apart(placed):
        distances = cdist(placed, placed)
        np.fill_diagonal(distances, np.inf)
        near = distances.argsort(axis=1)[:, :5]
        return (half[near] == half[:, None]).mean()

    assert apart(ByWeights()(published, X)) < 0.7
    assert apart(Anchored(exaggerated=60, plain=60, perplexity=8.0)(published, X)) > 0.85


@pytest.mark.parametrize(
    "place", [Diffused(window=1e-9), Anchored(reach=1e-6), Anchored(diffused=Diffused(window=1e-9))]
)
def test_windows_that_no_anchor_is_in_leave_every_record_a_place(place):
    published, _ = board_of()
    assert np.isfinite(place(published, records_of(published, 0, 40))).all()


@pytest.mark.parametrize("anchors", [1, 30])
@pytest.mark.parametrize("place", [Diffused(), Anchored()])
def test_where_all_anchors_are_at_one_place_records_have_places_too(place, anchors):
    whole, _ = board_of()
    published = replace(whole, anchors=whole.anchors[:anchors].copy(), places=np.zeros((anchors, 2)))
    assert np.isfinite(place(published, records_of(whole, 0, 40))).all()


def test_a_record_between_groups_goes_where_those_like_it_are():
    """Half-way in the subspace; in the features that it does not see, like the records of the second group."""
    published, groups = board_of()
    X = np.concatenate(
        [records_of(published, 0, 40), records_of(published, 1, 40), records_of(published, 1, 1, seed=5)]
    )
    X[40:, 0] += 30.0
    X[80:, 1] = 0.5 + 3.4  # a little nearer to the first group, whose middle is at 0.5, than to the second's at 8.5
    first, second = (published.places[groups == group].mean(axis=0) for group in (0, 1))

    def in_second(placed):
        return (np.linalg.norm(placed[80:] - second, axis=1) < np.linalg.norm(placed[80:] - first, axis=1)).mean()

    assert in_second(ByWeights()(published, X)) < 0.5
    assert in_second(Diffused(neighbors=12, perplexity=4.0)(published, X)) == 1.0


@pytest.mark.parametrize("n", [1, 2, 4, 5, 7])
@pytest.mark.parametrize("place", EVERY, ids=lambda each: type(each).__name__)
def test_few_records_have_places_too(place, n):
    published, _ = board_of()
    placed = place(published, records_of(published, 2, n))
    assert placed.shape == (n, 2)
    assert np.isfinite(placed).all()


@pytest.mark.parametrize("place", EVERY, ids=lambda each: type(each).__name__)
def test_equal_records_and_few_anchors(place):
    published, _ = board_of(anchors=4)
    assert np.isfinite(place(published, np.ones((8, 5), np.float32))).all()


# More records than are laid out together

MOST = 60


def crowd(published, each=100):
    """Records of all groups, mixed, and the group of each."""
    X = np.concatenate([records_of(published, group, each, seed=group) for group in range(3)])
    order = np.random.default_rng(0).permutation(len(X))
    return X[order], np.repeat(np.arange(3), each)[order]


def laid_out(place, published, X, compared=None):
    """Which records are placed together, as a mask, and the places of all."""
    found, together = [], type(place)._together

    def kept(self, board, records, alike):
        found.append(records)
        return together(self, board, records, alike)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(place), "_together", kept)
        places = place(published, X, compared)
    (chosen,) = found
    known = {row.tobytes() for row in chosen}
    return np.array([row.tobytes() in known for row in X]), places


@pytest.fixture
def few_together(monkeypatch):
    monkeypatch.setattr(module, "MOST_TOGETHER", MOST)


COMPANY = [Diffused(), SHORT]


@pytest.mark.usefixtures("few_together")
@pytest.mark.parametrize("place", COMPANY, ids=lambda each: type(each).__name__)
def test_those_laid_out_are_placed_as_if_there_were_no_others(place):
    published, groups = board_of()
    X, own = crowd(published)
    chosen, placed = laid_out(place, published, X)
    assert chosen.sum() == MOST
    np.testing.assert_array_equal(placed[chosen], place(published, X[chosen]))
    assert (np.bincount(own[chosen], minlength=3) > MOST / 6).all(), "drawn from all"
    nearest = groups[cdist(placed[~chosen], published.places).argmin(axis=1)]
    assert (nearest == own[~chosen]).mean() > 0.95


@pytest.mark.usefixtures("few_together")
@pytest.mark.parametrize("place", COMPANY, ids=lambda each: type(each).__name__)
def test_the_others_are_placed_each_by_itself(place, monkeypatch):
    published, _ = board_of()
    X, _ = crowd(published)
    chosen, placed = laid_out(place, published, X)
    np.testing.assert_array_equal(place(published, X), placed)
    other, some = X.copy(), np.flatnonzero(~chosen)
    other[some[::2]] = records_of(published, 0, len(some[::2]), seed=9)
    moved = place(published, other)
    np.testing.assert_array_equal(moved[chosen], placed[chosen])
    np.testing.assert_allclose(moved[some[1::2]], placed[some[1::2]], atol=1e-3)
    for size in (1, 7, 10_000):
        monkeypatch.setattr(module, "_PART", size)
        np.testing.assert_allclose(place(published, X), placed, atol=1e-3)


@pytest.mark.parametrize("place", COMPANY, ids=lambda each: type(each).__name__)
def test_as_many_as_can_be_are_laid_out_together(place, monkeypatch):
    published, _ = board_of()
    X, _ = crowd(published, 20)
    whole = place(published, X)
    monkeypatch.setattr(module, "MOST_TOGETHER", MOST)
    np.testing.assert_array_equal(place(published, X), whole)
    assert not np.array_equal(place(published, X[:-1]), whole[:-1])


@pytest.mark.usefixtures("few_together")
@pytest.mark.parametrize("place", COMPANY, ids=lambda each: type(each).__name__)
def test_the_others_are_compared_by_what_all_are_compared_by(place):
    """Two halves of a group that only `compared` tells apart."""
    published, _ = board_of()
    X = records_of(published, 0, 200)
    half = np.arange(200) % 2
    compared = (10.0 * half[:, None] + np.random.default_rng(0).normal(size=(200, 3))).astype(np.float32)
    chosen, placed = laid_out(Anchored(exaggerated=60, plain=60, perplexity=8.0, pull=0.2), published, X, compared)
    apart = cdist(placed[~chosen], placed[chosen])
    assert (half[chosen][apart.argmin(axis=1)] == half[~chosen]).mean() > 0.9


@pytest.mark.usefixtures("few_together")
@pytest.mark.parametrize("place", COMPANY, ids=lambda each: type(each).__name__)
def test_many_equal_records_have_places(place):
    published, _ = board_of()
    assert np.isfinite(place(published, np.ones((200, 5), np.float32))).all()
    most = np.ones((200, 5), np.float32)
    most[::50] = records_of(published, 1, 4)
    assert np.isfinite(place(published, most)).all()


def test_memory_for_records_that_are_not_laid_out_is_a_small_part_of_them(monkeypatch):
    """Their places, and which they are; nothing else of their number is held at once."""
    monkeypatch.setattr(module, "MOST_TOGETHER", 100)
    monkeypatch.setattr(module, "_PART", 256)
    rng = np.random.default_rng(0)
    wide = Subspace(np.zeros(64), np.eye(64)[:, :2], np.array([1.0, 1.0]), Grid.of_norm(64.0, 64))
    published = PublishedMap(wide, rng.normal(size=(40, 2)).astype(np.float32), 10 * rng.normal(size=(40, 2)), 3)
    place, peaks = Diffused(), []
    place(published, rng.normal(size=(300, 64)).astype(np.float32))  # imports
    for n in (20_000, 40_000):
        X = rng.normal(size=(n, 64)).astype(np.float32)
        tracemalloc.start()
        try:
            place(published, X)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] - peaks[0] < 20_000 * 64 * 4 / 5, "a fifth of the records"


@pytest.mark.skipif(settings.get_current_profile_name() != "thorough", reason="takes a minute or two")
def test_a_site_of_many_records_has_a_map_as_good_as_that_of_those_laid_out():
    """Three times as many records as are laid out, at their real number: 10-NN across, by the published anchors too."""
    published, groups = board_of(400)
    X, own = crowd(published, MOST_TOGETHER)
    chosen, placed = laid_out(Anchored(), published, X)
    assert chosen.sum() == MOST_TOGETHER
    right = groups[KDTree(published.places).query(placed)[1]] == own
    assert right[~chosen].mean() > right[chosen].mean() - 0.005
    near = KDTree(placed[chosen]).query(placed[~chosen])[1]
    assert (own[chosen][near] == own[~chosen]).mean() > 0.99
    # A place among others is where they are: nowhere far from all that were laid out.
    assert np.quantile(KDTree(placed[chosen]).query(placed[~chosen])[0], 0.99) < 0.05 * np.ptp(published.places)


def test_placements_are_found_by_name():
    tsne, umap = TSNELayout(), UMAPLayout()
    assert placement("anchored", tsne) == Anchored()
    assert placement("anchored", umap) == Anchored(exaggeration=4.0, exaggerated=300, plain=0)
    assert placement("diffused", umap) == Diffused()
    assert placement("weights", umap) == ByWeights()
    assert placement("transform", umap) == ByTransform(umap)
    own = ByWeights(neighbors=3)
    assert placement(own, tsne) is own


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("neighbors", {"neighbors": 0}),
        ("perplexity", {"perplexity": 0.0}),
        ("keep", {"keep": 1.0}),
        ("steps", {"steps": -1}),
        ("window", {"window": 0.0}),
    ],
)
def test_bad_settings_of_diffusion_are_named(name, settings):
    with pytest.raises(InvalidParameter) as caught:
        Diffused(**settings)
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("pull", {"pull": 0.0}),
        ("reach", {"reach": 0.0}),
        ("pull", {"pull": 1.0}),
        ("perplexity", {"perplexity": -1.0}),
        ("exaggeration", {"exaggeration": 0.0}),
        ("exaggerated", {"exaggerated": -1}),
        ("plain", {"plain": 2.5}),
    ],
)
def test_bad_settings_are_named(name, settings):
    with pytest.raises(InvalidParameter) as caught:
        Anchored(**settings)
    assert caught.value.name == name
