"""The plug-in point of maps: from estimated distances to places in the plane."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, ClassVar, Protocol

from accounting.errors import InvalidParameter
from dpfedvis.numerics.distances import DistanceEstimate
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.neighbors import Method, Neighbors

# Called with the name of a stage, how many parts of it are done, and how many there are.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Task:
    """How to lay out, apart from what the map looks like.

    Parameters
    ----------
    seed : int
    jobs : int
        Threads; they change no result.
    search : {"auto", "exact", "approximate"}
        How neighbours are searched.
    progress : callable, optional
    """

    seed: int = 0
    jobs: int = 1
    search: Method = "auto"
    progress: Progress | None = None


@dataclass(frozen=True, eq=False)
class LaidOut:
    """A map of records.

    Parameters
    ----------
    places : array of shape (n, 2)
    neighbors : Neighbors
        The graph that it was made from.
    place : callable
        Places of records that come later, shape (q, 2), from their short vectors of the distance estimate.
    """

    places: Array
    neighbors: Neighbors
    place: Callable[[Array], Array]


def check_further(name: str, further: Mapping[str, Any], made: Callable[..., Any], own: Mapping[str, str]) -> None:
    """Raise if what the library makes has no such setting, or if the layout has a field of its own for it."""
    accepted = signature(made).parameters
    any_name = any(each.kind is Parameter.VAR_KEYWORD for each in accepted.values())
    for each in further:
        if each in own:
            raise InvalidParameter(f"{name} setting {each}", further[each], f"given as {own[each]}")
        if each not in accepted and not any_name:
            near = difflib.get_close_matches(each, list(accepted), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise InvalidParameter(f"{name} setting", each, f"one that the library has{hint}")


class Layout(Protocol):
    """The plug-in point of maps.

    Attributes
    ----------
    name : str
        Short name, as on the command line.
    title : str
        What its map is called on pages.
    refinement : mapping
        Arguments of `dpfedvis.site.placement.Anchored` with which clients place records in such a map at home.
    threads : bool
        Whether clients may place records in several threads at once.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    refinement: ClassVar[Mapping[str, Any]]
    threads: ClassVar[bool]

    def lay_out(self, estimate: DistanceEstimate, task: Task) -> LaidOut:
        """Lay out records by their estimated distances."""

    def lay_out_anchors(self, anchors: Array, seed: int) -> Array:
        """Return places of the anchors of a private map, shape (k, 2), from their points, shape (k, d)."""

    def place_among(self, anchors: Array, places: Array, points: Array, seed: int) -> Array:
        """Return places of points, shape (n, 2), among anchors that stay where they are."""
