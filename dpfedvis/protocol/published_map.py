"""The published map: all that a client needs to place its own records."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from accounting.errors import InvalidParameter
from dpfedvis.numerics.exact import block_rows
from dpfedvis.numerics.exact_sums import NEAREST, place_by_weights
from dpfedvis.numerics.kernels import Array, squared_distances
from dpfedvis.protocol.subspace import Subspace

MOST_TOGETHER = 5000  # records that a client lays out together; the map has room for so many


@dataclass(frozen=True, eq=False)
class PublishedMap:
    """Landmarks and their map, computed from protected uploads alone.

    Parameters
    ----------
    subspace : Subspace
    anchors : array of shape (k, d), float32
        Points of the subspace that represent the landmarks.
    places : array of shape (k, 2), float64
        Places of the anchors on the map; their box is centred at 0.
    seed : int
        Public seed of the clients' own layouts.
    centres : array of shape (c, 2), optional
        Centres of clusters on the map; None for a map without clusters.
    """

    subspace: Subspace
    anchors: Array
    places: Array
    seed: int
    centres: Array | None = None

    def __post_init__(self) -> None:
        for array in (self.anchors, self.places, *([] if self.centres is None else [self.centres])):
            if not np.isfinite(array).all():
                raise InvalidParameter("private_map", "nan or inf", "finite")
            # All clients share this frame bit for bit: it must not change.
            array.setflags(write=False)
        if len(self.anchors) != len(self.places):
            raise InvalidParameter("places", len(self.places), f"one for each of {len(self.anchors)} anchors")

    def place(self, X: Array) -> Array:
        """Place records by their nearest anchors, shape (n, 2), each by itself and in exact arithmetic.

        Distances to the anchors are exact integers; the places of the nearest `NEAREST` are averaged, with weights that
        fall with the squared distance. So a record's place, and its cell, is the same in any company.
        """
        grid = self.subspace.grid
        anchors, places = grid.nearest(self.anchors), np.asarray(self.places, dtype=np.float64)
        found = np.empty((len(X), 2))
        for start in range(0, len(X), rows := block_rows(len(anchors))):
            cells = grid.cells(self.subspace.coordinates(X[start : start + rows]))
            found[start : start + rows] = place_by_weights(cells, anchors, places, NEAREST)
        return found

    def clusters_at(self, places: Array) -> NDArray[np.int64]:
        """Return the cluster of each place on the map, shape (n,): the nearest centre, the first of equals.

        Clients ask it at home, for the places of their own records. A record without a place is in none: -1.
        """
        if self.centres is None:
            raise InvalidParameter("private_map", "without clusters", "one with clusters")
        found, placed = np.full(len(places), -1), np.isfinite(places).all(axis=1)
        if placed.any():
            distances = squared_distances(places[placed].astype(np.float64), self.centres.astype(np.float64))
            found[placed] = distances.argmin(axis=1)
        return found

    @cached_property
    def digest(self) -> str:
        """Hash of all of it: two maps are the same if theirs are."""
        centres = np.empty((0, 2)) if self.centres is None else self.centres
        arrays = (self.anchors, self.places, centres, *self.subspace.arrays().values())
        parts = [np.ascontiguousarray(each, dtype=np.float64).tobytes() for each in arrays]
        return hashlib.sha256(b"|".join([*parts, str(self.seed).encode()])).hexdigest()

    @property
    def half(self) -> float:
        """Half the side of the square that the map is shown in."""
        return half_side(self.places)


def half_side(places: Array) -> float:
    """Return half the side of the square that shows a published map: a tenth more than its anchors need."""
    return 1.1 * float(np.abs(places).max())
