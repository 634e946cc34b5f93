"""Interactive maps of a page, as plain values that page.js gives to plotly."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.density import Density
from dpfedvis.reporting.density_figures import smoothed
from dpfedvis.reporting.palette import looks
from dpfedvis.reporting.run_facts import Cloud

Spec = dict[str, Any]


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
        own = [{"light": each.light, "dark": each.dark, "symbol": each.symbol, "glyph": each.glyph}
               for each in looks(len(grouping.names))]  # fmt: skip
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


def packed(values: NDArray[Any]) -> dict[str, str]:
    """Return an array as plotly takes it, base64 of little-endian numbers: a third of its size as text."""
    small = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    names = {"f4": "f4", "u1": "u1", "u2": "u2", "u4": "u4"}
    name = names[f"{small.dtype.kind}{small.dtype.itemsize}"]
    return {"dtype": name, "bdata": base64.b64encode(small.tobytes()).decode("ascii")}


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
