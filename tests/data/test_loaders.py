import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dpfedvis.data import (
    CATALOGUE,
    DataUnavailable,
    InvalidData,
    MissingValues,
    UnknownDataset,
    UnreadableFile,
    load,
)
from dpfedvis.data.catalogue import cache_dir, find_file
from dpfedvis.data.openml import arrange, save


def mice_as_openml_sends_them():
    rng = np.random.default_rng(0)
    kinds = np.array([f"kind-{k}" for k in range(8)], dtype=object)
    return rng.normal(size=(1080, 77)), np.repeat(kinds[np.arange(72) % 8], 15)


# --- digits and its like ---


def test_digits_are_pixels_between_0_and_1():
    from sklearn.datasets import load_digits

    data = load("digits")
    np.testing.assert_allclose(data.X, load_digits().data / 16)
    np.testing.assert_array_equal(data.y, load_digits().target)
    assert (data.X.dtype, data.y.dtype) == (np.float32, np.int64)
    assert (data.feature_range, data.image_shape) == ((0.0, 1.0), (8, 8))
    assert (data.groups, data.class_names) == (None, tuple("0123456789"))
    assert "scikit-learn" in data.source
    assert len(data.sha256) == 64


def test_data_sets_cannot_be_changed():
    data = load("digits")
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.name = "other"
    with pytest.raises(ValueError, match="read-only"):
        data.X[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        data.y[0] = 1


def test_records_takes_the_first():
    whole, part = load("digits"), load("digits", records=50)
    np.testing.assert_array_equal(part.X, whole.X[:50])
    np.testing.assert_array_equal(part.y, whole.y[:50])
    assert part.class_names == whole.class_names
    for bad in (0, -5, 1798):
        with pytest.raises(InvalidData, match=f"between 1 and 1797 for digits, got {bad}"):
            load("digits", records=bad)


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(UnknownDataset, match=r"'mnst' is neither .* did you mean 'mnist'\?"):
        load("mnst")
    with pytest.raises(UnknownDataset, match="known: digits, mnist, fashion-mnist, coil20, mice-protein"):
        load("nowhere/table.csv")


def test_columns_of_named_sets_are_fixed():
    with pytest.raises(InvalidData, match="fixed"):
        load("digits", label_column="y")


def test_an_unknown_rule_for_missing_values_is_refused():
    with pytest.raises(InvalidData, match="got 'zero'"):
        load("digits", missing="zero")


def test_importing_the_data_room_is_light():
    code = "import sys, dpfedvis.data, dpfedvis.cli.data; print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# --- where files are looked for ---


def test_the_data_folder_comes_before_the_cache(tmp_path, monkeypatch, empty_machine):
    entry = CATALOGUE["coil20"]
    assert find_file(entry) is None
    empty_machine.mkdir(parents=True)
    (empty_machine / "coil20.npz").touch()
    assert find_file(entry) == empty_machine / "coil20.npz"
    (tmp_path / "own").mkdir()
    monkeypatch.setenv("DPFEDVIS_DATA", str(tmp_path / "own"))
    assert find_file(entry) == empty_machine / "coil20.npz"
    (tmp_path / "own" / "coil20.npz").touch()
    assert find_file(entry) == tmp_path / "own" / "coil20.npz"


@pytest.mark.parametrize("value", ["", "relative/path"])
def test_the_cache_is_in_the_home_folder_without_a_usable_setting(tmp_path, monkeypatch, value):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert cache_dir() == tmp_path / ".cache" / "dpfedvis"


def test_a_file_of_another_size_is_refused(empty_machine):
    save(empty_machine / "coil20.npz", {"X": np.zeros((3, 4)), "y": np.zeros(3, dtype=int)})
    with pytest.raises(UnreadableFile, match="holds 3 records of 4 features; coil20 has 1440 of 1024"):
        load("coil20")


# --- fetching ---


def test_without_network_the_error_says_what_to_do(empty_machine, dead_network, capsys):
    with pytest.raises(DataUnavailable, match=r"fetching it failed \(.*refused.*set DPFEDVIS_DATA") as caught:
        load("mice-protein")
    assert str(empty_machine) in str(caught.value)
    assert "\n" not in str(caught.value)
    out, err = capsys.readouterr()
    assert out == ""
    assert "fetching mice-protein from OpenML" in err
    assert not empty_machine.exists()


def test_download_false_asks_nobody(empty_machine, capsys):
    with pytest.raises(DataUnavailable, match="downloading is turned off"):
        load("mnist", download=False)
    assert capsys.readouterr() == ("", "")


def test_a_set_that_cannot_be_fetched_says_so(empty_machine):
    with pytest.raises(DataUnavailable, match=r"cannot be fetched automatically; set DPFEDVIS_DATA .* coil20.npz"):
        load("coil20")


def test_what_was_fetched_is_kept_and_used_again(empty_machine, dead_network, monkeypatch):
    # Only the request itself is replaced, by what OpenML would answer.
    asked = []

    def answer(**options):
        asked.append(options)
        return mice_as_openml_sends_them()

    monkeypatch.setattr("sklearn.datasets.fetch_openml", answer)
    first = load("mice-protein")
    again = load("mice_protein")
    assert [options["data_id"] for options in asked] == [40966]
    np.testing.assert_array_equal(first.X, again.X)
    assert first.sha256 == again.sha256
    assert np.unique(again.groups, return_counts=True)[1].tolist() == [15] * 72
    assert [path.name for path in empty_machine.iterdir()] == ["mice_protein.npz"]


def test_what_was_fetched_is_used_even_if_it_cannot_be_kept(empty_machine, monkeypatch, capsys):
    empty_machine.parent.mkdir()
    empty_machine.write_text("a file where the folder should be")
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda **_: mice_as_openml_sends_them())
    data = load("mice-protein")
    assert (data.X.shape, data.source) == ((1080, 77), "OpenML 40966")
    assert "could not keep mice-protein" in capsys.readouterr().err


def test_an_answer_of_another_shape_is_refused():
    X, y = mice_as_openml_sends_them()
    with pytest.raises(DataUnavailable, match=r"sent mice-protein as \(1079, 77\)"):
        arrange(CATALOGUE["mice-protein"], X[1:], y[1:])
    with pytest.raises(DataUnavailable, match="rows of one individual are not consecutive"):
        arrange(CATALOGUE["mice-protein"], X, np.roll(y, 1))


def test_fetched_pixels_become_bytes():
    entry = dataclasses.replace(CATALOGUE["mnist"], records=20)
    arrays = arrange(entry, np.tile(np.arange(784.0) % 256, (20, 1)), np.arange(20) % 10)
    assert arrays["X"].dtype == np.uint8
    assert arrays["X"][0, 255] == 255
    assert arrays["class_names"].tolist() == list("0123456789")


def test_saving_leaves_a_whole_file_or_none(tmp_path):
    target = tmp_path / "deep" / "set.npz"
    save(target, {"X": np.eye(2)})
    np.testing.assert_array_equal(np.load(target)["X"], np.eye(2))
    assert [path.name for path in target.parent.iterdir()] == ["set.npz"]
    blocked = tmp_path / "blocked.npz"
    blocked.mkdir()  # the rename onto a folder fails, after all bytes were written
    with pytest.raises(OSError, match="directory"):
        save(blocked, {"X": np.eye(2)})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blocked.npz", "deep"]


# --- real files ---


@pytest.mark.parametrize(
    ("name", "raw_file", "scale"),
    [("mnist", "mnist.npz", 255), ("fashion-mnist", "fashion_mnist.npz", 255), ("coil20", "coil20.npz", 1)],
)
def test_real_images(real_data, name, raw_file, scale):
    data = load(name, records=200)
    with np.load(real_data / raw_file) as raw:
        pixels, labels, names = raw["X"][:200], raw["y"][:200], raw["class_names"]
    side = int(np.sqrt(CATALOGUE[name].features))
    assert data.X.shape == (200, side * side)
    assert data.X.dtype == np.float32
    np.testing.assert_allclose(data.X.reshape(200, side, side), pixels / scale, rtol=1e-6)
    np.testing.assert_array_equal(data.y, labels)
    assert data.class_names == tuple(names)
    assert data.image_shape == (side, side)
    assert data.feature_range == (0.0, 1.0)
    assert Path(data.source) == real_data / raw_file


def test_real_mice(real_data):
    with pytest.raises(MissingValues, match="mice-protein has 1396 NaN values in"):
        load("mice-protein")
    data = load("mice-protein", missing="client-mean")
    assert np.isnan(data.X).sum() == 1396  # nothing may be filled before the records are dealt
    assert data.missing == "client-mean"
    assert np.unique(data.groups, return_counts=True)[1].tolist() == [15] * 72
    assert data.groups[0] == "309"
    assert len(data.class_names) == 8
    assert data.feature_range is None


@pytest.mark.parametrize("name", [name for name, entry in CATALOGUE.items() if entry.file])
def test_the_catalogue_tells_the_truth_about_real_files(name, real_data):
    with np.load(real_data / CATALOGUE[name].file) as raw:
        shape, classes = raw["X"].shape, len(np.unique(raw["y"]))
    entry = CATALOGUE[name]
    assert (shape[0], int(np.prod(shape[1:])), classes) == (entry.records, entry.features, entry.classes)
