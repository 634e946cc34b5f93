"""The verdict on a map: from released numbers alone, and right where the truth is known."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import Budget, InvalidParameter
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.errors import NoSignalWarning
from dpfedvis.protocol import wire
from dpfedvis.server.regions import Regions
from dpfedvis.server.subspace import edge_of, threshold
from dpfedvis.server.verdict import (
    WORDS,
    Signal,
    Verdict,
    _said,
    _without_centre,
    judged,
    unjudged,
    verdict_of_rows,
)

BRIEF = {"tsne": {"early_exaggeration_iter": 20, "n_iter": 40}, "n_jobs": 1}
FAST = {"placement": "weights", "anchors": 60}


def blobs(n: int = 1500, sites: int = 3) -> FederatedData:
    """Four clear blobs in eight features."""
    rng = np.random.default_rng(0)
    centres = rng.random((4, 8)) * 0.8 + 0.1
    X = np.clip(centres[rng.integers(4, size=n)] + 0.03 * rng.normal(size=(n, 8)), 0, 1).astype(np.float32)
    return FederatedData.split(X, clients=sites, partition="iid", seed=0)


def fitted(epsilon: float, **options: object) -> FedTSNE:
    given = {"private_map": FAST, "feddl": {"bounds": (0.0, 1.0)}, **BRIEF, **options}
    return FedTSNE(budget=Budget(epsilon, 1e-5), **given).fit(blobs())


@pytest.fixture(scope="module")
def good() -> FedTSNE:
    return fitted(20.0)


def test_clear_blobs_are_signal_and_hold_all_records(good: FedTSNE) -> None:
    verdict = good.verdict_
    assert verdict.signal == "yes"
    assert len(verdict.directions or ()) >= 2
    places = good.published_map_.subspace.coordinates(blobs().pooled()[0])
    nearest = ((places[:, None] - good.feddl_.landmarks[None]) ** 2).sum(axis=2).argmin(axis=1)
    held = np.asarray(verdict.clear)[nearest].mean()
    assert held > 0.8
    assert (verdict.share_low or 0) <= held <= (verdict.share_high or 0)
    assert verdict.sentence.startswith("Signal: yes. ")
    assert [sum(each) for each in (verdict.clear, verdict.drawn)] == [
        sum(len(each.landmarks) for each in verdict.regions if each.clear),
        sum(len(each.landmarks) for each in verdict.regions if each.clear or each.weak),
    ]


def test_anchors_are_those_of_drawn_landmarks_alone(good: FedTSNE) -> None:
    verdict, published = good.verdict_, good.published_map_
    assert len(verdict.anchors) == len(published.anchors)
    assert all(verdict.drawn[each] for each in verdict.anchors)
    # Each anchor is around its landmark: nearer to it than to the mean of all, for most.
    own = good.feddl_.landmarks[list(verdict.anchors)]
    far = np.linalg.norm(published.anchors - good.feddl_.landmarks.mean(axis=0), axis=1)
    assert np.mean(np.linalg.norm(published.anchors - own, axis=1) < far) > 0.9


def test_a_map_of_noise_says_so_by_name_and_is_drawn_whole() -> None:
    with pytest.warns(NoSignalWarning, match="Signal: none"):
        noise = fitted(0.05)
    assert noise.verdict_.signal == "no"
    assert "noise, whatever it looks like" in noise.verdict_.sentence
    assert all(noise.verdict_.drawn)
    assert len(noise.published_map_.anchors) == 60
    assert noise.statement_.to_dict()["facts"]["verdict"]["words"] == noise.verdict_.sentence


def test_what_can_only_be_noise_is_said_before_and_once() -> None:
    with pytest.warns(NoSignalWarning) as caught:
        fitted(0.002)
    assert [str(each.message)[:35] for each in caught] == ["No data of this size can be seen: w"]


def test_who_looks_on_is_not_warned(recwarn: pytest.WarningsRecorder) -> None:
    given = {"private_map": FAST, "feddl": {"bounds": (0.0, 1.0)}, **BRIEF}
    FedTSNE(budget=Budget(0.002, 1e-5), **given).watch(warns=False).fit(blobs())
    assert not [each for each in recwarn if each.category is NoSignalWarning]


def test_it_costs_nothing_and_follows_from_what_was_released(good: FedTSNE) -> None:
    """The same settings give the same verdict; it is the same after a way through bytes and JSON."""
    assert fitted(20.0).verdict_ == good.verdict_
    assert wire.decode(wire.encode(good.verdict_)) == good.verdict_
    assert Verdict.from_dict(json.loads(json.dumps(good.verdict_.to_dict()))) == good.verdict_
    assert good.ledger_.spent(1e-5) <= 20


def test_a_resumed_map_has_the_same_verdict(tmp_path, good: FedTSNE) -> None:
    """Counts of rounds that were done before an interruption are in the checkpoint."""

    class Stop(Exception):
        pass

    def stop(done, landmarks):
        if done.number == 9:
            raise Stop

    given = {"private_map": FAST, "feddl": {"bounds": (0.0, 1.0)}, **BRIEF}
    first = FedTSNE(budget=Budget(20.0, 1e-5), **given)
    with pytest.raises(Stop):
        first.watch(checkpoint=tmp_path / "kept", callbacks=[stop]).fit(blobs())
    second = FedTSNE(budget=Budget(20.0, 1e-5), **given).watch(checkpoint=tmp_path / "kept").fit(blobs())
    assert second.verdict_ == good.verdict_


@given(st.integers(2, 60), st.integers(0, 2**32 - 1))
def test_noise_alone_has_no_direction(m: int, seed: int) -> None:
    """Of pure noise the largest eigenvalue is below the threshold; a strong direction is above it."""
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.normal(size=(m, m)) / math.sqrt(2), 1)
    noise = upper + upper.T + np.diag(rng.normal(size=m))
    edge = edge_of(1.0, m)
    assert np.linalg.eigvalsh(noise)[-1] < 1.35 * edge * threshold(m)  # 1 % get above the threshold itself
    direction = np.zeros((m, m))
    direction[0, 0] = 6 * edge
    assert np.linalg.eigvalsh(noise + direction)[-1] > edge * threshold(m)


@pytest.mark.parametrize(
    ("directions", "frame", "clear", "supported", "count", "signal"),
    [
        (2, 0.9, 0.9, 1.0, 15, "yes"),
        (None, 0.0, 0.9, 1.0, 15, "yes"),
        (2, 0.7, 0.35, 0.5, 500, "yes"),
        (2, 0.5, 0.9, 1.0, 15, "partly"),  # most of the frame is nearly random
        (2, 0.9, 0.3, 0.8, 15, "partly"),
        (1, 0.9, 0.9, 1.0, 15, "partly"),
        (1, 0.1, 0.0, 0.0, 0, "partly"),
        (0, 0.0, 0.5, 0.6, 7, "partly"),
        (0, 0.0, 0.5, 0.6, 5, "no"),
        (0, 0.0, 0.3, 0.6, 7, "no"),
        (None, 0.0, 0.0, 0.0, 0, "no"),
    ],
)
def test_the_verdict_from_its_numbers(
    directions: int | None, frame: float, clear: float, supported: float, count: int, signal: str
) -> None:
    assert judged(directions, frame, clear, supported, count) == signal


HELD = "hold about 90 % of the records (48 to 100 %)."
REST = "The rest of the map may be noise."
LOOKS = "noise, whatever it looks like."


@pytest.mark.parametrize(
    ("signal", "directions", "clear", "said"),
    [
        ("yes", 2, 9, f"2 directions of the data and 9 of 10 regions stand above the noise. These regions {HELD}"),
        ("yes", None, 9, f"9 of 10 regions stand above the noise. These regions {HELD}"),
        (
            *("partly", 0, 7),
            f"7 of 10 regions stand above the noise, but no direction of the data. These regions {HELD} {REST}",
        ),
        (
            *("partly", 1, 3),
            f"1 direction of the data and 3 of 10 regions stand above the noise. These regions {HELD} {REST}",
        ),
        (
            *("partly", 1, 0),
            "1 direction of the data stands above the noise, but no region: where on this map the records lie is not "
            "known.",
        ),
        (
            *("no", 0, 4),
            "Only 4 of 10 regions and no direction of the data stand above the noise: too little to tell this map from "
            f"{LOOKS}",
        ),
        ("no", None, 1, f"Only 1 of 10 regions stands above the noise: too little to tell this map from {LOOKS}"),
        (
            *("no", 0, 0),
            f"Neither a direction of the data nor a region of the map stands above the noise: what it shows is {LOOKS}",
        ),
        ("no", None, 0, f"No region of the map stands above the noise: what it shows is {LOOKS}"),
    ],
)
def test_each_case_has_a_sentence_that_agrees_with_itself(
    signal: Signal, directions: int | None, clear: int, said: str
) -> None:
    numbers = np.arange(10)
    found = Regions(numbers, np.full(10, 0.1), np.full(10, 0.01), numbers < clear)
    seen = None if directions is None else (0.2,) * directions
    sentence = _said(signal, seen, found, (0.48, 0.9, 1.0))
    assert sentence == f"Signal: {WORDS[signal]}. {said}"


@pytest.mark.parametrize(
    ("directions", "said"),
    [(None, "Nothing was released by"), (0, "No direction of the data stands"), (2, "2 directions of the data stand")],
)
def test_a_map_without_counts_has_a_sentence_too(directions: int | None, said: str) -> None:
    seen = None if directions is None else (0.2,) * directions
    sentence = _said("partly" if directions else "no", seen, None, None)
    assert said in sentence
    assert ("what this map shows is noise" in sentence) == (directions == 0)


def test_the_direction_that_the_noise_of_the_centre_makes_is_left_out() -> None:
    """All records alike: what is seen of them is how far the released centre is off."""
    shares = np.array([0.35, 0.1, 0.09])
    assert _without_centre(shares, 0.3).tolist() == [0.1, 0.09]
    assert _without_centre(shares, 0.05).tolist() == shares.tolist()
    assert _without_centre(np.empty(0), 0.05).tolist() == []
    alike = FederatedData.split(np.full((900, 40), 0.5, dtype=np.float32), clients=3, partition="iid", seed=0)
    for seed in range(3):
        map_ = FedTSNE(epsilon=6.0, random_state=seed, feddl={"bounds": (0.0, 1.0)}, private_map=FAST, **BRIEF)
        assert len(map_.watch(warns=False).fit(alike).verdict_.directions or ()) == 0


def test_rows_are_judged_by_their_noise() -> None:
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 12))
    assert verdict_of_rows(plane, 0.0).signal == "yes"
    assert verdict_of_rows(plane + 0.3 * rng.normal(size=plane.shape), 0.3).signal == "yes"
    assert verdict_of_rows(plane + 3.0 * rng.normal(size=plane.shape), 3.0).signal == "partly"
    assert verdict_of_rows(9.0 * rng.normal(size=plane.shape), 9.0).signal == "no"


@pytest.mark.parametrize(("release", "mechanism"), [("exact", "none"), ("noisy", "gradient"), ("exact", "input")])
def test_every_release_has_a_verdict(release: str, mechanism: str) -> None:
    budget = None if mechanism == "none" else Budget(4.0, 1e-5)
    map_ = FedTSNE(n_landmarks=12, mechanism=mechanism, budget=budget, release=release, rounds=2, tau_x=3.0, **BRIEF)
    assert map_.fit(blobs(120)).verdict_.signal in ("yes", "partly", "no")


def test_a_mechanism_without_counts_is_judged_by_directions() -> None:
    verdict = fitted(20.0, mechanism="gradient", rounds=2).verdict_
    assert (verdict.signal, verdict.regions) == ("partly", ())
    assert "counts no records" in verdict.sentence
    assert len(verdict.drawn) > 0


def test_only_three_words_are_known() -> None:
    with pytest.raises(InvalidParameter, match="'maybe'"):
        Verdict(signal="maybe", sentence="")  # type: ignore[arg-type]
    assert "not judged" in unjudged("nothing was made").sentence


REGION = {"landmarks": [0, 2], "share": 0.4, "noise": 0.1, "clear": True, "weak": False, "place_noise": None}
TOLD = {"signal": "yes", "sentence": "x", "regions": [REGION], "drawn": [True, False, True], "anchors": [0, 2, 1]}


@pytest.mark.parametrize(
    ("changed", "of_region", "name"),
    [
        ({}, {"landmarks": [3]}, "landmark of a region"),
        ({}, {"landmarks": [-1]}, "landmark of a region"),
        ({}, {"landmarks": [0.0]}, "landmark of a region"),
        ({}, {"landmarks": [True]}, "landmark of a region"),
        ({}, {"share": "all"}, "share of a region"),
        ({}, {"noise": math.nan}, "noise of a region"),
        ({}, {"place_noise": "1"}, "place_noise of a region"),
        ({}, {"clear": 1}, "clear of a region"),
        ({"anchors": [3]}, {}, "landmark of an anchor"),
        ({"anchors": [-1]}, {}, "landmark of an anchor"),
        ({"anchors": 3}, {}, "landmark of an anchor"),
        ({"drawn": [1, 0, 1]}, {}, "drawn"),
        ({"sentence": 3}, {}, "sentence"),
        ({"share": "0.3"}, {}, "share of a verdict"),
        ({"share_high": math.nan}, {}, "share_high of a verdict"),
        ({"directions": ["x"]}, {}, "direction of a verdict"),
        ({"centre_noise": None}, {}, "centre_noise"),
        ({"regions": 3}, {}, "verdict"),
        ({"regions": [3]}, {}, "verdict"),
        ({"surprise": 3}, {}, "verdict"),
    ],
)
def test_what_a_lying_server_tells_is_refused_by_name(changed: Any, of_region: Any, name: str) -> None:
    """A landmark of number −1 would have been the last one."""
    assert Verdict.from_dict(TOLD).clear == (True, False, True)
    with pytest.raises(InvalidParameter, match=name):
        Verdict.from_dict({**TOLD, "regions": [{**REGION, **of_region}], **changed})
