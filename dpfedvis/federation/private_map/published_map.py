"""The published map: all that a client needs to place its own records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accounting.errors import InvalidParameter
from dpfedvis.federation.private_map.subspace import Subspace
from dpfedvis.numerics.kernels import Array


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
    """

    subspace: Subspace
    anchors: Array
    places: Array
    seed: int

    def __post_init__(self) -> None:
        for array in (self.anchors, self.places):
            if not np.isfinite(array).all():
                raise InvalidParameter("private_map", "nan or inf", "finite")
            # All clients share this frame bit for bit: it must not change.
            array.setflags(write=False)
        if len(self.anchors) != len(self.places):
            raise InvalidParameter("places", len(self.places), f"one for each of {len(self.anchors)} anchors")

    @property
    def half(self) -> float:
        """Half the side of the square that the map is shown in."""
        return half_side(self.places)


def half_side(places: Array) -> float:
    """Return half the side of the square that shows a published map: a tenth more than its anchors need."""
    return 1.1 * float(np.abs(places).max())
