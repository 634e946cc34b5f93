"""What each setting of a run may be, by its name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

from accounting import checks
from accounting.budget import ADJACENCIES, SCOPES, UNITS
from accounting.errors import InvalidParameter
from accounting.events import TRUSTS


def _bounds(name: str, value: Any) -> tuple[float, float]:
    numbers = isinstance(value, tuple | list) and all(
        isinstance(each, int | float) and not isinstance(each, bool) and math.isfinite(each) for each in value
    )
    if not numbers or len(value) != 2 or value[0] >= value[1]:
        raise InvalidParameter(name, value, "(low, high), both finite, low below high")
    return float(value[0]), float(value[1])


def _gamma(name: str, value: Any) -> float | tuple[float, ...] | str:
    if isinstance(value, str):
        return checks.one_of(name, value, ("public", "histogram", "moments", "median"))
    if isinstance(value, tuple | list):
        if not value:
            raise InvalidParameter(name, value, "at least one number")
        return tuple(checks.positive(name, each) for each in value)
    return checks.positive(name, value)


def _classes(name: str, value: Any) -> tuple[int, ...]:
    labels = isinstance(value, tuple | list) and all(type(each) is int for each in value)
    if not labels or not value or len(set(value)) < len(value):
        raise InvalidParameter(name, value, "distinct labels, each a whole number")
    return tuple(value)


def _shares(name: str, value: Any) -> dict[str, float]:
    from dpfedvis.federation.private_map import Shares

    if not (isinstance(value, Mapping) and value):
        raise InvalidParameter(name, value, "a share of the budget for each of one or more stages")
    stages = [field.name for field in fields(Shares)]
    given = {
        checks.one_of(f"stage of {name}", stage, stages): checks.probability(f"share of {stage}", share)
        for stage, share in value.items()
    }
    if math.fsum(given.values()) >= 1:
        raise InvalidParameter(name, dict(value), "below 1 together, since the landmarks get the rest")
    return given


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidParameter(name, value, "true or false")
    return value


def _text(name: str, value: Any) -> str:
    if not (isinstance(value, str) and value):
        raise InvalidParameter(name, value, "a non-empty string")
    return value


def _mechanism(name: str, value: Any) -> str:
    from dpfedvis.mechanisms import MECHANISMS

    return checks.one_of(name, value, MECHANISMS)


def _partition(name: str, value: Any) -> str:
    from dpfedvis.data.partitions import partition

    partition(_text(name, value))  # refuses what it cannot read
    return str(value)


def _seed(name: str, value: Any) -> int:
    return checks.at_least(name, value, 0)


_Check = Callable[[str, Any], Any]


def _among(*choices: str) -> _Check:
    return partial(checks.one_of, choices=choices)


CHECKS: dict[str, _Check] = {
    **dict.fromkeys(("data", "label_column", "client_column"), _text),
    **dict.fromkeys(("records", "clients", "frequencies", "batch", "rank", "landmarks", "rounds"), checks.count),
    **dict.fromkeys(("local_steps", "public_records", "neighbours", "clusters", "jobs", "components"), checks.count),
    **dict.fromkeys(("epsilon", "tau_x", "step_size", "perplexity", "affinity_gamma"), checks.positive),
    **dict.fromkeys(("ridge", "beta"), checks.nonnegative),
    **dict.fromkeys(("clip", "sampling_rate"), checks.rate),
    **dict.fromkeys(("delta", "release_share"), checks.probability),
    "partition": _partition,
    "sample": _among("first", "random"),
    "missing": _among("refuse", "client-mean", "public-value"),
    "map": _among("tsne", "umap", "clusters"),
    "mechanism": _mechanism,
    "trust": _among(*TRUSTS),
    "adjacency": _among(*ADJACENCIES),
    "scope": _among(*SCOPES),
    "unit": _among(*UNITS),
    "release": _among("exact", "noisy", "none"),
    "distances": _among("gram", "nystrom"),
    "noise": _among("seeded", "system", "discrete"),
    "optimiser": _among("plain", "momentum", "adam"),
    "weights": _among("records", "equal"),
    "mmd": _among("unbiased", "biased"),
    "affinity": _among("neighbors", "kernel"),
    "start": _among("uniform", "normal", "mean"),
    "bounds": _bounds,
    "gamma": _gamma,
    **dict.fromkeys(("density", "evaluate"), _switch),
    "classes": _classes,
    "shares": _shares,
    "placement": _among("anchored", "diffused", "weights", "transform"),
    "seed": _seed,
    "recorded_rounds": _seed,
}
