"""Exposure: copies are caught, landmarks under a budget are not, and what is found about a record is for its owner."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from accounting import Budget
from accounting.errors import InvalidParameter
from attacks import exposure
from attacks.exposure.landmarks import attribute_errors, nearest
from attacks.exposure.report import most_exposed, owner_views
from attacks.shared.registry import NothingToAttack, Truth, kind
from dpfedvis.cli.attack import truth_of
from dpfedvis.data import FederatedData
from dpfedvis.errors import DpfedvisError
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.numerics.kernels import InvalidPoints
from dpfedvis.runs.execute import execute
from dpfedvis.runs.settings import RunConfig
from dpfedvis.runs.upload_reader import Recording
from tests import makers

DIGITS = makers.DIGITS[np.random.default_rng(0).permutation(1797)]
RECORDS, FRESH = DIGITS[:800], DIGITS[800:1600]
RNG = np.random.default_rng


@pytest.fixture(scope="module")
def learned() -> np.ndarray:
    """Landmarks of a run at ε = 1."""
    fed = FederatedData.split(RECORDS, clients=4, seed=0, bounds=(0, 1))
    feddl = FedDL(
        landmarks=60,
        rounds=15,
        mechanism="gradient",
        budget=Budget(1, 1e-5),
        gamma=0.1,
        bounds=(0, 1),
        seed=2,
    )
    return feddl.run(fed).landmarks


@pytest.mark.parametrize("apart", [False, True])
def test_nearest_matches_all_pairs(apart):
    rng = RNG(1)
    points = rng.normal(size=(600, 3))
    targets = points if apart else rng.normal(size=(40, 3))
    slow = np.linalg.norm(points[:, None] - targets, axis=2)
    if apart:
        np.fill_diagonal(slow, np.inf)
    indices, distances = nearest(points, targets, apart=apart)
    np.testing.assert_array_equal(indices, slow.argmin(axis=1))
    np.testing.assert_allclose(distances, slow.min(axis=1), rtol=1e-7)


def test_copies_of_records_are_caught():
    found = exposure(RECORDS[:50], RECORDS, FRESH, rng=RNG(2))
    assert found.share.value == 1
    assert found.p_value < 1e-3
    assert found.ratio == 0
    assert found.to_records.max() == 0


def test_near_copies_are_caught():
    """Blurred by a third of the distance between neighbours."""
    blurred = RECORDS[:100] + 0.08 * RNG(3).normal(size=(100, 64))
    found = exposure(blurred, RECORDS, FRESH, rng=RNG(4))
    assert found.share.low > 0.8
    assert found.p_value < 1e-3
    assert found.attributes.low > 0.5


def test_landmarks_under_a_budget_are_not_caught(learned):
    found = exposure(learned, RECORDS, FRESH, rng=RNG(5))
    assert found.p_value > 0.05
    assert found.share.low < 0.5
    assert found.attributes.low < 0.5 + 0.02
    assert found.ratio == pytest.approx(1, abs=0.05)


def test_one_copy_among_landmarks_is_an_exact_hit_for_its_owner(learned):
    Y = learned.copy()
    Y[7] = RECORDS[123]
    first = most_exposed("a", Y, RECORDS).exposed[0]
    assert (first.index, first.to_landmark) == (123, 0)


def test_p_values_are_honest_without_memorisation():
    """Landmarks that know nothing: p ≤ 0.1 in at most a tenth of splits, within three standard errors."""
    rng, splits, small = RNG(6), 150, 0
    Y = RNG(7).random((15, 64))
    for _ in range(splits):
        order = rng.permutation(400)
        small += exposure(Y, DIGITS[order[:200]], DIGITS[order[200:]], rng=rng).p_value <= 0.1
    assert small <= splits * 0.1 + 3 * math.sqrt(splits * 0.09)
    assert small > 0


def test_the_larger_set_does_not_win_by_its_number():
    """As many fresh records as records are compared: with 40 times more records chance alone would give share 0.98."""
    Y = RNG(8).random((60, 64))
    found = exposure(Y, DIGITS[:1600], DIGITS[1600:1640], rng=RNG(9))
    assert found.records == 40
    assert found.share.low < 0.5 < found.share.high


def test_attributes_are_read_off_the_nearest_landmark():
    landmarks, points = np.array([[0.0, 0.0, 5.0], [10.0, 10.0, 7.0]]), np.array([[1.0, 1.0, 7.0], [9.0, 9.0, 7.5]])
    np.testing.assert_allclose(attribute_errors(landmarks, points, [2]), [2.0, 0.5])
    np.testing.assert_allclose(attribute_errors(landmarks, points, [0, 2]), [1.5, 0.75])
    # Seen with its hidden attribute the point would be nearest to the other landmark.
    hidden = np.array([[0.0, 0.0, 5.0], [1.0, 1.0, 100.0]])
    np.testing.assert_allclose(attribute_errors(hidden, np.array([[0.9, 0.9, 6.0]]), [2]), [94.0])


def test_an_outlier_with_a_landmark_of_its_own_comes_first():
    records = np.concatenate([RNG(10).normal(size=(50, 2)), [[30.0, 0.0]]])
    Y = np.array([[0.0, 0.0], [29.0, 0.0]])
    view = most_exposed("hospital", Y, records, count=3)
    assert view.exposed[0].index == 50
    assert view.exposed[0].ratio < 0.1
    assert len(view.exposed) == 3
    values = json.loads(view.to_json())
    assert (values["client"], values["exposed"][0]["index"]) == ("hospital", 50)
    assert "| 50 |" in view.markdown()


def test_bad_input_is_named():
    with pytest.raises(InvalidPoints, match="at least 2 rows"):
        exposure(RECORDS[:5], RECORDS[:1], FRESH, rng=RNG(0))
    with pytest.raises(InvalidPoints, match="same number of features"):
        exposure(RECORDS[:5, :3], RECORDS, FRESH, rng=RNG(0))
    with pytest.raises(InvalidPoints, match="not finite"):
        exposure(np.full((3, 64), np.nan), RECORDS, FRESH, rng=RNG(0))
    with pytest.raises(InvalidParameter, match="count"):
        most_exposed("a", RECORDS[:5], RECORDS, count=0)
    with pytest.raises(DpfedvisError, match="no attributes"):
        attribute_errors(np.ones((2, 2)), np.ones((2, 2)), [])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recording, Truth]:
    folder = Path(tmp_path_factory.mktemp("exposure")) / "run"
    config = RunConfig(data="digits", records=300, clients=3, landmarks=30, rounds=3, map="clusters", clusters=2)
    execute(config, folder)
    return Recording.read(folder), truth_of(folder)


def keys(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(keys, value.values()))
    return set().union(*map(keys, value)) if isinstance(value, list) else set()


def test_the_public_part_of_a_run_names_no_record(recorded, tmp_path: Path):
    recording, truth = recorded
    # A landmark that is a record: the owner must learn of it, and nobody else.
    Y = recording.landmarks.copy()
    Y[0] = truth.client("client-1")[77]
    report = kind("exposure")(replace(recording, landmarks=Y), truth, RNG(0))
    owner = next(each for each in owner_views(replace(recording, landmarks=Y), truth) if each.client == "client-1")
    assert (owner.exposed[0].index, owner.exposed[0].to_landmark) == (77, 0)
    public = json.loads(report.to_json())
    assert keys(public) == {
        *("kind", "landmarks", "records", "share", "value", "low", "high", "p_value", "attributes", "control"),
        *("median_to_records", "median_to_fresh", "limit", "mu", "epsilon", "delta", "caution"),
    }
    for text in (report.to_json(), report.markdown()):
        assert not re.search(r"index|client-|\b77\b", text)
    assert "later in the file" in report.markdown()
    report.figure(tmp_path / "exposure.png")
    assert (tmp_path / "exposure.png").stat().st_size > 1000


def test_the_control_tells_other_records_from_memorisation(recorded):
    """Fresh records that are another kind of record make a finding of landmarks that have seen nothing, too."""
    recording, truth = recorded
    shifted = replace(truth, fresh=truth.fresh - np.float32(0.5))
    start = replace(recording, landmarks=recording.trajectory[0])
    assert kind("exposure")(start, shifted, RNG(0)).control.p_value < 0.01
    assert kind("exposure")(start, truth, RNG(0)).control.p_value > 0.01


def test_without_fresh_records_there_is_nothing_to_compare_with(recorded):
    recording, truth = recorded
    with pytest.raises(NothingToAttack, match="took no part"):
        kind("exposure")(recording, replace(truth, fresh=None), RNG(0))
