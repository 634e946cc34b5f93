"""Sweeps: a grid of settings → cells → one store → what privacy costs. `dpfedvis sweep` is the command."""

from dpfedvis.experiments.sweeps.cells import Cell
from dpfedvis.experiments.sweeps.grid import Grid
from dpfedvis.experiments.sweeps.store import CellRow, SweepStore

__all__ = ["Cell", "CellRow", "Grid", "SweepStore"]
