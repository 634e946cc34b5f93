"""Sweeps: a grid of settings → cells → one store → what privacy costs. `dpfedvis sweep` is the command."""

from dpfedvis.sweeps.cells import Cell
from dpfedvis.sweeps.grid import Grid
from dpfedvis.sweeps.store import Row, Store

__all__ = ["Cell", "Grid", "Row", "Store"]
