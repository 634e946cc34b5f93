"""What a region is, in the schema's own units; and cells that a spreadsheet would run."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import Budget
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.data import Schema
from dpfedvis.data.columns import Column
from dpfedvis.runs.region_table import HEAD, _numbers, _values, in_units, region_facts, write_regions
from dpfedvis.runs.tables import write_table

SCHEMA = Schema.of(
    {
        "columns": {
            "age": {"role": "feature", "kind": "number", "range": [0, 100], "unit": "years"},
            "crp": {"role": "feature", "kind": "number", "range": [0.1, 1000.0], "log": True},
            "sex": {"role": "feature", "kind": "category", "values": ["f", "m"]},
            "grade": {"role": "feature", "kind": "ordered", "values": ["low", "middle", "high"]},
            "seen": {"role": "feature", "kind": "date", "range": ["2020-01-01", "2020-12-31"]},
        }
    }
)
FAST = {"private_map": {"placement": "weights", "anchors": 60}, "tsne": {"n_iter": 20}, "n_jobs": 1}


def patients(n: int = 1200) -> FederatedData:
    """Two kinds of patients: old men of a high grade, and young women of a low one."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    old = rng.random(n) < 0.5
    frame = pandas.DataFrame(
        {
            "age [years]": np.where(old, 80, 20) + rng.normal(size=n),
            "crp": np.where(old, 100.0, 1.0) * np.exp(0.1 * rng.normal(size=n)),
            "sex": np.where(old, "m", "f"),
            "grade": np.where(old, "high", "low"),
            "seen": np.where(old, "2020-10-01", "2020-03-01"),
        }
    )
    return FederatedData.from_frames({"a": frame[: n // 2], "b": frame[n // 2 :]}, SCHEMA)


@pytest.fixture(scope="module")
def map_of_patients() -> FedTSNE:
    return FedTSNE(budget=Budget(30.0, 1e-5), noise="seeded", **FAST).fit(patients())


def test_a_region_is_described_in_the_units_of_its_columns(map_of_patients: FedTSNE, tmp_path: Path) -> None:
    facts = region_facts(map_of_patients)
    clear = [each for each in facts if each["clear"] == "yes"]
    assert len(clear) >= 2
    kinds = {"old": 0, "young": 0}
    weights: dict[str, list[tuple[float, float]]] = {"old": [], "young": []}
    for each in clear:
        values = each["values"]
        age, noise = values["age [years]"]["mean"], values["age [years]"]["noise"]
        assert 0 < noise < 30
        old = age > 50
        kinds["old" if old else "young"] += 1
        assert values["sex = m: share"]["mean"] == pytest.approx(float(old), abs=0.45)
        assert (values["crp"]["mean"] > 10) == old
        assert values["grade"]["mean"] != ("low" if old else "high")
        assert values["seen"]["mean"][:4] == "2020"
        weights["old" if old else "young"].append((each["share"], age))
    assert min(kinds.values()) >= 1
    for kind, age in (("old", 80), ("young", 20)):
        shares, ages = np.array(weights[kind]).T
        # Landmarks move by a few steps of limited length, and may not have come all the way.
        assert shares @ ages / shares.sum() == pytest.approx(age, abs=12)
    write_regions(tmp_path, map_of_patients)
    with (tmp_path / "regions.csv").open(newline="") as file:
        head, *rows = list(csv.reader(file))
    assert head[: len(HEAD)] == HEAD
    assert head[-2:] == ["seen", "seen: noise (1 sd)"]
    assert "sex = f: share" in head
    assert [row[1] for row in rows] == [each["clear"] for each in facts if each["clear"] != "no"]
    shares = [float(row[head.index("sex = f: share")]) for row in rows]
    assert all(0 <= share <= 1 for share in shares)
    json.dumps(facts, allow_nan=False)


def test_the_noise_that_is_stated_covers_what_another_seed_gives(map_of_patients: FedTSNE) -> None:
    """Ages of clear regions of other runs are within the stated noise of the two kinds of patients."""
    other = FedTSNE(budget=Budget(30.0, 1e-5), noise="seeded", random_state=7, **FAST).fit(patients())
    for each in region_facts(other):
        if each["clear"] == "yes":
            value = each["values"]["age [years]"]
            assert min(abs(value["mean"] - age) for age in (20, 80)) < 4 * value["noise"] + 3


def test_noise_of_a_share_ends_at_one_and_infinite_noise_is_unknown() -> None:
    mean = np.full(6, 0.5)
    exact, far, lost = (dict(_values(SCHEMA, mean, np.full(6, each))) for each in (0.0, 9.0, math.inf))
    assert far["sex = f: share"]["noise"] == 1.0
    assert far["age [years]"]["noise"] == 50.0  # half of its range
    assert far["seen"]["noise"] == "2020-01-01 to 2020-12-31"
    assert {each["noise"] for each in lost.values()} == {"unknown"}
    assert {name: each["mean"] for name, each in lost.items()} == {name: each["mean"] for name, each in exact.items()}
    assert dict(_numbers(mean[:1], np.array([math.inf])))["x0"]["noise"] == "unknown"


@given(st.floats(0, 1))
def test_units_are_the_inverse_of_the_encoding(place: float) -> None:
    for column in SCHEMA.features:
        if column.kind == "category":
            continue
        found = in_units(column, place * column.largest)
        if column.kind == "number":
            again = float(column.encoded(np.array([found]))[0][0, 0])
            assert again == pytest.approx(place * column.largest, abs=1e-4)
        else:
            again = float(column.encoded(np.array([str(found)]))[0][0, 0])
            assert abs(again - place * column.largest) <= (0.26 if column.kind == "ordered" else 0.01)


def test_beyond_the_range_is_its_end() -> None:
    age = Column("age", "feature", "number", (0, 100))
    assert [in_units(age, each) for each in (-3.0, 2.0, math.inf, -math.inf)] == [0.0, 100.0, 100.0, 0.0]


@pytest.mark.parametrize("text", ["=1+1", "+1+cmd", " =1", "-cmd", "@SUM(A1)", "\tx", "\r=1"])
def test_no_cell_of_text_is_a_formula(text: str, tmp_path: Path) -> None:
    write_table(tmp_path / "t.csv", ["name", text], [[text, -1.5], ["plain", 2]])
    with (tmp_path / "t.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    shown = text.replace("\r", " ")
    assert rows[0] == ["name", f"'{shown}"]
    assert rows[1] == [f"'{shown}", "-1.5"]
    assert rows[2] == ["plain", "2"]
