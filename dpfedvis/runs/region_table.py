"""What each region of a private map is: the mean of its landmarks, in the schema's own units and categories.

Post-processing of what was released: it costs no ε. The noise beside a value is one standard deviation: that of one
round of the landmarks' sums and of the centre, together; the true one is smaller, since rounds are drawn together. What
the landmarks' subspace does not hold of the records is not in it: there each region has the mean of all records.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from dpfedvis.data import Schema
from dpfedvis.data.columns import Column
from dpfedvis.estimators.base import FederatedEstimator
from dpfedvis.numerics.kernels import Array
from dpfedvis.runs.tables import write_table
from dpfedvis.server.verdict import Region

REGIONS = "regions.csv"
HEAD = ["region", "clear", "landmarks", "share", "share_noise"]
MOST_FEATURES = 128  # of records without a schema; more are no table to be read


def write_regions(folder: Path, estimator: FederatedEstimator) -> None:
    """Write the table, if the map has regions: of those where records were seen."""
    facts = region_facts(estimator)
    if facts:
        names = list(facts[0]["values"])
        rows = [
            [
                *(each[name] for name in HEAD),
                *(cell for name in names for cell in (each["values"][name]["mean"], each["values"][name]["noise"])),
            ]
            for each in facts
            if each["clear"] != "no"
        ]
        columns = [*HEAD, *(column for name in names for column in (name, f"{name}: noise (1 sd)"))]
        write_table(folder / REGIONS, columns, rows)


def region_facts(estimator: FederatedEstimator) -> list[dict[str, Any]]:
    """Return a mapping for each region, ready for JSON: the columns of `HEAD`, and `values` by column."""
    verdict, published = estimator.verdict_, getattr(estimator, "published_map_", None)
    if published is None or not verdict.regions:
        return []
    schema: Schema | None = estimator.schema_of_landmarks
    known = schema is not None or (len(published.subspace.centre) <= MOST_FEATURES and not estimator.settings_.features)
    found = []
    for number, region in enumerate(verdict.regions):
        mean = estimator.landmarks_[list(region.landmarks)].mean(axis=0)
        noise = _noise(region, published.subspace.axes, verdict.centre_noise)
        values = {} if not known else dict(_numbers(mean, noise) if schema is None else _values(schema, mean, noise))
        found.append(
            {
                "region": number,
                "clear": "yes" if region.clear else "weak" if region.weak else "no",
                "landmarks": len(region.landmarks),
                "share": round(region.share, 6),
                "share_noise": round(region.noise, 6),
                "values": values,
            }
        )
    return found


def _noise(region: Region, axes: Array, centre: float) -> Array:
    """Noise in each feature of a region's mean, shape (m,)."""
    own = math.inf if region.place_noise is None else region.place_noise
    along = np.sqrt(np.sum(np.square(axes), axis=1))
    with np.errstate(invalid="ignore"):
        noise: Array = np.sqrt(np.where(along > 0, np.square(own * along), 0.0) + centre**2)
    return noise


def _numbers(mean: Array, noise: Array) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, (value, spread) in enumerate(zip(mean.tolist(), noise.tolist(), strict=True)):
        yield f"x{number}", {"mean": _rounded(value), "noise": _rounded(spread)}


def _values(schema: Schema, mean: Array, noise: Array) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each column of the schema, and each category of one, in its own unit."""
    start = 0
    for column in schema.features:
        part, spread = mean[start : start + column.width], noise[start : start + column.width]
        start += column.width
        if column.kind == "category":
            for name, value, own in zip(column.values, part.tolist(), spread.tolist(), strict=True):
                middle = min(max(value / column.largest, 0.0), 1.0)
                most = min(own / column.largest, 1.0) if math.isfinite(own) else own
                yield f"{column.name} = {name}: share", {"mean": _rounded(middle), "noise": _rounded(most)}
        else:
            unit = f" [{column.unit}]" if column.unit else ""
            place, own = float(part[0]), float(spread[0])
            low, here, high = (in_units(column, place + off) for off in (-own, 0.0, own))
            if not math.isfinite(own):
                text = _rounded(own)  # the ends of the range would say nothing of this region
            else:
                text = f"{low} to {high}" if isinstance(here, str) else _rounded((float(high) - float(low)) / 2)
            yield f"{column.name}{unit}", {"mean": here if isinstance(here, str) else _rounded(here), "noise": text}


def in_units(column: Column, value: float) -> float | str:
    """Return a prepared value of a column that is no category in its own unit; beyond the range, its end."""
    place = min(max(value / column.largest if math.isfinite(value) else math.copysign(math.inf, value), 0.0), 1.0)
    if column.kind == "ordered":
        return column.values[round(place * (len(column.values) - 1))]
    assert column.range is not None
    low, high = column.range
    if column.kind == "date":
        first, last = (each if isinstance(each, date) else date.fromisoformat(each) for each in (low, high))
        return date.fromordinal(round(first.toordinal() + place * (last.toordinal() - first.toordinal()))).isoformat()
    if column.log:
        return float(low * (high / low) ** place)
    return float(low + place * (high - low))


def _rounded(value: float) -> float | str:
    """Return a number with four digits; of infinite noise, that it is unknown."""
    return float(f"{value:.4g}") if math.isfinite(value) else "unknown"
