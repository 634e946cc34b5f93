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
from dpfedvis.protocol.published_map import PublishedMap
from dpfedvis.protocol.subspace import Subspace
from dpfedvis.reporting.density_figures import class_looks, draw_density, draw_private_view
from dpfedvis.reporting.palette import REST, looks
from dpfedvis.server.subspace import client_level_remark
from tests.makers import federation
from tests.reporting.test_density_areas import density, two_groups


def published() -> PublishedMap:
    places = np.random.default_rng(0).normal(size=(30, 2))
    subspace = Subspace(np.zeros(3), np.eye(3)[:, :2], np.ones(2), Grid.of_norm(8.0, 3))
    return PublishedMap(subspace, places.astype(np.float32), places, 0)


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


@pytest.mark.parametrize("shares", [np.zeros((1, 8, 8)), -np.ones((1, 8, 8)), np.ones((1, 1, 1))])
def test_any_shares_can_be_drawn(shares: np.ndarray, tmp_path: Path) -> None:
    draw_density(published().places, density(shares, noise=0.0), tmp_path / "a.png")
    picture(tmp_path / "a.png")


def test_anchors_that_are_noise_are_left_out(tmp_path: Path) -> None:
    for dots in (True, False):
        draw_density(published().places, density(np.zeros((1, 8, 8)), noise=1.0), tmp_path / f"{dots}.png", dots=dots)
    grey, bare = (shown(picture(tmp_path / f"{dots}.png"), "#707070") for dots in (True, False))
    assert grey > 2 * bare + 20


def test_named_classes_have_the_looks_of_any_groups_and_all_others_are_grey() -> None:
    assert class_looks(("3", "7", "other")) == {"3": looks(2)[0], "7": looks(2)[1], "other": REST}
    assert list(class_looks(tuple(map(str, range(40))))) == [str(each) for each in range(40)]
    assert class_looks(()) == {}


def test_a_private_view_shows_own_points_over_the_same_map(tmp_path: Path) -> None:
    places, labels = np.array([[0.5, -0.5]] * 4 + [[-1.0, 1.0]] * 4), np.array(["3"] * 4 + ["8"] * 4)
    draw_density(published().places, two_groups(), tmp_path / "public.png")
    draw_private_view(published().places, two_groups(), places, labels, tmp_path / "own.png", title="own")
    draw_private_view(published().places, None, places, None, tmp_path / "bare.png")
    public, own, bare = (picture(tmp_path / f"{name}.png") for name in ("public", "own", "bare"))
    fourth = class_looks(("3", "7", "other", "8"))["8"].light  # a label of this client alone
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
    (text,) = (each for each in estimator.statement_.remarks if "there are 4" in each)

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
    assert text in estimator.statement_.to_dict()["remarks"]
    plain = FedTSNE(budget=Budget(2.0, 1e-5), **options).fit(fed)
    assert not [each for each in plain.statement_.remarks if "there are 4" in each]
