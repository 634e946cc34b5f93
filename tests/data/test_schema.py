"""The public schema: what it says is checked, and each value is prepared by itself, from public facts alone."""

from __future__ import annotations

import math
import tomllib
from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfedvis.data import Column, InvalidData, InvalidSchema, Schema, UnknownColumn
from dpfedvis.data.columns import as_text
from dpfedvis.data.tables import ColumnTable

TOML = """
[columns.patient]
role = "person"

[columns.age]
kind = "number"
range = [0, 120]
unit = "years"
fill = 40

[columns.crp]
kind = "number"
range = [1, 100]
log = true
weight = 2

[columns.sex]
kind = "category"
values = ["f", "m"]

[columns.pain]
kind = "ordered"
values = ["none", "mild", "strong"]

[columns.seen]
kind = "date"
range = [2020-01-01, 2021-01-01]

[columns.notes]
role = "drop"
"""


def schema(text: str = TOML) -> Schema:
    return Schema.of(tomllib.loads(text))


def table(**columns) -> ColumnTable:
    made = {
        name: np.array(values, dtype=np.float64 if name in ("age", "crp") else np.str_)
        for name, values in columns.items()
    }
    return ColumnTable("north.csv", made)


def slow(row: dict) -> list[float]:
    """One record, step by step."""

    def scaled(x, low, high):
        return min(max((x - low) / (high - low), 0), 1)

    age = 40 if math.isnan(row["age"]) else row["age"]
    crp = math.sqrt(1 * 100) if math.isnan(row["crp"]) else min(max(row["crp"], 1), 100)
    pain = {"none": 0, "mild": 0.5, "strong": 1}.get(row["pain"], 0.5)
    try:
        day = date.fromisoformat(row["seen"]).toordinal()
    except ValueError:
        day = (date(2020, 1, 1).toordinal() + date(2021, 1, 1).toordinal()) / 2
    half = 1 / math.sqrt(2)
    return [
        scaled(age, 0, 120),
        2 * scaled(math.log(crp), math.log(1), math.log(100)),
        half * (row["sex"] == "f"),
        half * (row["sex"] == "m"),
        pain,
        scaled(day, date(2020, 1, 1).toordinal(), date(2021, 1, 1).toordinal()),
    ]


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "patient": st.sampled_from(["p1", "p2"]),
            "age": st.floats(-10, 130) | st.sampled_from([math.nan, 1e30, -1e30, math.inf]),
            "crp": st.floats(0, 200) | st.sampled_from([math.nan, -5.0, 1e300]),
            "sex": st.sampled_from(["f", "m", "", "unknown", "NA"]),
            "pain": st.sampled_from(["none", "mild", "strong", "?", "very"]),
            "seen": st.sampled_from(["2020-06-01", "2020-12-31", "", "yesterday", "1999-01-01", "2030-01-01"]),
        }
    ),
    min_size=1,
    max_size=12,
)


def prepared(rows: list[dict]) -> np.ndarray:
    return schema().prepare(table(**{name: [row[name] for row in rows] for name in rows[0]})).X


@given(rows=ROWS)
def test_each_record_is_prepared_as_the_schema_says(rows):
    X = prepared(rows)
    assert (X.dtype, X.shape) == (np.float32, (len(rows), 6))
    np.testing.assert_allclose(X, [slow(row) for row in rows], rtol=1e-6, atol=1e-6)


@given(rows=ROWS, other=ROWS, repeated=st.sampled_from([1, 700, 4095, 4096, 5000]))
def test_a_record_is_prepared_by_itself(rows, other, repeated):
    """The same bits in any company: beside other records, before or after them, and in any number."""
    own = prepared(rows)
    company = prepared([*other, *rows])
    np.testing.assert_array_equal(company[len(other) :].view(np.uint32), own.view(np.uint32))
    many = prepared([*rows, *(other[:1] * repeated), *rows])
    np.testing.assert_array_equal(many[: len(rows)].view(np.uint32), own.view(np.uint32))
    np.testing.assert_array_equal(many[-len(rows) :].view(np.uint32), own.view(np.uint32))


@given(rows=ROWS)
def test_bounds_and_norm_hold_for_any_record(rows):
    X, public = prepared(rows).astype(np.float64), schema()
    low, high = public.bounds
    assert X.min() >= low
    assert X.max() <= high * (1 + 1e-7)
    assert np.linalg.norm(X, axis=1).max() <= public.norm * (1 + 1e-6)


def test_two_categories_are_as_far_apart_as_the_ends_of_a_range():
    rows = [{"patient": "p", "age": 0, "crp": 1, "sex": sex, "pain": "none", "seen": ""} for sex in ("f", "m")]
    a, b = prepared(rows)
    assert np.linalg.norm(a - b) == pytest.approx(1.0)
    rows[1] |= {"sex": "f", "age": 120}
    a, b = prepared(rows)
    assert np.linalg.norm(a - b) == pytest.approx(1.0)


def test_what_was_filled_is_counted_by_column_at_home():
    found = schema().prepare(
        table(
            patient=["a", "b", "c"],
            age=[30, np.nan, np.nan],
            crp=[1, 2, 3],
            sex=["f", "x", ""],
            pain=["none", "none", "mild"],
            seen=["2020-01-02", "then", ""],
            more=["1", "2", "3"],
        )
    )
    assert found.notes == (
        "north.csv: the schema does not know, and leaves out: more",
        "north.csv, column 'age': 2 values are missing, filled with 40",
        "north.csv, column 'sex': 1 value is missing, filled with none of the list",
        "north.csv, column 'sex': 1 value is not in the list, filled with none of the list",
        "north.csv, column 'seen': 1 value is missing, filled with the middle",
        "north.csv, column 'seen': 1 value is no date, filled with the middle",
    )
    assert found.roles["person"].tolist() == ["a", "b", "c"]


def test_a_category_outside_the_list_can_be_filled_by_one_of_it():
    public = schema('[columns.sex]\nkind = "category"\nvalues = ["f", "m", "d"]\nfill = "d"\n')
    X = public.prepare(ColumnTable("a", {"sex": np.array(["f", "?", "q"])})).X
    assert (X > 0).tolist() == [[True, False, False], [False, False, True], [False, False, True]]


def test_labels_outside_the_list_are_other():
    text = '[columns.a]\nkind = "number"\nrange = [0, 1]\n[columns.y]\nrole = "label"\nvalues = ["ill", "well"]\n'
    own = ColumnTable("a", {"a": np.zeros(4), "y": np.array(["ill", "dead", "", "well"])})
    assert schema(text).prepare(own).roles["label"].tolist() == ["ill", "other", "other", "well"]
    assert schema(text).classes == ("ill", "well")
    free = schema(text.replace('values = ["ill", "well"]\n', ""))
    assert free.prepare(own).roles["label"].tolist() == ["ill", "dead", "other", "well"]


def test_a_unit_in_the_header_must_be_that_of_the_schema():
    public = schema('[columns.glucose]\nkind = "number"\nrange = [40, 600]\nunit = "mg/dl"\n')
    for header in ("glucose", "glucose [mg/dl]", "glucose (mg/dl)"):
        assert pytest.approx(0.5) == public.prepare(ColumnTable("a.csv", {header: np.array([320.0])})).X
        assert public.is_number(header)
    with pytest.raises(InvalidSchema, match=r"column 'glucose' of a.csv is in mmol/l, and the schema says mg/dl"):
        public.prepare(ColumnTable("a.csv", {"glucose [mmol/l]": np.array([5.0])}))


def test_dates_in_another_format():
    public = schema('[columns.d]\nkind = "date"\nrange = [2020-01-01, 2020-01-11]\nformat = "%d.%m.%Y"\n')
    X = public.prepare(ColumnTable("a", {"d": np.array(["06.01.2020", "2020-01-06", "01.01.1990"])})).X
    assert X.ravel().tolist() == pytest.approx([0.5, 0.5, 0.0])


def test_a_column_that_is_missing_is_named_with_its_file():
    with pytest.raises(UnknownColumn, match=r"north\.csv has no column 'age', which the schema has; it has patient"):
        schema().prepare(table(patient=["a"]))


def test_who_has_no_person_cannot_take_part():
    with pytest.raises(InvalidData, match=r"north\.csv has 1 records without a person, in column 'patient'"):
        schema().prepare(
            table(patient=["", "b"], age=[1, 2], crp=[1, 2], sex=["f", "f"], pain=["none"] * 2, seen=["", ""])
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[columns.a]\nkind = "category"\nvalues = "x,y"', "a list of different texts"),
        ('[columns.a]\nkind = "category"\nvalues = ["x"]\nrange = [0, 1]', "range must be left out for a category"),
        ('[columns.a]\nkind = "number"\nrange = [0, 1]\nvalues = ["x"]', "values must be left out for a number"),
        ('[columns.a]\nkind = "date"\nrange = [2020-01-01, 2021-01-01]\nformat = "%Q"', "format must be"),
        ('[columns.a]\nkind = "date"\nrange = [2020-01-01, 2021-01-01]\nfill = 2030-01-01', "a date within the range"),
        ('[columns.lab.na]\nkind = "number"', "a name with a point is quoted"),
        ("", "there are no columns"),
        ("columns = 3", "there are no columns"),
        ("[column.a]", "no setting 'column'"),
        ('[columns.a]\nrole = "drop"', "no column has the role feature"),
        ("[columns.a]", "column 'a' is text, which is no feature"),
        ('[columns.a]\nkind = "number"', "column 'a': its range is open; give"),
        ('[columns.a]\nkind = "number"\nrange = [1, 1]', "low below high"),
        ('[columns.a]\nkind = "number"\nrange = [2, 1]', "low below high"),
        ('[columns.a]\nkind = "number"\nrange = [0, nan]', "end of the range must be"),
        ('[columns.a]\nkind = "number"\nrange = [0, 1e300]', "end of the range must be"),
        ('[columns.a]\nkind = "number"\nrange = ["low", "high"]', "end of the range must be"),
        ('[columns.a]\nkind = "number"\nrange = [0, 1, 2]', "give .low, high., from public knowledge"),
        ('[columns.a]\nkind = "number"\nrange = [0, 1]\nlog = true', "above 0 for a logarithm"),
        ('[columns.a]\nkind = "number"\nrange = [0, 1]\nfill = 2', "fill must be"),
        ('[columns.a]\nkind = "number"\nrange = [0, 1]\nweight = 0', "weight must be"),
        ('[columns.a]\nkind = "number"\nrange = [0, 1]\nweigth = 1', "setting 'weigth'; known are role"),
        ('[columns.a]\nkind = "category"', "its values are open; give the public list"),
        ('[columns.a]\nkind = "category"\nvalues = ["x", "x"]', "different texts"),
        ('[columns.a]\nkind = "category"\nvalues = [1, 2]', "different texts"),
        ('[columns.a]\nkind = "category"\nvalues = ["x"]\nfill = "y"', "one of the values"),
        ('[columns.a]\nkind = "ordered"\nvalues = ["x"]', "give the public list, 2 or more"),
        ('[columns.a]\nkind = "date"\nrange = ["then", "now"]', "needs a date such as 2024-01-31"),
        ('[columns.a]\nkind = "colour"', "kind must be"),
        ('[columns.a]\nrole = "king"', "role must be"),
        ('ranges = "guessed"\n[columns.a]\nkind = "number"\nrange = [0, 1]', "ranges must be public or measured"),
        ('[columns.a]\nrole = "id"\n[columns.b]\nrole = "id"', "'a' and 'b' both have the role id"),
        ("columns.a = 3", "must be a table of settings"),
        ('[columns.a]\nkind = "number"\n[columns.b]\nkind = "number"', "1 more columns are to be mended"),
    ],
)
def test_a_schema_that_says_too_little_is_refused(text, message, tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(text)
    with pytest.raises(InvalidSchema, match=message) as caught:
        Schema.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_schema_is_written_and_read_alike(tmp_path):
    path = tmp_path / "schema.toml"
    path.write_text(schema().to_toml())
    assert Schema.read(path) == schema()
    assert Schema.read(path).sha256 == schema().sha256
    assert "range = [0, 120]" in path.read_text()
    other = TOML.replace("120", "121")
    assert schema(other).sha256 != schema().sha256


@pytest.mark.parametrize("content", [b"[columns", b"\xff\xfe", b"columns = " + b"[" * 5000])
def test_a_file_that_is_no_toml_is_one_sentence(content, tmp_path):
    path = tmp_path / "schema.toml"
    path.write_bytes(content)
    with pytest.raises(InvalidSchema, match=str(path)):
        Schema.read(path)
    with pytest.raises(InvalidSchema, match="cannot be read"):
        Schema.read(tmp_path / "none.toml")


def test_numbers_as_text_have_no_point_where_they_are_whole():
    assert as_text(np.array([1.0, 2.5, np.nan, -3.0])).tolist() == ["1", "2.5", "", "-3"]


def test_columns_need_a_name():
    with pytest.raises(InvalidSchema, match="needs a name"):
        Column(" ")


def test_values_beyond_the_range_are_counted_and_a_column_of_nothing_is_refused():
    public = schema(
        '[columns.a]\nkind = "number"\nrange = [0, 10]\n[columns.d]\nkind = "date"\nrange = [2020-01-01, 2021-01-01]\n'
    )
    own = {"a": np.array([5.0, 1e30, -1.0]), "d": np.array(["2020-02-02", "2025-01-01", ""])}
    assert public.prepare(ColumnTable("x", own)).notes == (
        "x, column 'a': 2 values are beyond the range, and counted as its end",
        "x, column 'd': 1 value is missing, filled with the middle",
        "x, column 'd': 1 value is beyond the range, and counted as its end",
    )
    wrong = {"a": np.zeros(30), "d": np.array(["31.12.2020"] * 30)}
    with pytest.raises(InvalidData, match="column 'd' of x: none of its 30 values is a date; correct its kind"):
        public.prepare(ColumnTable("x", wrong))


def test_ids_and_persons_are_text_whatever_kind_is_left_beside_them():
    public = schema(
        '[columns.p]\nrole = "person"\nkind = "number"\nrange = [0, 1]\n[columns.a]\nkind = "number"\nrange = [0, 1]\n'
    )
    assert not public.is_number("p")
    assert public.is_number("a")


def test_two_headers_of_one_column_and_two_units_are_refused():
    public = schema('[columns.age]\nkind = "number"\nrange = [0, 100]\n')
    with pytest.raises(InvalidSchema, match="two columns of x are column 'age' of the schema"):
        public.prepare(ColumnTable("x", {"age": np.zeros(2), "age [years]": np.zeros(2)}))
    with pytest.raises(InvalidSchema, match="column 'age' is in years in a, and in months in b"):
        public.check_units({"a": ["age [years]"], "b": ["age [months]"]})
    public.check_units({"a": ["age [years]"], "b": ["age"], "c": ["age [years]"]})


def test_letters_that_are_written_apart_are_the_same():
    import unicodedata

    apart = unicodedata.normalize("NFD", "Größe")
    public = schema('[columns."Größe"]\nkind = "category"\nvalues = ["müde", "wach"]\n')
    own = ColumnTable("x", {apart: np.array([unicodedata.normalize("NFD", "müde"), "wach"])})
    assert (public.prepare(own).X > 0).tolist() == [[True, False], [False, True]]


def test_a_schema_with_a_byte_order_mark(tmp_path):
    (tmp_path / "s.toml").write_bytes(b"\xef\xbb\xbf" + TOML.encode())
    assert Schema.read(tmp_path / "s.toml") == schema()
