"""Events: frozen facts that refuse nonsense, and their JSON form."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest

from accounting import (
    Event,
    GaussianRelease,
    InvalidParameter,
    PostProcessing,
    SampledGaussianRelease,
    Unprotected,
)
from accounting.events import KINDS, from_dict, from_json

COMMON = {"what": "gradient", "client": "client-3"}
EXAMPLES: dict[str, Event] = {
    "gaussian": GaussianRelease(
        **COMMON, round=7, sensitivity=0.1 + 0.2, sigma=1 / 3, count=50, trust="aggregate", unit="client"
    ),
    "sampled-gaussian": SampledGaussianRelease(
        **COMMON, adjacency="add-remove", sensitivity=1.0, sigma=2.0, sampling_rate=0.1, stage="subspace"
    ),
    "unprotected": Unprotected(**COMMON, why="exact distances", stage="release", round=0),
    "post-processing": PostProcessing(**COMMON, of="noisy records"),
}


ON_GRID = GaussianRelease(
    **COMMON, sensitivity=1e-300, sigma=5e-300, grid=1e-301, values=12, noise="discrete", trust="central"
)
SEEDED = SampledGaussianRelease(
    **COMMON, adjacency="add-remove", sensitivity=1.0, sigma=2.0, sampling_rate=0.1, grid=2.0**-40, values=3
)
SHARED = GaussianRelease(**COMMON, sensitivity=1.0, sigma=2.0, trust="aggregate", parties=5, threshold=4, colluders=1)
STRICT = dataclasses.replace(SHARED, own=1.5)  # of a site whose own ε is smaller
ALL = {**EXAMPLES, "on a grid": ON_GRID, "sampled, on a grid": SEEDED, "shared": SHARED, "strict": STRICT}


def gaussian(**changes: object) -> GaussianRelease:
    return GaussianRelease(**{**COMMON, "sensitivity": 1.0, "sigma": 2.0, **changes})


def test_every_kind_has_an_example() -> None:
    assert set(EXAMPLES) == set(KINDS)
    assert all(example.kind == kind for kind, example in EXAMPLES.items())


@pytest.mark.parametrize("event", ALL.values(), ids=ALL.keys())
def test_an_event_survives_json_and_is_one_canonical_line(event: Event) -> None:
    line = event.to_json()
    assert from_json(line) == event
    assert type(from_json(line)) is type(event)
    assert from_json(line).to_json() == line
    assert "\n" not in line
    keys = list(json.loads(line))
    assert keys == sorted(keys)
    named = {"kind", *(field.name for field in dataclasses.fields(event))}
    # What is not shared has the line that it had before there was sharing; the same of noise of one's own.
    assert set(keys) == named - {
        name for name in ("parties", "threshold", "colluders", "own") if getattr(event, name, None) is None
    }


@pytest.mark.parametrize("event", ALL.values(), ids=ALL.keys())
def test_an_event_is_frozen(event: Event) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.client = "someone else"


@pytest.mark.parametrize(
    "changes",
    [
        {"threshold": 4},
        {"colluders": 1},
        {"parties": 5},
        {"threshold": 4, "colluders": 1},
        {"parties": 5, "threshold": 4, "colluders": 4},
        {"parties": 5, "threshold": 0, "colluders": 0},
        {"parties": 5, "threshold": 6, "colluders": 0},
        {"parties": 5, "threshold": 3, "colluders": 1},
        {"parties": 5, "threshold": 4, "colluders": -1},
        {"parties": 5, "threshold": 4.5, "colluders": 1},
        {"parties": 5, "threshold": 4, "colluders": 1, "trust": "local"},
    ],
)
def test_sharing_is_said_whole_and_of_sums_only(changes) -> None:
    with pytest.raises(InvalidParameter):
        gaussian(**{"trust": "aggregate", **changes})


def test_mu_and_noise_multiplier_follow_from_the_fields() -> None:
    event = gaussian(sensitivity=3.0, sigma=6.0, count=16)
    assert event.noise_multiplier == 2.0
    assert event.mu == 2.0


def test_whole_floats_become_integers_and_integers_floats() -> None:
    event = gaussian(sensitivity=1, count=3.0)
    assert isinstance(event.sensitivity, float)
    assert isinstance(event.count, int)


@pytest.mark.parametrize("field", ["sigma", "sensitivity"])
@pytest.mark.parametrize("value", [0, 0.0, -1.0, math.nan, math.inf, -math.inf, "2", None, True, [1.0]])
def test_noise_and_sensitivity_must_be_finite_and_positive(field: str, value: object) -> None:
    with pytest.raises(InvalidParameter, match=f"{field} must be a finite number above 0") as caught:
        gaussian(**{field: value})
    assert (caught.value.name, caught.value.value) == (field, value) or math.isnan(caught.value.value)


@pytest.mark.parametrize("sigma", [1e-200, 1e200])
def test_a_ratio_whose_square_is_no_float_is_a_named_error(sigma: float) -> None:
    with pytest.raises(InvalidParameter, match="sensitivity/sigma"):
        gaussian(sigma=sigma)


@pytest.mark.parametrize("count", [0, -1, 1.5, math.nan, math.inf, "3", None, True])
def test_count_must_be_a_whole_number(count: object) -> None:
    with pytest.raises(InvalidParameter, match="count must be a whole number of at least 1"):
        gaussian(count=count)


@pytest.mark.parametrize("round", [-1, 1.5, math.nan, "3", True])
def test_round_must_be_a_whole_number(round: object) -> None:
    with pytest.raises(InvalidParameter, match="round must be a whole number"):
        gaussian(round=round)


@pytest.mark.parametrize("field", ["stage", "adjacency", "unit", "trust"])
@pytest.mark.parametrize("value", ["", "nobody", None, 3, ["local"]])
def test_unknown_words_are_named_errors(field: str, value: object) -> None:
    for build in (gaussian, lambda **changes: Unprotected(**COMMON, why="x", **changes)):
        with pytest.raises(InvalidParameter, match=f"{field} must be one of ") as caught:
            build(**{field: value})
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize("field", ["what", "client", "noise"])
@pytest.mark.parametrize("value", ["", None, 3])
def test_names_must_be_there(field: str, value: object) -> None:
    with pytest.raises(InvalidParameter, match=f"{field} must be a non-empty string"):
        gaussian(**{field: value})


def test_unprotected_must_say_why_and_post_processing_of_what() -> None:
    with pytest.raises(InvalidParameter, match="why must be a non-empty string"):
        Unprotected(**COMMON, why="")
    with pytest.raises(InvalidParameter, match="of must be a non-empty string"):
        PostProcessing(**COMMON, of="")


@pytest.mark.parametrize("rate", [0, -0.1, 1.0001, math.nan, "0.1", None])
def test_sampling_rate_must_be_in_the_unit_interval(rate: object) -> None:
    with pytest.raises(InvalidParameter, match=r"sampling_rate must be in \(0, 1\]"):
        SampledGaussianRelease(**COMMON, adjacency="add-remove", sensitivity=1.0, sigma=1.0, sampling_rate=rate)


def test_sampling_under_replace_one_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="adjacency must be add-remove under Poisson sampling, but is 'replace"):
        SampledGaussianRelease(**COMMON, adjacency="replace-one", sensitivity=1.0, sigma=1.0, sampling_rate=0.1)


@pytest.mark.parametrize("grid", [0, -1, math.inf, math.nan, "1"])
def test_a_grid_must_be_positive(grid: object) -> None:
    with pytest.raises(InvalidParameter, match="grid must be"):
        gaussian(grid=grid, values=3)


@pytest.mark.parametrize("values", [0, -1, 1.5, math.nan, math.inf, "3", None, True])
def test_a_release_on_a_grid_says_how_many_integers_it_has(values: object) -> None:
    with pytest.raises(InvalidParameter, match="values must be a whole number of at least 1"):
        gaussian(grid=0.01, values=values)
    if values != 0:
        with pytest.raises(InvalidParameter, match="values without a grid must be"):
            gaussian(values=values)


def test_noise_on_a_grid_comes_from_a_source_of_integers() -> None:
    for noise in ("seeded", "discrete"):
        assert gaussian(grid=0.01, values=3, noise=noise).mu == gaussian().mu
    for noise in ("system", "none"):
        with pytest.raises(InvalidParameter, match="noise on a grid must be one of seeded, discrete"):
            gaussian(grid=0.01, values=3, noise=noise)


@pytest.mark.parametrize("grid", [0.6, 1e3, 1e-300])
def test_noise_that_no_sampler_makes_is_refused(grid: float) -> None:
    """Of 4 cells a party at least, which is worth √12."""
    assert gaussian(sigma=2.0, grid=0.57, values=3).grid == 0.57
    with pytest.raises(InvalidParameter, match="sigma/grid must be from √12"):
        gaussian(sigma=2.0, grid=grid, values=3)


@pytest.mark.parametrize("kind", ["laplace", "discrete-gaussian", "", None, 3, [], {}, "event"])
def test_an_unknown_kind_is_a_named_error(kind: object) -> None:
    with pytest.raises(InvalidParameter, match="kind must be one of gaussian, ") as caught:
        from_dict({**EXAMPLES["gaussian"].to_dict(), "kind": kind})
    assert caught.value.value == kind


def test_a_missing_kind_is_a_named_error() -> None:
    with pytest.raises(InvalidParameter, match="kind must be one of"):
        from_dict({"what": "gradient"})


def test_unknown_and_missing_fields_are_named_errors() -> None:
    values = EXAMPLES["gaussian"].to_dict()
    with pytest.raises(InvalidParameter, match=r"but is \['epsilon'\]"):
        from_dict({**values, "epsilon": 1.0})
    del values["sigma"]
    with pytest.raises(InvalidParameter, match="sigma"):
        from_dict(values)


@pytest.mark.parametrize("line", ["", "{", "[]", "3", '"gaussian"', "null", '{"kind": []}'])
def test_a_line_that_is_no_event_is_a_named_error(line: str) -> None:
    with pytest.raises(InvalidParameter):
        from_json(line)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-1.0", "0", '"5"', "null", "1e999"])
def test_bad_numbers_in_json_are_refused_as_in_code(value: str) -> None:
    line = gaussian(sigma=2.0).to_json().replace('"sigma":2.0', f'"sigma":{value}')
    with pytest.raises(InvalidParameter, match="sigma must be"):
        from_json(line)
