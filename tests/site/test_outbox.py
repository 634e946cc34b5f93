"""The outbox: the same bytes again, the last of each release, and nothing that was edited."""

from __future__ import annotations

import stat

import numpy as np
import pytest

from accounting import GaussianRelease, PostProcessing
from dpfedvis.numerics.files import FileDamaged, write_arrays
from dpfedvis.protocol.uploads import Upload
from dpfedvis.site.outbox import Outbox

KEY = b"k" * 32
EVENT = GaussianRelease(
    what="gradient", client="client-0", round=1, sensitivity=0.1, sigma=1.0, grid=2.0**-10, values=6, noise="seeded"
)
WHERE = [False, True]


def outbox(folder, on_disk=True, key=KEY, run="a run"):
    return Outbox(key, run, folder if on_disk else None)


UPLOADS = {
    "integers": Upload(np.random.default_rng(0).integers(-(2**62), 2**62, (3, 2)), EVENT),
    "floats": Upload(np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32), EVENT),
    "another": Upload(np.array([np.pi]), PostProcessing(what="x", client="ä", of="records")),
}


@pytest.mark.parametrize("name", UPLOADS)
def test_it_gives_back_the_same_bytes(name, tmp_path):
    before = UPLOADS[name]
    assert outbox(tmp_path / "outbox").find("mean embedding", 1) is None
    outbox(tmp_path / "outbox").keep("mean embedding", 1, before)
    after = outbox(tmp_path / "outbox").find("mean embedding", 1)  # another process
    np.testing.assert_array_equal(before.values, after.values, strict=True)
    assert before.event == after.event


@pytest.mark.parametrize("on_disk", WHERE)
def test_it_drops_earlier_rounds_of_the_same_release_only(on_disk, tmp_path):
    box, upload = outbox(tmp_path, on_disk), UPLOADS["integers"]
    box.keep("moments", 0, upload)
    box.keep("second moments", 0, upload)
    box.keep("gradient sums", 1, upload)
    for round in (1, 2, 3):
        box.keep("gradient", round, upload)
    assert box.find("gradient", 2) is None
    assert box.find("gradient", 3) is not None
    assert box.find("moments", 0) is not None
    assert box.find("second moments", 0) is not None
    assert box.find("gradient sums", 1) is not None


@pytest.mark.parametrize("on_disk", WHERE)
def test_nothing_is_kept_when_the_run_is_over(on_disk, tmp_path):
    box = outbox(tmp_path, on_disk)
    box.keep("gradient", 1, UPLOADS["integers"])
    box.clear()
    assert box.find("gradient", 1) is None
    assert not list(tmp_path.rglob("*.npz"))


@pytest.mark.parametrize("how", ["keep", "drop", "clear"])
def test_drafts_of_a_process_that_was_killed_go_with_their_uploads(how, tmp_path):
    """They hold values without masks."""
    box, folder = outbox(tmp_path / "outbox"), tmp_path / "outbox"
    box.keep("gradient", 1, UPLOADS["integers"])
    for name in ("gradient-000000001.npz.tmp", "gradient-000000002.npz.tmp"):
        (folder / name).write_bytes(b"half of it")
    if how == "keep":
        box.keep("gradient", 3, UPLOADS["integers"])
        assert [path.name for path in folder.iterdir()] == ["gradient-000000003.npz"]
        return
    box.drop("gradient") if how == "drop" else box.clear()
    assert not list(tmp_path.rglob("gradient*"))


def test_uploads_are_readable_by_their_owner_only(tmp_path):
    outbox(tmp_path).keep("gradient", 1, UPLOADS["integers"])
    (path,) = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def stored(folder):
    (path,) = folder.iterdir()
    with np.load(path) as file:
        return path, dict(file)


EDITS = {
    "a value": lambda arrays: {**arrays, "values": arrays["values"] + 1},
    "its type": lambda arrays: {**arrays, "values": arrays["values"].astype(np.float64)},
    "its shape": lambda arrays: {**arrays, "values": arrays["values"].reshape(2, 3)},
    "the event": lambda arrays: {**arrays, "event": np.array(str(arrays["event"]).replace("1.0", "0.5"))},
    "the hash": lambda arrays: {**arrays, "tag": np.array("0" * 64)},
    "no hash": lambda arrays: {name: each for name, each in arrays.items() if name != "tag"},
    "nothing left": lambda arrays: {"something": np.zeros(3)},
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_was_edited_is_found_and_named(edit, tmp_path):
    outbox(tmp_path).keep("gradient", 1, UPLOADS["integers"])
    path, arrays = stored(tmp_path)
    write_arrays(path, arrays)
    assert outbox(tmp_path).find("gradient", 1) is not None
    write_arrays(path, EDITS[edit](arrays))
    with pytest.raises(FileDamaged, match=r"gradient-000000001\.npz is damaged"):
        outbox(tmp_path).find("gradient", 1)


@pytest.mark.parametrize("other", [{"key": b"o" * 32}, {"run": "another run"}], ids=["key", "run"])
def test_another_sites_or_runs_upload_is_none_of_its_own(other, tmp_path):
    outbox(tmp_path, **other).keep("gradient", 1, UPLOADS["integers"])
    with pytest.raises(FileDamaged):
        outbox(tmp_path).find("gradient", 1)


@pytest.mark.parametrize("to", ["gradient-000000002.npz", "moments-000000001.npz"])
def test_an_upload_does_not_stand_for_another_round_or_release(to, tmp_path):
    outbox(tmp_path).keep("gradient", 1, UPLOADS["integers"])
    path, _ = stored(tmp_path)
    path.rename(tmp_path / to)
    what, round = to.removesuffix(".npz").rsplit("-", 1)
    with pytest.raises(FileDamaged):
        outbox(tmp_path).find(what, int(round))
