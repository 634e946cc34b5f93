"""Several files, a client column, or data frames: one client each, under its own name, with nothing invented."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from dpfedvis import FederatedData
from dpfedvis.data import DataError, InvalidData, PartitionError, Schema, UnknownColumn, UnknownDataset, load
from dpfedvis.data.example import HOSPITALS, hospitals
from dpfedvis.data.example import schema as example_schema
from dpfedvis.data.features import with_features

SCHEMA = """
[columns.id]
role = "id"
[columns.person]
role = "person"
[columns.age]
kind = "number"
range = [0, 100]
[columns.sex]
kind = "category"
values = ["f", "m"]
[columns.kind]
role = "label"
"""


def written(folder: Path, **files: str) -> list[Path]:
    paths = []
    for name, text in files.items():
        path = folder / f"{name}.csv"
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    return paths


@pytest.fixture
def schema(tmp_path) -> Path:
    path = tmp_path / "schema.toml"
    path.write_text(SCHEMA)
    return path


@pytest.fixture
def two(tmp_path) -> list[Path]:
    head = "id,person,age,sex,kind,ward\n"
    return written(
        tmp_path,
        Charité=head + "0007,p1,50,f,ill,A\n0008,p1,,m,well,B\n",
        south="ward,kind,sex,age,person,id\n1,ill,d,25,q1,s1\n1,ill,f,75,q2,s2\n2,well,m,100,q2,s3\n",
    )


# Files


def test_several_files_are_one_client_each_named_by_the_file(two, schema):
    data = load(two, schema=schema)
    assert data.clients == ("Charité", "south")
    assert data.name == "2 files (Charité, south)"
    fed = FederatedData.from_dataset(data)
    assert [client.name for client in fed.clients] == ["Charité", "south"]
    north, south = fed.clients
    half = np.float32(np.sqrt(0.5))
    np.testing.assert_allclose(north.X, [[0.5, half, 0], [0.5, 0, half]])
    np.testing.assert_allclose(south.X, [[0.25, 0, 0], [0.75, half, 0], [1, 0, half]])
    assert north.ids.tolist() == ["0007", "0008"]
    assert (north.n_persons, south.n_persons, fed.n_persons) == (1, 2, 3)
    assert south.y.tolist() == ["ill", "ill", "well"]
    assert south.own["ward"].tolist() == ["1", "1", "2"]
    assert north.own["age"][0] == 50
    assert np.isnan(north.own["age"][1])
    assert fed.dealt is None
    assert (fed.origin, fed.ranges, fed.bounds) == ("file", "public", (0.0, 1.0))
    assert fed.norm == pytest.approx(np.sqrt(1.5))
    assert fed.preparation == f"schema {Schema.read(schema).sha256}"


def test_patterns_and_folders_of_files(two, schema):
    pattern = str(two[0].parent / "*.csv")
    assert load(pattern, schema=schema).clients == ("Charité", "south")
    assert load([pattern], schema=schema).clients == ("Charité", "south")
    with pytest.raises(UnknownDataset, match=r"none\*.csv' is neither"):
        load(str(two[0].parent / "none*.csv"))
    with pytest.raises(InvalidData, match="is given twice"):
        load([two[0], pattern], schema=schema)
    with pytest.raises(InvalidData, match="a known data set stands alone"):
        load(["digits", two[0]])


def test_files_of_one_name_in_two_folders_are_refused(tmp_path):
    (tmp_path / "a").mkdir()
    first, second = written(tmp_path, x="a,b\n1,2\n") + written(tmp_path / "a", x="a,b\n1,2\n")
    with pytest.raises(InvalidData, match="two files are called 'x'"):
        load([first, second])


def test_plain_files_need_the_same_columns_in_the_same_order(tmp_path):
    a, b, c, d = written(tmp_path, a="x,y\n1,2\n", b="x,z\n1,2\n", c="y,x\n1,2\n", d="x,y,z\n1,2,3\n")
    with pytest.raises(UnknownColumn, match="a has a column 'y' that b has not"):
        load([a, b])
    with pytest.raises(UnknownColumn, match="in another order; write them in one order, or give a schema"):
        load([a, c])
    with pytest.raises(UnknownColumn, match="d has a column 'z' that a has not"):
        load([a, d])


def test_one_plain_file_is_one_client_and_nothing_is_invented(tmp_path):
    (path,) = written(tmp_path, clinic="x,y\n" + "1,2\n" * 30)
    fed = FederatedData.from_dataset(load(path))
    assert [(client.name, len(client.X)) for client in fed.clients] == [("clinic", 30)]
    assert fed.ranges == "of the file"
    dealt = FederatedData.from_dataset(load(path), clients=3)
    assert (dealt.n_clients, dealt.dealt) == (3, "iid")


def test_every_value_of_the_client_column_is_a_client(tmp_path):
    rows = "".join(f"{i},h{i % 23:02d}\n" for i in range(60))
    (path,) = written(tmp_path, all="x,hospital\n" + rows)
    data = load(path, client_column="hospital")
    fed = FederatedData.from_dataset(data)
    assert [client.name for client in fed.clients] == [f"h{i:02d}" for i in range(23)]
    assert FederatedData.from_dataset(data, partition="groups").n_clients == 23
    assert FederatedData.from_dataset(data, clients=4).n_clients == 4
    with pytest.raises(PartitionError, match="the data come with 23 clients, not 5"):
        FederatedData.from_dataset(data, clients=5, partition="groups")
    np.savez(tmp_path / "all.npz", X=np.ones((6, 2)), groups=np.repeat([3, 1], 3))
    assert [c.name for c in FederatedData.from_dataset(load(tmp_path / "all.npz")).clients] == ["1", "3"]


def test_files_with_a_client_column_say_it_twice(two, tmp_path):
    path = tmp_path / "s.toml"
    path.write_text(SCHEMA + '[columns.ward]\nrole = "client"\n')
    with pytest.raises(InvalidData, match=r"2 files are one client each, and Charité\.csv has a client column, too"):
        load(two, schema=path)
    assert load(two[1], schema=path).clients == ("1", "2")


def test_what_a_schema_says_is_not_said_by_flags_too(two, schema):
    with pytest.raises(InvalidData, match="those of the schema"):
        load(two, schema=schema, label_column="kind")
    with pytest.raises(InvalidData, match="a schema fills missing values by itself"):
        load(two, schema=schema, missing="client-mean")
    with pytest.raises(InvalidData, match="fixed"):
        load("digits", schema=schema)
    np.save(two[0].parent / "a.npy", np.ones((2, 2)))
    with pytest.raises(DataError, match="arrays have no named columns"):
        load(two[0].parent / "a.npy", schema=schema)


def test_a_hospital_without_rows_is_a_client_without_records(two, schema, tmp_path):
    empty = written(tmp_path, empty="id,person,age,sex,kind\n")
    fed = FederatedData.from_dataset(load([*two, *empty], schema=schema))
    assert fed.records == (2, 3, 0)
    assert fed.clients[2].n_persons == 0


def test_a_number_column_with_words_in_it_is_filled_and_counted(schema, tmp_path):
    rows = "id;person;age;sex;kind\n1;p;12,5;f;ill\n2;p;old;f;ill\n3;p;1_0;f;ill\n4;p;;f;ill\n5;p;1e30;f;ill\n"
    path = tmp_path / "own.csv.gz"
    path.write_bytes(gzip.compress(("\ufeff" + rows).encode()))
    data = load(path, schema=schema)
    np.testing.assert_allclose(data.X[:, 0], [0.125, 0.5, 0.5, 0.5, 1.0])
    assert data.notes == (
        "own.csv.gz, column 'age': 1 value is missing, filled with the middle",
        "own.csv.gz, column 'age': 2 values are no number, filled with the middle",
        "own.csv.gz, column 'age': 1 value is beyond the range, and counted as its end",
    )


@pytest.mark.parametrize("rows", [1, 3, 2_000])
def test_a_table_of_many_columns_and_blocks(rows, tmp_path):
    """Rows become columns in blocks; their order must stay."""
    columns = [f"c{i}" for i in range(1000)]
    text = (
        ",".join(columns) + "\n" + "".join(",".join(str(r * 1000 + c) for c in range(1000)) + "\n" for r in range(rows))
    )
    path = tmp_path / "wide.csv"
    path.write_text(text)
    schema = Schema.of({"columns": {name: {"kind": "number", "range": [0, 1e7]} for name in columns}})
    X = load(path, schema=schema).X
    np.testing.assert_allclose(X * 1e7, np.arange(rows * 1000).reshape(rows, 1000), rtol=1e-6, atol=1)


# Frames


def test_data_frames_are_clients(two, schema):
    pandas = pytest.importorskip("pandas")
    frames = {path.stem: pandas.read_csv(path, dtype={"id": str}) for path in two}
    fed = FederatedData.from_frames(frames, schema)
    files = FederatedData.from_dataset(load(two, schema=schema))
    assert [client.name for client in fed.clients] == ["Charité", "south"]
    for frame, file in zip(fed.clients, files.clients, strict=True):
        np.testing.assert_array_equal(frame.X, file.X)
        assert frame.ids.tolist() == file.ids.tolist()
        assert frame.y.tolist() == file.y.tolist()
    assert (fed.origin, fed.preparation) == ("memory", files.preparation)
    with pytest.raises(InvalidData, match="is a list; give a data frame"):
        FederatedData.from_frames({"a": [1, 2]}, schema)
    with pytest.raises(InvalidData, match="by the names of their clients, at least one"):
        FederatedData.from_frames({}, schema)


def test_columns_of_frames_of_every_kind():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {
            "a": pandas.array([1, None, 3], dtype="Int64"),
            "b": pandas.Categorical(["x", None, "y"]),
            "c": pandas.to_datetime(["2020-01-03", None, "2020-01-01"]),
            "d": [True, False, True],
        }
    )
    schema = Schema.of(
        {
            "columns": {
                "a": {"kind": "number", "range": [1, 3]},
                "b": {"kind": "category", "values": ["x", "y"]},
                "c": {"kind": "date", "range": ["2020-01-01", "2020-01-03"]},
                "d": {"kind": "number", "range": [0, 1]},
            }
        }
    )
    fed = FederatedData.from_frames({"one": frame}, schema)
    half = np.sqrt(0.5)
    np.testing.assert_allclose(
        fed.clients[0].X, [[0, half, 0, 1, 1], [0.5, 0, 0, 0.5, 0], [1, 0, half, 0, 1]], rtol=1e-6
    )


def test_parquet_files_are_read_like_csv(two, schema, tmp_path):
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    pandas.read_csv(two[0], dtype={"id": str}).to_parquet(tmp_path / "p.parquet")
    of_csv, of_parquet = (load(path, schema=schema) for path in (two[0], tmp_path / "p.parquet"))
    np.testing.assert_array_equal(of_csv.X, of_parquet.X)
    assert of_csv.ids.tolist() == of_parquet.ids.tolist()
    assert of_parquet.clients == ("p",)


# Example


def test_the_example_is_a_network_that_its_schema_fits(tmp_path):
    files = hospitals(patients=60, seed=1)
    assert sorted(files) == [*(f"{name}.csv" for name in HOSPITALS), "schema.toml"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert Schema.read(tmp_path / "schema.toml").sha256 == example_schema().sha256
    data = load(tmp_path / "*.csv", schema=tmp_path / "schema.toml")
    assert data.clients == HOSPITALS
    assert len(np.unique(data.ids)) == len(data.X)
    assert len(np.unique(data.persons)) < len(data.X)
    assert not [note for note in data.notes if "not in the list" in note or "does not know" in note or "no " in note]
    assert [note for note in data.notes if "missing" in note]
    assert hospitals(patients=60, seed=1) == files
    assert hospitals(patients=60, seed=2)["aachen.csv"] != files["aachen.csv"]


# Vectors


def test_vectors_are_joined_by_the_ids_of_the_schema(two, schema, tmp_path):
    (path,) = written(tmp_path / ".", vectors="id,a,b\ns2,2,20\n0008,8,80\ns1,1,10\n0007,7,70\ns3,3,30\n")
    fed = with_features(FederatedData.from_dataset(load(two, schema=schema)), str(path))
    assert fed.clients[0].X.tolist() == [[7, 70], [8, 80]]
    assert fed.clients[1].X.tolist() == [[1, 10], [2, 20], [3, 30]]
    assert "sha256" not in fed.preparation
    assert fed.preparation.endswith("2 values of a file"), "a hash of private vectors must not leave"


def test_ids_vectors_and_persons_at_several_clients(tmp_path, schema):
    head = "id,person,age,sex,kind\n"
    files = written(tmp_path, a=head + "1,p,1,f,x\n2,q,1,f,x\n", b=head + "1,p,1,f,x\n3,r,1,f,x\n")
    data = load(files, schema=schema)
    assert data.notes == (
        "1 name of persons at several clients: if that is one person, its ε is that of a person at two sites",
    )
    (vectors,) = written(tmp_path, v="id,u\n1,1\n2,2\n3,3\n")
    with pytest.raises(InvalidData, match="1 ids occur at more than one client"):
        with_features(FederatedData.from_dataset(data), str(vectors))


def test_all_records_of_a_person_are_dealt_to_one_client(tmp_path, schema):
    rows = "".join(f"{i},p{i % 12},{i},f,x\n" for i in range(120))
    (path,) = written(tmp_path, all="id,person,age,sex,kind\n" + rows)
    fed = FederatedData.from_dataset(load(path, schema=schema), clients=4, seed=1)
    assert fed.n_clients == 4
    assert fed.n_persons == 12
    assert fed.notes == load(path, schema=schema).notes


def test_a_client_has_no_columns_of_other_files(tmp_path, schema):
    head = "id,person,age,sex,kind"
    files = written(tmp_path, a=head + ",secret\n1,p,1,f,x,s\n", b=head + ",more\n2,q,1,f,x,7\n")
    a, b = FederatedData.from_dataset(load(files, schema=schema)).clients
    assert ("secret" in a.own, "more" in a.own) == (True, False)
    assert ("secret" in b.own, "more" in b.own) == (False, True)


def test_long_whole_numbers_stay_apart_and_truth_is_read(tmp_path, schema):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    ids = [9007199254740992, 9007199254740993, 123456789012345678, 123456789012345679]
    common = {"age": [1, 2, 3, 4], "sex": list("fmfm"), "kind": ["x"] * 4}
    frame = pandas.DataFrame({"id": ids, "person": ids, **common})
    gaps = pandas.DataFrame(
        {"id": ids, "person": pandas.array(ids, dtype="Int64"), **common, "more": [True, None, False, True]}
    )
    for number, each in enumerate((frame, gaps)):
        each.to_parquet(tmp_path / f"{number}.parquet")
        for fed in (
            FederatedData.from_frames({"a": each}, schema),
            FederatedData.from_dataset(load(tmp_path / f"{number}.parquet", schema=schema)),
        ):
            assert fed.clients[0].persons.tolist() == [str(value) for value in ids]
            assert fed.clients[0].ids.tolist() == [str(value) for value in ids]
    truth = Schema.of(
        {"columns": {"t": {"kind": "category", "values": ["True", "False"]}, "n": {"kind": "number", "range": [0, 1]}}}
    )
    for values in ([True, False, True], [True, None, False]):
        found = FederatedData.from_frames({"a": pandas.DataFrame({"t": values, "n": values})}, truth).clients[0].X
        assert (found[:, 0] > 0).tolist() == [value is True for value in values]
        assert found[:, 2].tolist() == [0.5 if value is None else float(value) for value in values]


def test_thousands_beside_decimal_commas_are_refused_with_a_schema(tmp_path, schema):
    path = tmp_path / "x.csv"
    path.write_text("id;person;age;sex;kind\n1;p;1.234;f;x\n2;p;0,5;f;x\n")
    with pytest.raises(DataError, match=r"decimal commas \(column 'age'\) and others with points"):
        load(path, schema=schema)


KINDS = {
    "category": ({"kind": "category", "values": ["True", "False", "5", "6", "x"]}, [True, False, True, True]),
    "codes": ({"kind": "category", "values": ["5", "6"]}, [5.0, 6.0, 5.0, 6.0]),
    "whole": ({"kind": "category", "values": ["5", "6"]}, [5, 6, 5, 6]),
    "truth": ({"kind": "number", "range": [0, 1]}, [True, False, True, True]),
    "number": ({"kind": "number", "range": [0, 10]}, [5.0, 6.5, 7.0, 1.0]),
    "date": ({"kind": "date", "range": ["2020-01-01", "2020-12-31"], "format": "%d.%m.%Y"}, "dates"),
    "texts": ({"kind": "category", "values": ["5", "6"]}, ["5.0", "6.0", "5.0", "6.0"]),
}


@pytest.mark.parametrize("other", [None, "x", "5.0", 5.5])
@pytest.mark.parametrize("kind", KINDS)
def test_one_value_of_another_type_changes_nothing_for_the_others(kind, other, tmp_path):
    """A frame's column has one type, which one record can change: each value is read by itself."""
    pandas = pytest.importorskip("pandas")
    column, values = KINDS[kind]
    if values == "dates":
        values = pandas.to_datetime(["2020-02-01", "2020-03-01", "2020-04-01", "2020-05-01"])
    schema = Schema.of({"columns": {"a": column, "b": {"kind": "number", "range": [0, 1]}}})

    def prepared(own):
        frame = pandas.DataFrame({"a": own, "b": [0.0] * 4})
        frames = [FederatedData.from_frames({"h": frame}, schema).clients[0].X]
        if other != 5.5 and not (isinstance(other, str) and kind != "texts"):  # a file has one type in a column
            frame.to_parquet(tmp_path / "x.parquet")
            frames.append(FederatedData.from_dataset(load(tmp_path / "x.parquet", schema=schema)).clients[0].X)
        return frames

    before = prepared(values)[0]
    for after in prepared([*list(values)[:3], other]):
        np.testing.assert_array_equal(after[:3], before[:3])
