"""Rows of a store → points of privacy–utility curves, with confidence intervals over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from accounting.events import Trust
from dpfedvis.estimators.settings import DELTA
from dpfedvis.evaluation.metrics import METRICS, Metric
from dpfedvis.experiments.sweeps.cells import Kind
from dpfedvis.experiments.sweeps.store import CellRow
from dpfedvis.runs.code_version import CodeVersion
from dpfedvis.runs.settings import RunConfig, bare_defaults

CONFIDENCE = 0.95
# Settings that define a context; all others distinguish runs within it.
_DATA = ("data", "records", "sample", "missing", "label_column", "client_column", "clients", "partition", "map")
# What ε means: values with different meanings are not comparable, and get figures of their own.
_MEANING = ("delta", "adjacency", "unit")


@dataclass(frozen=True)
class Estimate:
    """Mean over seeds.

    Parameters
    ----------
    mean : float
    sd : float, optional
        Sample standard deviation; None for one seed.
    n : int
    half : float, optional
        Half the width of the 95 % t-interval of the mean; None for one seed.
    values : tuple of float
        Of the seeds, for pictures.
    """

    mean: float
    sd: float | None
    n: int
    half: float | None
    values: tuple[float, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, values: Sequence[float]) -> Estimate:
        """Estimate from one value a seed."""
        from scipy.stats import t

        n = len(values)
        if n < 2:
            return cls(values[0], None, n, None, tuple(values))
        sd = stdev(values)
        half = float(t.ppf((1 + CONFIDENCE) / 2, n - 1)) * sd / math.sqrt(n)
        return cls(fmean(values), sd, n, half, tuple(values))

    @property
    def reach(self) -> float:
        """How far from the mean the truth may be: half the interval, or ∞ where there is none."""
        return math.inf if self.half is None else self.half

    def __str__(self) -> str:
        return f"{self.mean:.3f}" if self.half is None else f"{self.mean:.3f} ± {self.half:.3f}"


@dataclass(frozen=True)
class Point:
    """All seeds of one setting.

    Parameters
    ----------
    kind : {"run", "central", "data-free", "chance"}
    series : str
        Name of the setting within its context, without its ε.
    epsilon : float
        End to end, by the ledger: the largest over seeds.
    in_scope : float, optional
        Of the landmarks alone, where the budget was for them and ε end to end is ∞.
    nominal : float, optional
        See `CellRow.epsilon_nominal`.
    delta : float
    seeds : int
    scores : dict of str to Estimate
    trust : {"local", "aggregate", "central"}
        Of the noise, in a run with a budget.
    other_code : bool
        Whether a seed of it was run by another version of the code.
    sampled : bool
        Whether records were sampled in each round.
    """

    kind: Kind
    series: str
    epsilon: float
    in_scope: float | None
    nominal: float | None
    delta: float
    seeds: int
    scores: dict[str, Estimate]
    trust: Trust = "local"
    other_code: bool = False
    sampled: bool = False

    @property
    def name(self) -> str:
        """The series, with a star if another version of the code made it."""
        return self.series + ("*" if self.other_code else "")

    @property
    def landmarks_only(self) -> bool:
        """Whether the budget covers the landmarks alone."""
        return self.epsilon == math.inf and self.in_scope is not None


@dataclass(frozen=True)
class Context:
    """All points with the same data, partition, kind of map and meaning of ε.

    Parameters
    ----------
    facts : dict
        Settings that all of it shares.
    points : tuple of Point
    sha256 : str
        Of the data, where the store has several versions of it under one name; else empty.
    """

    facts: dict[str, Any]
    points: tuple[Point, ...]
    sha256: str = ""

    @property
    def title(self) -> str:
        """The facts in a line."""
        facts = dict(self.facts)
        words = [f"{facts.pop('map')} of {facts.pop('data')}", str(facts.pop("partition"))]
        words += [f"{value} {name}" if name in ("records", "clients") else f"{name} {value}"
                  for name, value in facts.items() if value is not None and value != _DEFAULTS[name]]  # fmt: skip
        words += [f"data {self.sha256[:8]}"] if self.sha256 else []
        return ", ".join(words)

    @property
    def heading(self) -> str:
        """The same for people."""
        facts = dict(self.facts)
        made = {"tsne": "t-SNE maps", "umap": "UMAP maps", "clusters": "Clusters"}
        name, data, clients = facts.pop("map"), facts.pop("data"), facts.pop("clients", None)
        words = [f"{made.get(name, name)} of {data}"]
        if clients is not None:
            words.append(f"{clients} clients")
        how, _, argument = str(facts.pop("partition")).partition(":")
        words.append(_DEALT.get(how, f"partition {how}").format(argument or "some"))
        if (records := facts.pop("records", None)) is not None:
            words.insert(1, f"{records} records")
        words += [f"{_SAID.get(key, key.replace('_', ' '))} {value}"
                  for key, value in facts.items() if value is not None and value != _DEFAULTS[key]]  # fmt: skip
        words += [f"data {self.sha256[:8]}"] if self.sha256 else []
        return ", ".join(words)

    @property
    def runs(self) -> tuple[Point, ...]:
        """The points that are not baselines."""
        return tuple(point for point in self.points if point.kind == "run")

    def baseline(self, kind: Kind, metric: Metric) -> Estimate | None:
        """The score of a baseline, the best of several settings."""
        found = [point.scores[metric.key] for point in self.points if point.kind == kind and metric.key in point.scores]
        best = max if metric.higher else min
        return best(found, key=lambda score: score.mean, default=None)

    def meets_data_free(self, point: Point, metric: Metric) -> bool:
        """Whether a point is no better than the data-free map: the intervals overlap, or it is worse.

        Always for one seed, which has no interval.
        """
        free, own = self.baseline("data-free", metric), point.scores[metric.key]
        if free is None:
            return False
        sign = 1 if metric.higher else -1
        return sign * (own.mean - free.mean) <= own.reach + free.reach

    def below_data_free(self, metric: Metric) -> list[str]:
        """Series that are surely worse than the data-free map at every finite ε end to end that was tried."""
        free, sign = self.baseline("data-free", metric), 1 if metric.higher else -1
        worse: dict[str, bool] = {}
        for point in self.runs:
            own = point.scores.get(metric.key)
            if free is not None and own is not None and point.epsilon < math.inf:
                below = sign * (free.mean - own.mean) > own.reach + free.reach
                worse[point.series] = worse.get(point.series, True) and below
        return [series for series, every in worse.items() if every]

    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that curves are drawn of and that a run here has."""
        curves = [metric for metric in METRICS.values() if metric.curve]
        return tuple(metric for metric in curves if any(metric.key in point.scores for point in self.runs))


_DEALT = {
    "iid": "records dealt at random", "by-class": "each class at one client", "classes": "{} classes at each client",
    "dirichlet": "classes spread unevenly (Dirichlet {})", "groups": "clients as in the file",
}  # fmt: skip
_SAID = {"delta": "δ =", "unit": "privacy unit", "adjacency": "neighbours by"}
_DEFAULTS = {**bare_defaults(), "partition": "iid", "delta": DELTA}  # of a sweep


def latest_version(rows: Iterable[CellRow]) -> CodeVersion | None:
    """Return the version of the code that made the latest finished row; None if there is none."""
    done = [row for row in rows if row.status == "done"]
    return max(done, key=lambda row: row.finished).version if done else None


def contexts(rows: Iterable[CellRow], version: CodeVersion | None) -> list[Context]:
    """Group finished rows by context, then by setting; mark rows of other versions of the code.

    Baselines and runs at ε = ∞ have no budget, so that they appear under every meaning of ε on their data.
    """
    grouped: dict[tuple[Any, ...], dict[str, list[CellRow]]] = {}
    for row in rows:
        if row.status == "done":
            grouped.setdefault(_values(row, _DATA), {}).setdefault(row.data_sha256, []).append(row)
    found = []
    for facts, versions in grouped.items():
        for sha256, own in versions.items():
            for meaning, alike in _by_meaning(own).items():
                shared = dict(zip((*_DATA, *_MEANING), (*facts, *meaning), strict=True))
                found.append(Context(shared, _points(alike, version), sha256 if len(versions) > 1 else ""))
    return found


def _by_meaning(rows: list[CellRow]) -> dict[tuple[Any, ...], list[CellRow]]:
    budgets = [row for row in rows if row.settings.get("epsilon") is not None]
    meanings = dict.fromkeys(_values(row, _MEANING) for row in budgets) or {_values(rows[0], _MEANING): None}
    return {
        # Those of this meaning last: of what has no budget, and was run under several, they are kept.
        meaning: sorted(
            (row for row in rows if row.settings.get("epsilon") is None or _values(row, _MEANING) == meaning),
            key=lambda row: _values(row, _MEANING) == meaning,
        )
        for meaning in meanings
    }


def _points(rows: list[CellRow], version: CodeVersion | None) -> tuple[Point, ...]:
    names = [name for name in _DEFAULTS if name not in (*_DATA, *_MEANING, "seed", "epsilon")]
    groups: dict[tuple[Any, ...], dict[int, CellRow]] = {}
    for row in rows:
        # One row a seed: without a budget, what ε would have meant makes no other run.
        groups.setdefault((row.kind, _values(row, (*names, "epsilon"))), {})[row.settings.get("seed", 0)] = row
    runs = [row for row in rows if row.kind == "run"]
    telling = [name for name in names if name != "mechanism" and len({_values(row, (name,)) for row in runs}) > 1]
    if "trust" not in telling and any("trust" in row.settings for row in runs):
        telling.append("trust")  # whoever is trusted is named, also where it is the same for all
    seeds = [list(own.values()) for own in groups.values()]
    return tuple(_point(own, _label(own[0], telling), version) for own in seeds)


def _point(rows: list[CellRow], series: str, version: CodeVersion | None) -> Point:
    first = rows[0]
    keys = [key for key in first.scores if all(key in row.scores for row in rows)]
    ends = [row.epsilon_end_to_end for row in rows if row.epsilon_end_to_end is not None]
    scopes = [row.epsilon_in_scope for row in rows if row.epsilon_in_scope is not None]
    nominal = [row.epsilon_nominal for row in rows if row.epsilon_nominal is not None]
    return Point(
        kind=first.kind,
        series=series,
        epsilon=max(ends, default=math.inf),
        in_scope=max(scopes, default=None),
        nominal=max(nominal, default=None),
        delta=first.delta,
        seeds=len(rows),
        scores={key: Estimate.of([row.scores[key] for row in rows]) for key in keys},
        trust=first.settings.get("trust", _DEFAULTS["trust"]),
        other_code=any(row.version != version for row in rows),
        sampled=first.settings.get("sampling_rate") is not None,
    )


def _label(row: CellRow, telling: list[str]) -> str:
    config = RunConfig.from_mapping(row.settings)
    if row.kind != "run":
        return f"{row.kind}, landmarks {config.landmarks}" if config.landmarks and "landmarks" in telling else row.kind
    words, values = [str(config.chosen_mechanism)], {**_DEFAULTS, **config.given}
    for name in telling:
        value = values[name]
        # A run without a budget has dropped what belongs to one: its defaults say nothing about it.
        silent = value == _DEFAULTS[name] and (config.epsilon is None or name == "scope")
        if value is not None and not silent:
            if isinstance(value, dict):
                words.append(f"{name} " + " ".join(f"{key}={each:g}" for key, each in sorted(value.items())))
            else:
                words.append(value if isinstance(value, str) and name != "scope" else f"{name} {value}")
    return ", ".join(words)


def _values(row: CellRow, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(_hashable(row.settings.get(name, _DEFAULTS[name])) for name in names)


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(sorted(value.items()))
    return tuple(value) if isinstance(value, list) else value
