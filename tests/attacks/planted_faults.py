"""A catalogue of faults, each a small patch of the code as it is, and the audit that should find it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest

from accounting import Budget, SeededNoise
from attacks import audit
from attacks.auditing import AuditResult, NoiseAudit, PipelineAudit, RecordAudit
from dpfedvis.mechanisms import (
    ClippedGradientPerturbation,
    GradientPerturbation,
    InputPerturbation,
    KMeans,
    Mechanism,
    k_means,
    scale,
    second_moments,
)
from dpfedvis.mechanisms.scale import CELLS, Moments, ScaleHistogram, count_cells
from dpfedvis.numerics import exact_sums
from dpfedvis.numerics.exact import Integers
from dpfedvis.numerics.random_streams import Streams
from dpfedvis.protocol import noise_plan
from dpfedvis.protocol.published_map import PublishedMap
from dpfedvis.server import session
from dpfedvis.server.mirror import Mirror
from dpfedvis.site import computation, views
from dpfedvis.site.run_account import RunAccount

Plant = Callable[[pytest.MonkeyPatch], None]
LEVELS: dict[str, Any] = {"noise": NoiseAudit, "records": RecordAudit, "pipeline": PipelineAudit}
BUDGET = Budget(4.0, 1e-5)


@dataclass(frozen=True)
class Fault:
    """One fault.

    Parameters
    ----------
    name : str
    level : {"noise", "records", "pipeline"}
        Of the audit.
    plant : callable
        Breaks the code.
    mechanism : Mechanism
    budget : Budget
    """

    name: str
    level: Literal["noise", "records", "pipeline"]
    plant: Plant
    mechanism: Mechanism
    budget: Budget = BUDGET

    def audited(self, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> AuditResult:
        """Audit the broken code."""
        self.plant(monkeypatch)
        return audit(self.mechanism, self.budget, level=LEVELS[self.level](**settings))


# Noise.


def noise_times(change: Callable[[Integers, Any, int], Integers], *, of: Any = computation) -> Plant:
    """Change the noise itself: `change` gets noise, event and number of parties."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        honest = of.add_noise

        def broken(source: Any, values: Integers, event: Any, parties: int = 1, relative: Any = None) -> Integers:
            noise = honest(source, values, event, parties, relative) - values
            return values + np.rint(change(noise, event, parties)).astype(np.int64)

        monkeypatch.setattr(of, "add_noise", broken)

    return plant


def only(what: str, change: Callable[[Integers], Integers]) -> Plant:
    """Change the noise of the uploads of one name."""
    return noise_times(lambda noise, event, parties: change(noise) if event.what == what else noise)


def zeroed(*place: Any) -> Callable[[Integers], Integers]:
    def change(noise: Integers) -> Integers:
        noise[place] = 0
        return noise

    return change


def off_diagonal(noise: Integers) -> Integers:
    features = (math.isqrt(8 * len(noise) + 1) - 1) // 2
    rows, columns = np.triu_indices(features)
    noise[rows != columns] = 0
    return noise


def uniform(noise: Integers) -> Integers:
    """Bounded noise of the right variance."""
    spread = float(np.std(noise)) if noise.size > 1 else 1.0
    drawn = np.random.default_rng(np.abs(noise).ravel()).uniform(-1, 1, noise.shape)
    return drawn * spread * math.sqrt(3)


def in_opposite_pairs(noise: Integers) -> Integers:
    """Every second value has the negative noise of its neighbour: sums of two have none."""
    flat = noise.reshape(-1)
    flat[1::2] = -flat[: flat.size // 2 * 2 : 2]
    return noise


def of_few_draws(noise: Integers) -> Integers:
    """Eight draws, repeated with fixed signs over the whole upload."""
    flat = noise.reshape(-1)
    signs = np.random.default_rng(0).choice([-1, 1], flat.size)
    flat[:] = signs * np.resize(flat[:8], flat.size)
    return noise


def streams(change: Callable[[tuple[Any, ...]], tuple[Any, ...]], seed: int | None = None) -> Plant:
    """Let streams of noise depend on less than they should."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        honest = Streams.generator

        def broken(self: Streams, *purpose: Any) -> np.random.Generator:
            if purpose[0] != "noise":
                return honest(self, *purpose)
            return honest(self if seed is None else Streams(seed), *change(purpose))

        monkeypatch.setattr(Streams, "generator", broken)

    return plant


def source(make: Callable[[str, np.random.Generator], Any]) -> Plant:
    return lambda monkeypatch: monkeypatch.setattr(computation, "noise_source", make)


# Sums.


@contextmanager
def clipping(change: Callable[[Any, Any, float], None]) -> Iterator[None]:
    honest = exact_sums.clip_in_place
    exact_sums.clip_in_place = lambda cells, bound: change(honest, cells, bound)
    try:
        yield
    finally:
        exact_sums.clip_in_place = honest


def clipped_otherwise(module: Any, name: str, change: Callable[[Any, Any, float], None]) -> Plant:
    """Let one sum clip its records otherwise."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        honest = getattr(module, name)

        def broken(*given: Any, **named: Any) -> Integers:
            with clipping(change):
                return honest(*given, **named)

        monkeypatch.setattr(module, name, broken)

    return plant


def not_at_all(honest: Any, cells: Any, bound: float) -> None:
    """Leave the rows as they are."""


def a_fifth_later(honest: Any, cells: Any, bound: float) -> None:
    honest(cells, 1.2 * bound)


def pairs_that_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every record is in two pairs."""

    def total(self: Any, local: Any, Y: Any, public: Any, grid: Any, factor: float = 1.0) -> Integers:
        records = local.records
        distances = scale._octaves(scale._squares(records, np.roll(records, 1, axis=0)))
        norms = scale._octaves(scale._squares(records))
        return count_cells(np.concatenate([distances, CELLS + norms]), 2 * CELLS, factor)

    monkeypatch.setattr(ScaleHistogram, "total", total)


def own_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A site counts its records where they lie in a layout of its own: here, around their mean."""
    honest = views._cells

    class Own:
        def __init__(self, published: PublishedMap) -> None:
            self._published = published

        def place(self, X: Any) -> Any:
            places = self._published.place(X)
            return places - places.mean(axis=0)

    def broken(view: Any, records: Any, labels: Any) -> Any:
        return honest(replace(view, published=Own(view.published)), records, labels)

    monkeypatch.setattr(views, "_cells", broken)


def weights_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = computation.Computation._protected

    def broken(self: Any, chosen: Any, public: Any, plan: Any, local: Any, Y: Any, round: int) -> Any:
        upload = honest(self, chosen, public, plan, local, Y, round)
        twice = chosen.total(local, Y, public, chosen.grid(public, Y), plan.factor)
        return replace(upload, values=upload.values + twice)

    monkeypatch.setattr(computation.Computation, "_protected", broken)


def unclipped_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_home(self: Any, records: Any, public: Any) -> Integers:
        return self.grid(public, records).cells(records).astype(np.int64)

    monkeypatch.setattr(InputPerturbation, "at_home", at_home)


def gradient_unclipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def total(self: Any, local: Any, Y: Any, public: Any, grid: Any, factor: float = 1.0) -> Integers:
        return GradientPerturbation().total(local, Y, public, grid, factor)

    monkeypatch.setattr(ClippedGradientPerturbation, "total", total)


# Statement and ledger.


def stated(kind: type, share: float) -> Plant:
    """State a part of the sensitivity."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        honest = kind.sensitivity  # type: ignore[attr-defined]
        monkeypatch.setattr(kind, "sensitivity", lambda *given: share * honest(*given))

    return plant


def of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sensitivity of one record of four, where the unit is a client."""
    honest = noise_plan._sensitivity
    monkeypatch.setattr(noise_plan, "_sensitivity", lambda mechanism, public, divided: honest(mechanism, public, 4.0))


def not_recorded(left_out: Callable[[Any], bool]) -> Plant:
    """Neither in the site's own ledger nor in the server's mirror of it."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        record, write = RunAccount.record, Mirror.write

        def recorded(self: Any, event: Any) -> Any:
            return None if left_out(event) else record(self, event)

        def written(self: Any, events: Any, receipts: Any) -> None:
            write(self, [event for event in events if not left_out(event)], receipts)

        monkeypatch.setattr(RunAccount, "record", recorded)
        monkeypatch.setattr(Mirror, "write", written)

    return plant


def not_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Moments, "rounded", lambda self, public: 0)


def parties_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_plan, "drawn_by", lambda trust, clients: 1)


def share_of_all(noise: Integers, event: Any, parties: int) -> Any:
    return noise / math.sqrt(parties)


def of_one(name: str) -> Plant:
    return noise_times(lambda noise, event, parties: 0 * noise if event.client == name else noise)


SUM, LOCAL, CENTRAL = KMeans(trust="aggregate"), KMeans(), GradientPerturbation(trust="central")
GRADIENT = GradientPerturbation()
CLIENT = Budget(4.0, 1e-5, unit="client")

FAULTS = [
    Fault("half the noise", "records", noise_times(lambda noise, event, parties: noise / 2), GRADIENT),
    Fault("a share of σ/P for σ/√P", "noise", noise_times(share_of_all), SUM),
    Fault("the same noise every round", "records", streams(lambda purpose: (*purpose[:-1], 0)), GRADIENT),
    Fault("the same noise at every client", "records",
          streams(lambda purpose: (*purpose[:2], 0, purpose[3])), GRADIENT),
    Fault("the same noise in every stage", "pipeline", streams(lambda purpose: (purpose[0], *purpose[2:])), LOCAL),
    Fault("noise from a fixed seed", "records", source(lambda *given: SeededNoise(np.random.default_rng(7))), GRADIENT),
    Fault("a fixed seed for every stream", "records", streams(lambda purpose: purpose, seed=0), GRADIENT),
    Fault("the system's noise is seeded", "records", source(lambda name, made: SeededNoise(made)), GRADIENT),
    Fault("noise of one client missing", "records", of_one("client-3"), GRADIENT),
    Fault("k-means counts without noise", "records", only("cluster sums", zeroed(..., -1)), LOCAL),
    Fault("one landmark's row without noise", "records", only("gradient", zeroed(0)), GRADIENT),
    Fault("noise 30 % too small in one stage", "pipeline", only("second moments", lambda noise: 0.7 * noise), LOCAL),
    Fault("noise off the diagonal forgotten", "pipeline", only("second moments", off_diagonal), LOCAL),
    Fault("noise of one stage missing", "pipeline", only("density", lambda noise: 0 * noise), LOCAL),
    Fault("noise on a coarser grid", "records", only("gradient", lambda noise: 16 * np.rint(noise / 16)), GRADIENT),
    Fault("bounded noise", "noise", only("gradient", uniform), GRADIENT),
    Fault("noise that cancels in pairs of values", "records", only("gradient", in_opposite_pairs), GRADIENT),
    Fault("an upload's noise from eight draws", "noise", only("gradient", of_few_draws), GRADIENT),
    Fault("the curator adds its noise twice", "records",
          noise_times(lambda noise, event, parties: 2 * noise, of=session), CENTRAL),
    Fault("add-remove Δ under replace-one", "records", stated(KMeans, math.sqrt(0.5)), LOCAL),
    Fault("Δ of second moments halved", "pipeline", stated(second_moments.SecondMoments, 0.5), LOCAL),
    Fault("a record's noise for unit client", "records", of_records, GRADIENT, CLIENT),
    Fault("offsets unclipped", "pipeline", clipped_otherwise(k_means, "cluster_sums", not_at_all), LOCAL),
    Fault("moments unclipped", "pipeline", clipped_otherwise(scale, "moment_sums", not_at_all), LOCAL),
    Fault("second moments clipped at 1.2 C", "pipeline",
          clipped_otherwise(second_moments, "second_moment_sums", a_fifth_later), LOCAL),
    Fault("clipped gradients unclipped", "records", gradient_unclipped, ClippedGradientPerturbation()),
    Fault("τ ignored", "records", unclipped_at_home, InputPerturbation(tau_x=0.3)),
    Fault("pairs of the histogram repeat a record", "pipeline", pairs_that_repeat, LOCAL),
    Fault("density from the site's own layout", "pipeline", own_layout, LOCAL),
    Fault("weights in the sum doubled", "records", weights_doubled, SUM),
    Fault("a round not recorded", "records", not_recorded(lambda event: event.round == 2), GRADIENT),
    Fault("a stage not recorded", "pipeline", not_recorded(lambda event: event.what == "density"), LOCAL),
    Fault("rounding not charged", "pipeline", not_charged, LOCAL),
    Fault("integers of other parties not charged", "records", parties_not_counted, SUM),
]  # fmt: skip
