"""Interactive maps of a page, as plain values that page.js draws.

There is one kind of map: points, to be coloured by any of their columns, over anchors and a density where there are
some, all in one coordinate system.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.density import Density
from dpfedvis.reporting.density_areas import Rings, areas, drawn_half
from dpfedvis.reporting.density_figures import alpha, class_looks
from dpfedvis.reporting.palette import ALL, REST, Look, looks
from dpfedvis.reporting.run_facts import Cloud

Spec = dict[str, Any]
FEW, GROUPS = 12, 20  # distinct numbers that are groups and no scale; groups that have a colour each
HOVERED = 12  # columns of a file that are told of each record
COLOURED, VALUES = 200, 10_000_000  # columns that can be chosen as colours, and values that a browser still opens
_FINE = (1 << 16) - 1  # steps of a side in which corners of areas are given


def points(
    cloud: Cloud,
    *,
    anchors: Array | None = None,
    measured: Density | None = None,
    records: int | None = None,
    weak: NDArray[np.bool_] | None = None,
    noise: str = "",
    note: str = "",
    compact: bool = False,
) -> Spec:
    """A map, to be coloured by any of its groupings.

    Parameters
    ----------
    cloud : Cloud
    anchors : array of shape (k, 2), optional
        Below the points, where these are something else.
    measured : Density, optional
        Below both.
    records : int, optional
        Public number of records: shares are shown as counts.
    weak : array of bool of shape (n,), optional
        Points to be drawn faintly, since they cannot be told from noise.
    noise : str
        Of points that are noise alone, a sentence that says so. It stands in their place; they are drawn on request.
    note : str
        Stands below a picture that is saved.
    compact : bool
        One of many on a page: without buttons and legend.
    """
    places = np.asarray(cloud.places, dtype=np.float32)
    found = np.isfinite(places).all(axis=1)
    columns = []
    for name, grouping in cloud.groupings.items():
        codes = grouping.codes[found].astype(np.uint16 if len(grouping.names) < 1 << 16 else np.uint32)
        groups = [{"name": group, **_drawn(look)} for group, look in _named_looks(grouping.names)]
        columns.append(
            {"key": name, "names": list(grouping.names), "codes": packed(codes), "groups": groups, "listed": True}
        )
    return {
        **_map(places[found], cloud.noun, anchors),
        "ids": None,
        "numbers": packed(_numbers(cloud)[found].astype(np.uint32)),
        "columns": columns,
        "density": None if measured is None else density(measured, records),
        "weak": None if weak is None else packed(weak[found].astype(np.uint8)),
        "noise": noise,
        "note": note,
        "compact": compact,
        "search": False,
    }


def density(measured: Density, records: int | None) -> Spec:
    """Released shares, and their areas above the noise; see `dpfedvis.reporting.density_areas`."""
    half, drawn = drawn_half(measured), []
    own = [look for _, look in class_looks(measured.layers).items()]
    for area in areas(measured):
        fills = []
        for layer, rings in area.fills:
            look = own[layer] if own and layer >= 0 else ALL
            fills.append(
                {"light": look.light, "dark": look.dark, "alpha": alpha(len(area.levels)), **_rings(rings, half)}
            )
        drawn.append(
            {
                "name": area.name,
                "members": list(area.members),
                "levels": area.levels.tolist(),
                "alpha": alpha(len(area.levels)),
                "fills": fills,
                "names": [{"name": name, "x": x, "y": y} for name, x, y in area.names],
            }
        )
    return {
        "half": measured.grid.half,
        "drawn_half": half,
        "cells": measured.grid.cells,
        "noise": measured.noise,
        "records": records,
        "shares": packed(measured.shares.astype(np.float32)),
        "areas": drawn,
    }


def own(
    places: Array,
    ids: NDArray[np.str_] | None,
    columns: Sequence[tuple[str, NDArray[Any]]],
    anchors: Array | None,
    *,
    measured: Density | None = None,
    first: int = 0,
    noun: str | None = None,
    note: str = "",
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
    measured : Density, optional
        Below both.
    first : int
        Columns at the beginning that are told of each record beside those of the file.
    noun : str, optional
        The column that the ids are from: it is told of a record once.
    note : str
        Stands below a picture that is saved.

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
        **_map(small, noun or "record", anchors),
        "ids": None if ids is None else ids[found].tolist(),
        "numbers": packed(np.flatnonzero(found).astype(np.uint32)),
        "columns": carried,
        "density": None if measured is None else density(measured, None),
        "weak": None,
        "noise": "",
        "note": note,
        "compact": False,
        "search": True,
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
    """Return an array as base64 of little-endian numbers: a third of its size as text."""
    small = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    names = {"f4": "f4", "f8": "f8", "u1": "u1", "u2": "u2", "u4": "u4"}
    name = names[f"{small.dtype.kind}{small.dtype.itemsize}"]
    return {"dtype": name, "bdata": base64.b64encode(small.tobytes()).decode("ascii")}


def _map(places: Array, noun: str, anchors: Array | None) -> Spec:
    below = None if anchors is None else [packed(each) for each in anchors.astype(np.float32).T]
    return {"noun": noun, "x": packed(places[:, 0]), "y": packed(places[:, 1]), "anchors": below}


def _rings(rings: Rings, half: float) -> Spec:
    """Corners on a fine grid over the box, a quarter of their size as floats."""
    steps = np.rint((np.clip(rings.points, -half, half) + half) / (2 * half) * _FINE).astype(np.uint16)
    return {"rings": packed(steps.reshape(-1)), "starts": packed(rings.starts.astype(np.uint32))}


def _drawn(look: Look) -> dict[str, str]:
    return {"light": look.light, "dark": look.dark, "symbol": look.symbol}


def _named_looks(names: Sequence[str]) -> list[tuple[str, Look]]:
    return list(zip(names, looks(len(names)), strict=True))


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
        spec["groups"] = [{"name": each, **_drawn(look)} for each, look in _named_looks(legend)]
        if len(legend) < len(names):
            spec["groups"].append({"name": f"other ({len(names) - len(legend)} values)", **_drawn(REST)})
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
