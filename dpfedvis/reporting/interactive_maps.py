"""Interactive maps of a page, as plain values that page.js gives to plotly."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.density import Density
from dpfedvis.reporting.density_figures import smoothed
from dpfedvis.reporting.palette import Look, looks
from dpfedvis.reporting.run_facts import Cloud

Spec = dict[str, Any]
FEW, GROUPS = 12, 20  # distinct numbers that are groups and no scale; groups that have a colour each
HOVERED = 12  # columns of a file that are told of each record
COLOURED, VALUES = 200, 10_000_000  # columns that can be chosen as colours, and values that a browser still opens
# Groups without a colour of their own: many records, and the least to look at.
_OTHER = {"light": "#7d8790", "dark": "#7d8790", "symbol": "diamond", "glyph": "◆"}


def points(cloud: Cloud, *, webgl: bool = True) -> Spec:
    """A map, to be coloured by any of its groupings.

    Parameters
    ----------
    cloud : Cloud
    webgl : bool
        Browsers have a few WebGL pictures at a time; a page of many small maps does without.
    """
    places = np.asarray(cloud.places, dtype=np.float32)
    found = np.isfinite(places).all(axis=1)
    groupings = []
    for name, grouping in cloud.groupings.items():
        own = [_drawn(each) for each in looks(len(grouping.names))]
        codes = grouping.codes[found].astype(np.uint16 if len(own) < 1 << 16 else np.uint32)
        groupings.append({"key": name, "names": list(grouping.names), "looks": own, "codes": packed(codes)})
    return {
        "kind": "points",
        "webgl": webgl,
        "noun": cloud.noun,
        "x": packed(places[found, 0]),
        "y": packed(places[found, 1]),
        "numbers": packed(_numbers(cloud)[found].astype(np.uint32)),
        "groupings": groupings,
    }


def density(measured: Density, anchors: Array) -> Spec:
    """Noisy shares on the grid, smoothed and cut off at 0, under the anchors; for all records and for each class."""
    shares, noise = smoothed(measured)
    layers = [{"name": "all records", "z": packed(_percent(shares.sum(axis=0)))}]
    if measured.classes:
        layers += [{"name": f"class {name}", "z": packed(_percent(each))}
                   for name, each in zip(measured.layers, shares, strict=True)]  # fmt: skip
    return {
        "kind": "density",
        "half": measured.grid.half,
        "cells": measured.grid.cells,
        "noise": 100 * noise,
        "layers": layers,
        "x": packed(anchors[:, 0].astype(np.float32)),
        "y": packed(anchors[:, 1].astype(np.float32)),
    }


def own(
    places: Array,
    ids: NDArray[np.str_] | None,
    columns: Sequence[tuple[str, NDArray[Any]]],
    anchors: Array | None,
    *,
    first: int = 0,
    noun: str | None = None,
) -> Spec:
    """Records of one site over the anchors, to be coloured by any column of theirs.

    Parameters
    ----------
    places : array of shape (n, 2)
        Records without a place are left out.
    ids : text array of shape (n,), optional
    columns : sequence of (str, array of shape (n,))
        Text, or numbers with NaN where one is missing.
    anchors : array of shape (k, 2), optional
    first : int
        Columns at the beginning that are told of each record beside those of the file.
    noun : str, optional
        The column that the ids are from: it is told of a record once.

    Returns
    -------
    dict
        For page.js; `left_off` counts columns for which there is no room, `distinct` names those that are no colours
        because each record has another value.
    """
    found = np.isfinite(places).all(axis=1)
    small, room = places[found].astype(np.float32), min(COLOURED, max(HOVERED, VALUES // max(int(found.sum()), 1)))
    carried: list[Spec] = []
    distinct, offered, seen = [], 0, 0
    for name, values in columns:
        listed = seen < first + HOVERED
        if not listed and offered >= room:
            break
        seen += 1
        made = column(name, values[found])
        colours = "groups" in made or "low" in made
        offered += colours
        if made.get("names") and not colours:
            distinct.append(name)
        if colours or (listed and name != noun):
            carried.append({**made, "listed": listed and name != noun})
    return {
        "kind": "own",
        "noun": noun or "record",
        "x": packed(small[:, 0]),
        "y": packed(small[:, 1]),
        "ids": None if ids is None else ids[found].tolist(),
        "numbers": packed(np.flatnonzero(found).astype(np.uint32)),
        "anchors": None if anchors is None else [packed(each) for each in anchors.astype(np.float32).T],
        "columns": carried,
        "offered": offered,
        "left_off": len(columns) - seen,
        "distinct": distinct,
    }


def column(name: str, values: NDArray[Any]) -> Spec:
    """A column as page.js takes it: text and a few different numbers as groups, other numbers as a scale.

    Parameters
    ----------
    name : str
    values : array of shape (n,)

    Returns
    -------
    dict
        Groups have `names`, `codes` (that of a missing value is the number of names) and looks; the last look is for
        all names from there on. Text that is different for every record has no looks. A scale has `values`, and ends
        of which one value in a hundred lies outside: a single mistyped number would leave one colour for all others.
    """
    if values.dtype.kind not in "iuf":
        return {"key": name, **_groups(*_sorted_names(values.astype(np.str_)))}
    numbers = values.astype(np.float64)
    finite = np.isfinite(numbers)
    different = np.unique(numbers[finite])
    if not len(different):
        return {"key": name, "values": packed(numbers.astype(np.float32))}
    if len(different) <= FEW:
        codes = np.where(finite, np.searchsorted(different, numbers), len(different))
        return {"key": name, **_groups(_number_names(different), codes, repeated=True)}
    low, high = np.quantile(numbers[finite], [0.01, 0.99], method="nearest").tolist()
    if low == high:
        low, high = float(different[0]), float(different[-1])
    return {"key": name, "values": packed(_shortened(numbers)), "low": low, "high": high}


def packed(values: NDArray[Any]) -> dict[str, str]:
    """Return an array as plotly takes it, base64 of little-endian numbers: a third of its size as text."""
    small = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    names = {"f4": "f4", "f8": "f8", "u1": "u1", "u2": "u2", "u4": "u4"}
    name = names[f"{small.dtype.kind}{small.dtype.itemsize}"]
    return {"dtype": name, "bdata": base64.b64encode(small.tobytes()).decode("ascii")}


def _drawn(look: Look) -> dict[str, str]:
    return {"light": look.light, "dark": look.dark, "symbol": look.symbol, "glyph": look.glyph}


def _percent(shares: Array) -> Array:
    percent: Array = (100 * np.maximum(shares, 0.0)).astype(np.float32)
    return percent


def _numbers(cloud: Cloud) -> Array:
    """Number of each record at its client, or of each point."""
    if "client" not in cloud.groupings:
        return np.arange(len(cloud.places), dtype=np.float64)
    codes = cloud.groupings["client"].codes
    numbers = np.empty(len(codes))
    for client in range(len(cloud.groupings["client"].names)):
        own = codes == client
        numbers[own] = np.arange(own.sum())
    return numbers


def _sorted_names(values: NDArray[np.str_]) -> tuple[list[str], NDArray[np.int64], bool]:
    """Names, code of each value, and whether a name comes twice; empty text is missing.

    Names are sorted, those that are integers as numbers. Of too many, the most frequent come first.
    """
    given = values != ""
    names, codes, counts = np.unique(values[given], return_inverse=True, return_counts=True)
    order = np.argsort(-counts, kind="stable") if len(names) > GROUPS else _natural(names)
    every = np.full(len(values), len(names))
    every[given] = np.argsort(order)[codes.reshape(-1)]
    return names[order].tolist(), every, bool((counts > 1).any())


def _natural(names: NDArray[np.str_]) -> NDArray[np.int64]:
    try:
        return np.argsort([int(name) for name in names.tolist()], kind="stable")
    except ValueError:
        return np.arange(len(names))


def _groups(names: list[str], codes: NDArray[np.int64], repeated: bool) -> Spec:
    size = np.uint8 if len(names) < 1 << 8 else np.uint16 if len(names) < 1 << 16 else np.uint32
    spec: Spec = {"names": names, "codes": packed(codes.astype(size))}
    if repeated:
        legend = names if len(names) <= GROUPS else names[: GROUPS - 1]
        spec["groups"] = [{"name": each, **_drawn(look)} for each, look in zip(legend, looks(len(legend)), strict=True)]
        if len(legend) < len(names):
            spec["groups"].append({"name": f"other ({len(names) - len(legend)} values)", **_OTHER})
    return spec


def _number_names(numbers: Array) -> list[str]:
    """Six digits, or all of them where six do not tell two numbers apart; all of an integer."""
    names = [f"{each:.0f}" if each == round(each) and abs(each) < 1e15 else f"{each:.6g}" for each in numbers.tolist()]
    return names if len(set(names)) == len(names) else [repr(each) for each in numbers.tolist()]


def _shortened(numbers: Array) -> Array:
    """Return numbers in half their size, where that keeps six digits and every integer."""
    size = np.abs(numbers[np.isfinite(numbers) & (numbers != 0)])
    fit = size.size == 0 or (size.max() < 1 << 24 and size.min() > 1e-30)
    return numbers.astype(np.float32) if fit else numbers
