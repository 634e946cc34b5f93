"""Files as people have them, and files that are none: read, or refused in one sentence of our own."""

from __future__ import annotations

import gzip
import importlib.util
import io
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dpfedvis.data import NotNumeric, UnreadableFile, load
from dpfedvis.data.errors import DataError

ROWS = [[30.0, 0.5], [41.0, 1.5], [52.0, -2.25]]


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "age,dose\n30,0.5\n41,1.5\n52,-2.25\n",
        "age;dose\n30;0.5\n41;1.5\n52;-2.25\n",
        "age;dose\n30;0,5\n41;1,5\n52;-2,25\n",
        "age\tdose\n30\t0,5\n41\t1,5\n52\t-2,25\n",
        "\ufeffage;dose\r\n30;0,5\r\n41;1,5\r\n52;-2,25\r\n",
        'age,"dose; mg; a day"\n30,0.5\n41,1.5\n52,-2.25\n',
        'age;"dose, mg, a day, or two"\n30;0,5\n41;1,5\n52;-2,25\n',
    ],
    ids=["commas", "semicolons", "decimal commas", "tabs", "mark", "quoted semicolons", "quoted commas"],
)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_separators_marks_and_gzip(text: str, packed: bool, tmp_path: Path) -> None:
    path = tmp_path / ("a.csv.gz" if packed else "a.csv")
    data = load(written(path, gzip.compress(text.encode()) if packed else text))
    np.testing.assert_array_equal(data.X, ROWS)


def test_points_beside_decimal_commas_could_mean_thousands(tmp_path: Path) -> None:
    with pytest.raises(NotNumeric, match=r"commas \(line 3\) and others with points \(line 2\)"):
        load(written(tmp_path / "a.csv", "a;b\n1.234;2\n0,5;3\n"))


def test_separators_of_thousands_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotNumeric, match="column 'a'"):
        load(written(tmp_path / "a.csv", "a;b\n1.234,5;2\n"))


def test_what_separates_fields_follows_from_the_header_alone(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="line 2: 1 fields, the header has 2"):
        load(written(tmp_path / "a.csv", "a,b\n1;2\n3;4\n"))


def test_a_header_of_100000_columns_is_read_once(tmp_path: Path) -> None:
    """Not once for each column: with a quadratic check this takes minutes."""
    header = ",".join(f"gene {i}" for i in range(100_000))
    row = ",".join(["1"] * 100_000)
    data = load(written(tmp_path / "genes.csv", f"{header}\n{row}\n{row}\n"))
    assert data.X.shape == (2, 100_000)


def npz(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def huge() -> bytes:
    """An array that says it has 2⁶⁰ values."""
    return npy(np.zeros((2, 3))).replace(b"(2, 3)", b"(1152921504606846976, 3)".ljust(6))


def odd(name: str, content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, content)
    return stream.getvalue()


def in_directory(archive: bytes, place: int, value: int) -> bytes:
    """Set a byte of the first entry in the directory of a ZIP file: 8 has the flag of encryption, 10 the method."""
    data = bytearray(archive)
    data[data.index(b"PK\x01\x02") + place] = value
    return bytes(data)


GOOD = npz(X=np.ones((4, 3)))
BAD: dict[str, tuple[str, bytes]] = {
    "huge npy": ("a.npy", huge()),
    "huge in npz": ("a.npz", odd("X.npy", huge())),
    "no array in npz": ("a.npz", odd("X", b"some text")),
    "encrypted npz": ("a.npz", in_directory(GOOD, 8, 1)),
    "unknown compression": ("a.npz", in_directory(GOOD, 10, 99)),
    "npz named npy": ("a.npy", GOOD),
    "npy named npz": ("a.npz", npy(np.ones((2, 2)))),
    "npz named csv": ("a.csv", GOOD),
    "text named gzip": ("a.csv.gz", b"a,b\n1,2\n"),
    "cut gzip": ("a.csv.gz", gzip.compress(b"a,b\n1,2\n" * 100)[:-9]),
    "damaged gzip": ("a.csv.gz", gzip.compress(b"a,b\n1,2\n" * 100)[:20] + b"\xff" * 20),
    "bad header of npy": ("a.npy", npy(np.ones((2, 2))).replace(b"descr", b"desc\x00")),
    "objects": ("a.npy", npy(np.array([1, 2, 3])).replace(b"<i8", b"|O ")),
    "garbage named parquet": ("a.parquet", b"PAR1" + bytes(range(256)) + b"PAR1"),
    "nothing": ("a.npz", b""),
    "nul bytes": ("a.csv", b"a,b\n\x00,\x00\n"),
    "one long line": ("a.csv", b"x" * 200_000),
}  # fmt: skip


@pytest.mark.parametrize(("name", "content"), BAD.values(), ids=BAD)
def test_a_damaged_or_misnamed_file_is_one_sentence(name: str, content: bytes, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load(written(tmp_path / name, content))
    said = str(caught.value)
    assert name in said
    assert "\n" not in said
    assert len(said) < 600


def cut(data: bytearray, rng: np.random.Generator) -> bytes:
    return bytes(data[: int(rng.integers(len(data)))])


def edited(data: bytearray, rng: np.random.Generator) -> bytes:
    for place in rng.integers(len(data), size=int(rng.integers(1, 12))):
        data[place] = int(rng.integers(256))
    return bytes(data)


def flipped(data: bytearray, rng: np.random.Generator) -> bytes:
    data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    return bytes(data)


def spliced(data: bytearray, rng: np.random.Generator) -> bytes:
    start, end = sorted(int(each) for each in rng.integers(len(data), size=2))
    return bytes(data[:end] + data[start:])


HARMS: list[Callable[[bytearray, np.random.Generator], bytes]] = [cut, edited, flipped, spliced]


def test_500_fuzzed_files_are_read_or_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    table = "age;dose;site\n" + "".join(f"{i};{i / 4};s{i % 2}\n" for i in range(20))
    seeds = {
        "a.csv": table.encode(),
        "b.csv.gz": gzip.compress(table.encode()),
        "c.npz": npz(X=rng.random((6, 3)), y=np.array(list("ababab")), groups=np.arange(6)),
        "d.npy": npy(rng.random((6, 3))),
    }
    if importlib.util.find_spec("pyarrow"):
        import pyarrow
        import pyarrow.parquet

        stream = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table({"a": [1.0, 2.0], "b": [3.0, 4.0]}), stream)
        seeds["e.parquet"] = stream.getvalue()
    names, read, said = list(seeds), 0, []
    for number in range(500):
        content = HARMS[number % len(HARMS)](bytearray(seeds[names[number % len(names)]]), rng)
        # Every tenth has the name of another kind.
        name = names[int(rng.integers(len(names)))] if number % 10 == 0 else names[number % len(names)]
        path = written(tmp_path / name, content)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                load(path, missing="public-value")
            read += 1
        except DataError as error:
            said.append(str(error))
    assert read > 20
    assert len(said) > 200
    assert not [each for each in said if "\n" in each]
