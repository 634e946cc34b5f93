"""Density: noisy shares of the records in each cell of a public grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from accounting import checks, sensitivity
from accounting.events import Stage
from dpfedvis.mechanisms.base import Message, PreparedRecords
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.scale import ScaleRelease
from dpfedvis.numerics.kernels import Array


@dataclass(frozen=True)
class GridCounts(ScaleRelease):
    """One release of the share of records in each cell, and of each class.

    What a client passes in as records are cell numbers, shape (n_p, 1): where it has placed its own records.

    Parameters
    ----------
    cells : int
        Number of cells in all, over all classes.
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
        """√2/n_p, or 1/n_p under add-remove."""
        return sensitivity.histogram(adjacency=public.adjacency) / records

    def message(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, generator: np.random.Generator
    ) -> Message:
        """Count."""
        numbers = local.records[:, 0].astype(np.int64)
        return Message(np.bincount(numbers, minlength=self.cells).astype(np.float64) / local.denominator)
