"""A draft of a schema: valid TOML, no ids among the features, and nothing of the records in it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpfedvis import FederatedData
from dpfedvis.data import Schema, load
from dpfedvis.data.example import hospitals
from dpfedvis.data.schema_draft import Draft, draft, guess


def drafted(folder: Path, *files: dict[str, list[Any]], measured: bool = False) -> tuple[Draft, dict[str, Any]]:
    """Return a draft for files with these columns, and the columns that it has."""
    paths = []
    for i, columns in enumerate(files):
        rows = zip(*columns.values(), strict=True)
        lines = [";".join(columns), *(";".join(map(str, row)) for row in rows)]
        paths.append(folder / f"{'abc'[i]}.csv")
        paths[-1].write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = draft(paths, ranges_from_data=measured)
    return found, tomllib.loads(found.text)["columns"]


def about(found: Draft, name: str) -> str:
    return " | ".join(remark for remark in found.remarks if remark.startswith(f"column {name!r}: "))


# Kinds


def test_a_draft_guesses_kinds_and_measures_nothing(tmp_path):
    (tmp_path / "a.csv").write_text(hospitals(patients=200)["aachen.csv"])
    text = draft([tmp_path / "a.csv"]).text
    assert 'ranges = "public"' in text
    for private in ("aa-000001", "cardiac", "intensive", "2024-"):
        assert private not in text
    columns = tomllib.loads(text)["columns"]
    kinds = {name: each.get("kind") for name, each in columns.items()}
    assert kinds == {
        "patient": None,
        "case": None,
        "remarks": None,
        "age": "number",
        "sex": "category",
        "admitted": "date",
        "ward": "category",
        "pressure": "number",
        "glucose": "number",
        "creatinine": "number",
        "crp": "number",
        "temperature": "number",
        "rate": "number",
        "pain": "category",
        "smoker": "category",
        "diagnosis": "category",
    }
    assert columns["pressure"]["unit"] == "mmHg"
    assert [name for name, each in columns.items() if each["role"] == "drop"] == ["patient", "case", "remarks"]
    assert not any("range" in each or "values" in each for each in columns.values())


def test_a_draft_with_measured_ranges_runs_and_says_so(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(hospitals(patients=100)["aachen.csv"])
    (tmp_path / "s.toml").write_text(draft([path], ranges_from_data=True).text)
    data = load(path, schema=tmp_path / "s.toml")
    assert FederatedData.from_dataset(data).ranges == "measured"
    assert "measured on private data" in (tmp_path / "s.toml").read_text()


@pytest.mark.parametrize(
    ("values", "kind", "dropped"),
    [
        (["1", "2", "3"] * 5, "number", ""),
        (["1,5", "2,5", "", "NA"] * 5, "number", ""),
        (["31.12.2020", "01.02.2021"] * 5, "date", ""),
        (["a", "b"] * 5, "category", ""),
        (["same"] * 5, "text", "one value only"),
        ([""] * 5, "text", "no file has a value"),
        ([f"word {i}" for i in range(60)], "text", "may be an id"),
        ([f"word {i % 30}" for i in range(60)], "text", "more than 20 values"),
    ],
)
def test_a_guess_of_one_column(values, kind, dropped):
    found = guess("column", np.array(values))
    assert found.kind == kind
    assert dropped in found.drop
    assert bool(found.drop) == bool(dropped)


def test_whole_numbers_that_all_differ_are_an_id_by_their_name():
    values = np.array([str(i) for i in range(50)])
    assert guess("patient id", values).drop
    assert guess("height", values).kind == "number"


# Ids and persons


REPEATED = [i // 2 for i in range(60)]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("subject_id", [1000 + i for i in REPEATED]),
        ("PatientID", [f"{i:05d}" for i in range(60)]),
        ("PatientID", [f"{i:05d}" for i in REPEATED]),
        ("Fallnummer", [7000 + 3 * i for i in range(60)]),
        ("mrn", [90000 + i for i in REPEATED]),
        ("zip", [f"{1067 + i:05d}" for i in REPEATED]),
        ("PLZ", [f"{52062 + i % 3}" for i in range(60)]),
        ("patient2", REPEATED),
        ("Versicherten-Nr", [100 + i for i in REPEATED]),
        ("Versichertenkennung", [f"X{i}" for i in REPEATED]),
        ("Patientin", [f"P{i % 9}" for i in range(60)]),
        ("pid", REPEATED),
        ("Name", [f"N{i % 9}" for i in range(60)]),
        ("ward code", [f"{i:03d}" for i in REPEATED]),
    ],
)
def test_ids_are_no_features(name, values, tmp_path):
    found, columns = drafted(tmp_path, {name: values, "age": REPEATED})
    assert columns[name] == {"role": "drop"}
    assert 'role = "drop"   # or: id, person, feature\n' in found.text
    assert "(proposed: drop)" in about(found, name)
    assert columns["age"]["kind"] == "number"


def test_sites_that_both_count_from_1_have_ids(tmp_path):
    file = {"Fall Nr.": list(range(1, 41)), "key": list(range(1, 41)), "text": [f"t{i}" for i in range(40)]}
    found, columns = drafted(tmp_path, file, file)
    assert [each["role"] for each in columns.values()] == ["drop"] * 3
    for name in file:
        assert about(found, name) == (
            f"column {name!r}: every value differs, so that it may be an id; "
            'role = "id" shows it in the own view (proposed: drop)'
        )
    assert found.remarks[-1] == "no column seems to be a feature; a schema needs one"


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("patient age", REPEATED),
        ("PatientWeight", REPEATED),
        ("number of visits", REPEATED),
        ("visit no", [i % 5 for i in range(60)]),
        ("INR", [i / 10 for i in range(60)]),
        ("NO", [i / 10 for i in range(60)]),
        ("fall", [i % 2 for i in range(60)]),
        ("smoker", [i % 2 for i in range(60)]),
        ("share", ["0", "0.5", "1"] * 20),
    ],
)
def test_features_with_words_of_ids_stay_features(name, values, tmp_path):
    _, columns = drafted(tmp_path, {name: values})
    assert columns[name] == {"role": "feature", "kind": "number"}


def test_few_files_of_few_rows_do_not_make_a_category_an_id(tmp_path):
    file = {"sex": ["f", "m"], "age": [30, 40]}
    _, columns = drafted(tmp_path, file, file, file)
    assert columns["sex"]["kind"] == "category"


@pytest.mark.parametrize("values", [("True", "False"), ("true", "false"), ("yes", "no"), ("ja", "nein")])
def test_words_for_yes_and_no_are_categories(values, tmp_path):
    _, columns = drafted(tmp_path, {"smoker": list(values) * 10}, measured=True)
    assert columns["smoker"] == {"role": "feature", "kind": "category", "values": sorted(values)}


def test_codes_with_leading_zeros_are_categories_if_few(tmp_path):
    _, columns = drafted(tmp_path, {"ward": ["01", "02", "10"] * 5})
    assert columns["ward"]["kind"] == "category"


# Names and units


def test_brackets_that_tell_columns_apart_stay_in_their_names(tmp_path):
    values = list(range(50, 90))
    names = ["Glucose (fasting)", "Glucose (random)", "Pressure [mmHg]", "a (b) [c]", "a (b)"]
    found, columns = drafted(tmp_path, dict.fromkeys(names, values), measured=True)
    assert list(columns) == ["Glucose (fasting)", "Glucose (random)", "Pressure", "a (b) [c]", "a"]
    assert [each.get("unit") for each in columns.values()] == [None, None, "mmHg", None, "b"]
    (tmp_path / "s.toml").write_text(found.text)
    assert load(tmp_path / "a.csv", schema=tmp_path / "s.toml").X.shape == (40, 5)


def test_a_short_name_that_is_taken_is_given_once(tmp_path):
    _, columns = drafted(tmp_path, {"Glucose": [1, 2, 3], "Glucose [mg/dl]": [4, 5, 6]})
    assert list(columns) == ["Glucose", "Glucose [mg/dl]"]
    assert not any("unit" in each for each in columns.values())


def test_files_with_different_units_have_one_column_without_a_unit(tmp_path):
    found, columns = drafted(tmp_path, {"Glucose [mg/dl]": [90, 100]}, {"Glucose [mmol/l]": [5, 6]}, measured=True)
    assert columns == {"Glucose": {"role": "feature", "kind": "number", "range": [5.0, 100.0]}}
    assert "# the files name different units" in found.text
    assert "(Glucose [mg/dl], Glucose [mmol/l])" in about(found, "Glucose")
    Schema.of(tomllib.loads(found.text))


def test_a_column_without_a_name_is_left_out_and_one_that_a_file_lacks_is_told(tmp_path):
    found, columns = drafted(tmp_path, {"": [0, 1], "x": [1, 2], "y": [1, 2]}, {"x": [1, 2]}, {"x": [1, 2]})
    assert list(columns) == ["x", "y"]
    assert found.remarks == ("a column without a name is left out", "column 'y': 1 of 3 files has it")


# What is private


def test_the_schema_tells_nothing_of_the_records(tmp_path):
    file = {"same": ["one"] * 40, "empty": [""] * 40, "case": [f"c{i}" for i in range(40)], "age": list(range(40))}
    found, columns = drafted(tmp_path, file)
    for word in ("a.csv", "one value", "no file", "differ", "may be"):
        assert word not in found.text
    assert [columns[name] for name in ("same", "empty", "case")] == [{"role": "drop"}] * 3
    assert "it has one value only" in about(found, "same")
    assert "no file has a value" in about(found, "empty")
    assert "every value differs" in about(found, "case")
    assert "if it is an id" in about(found, "age")


# Measured ranges


def test_values_that_no_range_can_hold_are_left_out_of_it(tmp_path):
    found, columns = drafted(tmp_path, {"x": [1, 2.5, "1e30", "inf", "-inf"], "y": [1, 2, 3, -2e31, 4]}, measured=True)
    assert [each["range"] for each in columns.values()] == [[1.0, 2.5], [1.0, 4.0]]
    assert "beyond ±1e+30" in about(found, "x")
    Schema.of(tomllib.loads(found.text))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["inf", "-inf"], "number"),
        (["1e30", "5"], "number"),
        (["1.0", "1.00"], "number"),
        (["1000000", "1000000.5"], "number"),
        (["2020-01-01T08:00", "2020-01-01T09:00"], "date"),
    ],
)
def test_a_range_without_width_is_left_open(values, kind, tmp_path):
    found, columns = drafted(tmp_path, {"x": values, "z": [1, 2]}, measured=True)
    assert columns["x"] == {"role": "feature", "kind": kind}
    assert "# range = [" in found.text
    assert "which is left open" in about(found, "x")


# Dates


@pytest.mark.parametrize("measured", [False, True])
def test_days_that_may_be_months_leave_the_format_open(measured, tmp_path):
    found, columns = drafted(tmp_path, {"seen": ["01/02/2020", "12/11/2021", "03/03/2021"]}, measured=measured)
    assert columns["seen"] == {"role": "feature", "kind": "date"}
    assert '# format = "%d/%m/%Y"   # or "%m/%d/%Y"\n# range = [' in found.text
    assert "day and month cannot be told apart" in about(found, "seen")


@pytest.mark.parametrize(
    ("values", "format"),
    [
        (["01/02/2020", "13/02/2020"], "%d/%m/%Y"),
        (["01/02/2020", "02/13/2020"], "%m/%d/%Y"),
        (["01.02.2020", "02.03.2020"], "%d.%m.%Y"),
        (["2020/02/01", "2020/03/01"], "%Y/%m/%d"),
        (["2020-02-01", "2020-03-01"], None),
    ],
)
def test_dates_that_one_format_fits(values, format, tmp_path):
    found, columns = drafted(tmp_path, {"seen": values}, measured=True)
    assert (columns["seen"]["kind"], columns["seen"].get("format")) == ("date", format)
    Schema.of(tomllib.loads(found.text))
