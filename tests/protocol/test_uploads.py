"""Uploads: an array of the wrong shape or type is named, and integers are read in cells of their grid."""

from __future__ import annotations

import numpy as np
import pytest

from accounting import GaussianRelease, PostProcessing, Unprotected
from dpfedvis.protocol.uploads import BadUpload, Upload, in_units

SHAPE = (3, 2)
GRID = 2.0**-10
NOISY = GaussianRelease(
    what="gradient", client="client-1", round=4, sensitivity=0.1, sigma=1.0, grid=GRID, values=6, noise="seeded"
)
EXACT = Unprotected(what="gradient", client="client-0", why="exact")
AFTER = PostProcessing(what="gradient", client="client-0", of="records")

BAD = {
    "floats": np.zeros(SHAPE),
    "shape": np.zeros((2, 2), np.int64),
    "flat": np.zeros(6, np.int64),
    "unsigned": np.zeros(SHAPE, np.uint64),
    "short": np.zeros(SHAPE, np.int32),
    "objects": np.array([[None] * 2] * 3, dtype=object),
    "list": [[1, 2]] * 3,
    "nothing": None,
}
BAD_FLOATS = {
    "nan": np.array([[1, 2], [np.nan, 4], [5, 6]], np.float32),
    "inf": np.array([[1, 2], [3, 4], [5, np.inf]], np.float64),
    "shape": np.zeros((2, 2), np.float32),
    "integers": np.zeros(SHAPE, np.int64),
    "half": np.zeros(SHAPE, np.float16),
    "list": [[1.0, 2.0]] * 3,
    "nothing": None,
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_array_with_noise_is_named(kind):
    with pytest.raises(BadUpload) as caught:
        Upload(BAD[kind], NOISY).check(SHAPE)
    assert (caught.value.site, caught.value.what, caught.value.round) == ("client-1", "gradient", 4)
    assert str(caught.value).startswith("client-1: gradient in round 4 ")
    assert caught.value.reason in str(caught.value)


@pytest.mark.parametrize("event", [EXACT, AFTER], ids=["unprotected", "post-processing"])
@pytest.mark.parametrize("kind", BAD_FLOATS)
def test_a_bad_array_without_noise_is_named(kind, event):
    with pytest.raises(BadUpload) as caught:
        Upload(BAD_FLOATS[kind], event).check(SHAPE)
    assert (caught.value.site, caught.value.round) == ("client-0", None)


def test_the_reason_has_the_numbers():
    for kind, words in {"shape": r"\(2, 2\), not \(3, 2\)", "floats": "float64, not int64", "list": "a list"}.items():
        with pytest.raises(BadUpload, match=words):
            Upload(BAD[kind], NOISY).check(SHAPE)
    for kind, words in {"nan": "not finite", "inf": "not finite", "integers": "int64, not float32 or"}.items():
        with pytest.raises(BadUpload, match=words):
            Upload(BAD_FLOATS[kind], EXACT).check(SHAPE)


def test_good_arrays_pass():
    Upload(np.zeros(SHAPE, np.int64), NOISY).check(SHAPE)
    for dtype in (np.float32, np.float64):
        Upload(np.zeros(SHAPE, dtype), EXACT).check(SHAPE)


def test_integers_are_read_in_units_of_the_grid_and_floats_have_no_other_unit():
    integers = np.arange(6).reshape(SHAPE)
    read = Upload(integers, NOISY).floats
    np.testing.assert_array_equal(read, integers * GRID)
    assert read.dtype == np.float64
    np.testing.assert_array_equal(read, in_units(integers, NOISY))
    floats = np.full(SHAPE, 0.1, np.float32)
    for event in (EXACT, AFTER):
        assert Upload(floats, event).floats is floats
