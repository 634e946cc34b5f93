"""One cell of a sweep: what is to be run, and the address that it has in a store."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

from dpfedvis.estimators.known_tables import CLUSTERS, PRIVATE_MAP, known_tables
from dpfedvis.estimators.settings import DELTA
from dpfedvis.evaluation.baselines import NO_DATA
from dpfedvis.numerics.layouts import LAYOUTS
from dpfedvis.runs.settings import RunConfig
from dpfedvis.server.rounds import WITHOUT_CHOICE

Kind = Literal["run", "central", "data-free", "chance"]

# They change how long a cell takes or what is kept of it, not what comes out; the noise of a sweep is seeded.
_NO_MATTER = ("jobs", "recorded_rounds", "noise", "evaluate", "yardsticks")
_DATA = (
    *("data", "schema_file", "features", "records", "sample", "label_column", "client_column", "missing", "clients"),
    *("partition", "bounds"),
)
# What happens to landmarks after they are learned.
_RELEASE = ("map", "distances", "rank", "ridge", "search", "release", "release_share", "tau_x")


@dataclass(frozen=True)
class Cell:
    """A run, or a baseline to compare runs with.

    Parameters
    ----------
    kind : {"run", "central", "data-free", "chance"}
        The last three are what runs are held against; see `dpfedvis.evaluation.baselines`.
    config : RunConfig
    """

    kind: Kind
    config: RunConfig

    @classmethod
    def baseline(cls, kind: Kind, config: RunConfig) -> Cell:
        """Return the baseline beside a run: of its settings, those that such a baseline has."""
        kept = {name: value for name, value in config.given.items() if name in (*_DATA, "map", "seed", "jobs")}
        if kind == "data-free":
            kept |= {name: value for name, value in config.given.items() if name in ("landmarks", "tau_x")}
        layouts = {} if kind == "chance" else _layouts(config)
        return cls(kind, RunConfig(**kept, **layouts))

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that are not at their defaults and matter for the result."""
        return _given(self.config, without=_NO_MATTER)

    def address(self, data_sha256: str) -> str:
        """Hash of everything that the result depends on, but the code.

        The data counts by its content, wherever it lies and whatever its name.
        """
        settings = {name: value for name, value in self.settings.items() if name != "data"}
        # Sums have had another share of the noise since sites may drop out and collude.
        shared = {"sharing": 1} if self.config.trust == "aggregate" and self.config.epsilon is not None else {}
        # Before rounds were chosen, runs without a number had 50.
        if settings.get("rounds") == WITHOUT_CHOICE:
            del settings["rounds"]
        chosen = {"rounds": "chosen"} if self.config.uploads is None else {}
        # Once it was a map of public random points, which is easier to beat.
        free: dict[str, Any] = {"epsilon": NO_DATA} if self.kind == "data-free" else {}
        # Once it went without the bounds that were given.
        free |= {"bounds": "kept"} if free and "bounds" in settings else {}
        facts = {"kind": self.kind, "data": data_sha256, "settings": settings}
        return digest({"format": 1, **facts, **shared, **chosen, **free})

    def landmark_address(self, data_sha256: str, code: str) -> str | None:
        """Hash of what the landmarks depend on, to share them between maps; None where a budget covers more than them.

        Without a budget nothing of what comes after reaches back to the landmarks. With one, the way in which rows are
        released takes its share of the noise.
        """
        if self.kind != "run" or self.config.epsilon is not None:
            return None
        after = (*_RELEASE, *_NO_MATTER, *known_tables()[PRIVATE_MAP])
        after = (*after, *(name for table in _layouts(self.config).values() for name in table))
        settings = {name: value for name, value in _given(self.config, without=after).items() if name != "data"}
        return digest({"format": 1, "code": code, "data": data_sha256, "landmarks": settings})


def digest(facts: dict[str, Any]) -> str:
    """SHA-256 of facts in one canonical form."""
    line = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(line.encode()).hexdigest()


def _layouts(config: RunConfig) -> dict[str, Any]:
    """The tables of layouts and clusters, which baselines share."""
    return {name: dict(table) for name, table in config.tables.items() if name in (*LAYOUTS, CLUSTERS)}


def _given(config: RunConfig, without: tuple[str, ...]) -> dict[str, Any]:
    given = {name: value for name, value in config.given.items() if name not in without}
    # What a sweep has by itself is no choice.
    # Where rounds are chosen by default, 50 is a choice.
    chosen = config.updated(rounds=None).uploads is None
    defaults = {"partition": "iid", "delta": DELTA} | ({} if chosen else {"rounds": WITHOUT_CHOICE})
    for name, own in defaults.items():
        if given.get(name) == own:
            del given[name]
    return {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
