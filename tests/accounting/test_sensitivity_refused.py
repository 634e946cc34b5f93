"""Numbers that no sensitivity can be made of are refused by name."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from accounting import InvalidParameter, sensitivity

VALID: dict[str, tuple[Callable, dict]] = {
    "gradient": (sensitivity.gradient, {"gamma": 1.0, "records": 10, "landmarks": 5}),
    "theorem": (
        sensitivity.gradient,
        {
            "gamma": 1.0,
            "records": 10,
            "landmarks": 5,
            "bound": "theorem",
            "tau_x": 1.0,
            "tau_y": 1.0,
            "upsilon": 1.0,
        },
    ),
    "clipped": (sensitivity.clipped_gradient, {"gamma": 1.0, "records": 10, "landmarks": 5, "clip": 1.0}),
    "variable": (
        sensitivity.variable,
        {"gamma": 1.0, "records": 10, "landmarks": 5, "step_size": 0.1, "local_steps": 3, "smoothness": 1.0},
    ),
    "input": (sensitivity.input, {"tau_x": 1.0}),
    "gram": (sensitivity.gram_rows, {"tau_x": 1.0}),
    "distances": (sensitivity.distance_rows, {"tau_x": 1.0, "landmarks": 5}),
    "kernels": (sensitivity.kernel_rows, {"gamma": 1.0, "landmarks": 5, "tau_x": 1.0}),
    "embedding": (sensitivity.mean_embedding, {"records": 10}),
    "moments": (sensitivity.moments, {"records": 10}),
    "clusters": (sensitivity.cluster_sums, {"records": 10}),
    "second moment": (sensitivity.second_moment, {"clip": 1.0}),
    "histogram": (sensitivity.histogram, {}),
}
NUMBERS = [
    (name, field) for name, (_, given) in VALID.items() for field, value in given.items() if not isinstance(value, str)
]


@pytest.mark.parametrize(("name", "field"), NUMBERS)
@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, "1", True])
def test_zero_negative_and_meaningless_numbers_are_named_errors(name: str, field: str, bad: object) -> None:
    call, given = VALID[name]
    assert call(**given) > 0
    with pytest.raises(InvalidParameter, match=f"^{field} must be") as caught:
        call(**{**given, field: bad})
    assert repr(bad) in str(caught.value)


@pytest.mark.parametrize("name", VALID)
@pytest.mark.parametrize("adjacency", ["", "replace", "add_remove", None, 1, ["replace-one"]])
def test_an_unknown_adjacency_is_a_named_error(name: str, adjacency: object) -> None:
    call, given = VALID[name]
    with pytest.raises(InvalidParameter, match="adjacency must be one of replace-one, add-remove"):
        call(**given, adjacency=adjacency)


@pytest.mark.parametrize("bound", ["", "Tight", "loose", None])
def test_an_unknown_bound_is_a_named_error(bound: object) -> None:
    for name in ("gradient", "variable"):
        call, given = VALID[name]
        with pytest.raises(InvalidParameter, match="bound must be one of tight, theorem"):
            call(**given, bound=bound)


@pytest.mark.parametrize("missing", ["tau_x", "tau_y", "upsilon"])
def test_the_theorem_bound_names_the_public_bound_that_is_missing(missing: str) -> None:
    given = {name: value for name, value in VALID["theorem"][1].items() if name != missing}
    for adjacency in ("replace-one", "add-remove"):
        with pytest.raises(InvalidParameter, match=f"{missing} must be a public bound"):
            sensitivity.gradient(**given, adjacency=adjacency)


@pytest.mark.parametrize("landmarks", [2.5, math.inf, math.nan])
def test_landmarks_must_be_a_whole_number(landmarks: float) -> None:
    with pytest.raises(InvalidParameter, match="landmarks must be a whole number"):
        sensitivity.gradient(gamma=1.0, records=10, landmarks=landmarks)


@pytest.mark.parametrize("gamma", [[], [1.0, 0.0], [1.0, math.nan], ["1"], None])
def test_bad_bandwidths_are_named_errors(gamma: object) -> None:
    for call in (sensitivity.gradient, lambda **given: sensitivity.clipped_gradient(**given, clip=1.0)):
        with pytest.raises(InvalidParameter, match="gamma must be"):
            call(gamma=gamma, records=10, landmarks=5)


def test_local_steps_whose_growth_overflows_are_a_named_error() -> None:
    with pytest.raises(InvalidParameter, match=r"local_steps must be smaller: .* but is 100000"):
        sensitivity.variable(gamma=1.0, records=10, landmarks=2, step_size=1.0, local_steps=100_000)
