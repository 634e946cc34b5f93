"""The published map: everything that the server publishes, and all that a client needs to place its own records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accounting.errors import InvalidParameter
from dpfedvis.federation.private_map.subspace import Subspace
from dpfedvis.numerics.kernels import Array


@dataclass(frozen=True, eq=False)
class PublishedMap:
    """Landmarks and their map, both made from protected uploads alone.

    Parameters
    ----------
    subspace : Subspace
    anchors : array of shape (k, d), float32
        Points of the subspace that stand for the landmarks.
    places : array of shape (k, 2), float64
        The anchors' map, its box centred on the origin.
    seed : int
        Public, for the clients' own layouts.
    """

    subspace: Subspace
    anchors: Array
    places: Array
    seed: int

    def __post_init__(self) -> None:
        for array in (self.anchors, self.places):
            if not np.isfinite(array).all():
                raise InvalidParameter("private_map", "nan or inf", "finite")
            # Clients agree on the frame bit for bit: nobody moves it.
            array.setflags(write=False)
        if len(self.anchors) != len(self.places):
            raise InvalidParameter("places", len(self.places), f"one for each of {len(self.anchors)} anchors")

    @property
    def half(self) -> float:
        """Half the side of the square that the map is shown in."""
        return half_side(self.places)


def half_side(places: Array) -> float:
    """Return half the side of the square that a published map is shown in: a tenth more than its anchors need."""
    return 1.1 * float(np.abs(places).max())
