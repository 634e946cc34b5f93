import hashlib
import importlib.util
import sys

import numpy as np
import pytest

from dpfedvis.data import (
    FederatedData,
    InvalidData,
    MissingDependency,
    MissingValues,
    NotFinite,
    NotNumeric,
    UnknownColumn,
    UnreadableFile,
    load,
)

HOSPITALS = """age,dose,diagnosis,hospital
30,0.5,well,north
41,1.5,ill,south
52,,well,north
63,2.5,ill,east
"""


@pytest.fixture
def write(tmp_path):
    def write(text, name="table.csv"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


# --- CSV ---


def test_csv_columns_by_name(write):
    path = write(HOSPITALS)
    data = load(path, label_column="diagnosis", client_column="hospital", missing="client-mean")
    np.testing.assert_array_equal(data.X, [[30, 0.5], [41, 1.5], [52, np.nan], [63, 2.5]])
    assert data.class_names == ()
    assert data.y.tolist() == ["well", "ill", "well", "ill"]
    assert data.groups.tolist() == ["north", "south", "north", "east"]
    assert (data.name, data.source) == ("table.csv", str(path))
    assert data.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (data.feature_range, data.image_shape) == (None, None)
    fed = FederatedData.from_dataset(data, partition="groups")
    assert [client.name for client in fed.clients] == ["east", "north", "south"]
    assert fed.clients[1].X.tolist() == [[30, 0.5], [52, 0.5]]


def test_csv_missing_values_are_refused_with_their_count(write):
    with pytest.raises(
        MissingValues, match=r"table.csv has 1 NaN value in column 'dose'; choose missing='public-value'"
    ):
        load(write(HOSPITALS), label_column="diagnosis", client_column="hospital")


def test_csv_knows_the_usual_marks_of_a_missing_value(write):
    data = load(write("a,b\n1,NA\nnan,?\n , 2 \n"), missing="public-value")
    np.testing.assert_array_equal(data.X, [[1, np.nan], [np.nan, np.nan], [np.nan, 2]])


def test_csv_text_in_a_feature_column_is_refused_with_the_column(write):
    with pytest.raises(NotNumeric, match=r"column 'hospital' of table.csv holds 'north' in line 2"):
        load(write(HOSPITALS), label_column="diagnosis")


def test_csv_an_identifier_with_an_underscore_is_no_number(write):
    # float("309_1") is 3091 in Python, which would turn a name into a feature.
    with pytest.raises(NotNumeric, match=r"column 'mouse' of table.csv holds '309_1'"):
        load(write("mouse,level\n309_1,0.5\n"))


def test_csv_infinite_values_are_refused(write):
    with pytest.raises(NotFinite, match="1 infinite value in column 'a'"):
        load(write("a\n1\ninf\n"), missing="client-mean")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("a,b\n", "header row and no records"),
        ("1.5,2\n3,4\n", "no header row"),
        ("a,a\n1,2\n", "two columns named 'a'"),
        ("a,b\n1,2\n3\n", "line 3: 1 fields, the header has 2"),
        ('a,b\n1,"2\n', "is not a CSV file"),
    ],
)
def test_csv_that_is_no_table_is_refused(write, text, message):
    with pytest.raises(UnreadableFile, match=message):
        load(write(text))


def test_csv_columns_counted_from_zero_are_a_header(write):
    assert load(write("0,1\n5,6\n")).X.tolist() == [[5, 6]]


def test_csv_in_another_encoding_is_refused(tmp_path):
    path = tmp_path / "latin.csv"
    path.write_bytes("größe\n1\n".encode("latin-1"))
    with pytest.raises(UnreadableFile, match="UTF-8"):
        load(path)


def test_csv_with_a_byte_order_mark_and_blank_lines(tmp_path):
    path = tmp_path / "bom.csv"
    path.write_bytes("\ufefflabel,a\r\nx,1\r\n\r\ny,2\r\n".encode())
    assert load(path, label_column="label").y.tolist() == ["x", "y"]


def test_csv_unknown_column_says_which_there_are(write):
    with pytest.raises(UnknownColumn, match="no column 'Age'; it has age, dose, diagnosis, hospital"):
        load(write(HOSPITALS), label_column="Age")
    with pytest.raises(UnknownColumn, match="both 'age'"):
        load(write(HOSPITALS), label_column="age", client_column="age")


def test_csv_empty_labels_are_refused_with_their_count(write):
    with pytest.raises(InvalidData, match="2 records with a missing label"):
        load(write("a,c\n1,x\n2,\n3,NaN\n"), label_column="c")


def test_labels_that_are_numbers_sort_as_numbers(write):
    # As text they sort 10, 2, 3: a cycle, so that a permutation used the wrong way round shows.
    data = load(write("a,c\n1,10\n2,3\n3,2\n4,3\n"), label_column="c")
    assert data.y.tolist() == ["10", "3", "2", "3"]
    numbers, names = data.numbered()
    assert names == ("2", "3", "10")
    assert numbers.tolist() == [2, 1, 0, 1]


def test_a_label_changes_nothing_for_other_records(write):
    """Numbered by the labels that occur, a new first one would shift the class of every record."""
    before, after = (write(f"a,c\n1,{label}\n2,m\n3,n\n4,m\n", f"{label}.csv") for label in ("n", "a"))
    feds = [FederatedData.from_dataset(load(path, label_column="c"), clients=2) for path in (before, after)]
    named = [[fed.labels_of(client).tolist() for client in fed.clients] for fed in feds]
    changed = [one != other for pair in zip(*named, strict=True) for one, other in zip(*pair, strict=True)]
    assert sum(changed) == 1


def test_only_a_label_column_is_no_table(write):
    with pytest.raises(UnreadableFile, match="no feature columns"):
        load(write("c\nx\n"), label_column="c")


# --- NPZ and NPY ---


def test_npz_with_the_usual_keys(tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, X=np.arange(6, dtype=np.uint8).reshape(3, 2), y=[5, 7, 5], groups=["a", "b", "a"])
    data = load(path)
    assert data.X.dtype == np.float32
    assert data.X.tolist() == [[0, 1], [2, 3], [4, 5]]  # taken as it is: nobody said that these are pixels
    assert (data.class_names, data.y.tolist()) == ((), ["5", "7", "5"])
    assert data.groups.tolist() == ["a", "b", "a"]


def test_npz_with_other_keys_by_name(tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, X=np.eye(2), y=[0, 1], kind=["p", "q"], ward=[3, 4])
    data = load(path, label_column="kind", client_column="ward")
    assert data.y.tolist() == ["p", "q"]
    assert data.groups.tolist() == ["3", "4"]
    with pytest.raises(UnknownColumn, match="no array 'clinic'; it has X, y, kind, ward"):
        load(path, client_column="clinic")


def test_npz_class_names_are_indexed_by_y(tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, X=np.eye(2), y=[2, 0], class_names=["zebra", "ape", "cat"])
    data = load(path)
    assert data.y.tolist() == ["cat", "zebra"]
    # To refuse a number without a name would tell that it occurs.
    np.savez(path, X=np.eye(2), y=[3, 0], class_names=["zebra", "ape", "cat"])
    assert load(path).y.tolist() == ["3", "zebra"]
    # The names belong to y, not to any other array that is taken as label.
    np.savez(path, X=np.eye(2), y=[0, 1], ward=[1, 0], class_names=["zebra", "ape"])
    assert load(path, label_column="ward").y.tolist() == ["1", "0"]


def test_npz_images_are_flattened_row_by_row(tmp_path):
    path = tmp_path / "images.npz"
    np.savez(path, X=np.arange(12.0).reshape(2, 2, 3))
    data = load(path)
    assert data.image_shape == (2, 3)
    assert data.X[1].tolist() == [6, 7, 8, 9, 10, 11]
    assert data.y is None
    assert data.class_names == ()


def test_npz_of_unequal_lengths_is_refused(tmp_path):
    path = tmp_path / "own.npz"
    np.savez(path, X=np.eye(3), y=[0, 1])
    with pytest.raises(InvalidData, match=r"own.npz has 3 records and 2 labels"):
        load(path)
    np.savez(path, X=np.eye(3), groups=[0, 1])
    with pytest.raises(InvalidData, match=r"own.npz has 3 records and 2 groups"):
        load(path)


def test_npz_without_X_is_refused(tmp_path):
    np.savez(tmp_path / "own.npz", x=np.eye(2))
    with pytest.raises(UnknownColumn, match="no array 'X'; it has x"):
        load(tmp_path / "own.npz")


@pytest.mark.parametrize("suffix", ["npz", "npy"])
def test_pickled_content_is_refused(tmp_path, suffix):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    path = tmp_path / f"evil.{suffix}"
    content = np.array([[Trap()]], dtype=object)
    if suffix == "npz":
        np.savez(path, X=content)
    else:
        np.save(path, content)
    with pytest.raises(UnreadableFile, match="without pickles"):
        load(path)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("suffix", ["npz", "npy"])
@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04broken"])
def test_broken_files_are_refused(tmp_path, suffix, content):
    path = tmp_path / f"broken.{suffix}"
    path.write_bytes(content)
    with pytest.raises(UnreadableFile, match=f"broken.{suffix}"):
        load(path)


def test_a_cut_off_npz_is_refused(tmp_path):
    path = tmp_path / "cut.npz"
    np.savez_compressed(path, X=np.random.default_rng(0).normal(size=(50, 50)))
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(UnreadableFile, match=r"cut.npz"):
        load(path)


def test_npy_is_features_only(tmp_path):
    path = tmp_path / "X.npy"
    np.save(path, np.eye(3))
    data = load(path)
    assert data.X.dtype == np.float64
    assert data.y is None
    assert not data.X.flags.writeable
    with pytest.raises(UnknownColumn, match="no named columns"):
        load(path, label_column="y")


def test_an_unknown_suffix_is_refused(write):
    with pytest.raises(UnreadableFile, match=r"must end in .csv, .csv.gz, .npz, .npy, .parquet"):
        load(write("a\n1\n", "table.tsv"))


# --- Parquet ---

has_pyarrow = importlib.util.find_spec("pyarrow") is not None


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)  # as if it could not be imported
    path = tmp_path / "table.parquet"
    path.write_bytes(b"PAR1")
    with pytest.raises(MissingDependency, match="pip install pyarrow"):
        load(path)


@pytest.mark.skipif(not has_pyarrow, reason="pyarrow is not installed")
def test_parquet_columns_by_name(tmp_path):
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "table.parquet"
    columns = {"a": [1, 2, 3], "b": [0.5, None, 1.5], "kind": ["x", "y", "x"], "ward": [7, 7, 8]}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    data = load(path, label_column="kind", client_column="ward", missing="client-mean")
    np.testing.assert_array_equal(data.X, [[1, 0.5], [2, np.nan], [3, 1.5]])
    assert (data.class_names, data.y.tolist()) == ((), ["x", "y", "x"])
    assert data.groups.tolist() == ["7", "7", "8"]
    with pytest.raises(NotNumeric, match="column 'kind'"):
        load(path)
    with pytest.raises(UnknownColumn, match="no column 'c'"):
        load(path, label_column="c")
    path.write_bytes(b"nonsense")
    with pytest.raises(UnreadableFile, match=r"table.parquet"):
        load(path)
