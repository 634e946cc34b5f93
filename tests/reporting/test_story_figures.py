"""Figures of the demo: every number and every release is drawn."""

from __future__ import annotations

import re

import pytest

from accounting.events import GaussianRelease, Unprotected
from dpfedvis.evaluation.metrics import METRICS
from dpfedvis.reporting.story_figures import curve, timeline

NOTE = "simulation (seeded noise), on one machine"


def told(svg: str) -> list[str]:
    """Texts of a figure, which matplotlib draws as shapes and names in comments."""
    return re.findall(r"<!-- (.*?) -->", svg)


def test_scores_stand_between_their_yardsticks() -> None:
    scores = [{"nmi": 0.25}, {"nmi": 0.5}, {}]
    yardsticks = {"chance": {"nmi": 0.0, "ca_10": 0.1}, "central": {"nmi": 0.9}}
    texts = told(curve([1.0, 3.0, 10.0], scores, yardsticks, [METRICS["nmi"], METRICS["ca_10"]], NOTE))
    assert {"0.25", "0.50", "NMI", "CA, 10-NN", "central", NOTE} <= set(texts)
    assert texts.count("chance") == 2
    assert texts.count("central") == 1  # no central map has a CA here
    assert [each for each in texts if each in ("1", "3", "10")] == ["1", "3", "10"] * 2


@pytest.mark.parametrize("sites", [1, 3, 40])
def test_a_timeline_has_a_mark_for_each_release(sites: int) -> None:
    common = {"sensitivity": 1.0, "sigma": 5.0}
    events = [
        *(
            GaussianRelease(what="moments", client=f"site {number}", round=0, stage="scale", **common)
            for number in range(sites)
        ),
        *(
            GaussianRelease(what="sums", client=f"site {number}", round=at, **common)
            for at in (0, 1)
            for number in range(sites)
        ),
        Unprotected(what="rows", client="site 0", stage="release", why="exact"),
    ]  # fmt: skip
    svg = timeline(events, NOTE)
    groups = svg.split('<g id="legend')[0].split('<g id="PathCollection_')[1:]
    # A single mark is drawn where it is, several are uses of one.
    assert [each.count("<use ") or each.count("<path ") for each in groups] == [sites, 2 * sites, 1]
    texts = told(svg)
    assert {"moments", "sums 0", "sums 1", "rows", "scale", "landmarks", "release, unprotected", NOTE} <= set(texts)
    assert ("site 0" in texts) == (sites <= 30)
