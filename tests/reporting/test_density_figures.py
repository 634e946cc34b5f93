"""Pictures of a private map: what is shown follows from the noisy shares, and nothing is shown that noise made."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from accounting import Budget
from dpfedvis import FedTSNE
from dpfedvis.mechanisms import KMeans
from dpfedvis.numerics.exact import Grid
from dpfedvis.protocol.density import Density, DensityGrid
from dpfedvis.protocol.published_map import PublishedMap
from dpfedvis.protocol.subspace import Subspace
from dpfedvis.reporting.density_figures import (
    PALETTE,
    STANDS_OUT,
    class_colours,
    contour_levels,
    draw_density,
    draw_private_view,
    leading_class,
    smoothed,
)
from dpfedvis.server.subspace import client_level_remark
from tests.makers import federation

CELLS = 16


def published() -> PublishedMap:
    places = np.random.default_rng(0).normal(size=(30, 2))
    subspace = Subspace(np.zeros(3), np.eye(3)[:, :2], np.ones(2), Grid.of_norm(8.0, 3))
    return PublishedMap(subspace, places.astype(np.float32), places, 0)


def density(shares: np.ndarray, noise: float = 1e-3, classes: tuple[str, ...] = ()) -> Density:
    return Density(DensityGrid(published().half, shares.shape[-1]), shares, noise, classes)


def noise_alone(classes: int = 1, seed: int = 0, cells: int = CELLS) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1e-3, (classes, cells, cells))


def two_groups() -> Density:
    """Class 3 around cell (4, 4), class 7 around (13, 13)."""
    shares = noise_alone(3)
    shares[0, 3:6, 3:6] += 0.05
    shares[1, 12:15, 12:15] += 0.05
    return density(shares, classes=("3", "7"))


def picture(path: Path) -> np.ndarray:
    assert path.read_bytes().startswith(b"\x89PNG")
    pixels = imread(path)[..., :3]
    assert min(pixels.shape[:2]) > 400
    return pixels


def shown(pixels: np.ndarray, colour: str) -> int:
    """Pixels of exactly this colour."""
    from matplotlib.colors import to_rgb

    return int((np.abs(pixels - to_rgb(colour)) < 1e-3).all(axis=-1).sum())


@pytest.mark.parametrize("classes", [(), (3, 7)])
def test_the_same_density_gives_the_same_bytes(classes: tuple[int, ...], tmp_path: Path) -> None:
    given = two_groups() if classes else density(two_groups().total[None])
    for name in ("a", "b"):
        draw_density(published().places, given, tmp_path / f"{name}.png", title="a map", caption="ε = 1, trust local")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"a.png", "b.png"}
    picture(tmp_path / "a.png")
    draw_density(published().places, given, tmp_path / "c.png", title="a map", caption="ε = 2, trust local")
    assert (tmp_path / "c.png").read_bytes() != (tmp_path / "a.png").read_bytes()


def test_the_noise_that_is_left_is_as_stated() -> None:
    shares, noise = smoothed(density(noise_alone(20, cells=40)))
    inner = shares[:, 5:-5, 5:-5]
    assert inner.std() == pytest.approx(noise, rel=0.03)
    assert shares[:, 0, 0].std() < noise  # a corner never stands out more easily
    assert noise < 1e-3


def test_smoothing_keeps_each_class_to_itself_and_its_share() -> None:
    shares = np.zeros((2, CELLS, CELLS))
    shares[0, 8, 8] = 1.0
    found, _ = smoothed(density(shares))
    assert found[0].sum() == pytest.approx(1.0)
    assert np.unravel_index(found[0].argmax(), found[0].shape) == (8, 8)
    assert not found[1].any()


def test_a_class_leads_where_it_is_and_nowhere_else() -> None:
    leading = leading_class(two_groups())
    assert (leading[3:6, 3:6] == 0).all()
    assert (leading[12:15, 12:15] == 1).all()
    assert (leading[:, 8] == -1).all()
    assert (leading[0] == -1).all()


def test_noise_alone_leads_nowhere_and_has_no_contours() -> None:
    for seed in range(5):
        given = density(noise_alone(10, seed), classes=tuple("123456789"))
        assert (leading_class(given) == -1).mean() > 0.99
        shares, noise = smoothed(given)
        assert len(contour_levels(np.maximum(shares.sum(axis=0), 0), noise * math.sqrt(10))) == 0


def test_contours_lie_between_the_noise_and_the_peak() -> None:
    total = np.zeros((CELLS, CELLS))
    total[4, 4] = 0.2
    levels = contour_levels(total, 1e-3)
    assert levels[0] == pytest.approx(STANDS_OUT * 1e-3)
    assert (np.diff(levels) > 0).all()
    assert levels[-1] < 0.2
    assert len(contour_levels(total, 0.0)) == len(levels)  # without noise, too
    assert len(contour_levels(np.zeros((CELLS, CELLS)), 0.0)) == 0


@pytest.mark.parametrize("shares", [np.zeros((1, 8, 8)), -np.ones((1, 8, 8)), np.ones((1, 1, 1))])
def test_any_shares_can_be_drawn(shares: np.ndarray, tmp_path: Path) -> None:
    draw_density(published().places, density(shares, noise=0.0), tmp_path / "a.png")
    picture(tmp_path / "a.png")


def test_colours_differ_for_any_number_of_classes() -> None:
    for count in (1, 10, 11, 40):
        assert len(set(class_colours(tuple(range(count))).values())) == count
    assert class_colours((3, 7)) == {3: PALETTE[0], 7: PALETTE[1]}


def test_a_private_view_shows_own_points_over_the_same_map(tmp_path: Path) -> None:
    places, labels = np.array([[0.5, -0.5]] * 4 + [[-1.0, 1.0]] * 4), np.array(["3"] * 4 + ["8"] * 4)
    draw_density(published().places, two_groups(), tmp_path / "public.png")
    draw_private_view(published().places, two_groups(), places, labels, tmp_path / "own.png", title="own")
    draw_private_view(published().places, None, places, None, tmp_path / "bare.png")
    public, own, bare = (picture(tmp_path / f"{name}.png") for name in ("public", "own", "bare"))
    fourth = class_colours(("3", "7", "other", "8"))["8"]  # a label of this client alone
    assert shown(own, fourth) > shown(public, fourth) == 0
    assert shown(bare, "#d55e00") > shown(public, "#d55e00") == 0


def test_a_record_outside_the_box_or_nowhere_is_no_error(tmp_path: Path) -> None:
    places = np.array([[50.0, 0.0], [np.nan, 0.0]])
    draw_private_view(published().places, two_groups(), places, None, tmp_path / "far.png")
    assert shown(picture(tmp_path / "far.png"), "#d55e00") > 0
    draw_private_view(published().places, two_groups(), places[1:], None, tmp_path / "none.png")
    picture(tmp_path / "none.png")


# What noise for whole clients means


def remark(**options: Any) -> str:
    return client_level_remark(
        **{"clients": 10, "features": 7, "seen": 7, "moments": 0.1, "second_moments": 0.1, **options}
    )


def test_it_says_when_whole_clients_are_too_few() -> None:
    # √8·1/√2 = 2 and √14·0.1
    text = remark(moments=1.0, local=False)
    assert "there are 10" in text
    assert "2 times" in text
    assert "0.374 times" in text
    assert "mostly noise" in text
    assert "about 20 clients" in text  # noise falls as 1/P
    assert "about 40 clients" in remark(moments=1.0, local=True)  # as 1/√P
    assert "mostly noise" in remark(second_moments=0.5, local=True)  # one of the two is enough
    assert "mostly noise" not in remark(local=True)
    assert "there is 1" in remark(clients=1, local=True)


@pytest.mark.parametrize("trust", ["local", "aggregate"])
def test_the_noise_in_the_remark_is_that_of_the_ledger(trust: Any) -> None:
    """Held against a slow reference: σ of each event, averaged as the server does."""
    fed = federation((30, 20, 10, 25), 5, shift=0, seed=0)
    private_map = {"anchors": 24, "placement": "weights"}
    options: dict[str, Any] = {"n_landmarks": 20, "rounds": 3, "n_jobs": 1, "private_map": private_map}
    options |= {"tsne": {"early_exaggeration_iter": 10, "n_iter": 20}, "mechanism": KMeans(trust=trust)}
    estimator = FedTSNE(budget=Budget(2.0, 1e-5, unit="client"), **options).fit(fed)
    (text,) = estimator.statement_.remarks

    def noise(what: str) -> float:
        sigmas = [event.sigma for event in estimator.ledger_.events(what=what)]
        assert len(sigmas) == 4
        # Four sites, one of whom may collude: a sum of all has √(4/3) of the noise that ε needs.
        shared = sigmas[0] * math.sqrt(4 / 3)
        return shared if trust == "aggregate" else math.sqrt(sum((each / 4) ** 2 for each in sigmas))

    assert f"it is {math.sqrt(6) * noise('moments') / math.sqrt(2):.3g} times" in text
    assert f"directions {math.sqrt(10) * noise('second moments'):.3g} times" in text
    assert "there are 4" in text
    assert "mostly noise" in text
    assert text in str(estimator.statement_)
    assert estimator.statement_.to_dict()["remarks"] == [text]
    plain = FedTSNE(budget=Budget(2.0, 1e-5), **options).fit(fed)
    assert plain.statement_.remarks == ()
