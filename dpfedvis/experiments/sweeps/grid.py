"""A grid in TOML → the cells of a sweep.

    seeds = 3                          # or a list of seeds
    data = "digits"                    # keys above the first table hold for all tables
    baselines = ["chance", "data-free", "central"]

    [[grid]]
    mechanism = ["k-means", "gradient"]
    epsilon = [1, 10, "inf"]           # lists are axes: every combination is a cell

    [[grid]]                           # further tables are further grids
    mechanism = "mean-embedding"
    scope = "landmarks"
    epsilon = [1, 10]

Every key is a setting of a run (`dpfedvis.runs.settings.RunConfig`). `bounds`, `gamma` and `classes` are lists
themselves: for an axis of them, give a list of lists. An `epsilon` of "inf" is a run without a budget and so without
noise, whatever its mechanism; 0 is the baseline without data. Cells that come out equal are one cell.

A key or value that no run can have is an error, and nothing is run. A *combination* that the library refuses when it
runs, such as a budget over a mechanism that protects nothing, is a row of the store with the reason in it: in a
product of axes some combinations never make sense, and they should not cost the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.errors import DpfedvisError
from dpfedvis.estimators.known_tables import CHOSEN, PRIVATE_MAP, known_tables
from dpfedvis.estimators.settings import DELTA
from dpfedvis.experiments.sweeps.cells import Cell, Kind
from dpfedvis.mechanisms import mechanism
from dpfedvis.runs.settings import RunConfig, read_toml

BASELINES: tuple[Kind, ...] = ("chance", "data-free", "central")
MOST_CELLS = 100_000
_LISTS = ("bounds", "gamma", "classes")  # settings that are lists themselves
_OF_BUDGET = (
    *("delta", "adjacency", "unit", "scope", "trust", "sampling_rate", "public_records"),
    *("release", "release_share"),
)


class InvalidGrid(DpfedvisError):
    """A grid that says nothing, too much, or something else than a grid."""


@dataclass(frozen=True)
class Grid:
    """A sweep, ready to run.

    Parameters
    ----------
    cells : tuple of Cell
        Each different from the others, in the order of the file.
    """

    cells: tuple[Cell, ...]

    @classmethod
    def from_toml(cls, path: str | Path) -> Grid:
        """Read a file."""
        return cls.from_mapping(read_toml(path))

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Grid:
        """Return the grid of keys and values, as in the file."""
        shared = {name: value for name, value in values.items() if name != "grid"}
        tables = values.get("grid", [{}])
        if not (isinstance(tables, list) and tables and all(isinstance(table, Mapping) for table in tables)):
            raise InvalidGrid("'grid' must be one or more tables, each written as [[grid]]")
        cells: dict[Cell, None] = {}
        for table in tables:
            for cell in _expanded({**shared, **table}):
                cells[cell] = None
                if len(cells) > MOST_CELLS:
                    raise InvalidGrid(f"the grid has more than {MOST_CELLS} cells; split it")
        return cls(tuple(cells))


def _expanded(values: dict[str, Any]) -> Iterable[Cell]:
    values = dict(values)
    seeds, baselines = _seeds(values.pop("seeds", 1)), _baselines(values.pop("baselines", []))
    if "seed" in values:
        raise InvalidGrid("a grid has 'seeds', a number of them or a list, and no 'seed'")
    axes = {name: _axis(name, value) for name, value in values.items()}
    if math.prod(map(len, axes.values())) * len(seeds) > MOST_CELLS:
        raise InvalidGrid(f"the grid has more than {MOST_CELLS} cells; split it")
    for chosen in product(*axes.values(), seeds):
        cell = _cell({**dict(zip(axes, chosen[:-1], strict=True)), "seed": chosen[-1]})
        yield cell
        yield from (Cell.baseline(kind, cell.config) for kind in baselines)


def _cell(values: dict[str, Any]) -> Cell:
    # A sweep is a simulation: it scores maps by all records and labels.
    if (noise := values.pop("noise", "seeded")) != "seeded":
        raise InvalidParameter("noise", noise, "seeded, or left out: a sweep is a simulation")
    epsilon = values.pop("epsilon", None)
    if epsilon is None:
        return Cell("run", RunConfig.from_mapping(values))
    values.setdefault("delta", DELTA)  # one for all cells, so that their ε can be compared
    config = RunConfig.from_mapping({**values, "epsilon": 1.0 if _free(epsilon) else epsilon})
    if _free(epsilon) == "data-free":
        return Cell.baseline("data-free", config)
    return Cell("run", _without_budget(config) if _free(epsilon) else config)


def _free(epsilon: Any) -> str | None:
    """What an ε that is no budget stands for: "data-free" for 0, "run" for infinity."""
    if isinstance(epsilon, bool):
        return None
    if isinstance(epsilon, int | float) and epsilon == 0:
        return "data-free"
    return "run" if epsilon in ("inf", math.inf) else None


def _without_budget(config: RunConfig) -> RunConfig:
    """The run with neither budget nor noise. It releases exact rows, which a private map by placement at home does not:
    for landmarks it is the limit of the mechanisms that protect, for such maps it is another way.
    """
    kept = {name: value for name, value in config.given.items() if name not in (*_OF_BUDGET, "epsilon")}
    dropped = set(known_tables()[PRIVATE_MAP])
    if config.mechanism is None or mechanism(config.mechanism).protection != "none":
        kept["mechanism"] = "none"
        dropped |= set(config.tables.get(CHOSEN, {}))
    return RunConfig(**{name: value for name, value in kept.items() if name not in dropped})


def _axis(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        return [value]
    if not value:
        raise InvalidGrid(f"the axis {name!r} is empty")
    one = name in _LISTS and not any(isinstance(each, list | str) for each in value)
    return [value] if one else value


def _seeds(value: Any) -> list[int]:
    if isinstance(value, list):
        if not value or len(set(map(str, value))) < len(value):
            raise InvalidParameter("seeds", value, "different seeds, or how many")
        return [checks.at_least("seeds", each, 0) for each in value]
    return list(range(checks.count("seeds", value)))


def _baselines(value: Any) -> list[Kind]:
    if not isinstance(value, list) or any(each not in BASELINES for each in value):
        raise InvalidParameter("baselines", value, f"a list out of {', '.join(BASELINES)}")
    return [each for each in BASELINES if each in value]
