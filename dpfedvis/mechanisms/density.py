"""Density: noisy shares of the records in each cell of a public grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from accounting import checks, sensitivity
from accounting.events import Stage
from dpfedvis.mechanisms.base import PreparedRecords
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.scale import ScaleRelease, count_cells
from dpfedvis.numerics.exact import Grid, Integers
from dpfedvis.numerics.exact_sums import COUNT_UNIT
from dpfedvis.numerics.kernels import Array


@dataclass(frozen=True)
class GridCounts(ScaleRelease):
    """One release of the share of records in each cell, by class if there are classes.

    The "records" of this release are cell numbers, shape (n_p, 1): where the client placed its own records.

    Parameters
    ----------
    trust : {"local", "aggregate", "central"}
        Trust model: what the server sees of the clients.
    cells : int
        Total number of cells, of all classes.
    """

    cells: int = 1
    name: ClassVar[str] = "grid-counts"
    what: ClassVar[str] = "density"
    stage: ClassVar[Stage] = "density"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.count("cells", self.cells)

    def shape(self, public: PublicParameters) -> tuple[int, ...]:
        """(cells,)."""
        return (self.cells,)

    def sensitivity(self, public: PublicParameters, records: float) -> float:
        """√2/n_p, or 1/n_p under add-remove.

        Proof. A record adds 1/n_p to one cell. Replacing it changes two cells by 1/n_p each at most.
        """
        return sensitivity.histogram(adjacency=public.adjacency) / records

    def cell(self, public: PublicParameters, grid: Grid) -> float:
        """A part of one record."""
        return 1 / COUNT_UNIT

    def total(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, grid: Grid, factor: float = 1.0
    ) -> Integers:
        """Count the records in each cell of the map."""
        return count_cells(local.records[:, 0].astype(np.int64), self.cells, factor)
