"""Views: what a site computes uploads from. Each follows from public facts, and from each record by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from accounting.errors import InvalidParameter
from dpfedvis.protocol.density import DensityGrid
from dpfedvis.protocol.published_map import PublishedMap
from dpfedvis.protocol.subspace import Subspace

ViewName = Literal["raw", "subspace", "density"]
RAW: ViewName = "raw"


@dataclass(frozen=True, eq=False)
class SubspaceView:
    """Coordinates of the records in a public subspace."""

    subspace: Subspace
    name: ClassVar[ViewName] = "subspace"


@dataclass(frozen=True, eq=False)
class DensityView:
    """Cell numbers of the records on a grid over a published map, by class where there are classes.

    Parameters
    ----------
    published : PublishedMap
    grid : DensityGrid
    classes : tuple of str
        Public list; empty without classes.
    """

    published: PublishedMap
    grid: DensityGrid
    classes: tuple[str, ...] = ()
    name: ClassVar[ViewName] = "density"

    def __post_init__(self) -> None:
        if not all(isinstance(each, str) for each in self.classes):
            raise InvalidParameter("classes", self.classes, "names")

    @property
    def layers(self) -> int:
        """Number of counts of a cell: one for each class and one for all other labels."""
        return len(self.classes) + 1


View = SubspaceView | DensityView
