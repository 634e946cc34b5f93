"""Colours that can be told apart with any colour vision."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pytest

from dpfedvis.reporting import rendering
from dpfedvis.reporting.palette import ALL, SYMBOLS, looks, paired

# Machado, Oliveira & Fernandes (2009), severity 1, for linear RGB.
SIGHT = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
APART = 15.0  # in CIELAB; about 2 is the least that an eye notices
GROUND = {"light": "#ffffff", "dark": "#1b1f24"}


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    to_xyz = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
    )
    xyz = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.95047, 1, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("ground", GROUND)
@pytest.mark.parametrize("count", [8, 10])
def test_every_two_colours_are_apart_for_every_eye(count: int, ground: str, sight: str) -> None:
    seen = [lab(np.asarray(SIGHT[sight]) @ linear(getattr(look, ground))) for look in looks(count)]
    assert min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2)) > APART
    # Nor does any of them sink into the ground that it stands on.
    assert min(float(np.linalg.norm(each - lab(linear(GROUND[ground])))) for each in seen) > APART


def variables(theme: str) -> dict[str, str]:
    """The colours of the pages."""
    text = rendering._asset("page.css")
    light, dark = re.findall(r":root \{(.*?)\}", text, flags=re.DOTALL)[:2]
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", light if theme == "light" else dark))


def luminance(colour: str) -> float:
    return float(np.array([0.2126, 0.7152, 0.0722]) @ linear(colour))


def contrast(one: str, other: str) -> float:
    """By WCAG 2."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_colour_of_text_stands_out_of_every_ground(theme: str) -> None:
    own = variables(theme)
    for text in ("ink", "quiet", "accent", "warn"):
        for ground in ("paper", "panel", "mark"):
            assert contrast(own[text], own[ground]) >= 4.5, (text, ground)
    assert own["accent"] == getattr(ALL, theme)  # areas of all records have the accent of the page
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_beyond_ten_a_group_is_told_by_its_shape_too() -> None:
    many = looks(10 * len(SYMBOLS))
    assert len({(look.light, look.symbol) for look in many}) == len(many)
    assert {look.symbol for look in looks(10)} == {"circle"}
    assert looks(0) == ()


def test_families_share_a_colour_and_no_two_groups_a_look():
    found = paired(["a, local", "b", "a, aggregate"], ["a", "b", "a"])
    assert list(found) == ["a, local", "b", "a, aggregate"]
    first, other, second = found.values()
    assert (first.light, first.dark) == (second.light, second.dark) != (other.light, other.dark)
    assert (first.symbol, second.symbol, first.first, second.first) == ("circle", "square", True, False)
    for names, families in (
        ([str(i) for i in range(12)], [str(i // 2) for i in range(12)]),  # six colours in two shapes
        ([str(i) for i in range(24)], [str(i // 2) for i in range(24)]),  # more families than colours
        ([str(i) for i in range(7)], ["one"] * 7),  # more members than shapes
    ):
        drawn = paired(names, families)
        assert len(set(drawn.values())) == len(names)
    assert paired([], []) == {}
