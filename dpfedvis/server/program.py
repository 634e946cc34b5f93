"""The server's program: one object made from plain settings, which a link runs where the server is.

It learns landmarks and then either asks for one row a record (Alg. 2 and 3), or publishes a private map in which sites
place their own records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from accounting import Budget, Ledger, checks
from accounting.errors import InvalidParameter
from dpfedvis.mechanisms import Mechanism, mechanism
from dpfedvis.mechanisms.rows import DistanceRows, GramRows, KernelRows, Rows
from dpfedvis.numerics.kernels import Array, Kernel
from dpfedvis.numerics.layouts import Layout, Progress
from dpfedvis.numerics.spectral import SpectralSettings, cluster_centres
from dpfedvis.protocol import wire
from dpfedvis.protocol.ask import Ask
from dpfedvis.protocol.messages import Receipt
from dpfedvis.protocol.noise import NOISE_SOURCES
from dpfedvis.protocol.noise_plan import row_sensitivity
from dpfedvis.protocol.published_map import PublishedMap
from dpfedvis.protocol.uploads import Witness
from dpfedvis.server.checkpoint import SnapshotMismatch, read_or_make
from dpfedvis.server.feddl import Callback, FedDL, FedDLResult, NoiseName
from dpfedvis.server.members import Members
from dpfedvis.server.private_map import BudgetShares, Learned, Learner, landmarks_for
from dpfedvis.server.published import Published
from dpfedvis.server.recipe import LEAST_ANCHORS, LEAST_PLACES, Recipe
from dpfedvis.server.rounds import WITHOUT_CHOICE, chooses, one_sweep, rounds_of_map
from dpfedvis.server.session import Session
from dpfedvis.server.verdict import verdict_of

RowKind = Literal["distance", "gram", "kernel"]
ReleaseMode = Literal["exact", "noisy", "none", "landmarks"]
# Settings of FedDL that a program makes of its own.
_OWN = (
    *("mechanism", "budget", "rounds", "tau_x", "seed", "noise", "noisy_rows", "exact_rows", "landmarks"),
    *("threshold", "colluders", "retries"),
)


@dataclass(frozen=True, kw_only=True)
class ProgramSettings:
    """Settings of a program, all choices made.

    Parameters
    ----------
    mechanism : Mechanism
    budget : Budget, optional
    release : {"exact", "noisy", "none", "landmarks"}
        What follows the landmarks: exact or noisy rows, a private map, or nothing.
    landmarks : int, optional
        None for as many as a private map's noise allows.
    rounds : int, optional
        None for as many as the noise allows.
    noise : {"seeded", "discrete"}
    seed : int
    tau_x : float, optional
    image : tuple of int, optional
        Public shape of a record that is an image.
    threshold, colluders, retries : int, optional
        Of sums under trust `aggregate`.
    feddl : mapping
        Further settings of `dpfedvis.server.feddl.FedDL`.
    rows : {"distance", "gram", "kernel"}
        Which rows are released.
    release_share : float
        Share of the budget for noisy rows.
    row_gamma : float, optional
        Kernel width of kernel rows; by default that of the landmarks' learning.
    recipe : Recipe
    layout : Layout, optional
        Of a private map.
    clusters : SpectralSettings, optional
        Of a private map that has clusters: their number, and the starts of k-means.
    """

    mechanism: Mechanism
    budget: Budget | None = None
    release: ReleaseMode = "landmarks"
    landmarks: int | None = None
    rounds: int | None = None
    noise: NoiseName = "seeded"
    seed: int = 0
    tau_x: float | None = None
    image: tuple[int, ...] | None = None
    threshold: int | None = None
    colluders: int | None = None
    retries: int = 0
    feddl: Mapping[str, Any] = field(default_factory=dict)
    rows: RowKind = "distance"
    release_share: float = 0.5
    row_gamma: float | None = None
    recipe: Recipe = field(default_factory=Recipe)
    layout: Layout | None = None
    clusters: SpectralSettings | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanism", mechanism(self.mechanism))
        checks.one_of("release", self.release, get_args(ReleaseMode))
        checks.one_of("rows", self.rows, get_args(RowKind))
        checks.one_of("noise", self.noise, NOISE_SOURCES)
        if self.rounds is not None:
            checks.count("rounds", self.rounds)
        known = {each.name for each in fields(FedDL)} - set(_OWN)
        for name in self.feddl:
            checks.one_of("setting of feddl", name, sorted(known))

    @property
    def sharing(self) -> dict[str, Any]:
        """Threshold, colluders and retries."""
        return {"threshold": self.threshold, "colluders": self.colluders, "retries": self.retries}


@dataclass(frozen=True)
class Program:
    """The server's side of a run.

    Parameters
    ----------
    settings : ProgramSettings
    """

    settings: ProgramSettings

    def __post_init__(self) -> None:
        if not isinstance(self.settings, ProgramSettings):
            raise InvalidParameter("settings", self.settings, "a ProgramSettings")

    def to_bytes(self) -> bytes:
        """Return the program as JSON and arrays; raise `NotPortable`, with its name, for what has no such form."""
        return wire.encode(self.settings)

    @classmethod
    def of_bytes(cls, data: bytes) -> Program:
        """Inverse of `to_bytes`."""
        return cls(wire.decode(data))

    def run(
        self,
        ask: Ask,
        *,
        run: str | None = None,
        ledger: Ledger | None = None,
        witness: Witness | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: Path | None = None,
        progress: Progress | None = None,
        receipts: Sequence[Receipt] = (),
    ) -> Published:
        """Run it, by asking the sites.

        Parameters
        ----------
        ask : Ask
        run, ledger, witness, callbacks, receipts
            As in `dpfedvis.server.feddl.FedDL.learn`.
        checkpoint : Path, optional
            Folder to keep what is needed to go on after an interruption.
        progress : callable, optional
            Called with (stage, done, total) in the stages after the rounds.
        """
        settings = self.settings
        watched: dict[str, Any] = {"run": run, "ledger": ledger, "witness": witness, "callbacks": tuple(callbacks)}
        watched["receipts"] = tuple(receipts)
        watched["checkpoint"] = None if checkpoint is None else checkpoint / "landmarks"
        if settings.release == "none":
            return self._private(ask, watched, checkpoint, progress)
        result, session = self._feddl().learn(ask, **watched)
        if settings.release == "landmarks":
            return Published(landmarks=result.landmarks, **_ended(result, session))
        noise = self.row_noise(result)
        if progress is not None:
            progress("rows", 0, 1)
        rows = session.rows(self.rows_of(result, noise), result.landmarks)
        if progress is not None:
            progress("rows", 1, 1)
        return Published(landmarks=result.landmarks, rows=tuple(rows), row_noise=noise, **_ended(result, session))

    def rows_of(self, result: FedDLResult, noise: float = 0.0) -> Rows:
        """Return the rows that are asked for."""
        settings = self.settings
        if settings.rows == "kernel":
            gamma = settings.row_gamma
            return KernelRows(result.public.kernel if gamma is None else Kernel.gaussian(gamma))
        return GramRows(noise) if settings.rows == "gram" else DistanceRows()

    def _feddl(self) -> FedDL:
        settings = self.settings
        what = {"distance": DistanceRows.what, "gram": GramRows.what, "kernel": KernelRows.what}[settings.rows]
        noisy, exact = settings.release == "noisy", settings.release == "exact"
        own = {
            "mechanism": settings.mechanism,
            "budget": settings.budget,
            "rounds": settings.rounds,
            "tau_x": settings.tau_x,
            "seed": settings.seed,
            "noise": settings.noise,
            **settings.sharing,
            "noisy_rows": {what: settings.release_share} if noisy else {},
            "exact_rows": (what,) if exact and settings.mechanism.protection != "home" else (),
        }
        if settings.landmarks is not None:
            own["landmarks"] = settings.landmarks
        return FedDL(**{**settings.feddl, **own})

    def row_noise(self, result: FedDLResult) -> float:
        """Standard deviation of the noise that the rows will carry."""
        tau_x, plan = self.settings.tau_x, result.plan
        if self.settings.release != "noisy" or tau_x is None or plan is None:
            return 0.0
        rows = self.rows_of(result)
        return plan.multipliers[rows.what].sigma * row_sensitivity(rows, result.landmarks, tau_x)

    def _learner(self, budget: Budget, mechanism: Mechanism, rounds: int) -> Learner:
        settings = self.settings
        return settings.recipe.learner(
            budget=budget,
            mechanism=mechanism,
            landmarks=settings.landmarks,
            rounds=rounds,
            tau_x=settings.tau_x,
            image=settings.image,
            noise=settings.noise,
            seed=settings.seed,
            further=settings.feddl,
            **settings.sharing,
        )

    def learner(self, members: Members) -> Learner:
        """Return what learns a private map; its rounds as given, or chosen from public numbers."""
        budget = self.settings.budget
        if budget is None:
            raise InvalidParameter("budget", None, "given for release='none'")
        return self._learner(budget, self.settings.mechanism, self._rounds_of_map(members, budget))

    def _rounds_of_map(self, members: Members, budget: Budget) -> int:
        settings = self.settings
        if settings.rounds is not None or not chooses(settings.mechanism, budget):
            return settings.rounds or WITHOUT_CHOICE
        given = settings.landmarks
        learner = self._learner(budget, settings.mechanism, 1)
        counting = self._learner(budget, one_sweep(settings.mechanism), 1)
        return rounds_of_map(
            learner.contract(members, "rounds"),
            counting.contract(members, "rounds"),
            # As many dimensions as there may be: fewer are known only after the subspace is.
            learner.public_for(max(2, min(learner.components, members.features))),
            landmarks_for if given is None else lambda noise: given,
        )

    def _private(
        self, ask: Ask, watched: dict[str, Any], checkpoint: Path | None, progress: Progress | None
    ) -> Published:
        """Learn and publish the landmarks' map; each site then places its own records."""
        settings, recipe, layout = self.settings, self.settings.recipe, self.settings.layout
        if layout is None:
            raise InvalidParameter("layout", None, "given for release='none'")
        clusters, fewest = settings.clusters, recipe.anchors or LEAST_ANCHORS
        if clusters is not None and clusters.clusters > fewest:
            raise InvalidParameter("n_clusters", clusters.clusters, f"at most the number of anchors, {fewest}")
        learner = self.learner(Members.asked(ask, settings.budget))
        learned: Learned = learner.run(ask, **watched)
        session, records = learned.session, learner.records_a_client(learned.feddl.contract)
        verdict = verdict_of(learned)
        anchors = recipe.anchored_points(learned, records, settings.seed)
        # Those of landmarks where nothing was counted are left out; see `spread_out` for whose each is.
        origins = verdict.origins(len(anchors), max(LEAST_PLACES, clusters.clusters if clusters else 0))
        anchors = anchors[origins.kept]
        drawn = repr(layout) if clusters is None else f"{layout!r} with {clusters.clusters} clusters"

        def laid_out() -> dict[str, Array]:
            places = recipe.scaled(layout.lay_out_anchors(anchors, settings.seed), records)
            made = {"anchors": anchors, "places": places, "origins": origins.of, "layout": np.array(drawn)}
            if clusters is None:
                return made
            weights = recipe.weights(learned, origins.of)
            count, starts = clusters.clusters, clusters.starts
            return {**made, "centres": cluster_centres(places, count, starts, settings.seed, weights)}

        # Kept, since a density is counted on it.
        frame = read_or_make(None if checkpoint is None else checkpoint / "published_map.npz", laid_out)
        if (made := str(frame.pop("layout"))) != drawn:
            raise SnapshotMismatch(f"the map is published already, as {made}; resume without another layout")
        verdict = replace(verdict, anchors=tuple(frame.pop("origins").tolist()))
        published = PublishedMap(learned.subspace, **frame, seed=settings.seed)
        if progress is not None:
            progress("placement at home", 0, len(ask.sites))
        session.place(published, layout, recipe.placement)
        if progress is not None:
            progress("placement at home", len(ask.sites), len(ask.sites))
        density = recipe.count(learner, learned, published) if recipe.density else None
        return Published(
            landmarks=learned.subspace.points(learned.feddl.landmarks),
            map=published,
            density=density,
            remarks=learner.remarks(session),
            verdict=verdict,
            **_ended(learned.feddl, session),
        )


def _ended(result: FedDLResult, session: Session) -> dict[str, Any]:
    """Return the result with the failures of all stages, and what the sites have signed, once the mirror has all."""
    session.catch_up()
    result = replace(result, failures=tuple(session.failures))
    return {"feddl": result, "label": session.label, "receipts": tuple(session.mirror.receipts.values())}


wire.register(ProgramSettings, Recipe, BudgetShares, SpectralSettings)
