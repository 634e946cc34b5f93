import functools
import hashlib
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from accounting.errors import InvalidParameter
from dpfedvis.data import ClientRecords, InvalidData, NotFinite, UnknownColumn, UnreadableFile
from dpfedvis.data.features import (
    FEATURES,
    L2,
    FeatureFailed,
    Function,
    Hog,
    NotByRecord,
    PublicFeatures,
    UnmatchedIds,
    Vectors,
    apply,
    features_of,
    mapped,
)

# --- a slow hog of one image, in whole numbers and fractions ---

AROUND = [(77, 0), (72, 30), (55, 55), (30, 72), (0, 77), (-30, 72), (-55, 55), (-72, 30), (-77, 0)]


def votes_of(gx, gy):
    """Write ±g as a·d + b·d' with two neighbouring directions and a, b >= 0; votes are 2310·a and 2310·b."""
    votes = [0] * 8
    if (gx, gy) == (0, 0):
        return votes
    for k in range(8):
        (x, y), (u, v) = AROUND[k], AROUND[k + 1]
        a, b = Fraction(gx * v - gy * u, x * v - y * u), Fraction(x * gy - y * gx, x * v - y * u)
        if a * b > 0 or (a != 0 and b == 0):  # on a direction, which only the cone that starts there counts
            votes[k] += int(abs(a) * 2310)
            votes[(k + 1) % 8] += int(abs(b) * 2310)
    return votes


def slow_hog(pixels, height, width, cell):
    """Return the features of one image, rows of whole numbers from 0 to 255, in 256ths."""

    def at(y, x):
        return pixels[min(max(y, 0), height - 1)][min(max(x, 0), width - 1)]

    down, across = math.ceil(height / cell), math.ceil(width / cell)
    histograms = {(i, j): [0] * 8 for i in range(down) for j in range(across)}
    for y in range(down * cell):
        for x in range(across * cell):
            votes = votes_of(at(y, x + 1) - at(y, x - 1), at(y + 1, x) - at(y - 1, x))
            for (i, j), histogram in histograms.items():
                # Twice the distance from the middle of the cell, down and across.
                dy, dx = abs(2 * y + 1 - (2 * i + 1) * cell), abs(2 * x + 1 - (2 * j + 1) * cell)
                weight = max(2 * cell - dy, 0) * max(2 * cell - dx, 0)
                for k in range(8):
                    histogram[k] += weight * votes[k]
    out = []
    for i in range(down):
        for j in range(across):
            total = (4 * cell * cell * 60) ** 2
            for p in (i - 1, i, i + 1):
                for q in (j - 1, j, j + 1):
                    total += sum((each // cell**2) ** 2 for each in histograms.get((p, q), ()))
            for each in histograms[i, j]:
                # The floor of 256·√(h/√N) without a float: roots of whole numbers, rounded down twice.
                out.append(math.isqrt(math.isqrt(2**32 * (each // cell**2) ** 2 // total)))
    return out


@st.composite
def images(draw):
    """Draw a hog and a few images for it, as whole numbers from 0 to 255: noise, stripes, steps, flat or faint."""
    height, width, cell = draw(st.integers(1, 11)), draw(st.integers(1, 11)), draw(st.sampled_from([1, 2, 3, 4, 5]))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    levels = draw(st.sampled_from([[0, 255], [0, 1], [7, 7], [254, 255], list(range(256))]))
    kind = draw(st.sampled_from(["noise", "stripes", "steps"]))
    y, x = np.mgrid[:height, :width]
    if kind == "noise":
        places = random.integers(0, len(levels), (2, height, width))
    elif kind == "stripes":
        period = random.integers(1, 6, (2, 1, 1))
        places = (x * random.integers(-3, 4, (2, 1, 1)) + y * random.integers(-3, 4, (2, 1, 1))) // period % len(levels)
    else:
        angle = random.uniform(0, 2 * math.pi, (2, 1, 1))
        places = np.where((x - width / 2) * np.cos(angle) + (y - height / 2) * np.sin(angle) > 0, len(levels) - 1, 0)
    return Hog((height, width), (0, 255), cell), np.array(levels)[places]


def flat(pixels):
    return pixels.reshape(len(pixels), -1).astype(np.float64)


@given(images())
@settings(max_examples=150)
def test_hog_is_that_of_the_slow_reference_to_the_last_bit(drawn):
    hog, pixels = drawn
    expected = [[value / 256 for value in slow_hog(each.tolist(), *hog.shape, hog.cell)] for each in pixels]
    np.testing.assert_array_equal(hog(flat(pixels)), np.array(expected, dtype=np.float32))


@pytest.mark.parametrize(("shape", "cell"), [((28, 28), 4), ((30, 21), 4), ((17, 33), 16)])
def test_larger_images_are_those_of_the_slow_reference(shape, cell):
    random = np.random.default_rng(7)
    noise = random.integers(0, 256, shape)
    y, x = np.mgrid[: shape[0], : shape[1]]
    ring = np.where(abs(np.hypot(y - shape[0] / 2, x - shape[1] / 2) - 8) < 2, 255, noise // 64)
    pixels = np.stack([noise, ring])
    expected = np.array([slow_hog(each.tolist(), *shape, cell) for each in pixels])
    np.testing.assert_array_equal(Hog(shape, (0, 255), cell)(flat(pixels)) * 256, expected)


def test_all_gradients_vote_as_the_reference_says():
    # An image of three by three pixels with cells of one: the gradient in its middle takes every value, in 256ths.
    steps = [-255, -254, -128, -60, -36, -15, -7, -5, -2, -1, 0, 1, 2, 5, 7, 12, 15, 36, 77, 100, 254, 255]
    hog = Hog((3, 3), (0, 255), 1)
    pixels = np.zeros((len(steps) ** 2, 3, 3), dtype=np.int64)
    pairs = [(gx, gy) for gx in steps for gy in steps]
    for image, (gx, gy) in zip(pixels, pairs, strict=True):
        image[1, 0], image[1, 2] = max(-gx, 0), max(gx, 0)
        image[0, 1], image[2, 1] = max(-gy, 0), max(gy, 0)
    found = hog(flat(pixels)) * 256
    for row, image in zip(found.tolist(), pixels.tolist(), strict=True):
        assert row == slow_hog(image, 3, 3, 1)


@pytest.mark.parametrize(
    ("angle", "direction"), [(0, 0), (22.6, 1), (45, 2), (67.4, 3), (90, 4), (112.6, 5), (135, 6), (157.4, 7)]
)
def test_a_ramp_falls_into_the_histogram_of_its_direction(angle, direction):
    y, x = np.mgrid[:16, :16]
    ramp = x * math.cos(math.radians(angle)) + y * math.sin(math.radians(angle))
    ramp = (ramp - ramp.min()) / np.ptp(ramp)
    values = Hog((16, 16))(np.stack([ramp.ravel(), 1 - ramp.ravel()])).reshape(2, 4, 4, 8)
    assert (values.argmax(axis=3)[:, 1:3, 1:3] == direction).all()


def test_hog_sees_shapes_and_not_brightness():
    random = np.random.default_rng(0)
    image = random.integers(0, 100, 28 * 28) / 255
    brighter = image + 100 / 255
    stronger = image * 2
    hog = Hog((28, 28))
    found = hog(np.stack([image, brighter, stronger]))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], found[2], atol=2 / 256)
    assert not hog(np.full((2, 784), [[0.3], [1.0]])).any()


def test_hog_has_the_same_bits_in_any_company_block_and_type(monkeypatch):
    random = np.random.default_rng(1)
    pixels = random.integers(0, 256, (70, 12 * 10)) / 255
    hog = Hog((12, 10))
    found = hog(pixels)
    assert found.dtype == np.float32
    assert found.shape == (70, 3 * 3 * 8)
    np.testing.assert_array_equal(found, np.concatenate([hog(pixels[i : i + 1]) for i in range(70)]))
    order = random.permutation(70)
    np.testing.assert_array_equal(found[order], hog(pixels[order]))
    np.testing.assert_array_equal(found, hog(pixels.astype(np.float32)))
    np.testing.assert_array_equal(found, hog(np.asfortranarray(pixels)))
    np.testing.assert_array_equal(found, Hog((12, 10), (0, 255))(np.rint(pixels * 255).astype(np.uint8)))
    np.testing.assert_array_equal(found, Hog((12, 10), (-1, 1))(pixels * 2 - 1))
    for block in (1, 7, 64):
        monkeypatch.setattr("dpfedvis.data.features.hog.BLOCK", block)
        np.testing.assert_array_equal(found, hog(pixels))


def test_pixels_beyond_the_public_range_are_clipped():
    random = np.random.default_rng(2)
    pixels = random.normal(0.5, 1, (5, 64))
    np.testing.assert_array_equal(Hog((8, 8))(pixels), Hog((8, 8))(np.clip(pixels, 0, 1)))


def assert_within(hog, values):
    low, high = hog.bounds
    assert (values >= low).all()
    assert (values <= high).all()
    # Exact in whole numbers: values are 256ths.
    squares = (np.rint(values.astype(np.float64) * 256).astype(np.int64) ** 2).sum(axis=1)
    assert math.sqrt(int(squares.max())) / 256 <= hog.norm


@given(images())
def test_values_stay_within_bounds_and_norm(drawn):
    hog, pixels = drawn
    assert_within(hog, hog(flat(pixels)))


@pytest.mark.parametrize("shape", [(4, 4), (8, 8), (12, 20), (28, 28), (30, 5)])
def test_the_norm_holds_where_it_is_hardest(shape):
    # Few cells with gradients of all directions, far apart, are the worst case of the proof.
    random = np.random.default_rng(3)
    hog = Hog(shape)
    down, across = hog.cells
    noise = random.integers(0, 2, (40, *shape)).astype(np.float64)
    y, x = np.mgrid[: shape[0], : shape[1]] // 4
    apart = noise * ((y % 2 == 0) & (x % 2 == 0))
    values = hog(np.concatenate([flat(noise), flat(apart)]))
    assert_within(hog, values)
    assert hog.norm < math.sqrt(down * across * 8) * 0.71
    # Not an idle bound: these images reach more than half of it.
    assert np.linalg.norm(values, axis=1).max() > hog.norm / 2


def test_sums_stay_below_what_floats_can_hold_for_the_largest_cell():
    from dpfedvis.data.features.hog import DIRECTIONS, LARGEST_CELL

    for (x, y), (u, v) in zip(DIRECTIONS, [*DIRECTIONS[1:], (-77, 0)], strict=True):
        assert x * v - y * u == 2310
    most = max(sum(votes_of(gx, gy)) for gx in range(-255, 256, 15) for gy in range(-255, 256, 15))
    assert 9 * (4 * LARGEST_CELL**2 * (most + 60)) ** 2 < 2**53
    assert max(abs(x) * 255 + abs(y) * 255 for x, y in DIRECTIONS) < 2**15


def test_hog_is_identified_by_its_settings():
    same = Hog((28, 28), (0, 1))
    assert same == Hog((28, 28))
    assert same.digest == Hog((28, 28)).digest
    assert len(same.digest) == 64
    others = [Hog((14, 56)), Hog((28, 28), (0, 255)), Hog((28, 28), cell=2)]
    assert len({each.digest for each in (same, *others)}) == 4
    assert [each.name for each in (same, others[2])] == ["hog 28x28", "hog 28x28, cells of 2"]


# The digests stand for these bits: a change of either needs a new VERSION.
def test_the_bits_of_this_version():
    random = np.random.default_rng(4)
    values = Hog((28, 28))(random.integers(0, 256, (3, 784)) / 255)
    found = hashlib.sha256((values * 256).astype("<i4").tobytes()).hexdigest()
    assert (Hog((28, 28)).digest[:16], found[:16]) == ("0ad9c5b71460696a", "7ffe55e9aa576a6e")


def test_hog_refuses_what_it_cannot_map():
    hog = Hog((28, 28))
    with pytest.raises(InvalidData, match=r"hog 28x28 needs records of 784 values \(28 times 28 pixels\), got 64"):
        hog(np.zeros((2, 64)))
    with pytest.raises(NotFinite, match="has 1 value not finite in column 3"):
        hog(np.where(np.arange(784) == 3, np.nan, np.zeros((1, 784))))
    with pytest.raises(InvalidData, match="2-D"):
        hog(np.zeros(784))
    assert hog(np.zeros((0, 784))).shape == (0, 392)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shape": (28, 28, 3)}, r"height and width of grey images, got the shape \(28, 28, 3\)"),
        ({"shape": (0, 28)}, "side of an image must be a whole number of at least 1, but is 0"),
        ({"shape": (8, 8), "cell": 17}, "cell must be a whole number from 1 to 16, but is 17"),
        ({"shape": (8, 8), "pixels": (1, 1)}, "low < high"),
        ({"shape": (8, 8), "pixels": None}, "public range of the pixels"),
        ({"shape": (8, 8), "pixels": (-1e308, 1e308)}, "public range of the pixels"),
    ],
)
def test_settings_of_hog_are_checked(arguments, message):
    with pytest.raises((InvalidData, InvalidParameter), match=message):
        Hog(**arguments)


# --- functions of the user's ---


def logarithms(X):
    return np.log1p(np.abs(X))


def lengths_and_signs(X):
    return np.column_stack([np.sqrt(np.einsum("ij,ij->i", X, X)), X[:, 0] > 0])


def centred(X):
    return X - X.mean(axis=0)


def scaled(X):
    return X / np.maximum(X.std(axis=0), 1e-9)


def ranks(X):
    return X.argsort(axis=0)


def one_column_for_each_value(X):
    return (X[:, :1] == np.unique(X[:, 0])).astype(float)


def beside_the_last(X):
    return X + 1e-12 * X[-1]


def records(n, m=3):
    return np.random.default_rng(n).normal(size=(n, m))


@pytest.mark.parametrize("function", [logarithms, lengths_and_signs, np.sign, lambda X: X, lambda X: X.tolist()])
@pytest.mark.parametrize("n", [0, 1, 2, 100, 1024, 1025, 2500])
def test_functions_of_each_record_are_applied(function, n):
    X = records(n)
    found = apply(Function(function), X, "north")
    assert found.dtype == np.float32
    assert not found.flags.writeable
    assert found.shape == (n, np.shape(function(np.ones((1, 3))))[1])
    if n:
        np.testing.assert_array_equal(found, np.asarray(function(X), dtype=np.float32))


@pytest.mark.parametrize("function", [centred, scaled, ranks, one_column_for_each_value, beside_the_last])
@pytest.mark.parametrize("n", [1, 2, 30, 1025])
def test_functions_of_several_records_are_refused(function, n):
    message = rf"{function.__name__} g.* of north .*a feature must map each record by itself"
    X = abs(records(n))  # a single one is tried beside zeros, above which it has another rank
    with pytest.raises(NotByRecord, match=message):
        apply(Function(function), X, "north")


def test_a_difference_in_the_last_bit_is_found():
    def shaky(X):
        return np.nextafter(X, np.inf) if len(X) > 1 else X

    with pytest.raises(NotByRecord):
        apply(Function(shaky), records(5), "north")


@pytest.mark.parametrize("odd", [0, 700, 1099])
def test_the_first_the_last_and_some_rows_between_are_tried(odd):
    # Only rows from `odd` to `odd` + 66 depend on the others: no gap between tried rows is wider.
    X = np.arange(1100.0)[:, None] + 1

    def rarely(X):
        return X + ((X - odd > 0) & (X - odd <= 67)) * len(X)

    with pytest.raises(NotByRecord):
        apply(Function(rarely), X, "north")


def test_hog_passes_through_apply():
    X = np.random.default_rng(5).random((1100, 64))
    np.testing.assert_array_equal(apply(Hog((8, 8)), X, "north"), Hog((8, 8))(X))
    assert apply(Hog((8, 8)), np.zeros((0, 64)), "north").shape == (0, 32)
    with pytest.raises(InvalidData, match="needs records of 64 values"):
        apply(Hog((8, 8)), X[:, :63], "north")


SECRET = 1234.5678


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda X: np.where(X == SECRET, np.nan, X), NotFinite, "<lambda> of north has 1 value not finite .* column 1"),
        (lambda X: X * 1e300, NotFinite, "not finite in float32"),
        (lambda X: X[:, 0], InvalidData, "must be 2-D"),
        (lambda X: X[:1], InvalidData, "gave 1 rows for 8 records"),
        (lambda X: X.astype(str), InvalidData, "features must be numbers"),
        (lambda X: X.astype(object), InvalidData, "features must be numbers"),
        (lambda X: X[:, :0], InvalidData, "has no features"),
        (lambda X: None, InvalidData, "features must be numbers"),
        (lambda X: [[1.0], [1.0, 2.0]] * 4, InvalidData, "not a rectangular array"),
        (lambda X: {}[float(X[0, 1])], FeatureFailed, "<lambda> failed on records of north with KeyError$"),
        (lambda X: X.sort(), FeatureFailed, "with ValueError$"),  # records cannot be changed
    ],
)
def test_bad_results_are_named_errors_without_values(function, error, message):
    X = records(8)
    X[0, 1] = SECRET
    before = X.copy()
    with pytest.raises(error, match=message) as caught:
        apply(Function(function), X, "north")
    assert "1234" not in str(caught.value)
    np.testing.assert_array_equal(X, before)


def test_a_width_that_changes_between_blocks_is_refused():
    calls = []

    def growing(X):
        calls.append(len(X))
        return np.zeros((len(X), 2 if len(calls) < 5 else 3))

    with pytest.raises(NotByRecord, match="gave 2 values for some records of north and 3 for others"):
        apply(Function(growing), records(1200), "north")


def test_a_layout_in_memory_changes_nothing():
    def sums(X):
        return X.sum(axis=1, keepdims=True)

    X = records(50, 40)
    np.testing.assert_array_equal(
        apply(Function(sums), X, "north"), apply(Function(sums), np.asfortranarray(X), "north")
    )


def made_with(constant):
    def times(X):
        return X * constant

    return times


class Scale:
    bounds = (-1, 1)
    norm = 2

    def __init__(self, factor):
        self.factor = factor

    def __call__(self, X):
        return X * self.factor

    def method(self, X):
        return X + self.factor


def test_a_function_is_identified_by_what_it_is_made_of():
    def digest(call):
        return Function(call).digest

    array, same = np.arange(3.0), np.arange(3.0)
    pairs = [
        (made_with(2.0), made_with(2.0), made_with(3.0)),
        (made_with("a"), made_with("a"), made_with("b")),
        (made_with(array), made_with(same), made_with(array.astype(np.float32))),
        (made_with((1, array)), made_with((1, same)), made_with((1, array + 1))),
        (Scale(2), Scale(2), Scale(3)),
        (Scale(2).method, Scale(2).method, Scale(3).method),
        (functools.partial(np.power, 2), functools.partial(np.power, 2), functools.partial(np.power, 3)),
        (np.log1p, np.log1p, np.log),
        (lambda X: X + 1, eval("lambda X: X + 1", {"__name__": __name__}), lambda X: X + 2),
        (lambda X: X in {1, 2}, lambda X: X in {2, 1}, lambda X: X in {1, 3}),
        (lambda X: [x + 1 for x in X], lambda X: [x + 1 for x in X], lambda X: [x + 2 for x in X]),
        (lambda X, a=1: X, lambda X, a=1: X, lambda X, a=2: X),
    ]
    for one, equal, other in pairs[:8] + pairs[9:]:
        assert digest(one) == digest(equal)
        assert digest(one) != digest(other)
    assert len({digest(each) for each, _, _ in pairs}) == len(pairs)
    # Other objects count by their type alone, as the docstring says.
    assert digest(made_with(object())) == digest(made_with(object()))
    assert digest(made_with([1])) == digest(made_with([2]))


def test_names_and_bounds_of_functions():
    assert Function(logarithms).name == "logarithms"
    assert Function(Scale(2)).name == "Scale"
    assert Function(np.log1p).name == "log1p"
    assert Function(functools.partial(logarithms)).name == "partial of logarithms"
    assert (Function(logarithms).bounds, Function(logarithms).norm) == (None, None)
    assert (Function(Scale(2)).bounds, Function(Scale(2)).norm) == ((-1.0, 1.0), 2.0)
    for name, wrong in (("bounds", (1, 0)), ("norm", -1)):
        bad = Scale(2)
        setattr(bad, name, wrong)
        with pytest.raises((InvalidData, InvalidParameter), match=name):
            Function(bad)
    with pytest.raises(InvalidData, match="must be a function of records, got a int"):
        Function(3)


# --- vectors from a file ---

IDS = np.array(["c-9", "a-1", "b-22", "a-10"])
VALUES = np.array([[9.0, 0.5], [1.0, 1.5], [22.0, 2.5], [10.0, 3.5]])


@pytest.fixture(params=["csv", "npz"])
def file(request, tmp_path):
    def write(ids, values):
        path = tmp_path / f"encoded.{request.param}"
        if request.param == "npz":
            np.savez(path, ids=ids, X=values)
        else:
            rows = [f"{row[0]},{name},{row[1]}\n" for name, row in zip(ids, values.tolist(), strict=True)]
            path.write_text("first,key,second\n" + "".join(rows), encoding="utf-8")
        return path

    return write


def test_vectors_are_joined_by_ids(file):
    path = file(IDS, VALUES)
    vectors = Vectors.read(path, "key")
    found = vectors.for_ids(np.array(["a-10", "c-9", "a-10"]), "north")
    np.testing.assert_array_equal(found, np.array([[10, 3.5], [9, 0.5], [10, 3.5]], dtype=np.float32))
    assert (found.dtype, found.flags.writeable) == (np.float32, False)
    assert vectors.name == f"vectors {path.name}"
    assert vectors.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert vectors.for_ids(np.array([], dtype=np.str_), "north").shape == (0, 2)
    assert vectors.for_ids(np.array([]), "north").shape == (0, 2)
    assert "nobody here can check" in vectors.taken_on_trust
    assert (vectors.bounds, vectors.norm) == (None, None)


@given(st.lists(st.integers(0, 500), min_size=1, unique=True), st.data())
def test_every_record_gets_the_vector_of_its_id(numbers, data):
    vectors = Vectors(np.array(numbers), np.array(numbers)[:, None] * [1.0, -2.0])
    wanted = data.draw(st.lists(st.sampled_from(numbers)))
    found = vectors.for_ids(np.array(wanted, dtype=np.str_), "north")
    assert found.tolist() == [[each, -2.0 * each] for each in wanted]


def test_records_without_a_vector_are_counted_and_not_named(file):
    vectors = Vectors.read(file(IDS, VALUES), "key")
    with pytest.raises(
        UnmatchedIds, match=r"north has 2 records whose id has no vector in vectors encoded.(csv|npz)$"
    ) as caught:
        vectors.for_ids(np.array(["a-1", "zz-7", "a-11"]), "north")
    assert not any(name in str(caught.value) for name in ("zz-7", "a-11", "a-1"))
    with pytest.raises(UnmatchedIds, match="north has 1 record whose"):
        vectors.for_ids(np.array([""]), "north")


def test_ids_that_occur_twice_are_counted_and_not_named(file):
    with pytest.raises(UnmatchedIds, match=r"vectors encoded.(csv|npz): 2 rows with an id that an earlier") as caught:
        Vectors.read(file(np.array(["a-1", "b-2", "a-1", "a-1"]), VALUES), "key")
    assert "a-1" not in str(caught.value)
    with pytest.raises(UnmatchedIds, match="1 row without an id"):
        Vectors.read(file(np.array(["a-1", "b-2", "", "c-3"]), VALUES), "key")


def test_bad_files_of_vectors(file, tmp_path):
    with pytest.raises(NotFinite, match=r"vectors encoded.* has 1 value not finite in float32 in column 1"):
        Vectors.read(file(IDS, np.where(VALUES == 2.5, np.nan, VALUES)), "key")
    with pytest.raises(NotFinite):
        Vectors.read(file(IDS, VALUES * 1e300), "key")
    with pytest.raises(UnreadableFile, match=r"there is no file .*nowhere.npz"):
        Vectors.read(tmp_path / "nowhere.npz", "key")
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(UnreadableFile, match=r"a.txt: files with vectors must end in .csv, .csv.gz, .npz"):
        Vectors.read(tmp_path / "a.txt", "key")
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    with pytest.raises(UnknownColumn, match="no column 'key'"):
        Vectors.read(tmp_path / "a.csv", "key")
    np.savez(tmp_path / "b.npz", X=VALUES)
    with pytest.raises(UnknownColumn, match="no array 'ids'"):
        Vectors.read(tmp_path / "b.npz", "key")


@pytest.mark.parametrize(
    ("ids", "values", "message"),
    [
        (IDS[:3], VALUES, "has 4 records and 3 ids"),
        (IDS, VALUES[:, 0], "must be 2-D"),
        (np.arange(4.0), VALUES, "text or whole numbers"),
        (np.array([b"a", b"b", b"c", b"d"]), VALUES, "text or whole numbers"),
        (IDS[:0], VALUES[:0], "has no records"),
    ],
)
def test_bad_arrays_of_vectors(ids, values, message):
    with pytest.raises(InvalidData, match=message):
        Vectors(ids, values)


def test_vectors_in_memory_are_identified_by_their_content():
    order = [2, 0, 3, 1]
    assert Vectors(IDS, VALUES).digest == Vectors(IDS[order], VALUES[order]).digest
    assert Vectors(IDS, VALUES).digest != Vectors(IDS, VALUES + 1).digest
    assert Vectors(IDS, VALUES).digest != Vectors(IDS[order], VALUES).digest


def test_a_client_maps_its_records_or_joins_them():
    X = records(3)
    np.testing.assert_array_equal(mapped(Function(np.sign), ClientRecords("north", X, None)), np.sign(X))
    vectors = Vectors(IDS, VALUES)
    assert mapped(vectors, ClientRecords("north", X, None, ids=IDS[1:])).tolist() == VALUES[1:].tolist()
    with pytest.raises(UnmatchedIds, match="vectors are joined by ids, and the records of north have none"):
        mapped(vectors, ClientRecords("north", X, None))
    with pytest.raises(UnmatchedIds, match="cannot be computed from records"):
        apply(vectors, X, "north")


# --- the registry ---


def test_choices(tmp_path):
    assert features_of(None, image_shape=None, bounds=None) is None
    assert features_of("none", image_shape=(8, 8), bounds=(0, 1)) is None
    assert features_of("hog", image_shape=(28, 28), bounds=(0, 1)) == Hog((28, 28))
    assert features_of("hog", image_shape=(28, 28), bounds=(0, 255)) == Hog((28, 28), (0, 255))
    assert features_of("hog:30x20", image_shape=None, bounds=(0, 1)) == Hog((30, 20))
    assert features_of("hog:30x20", image_shape=(20, 30), bounds=(0, 1)) == Hog((30, 20))
    assert features_of("hog", image_shape=(8, 8), bounds=(0, 1)) == Hog((8, 8), cell=2)
    function = features_of(logarithms)
    assert isinstance(function, Function)
    assert features_of(function) is function
    hog = Hog((3, 3))
    assert features_of(hog) is hog
    np.savez(tmp_path / "a.npz", ids=IDS, X=VALUES)
    (tmp_path / "b.csv").write_text("key,x\na,1\n")
    for choice in (tmp_path / "a.npz", str(tmp_path / "a.npz")):
        found = features_of(choice)
        assert isinstance(found, Vectors)
        assert features_of(found) is found
    assert features_of(tmp_path / "b.csv", id_column="key").ids.tolist() == ["a"]


@pytest.mark.parametrize(
    ("choice", "facts", "message"),
    [
        ("hogg", {}, r"features must be one of none, hog, l2 \(did you mean hog\?\), but is 'hogg'"),
        ("pixels", {}, "features must be one of none, hog, l2, but is 'pixels'"),
        ("", {}, "features must be one of none, hog, l2, but is ''"),
        ("hog:28", {"bounds": (0, 1)}, "hog:HEIGHTxWIDTH, such as hog:28x28, but is 'hog:28'"),
        ("hog:0x28", {"bounds": (0, 1)}, "hog:HEIGHTxWIDTH"),
        ("l2:2", {}, "l2, which has no settings, but is 'l2:2'"),
        ("hog", {"bounds": (0, 1)}, "needs the height and width of the images, .*; write hog:28x28"),
        ("hog", {"image_shape": (8, 8)}, "needs the public range of the pixels"),
        ("hog", {"image_shape": (8, 8, 3), "bounds": (0, 1)}, "height and width of grey images"),
        ("hog", {"image_shape": (), "bounds": (0, 1)}, "height and width of grey images"),
        (3, {}, "features must be one of none, hog, l2, or a function of records, but is 3"),
    ],
)
def test_choices_that_are_none(choice, facts, message):
    with pytest.raises((InvalidParameter, InvalidData), match=message):
        features_of(choice, **facts)


@pytest.mark.parametrize("name", FEATURES)
def test_every_named_feature_keeps_its_promises(name):
    features = features_of(name, image_shape=(20, 20), bounds=(0, 1))
    assert isinstance(features, PublicFeatures)
    assert features.name
    assert len(bytes.fromhex(features.digest)) == 32
    X = np.random.default_rng(6).random((40, 400))
    found = apply(features, X, "north")
    if features.bounds is not None:
        assert found.min() >= features.bounds[0]
        assert found.max() <= features.bounds[1]
    if features.norm is not None:
        assert np.linalg.norm(found.astype(np.float64), axis=1).max() <= features.norm
    np.testing.assert_array_equal(apply(features, X[::-1], "north"), found[::-1])


def slow_l2(record, positive):
    """Divide one record by its length, in fractions but for the root."""
    exact = [max(Fraction(float(value)), 0) if positive else Fraction(float(value)) for value in record]
    largest = max(map(abs, exact), default=0)
    if largest == 0:
        return [0.0] * len(exact)
    exact = [value / largest for value in exact]
    length = math.sqrt(sum(value * value for value in exact))
    return [float(value) / length for value in exact]


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=st.floats(-1e300, 1e300)),
    st.booleans(),
)
def test_l2_is_that_of_the_slow_reference(X, positive):
    features = L2(positive)
    found = features(X)
    np.testing.assert_allclose(found, [slow_l2(row, positive) for row in X], rtol=1e-6, atol=1e-38)
    lengths = np.linalg.norm(found.astype(np.float64), axis=1)
    assert (lengths <= features.norm).all()
    assert ((lengths == 0) | (lengths > 1 - 1e-6)).all()
    assert found.min() >= features.bounds[0]
    for row, alone in zip(found, X, strict=True):
        np.testing.assert_array_equal(features(alone[None])[0], row)


def test_l2_is_positive_only_where_that_is_public():
    assert features_of("l2", bounds=(0, 1)).bounds == (0, 1)
    assert features_of("l2", bounds=(-1, 1)).bounds == features_of("l2").bounds == (-1, 1)
    assert features_of("l2", bounds=(0, 1)).digest != features_of("l2").digest


class LearnsAtFirst:
    """A scaler that takes mean and spread of what it sees first."""

    mean = None

    def __call__(self, X):
        if self.mean is None:
            self.mean, self.std = X.mean(axis=0), X.std(axis=0) + 1
        return (X - self.mean) / self.std


class Remembers:
    """Divides by the largest value that it ever saw."""

    largest = 1.0

    def __call__(self, X):
        self.largest = max(self.largest, float(np.abs(X).max(initial=0.0)))
        return X / self.largest


def test_what_learns_at_first_learns_nothing_of_records():
    X = np.random.default_rng(0).normal(3, 2, (500, 4))
    other = X.copy()
    other[7] = 1e6
    feature = LearnsAtFirst()
    one, two = (apply(Function(feature), each, "north") for each in (X, other))
    np.testing.assert_array_equal(np.delete(one, 7, axis=0), np.delete(two, 7, axis=0))
    assert feature.mean is None, "each client has a copy of its own"


def test_what_remembers_records_is_refused():
    X = np.linspace(1, 50, 400).reshape(100, 4)
    with pytest.raises(NotByRecord):
        apply(Function(Remembers()), X, "north")
