"""The audit with records: whole runs of FedDL against an adversary who knows all records but one of each client.

Every client hosts one game. Its canary is one of two records, by the toss of its coin; the adversary sees the uploads
and the server's Y, computes what the client would have uploaded in either case, and takes the likelihood
ratio. Clients hold disjoint records, so that one run of P clients is P games. This audits sensitivity, clipping, noise,
composition and ledger together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from accounting import Budget, Event, GaussianRelease, Ledger, PostProcessing, checks
from accounting.errors import InvalidParameter
from attacks.auditing.bounds import Claim
from attacks.auditing.canaries import Scene, scene_for
from attacks.auditing.evidence import Prediction, Seen, Watched, Watcher
from attacks.auditing.findings import Checked
from attacks.auditing.games import audit_uploads
from attacks.auditing.ledger_checks import check_ledger
from attacks.auditing.noise import Progress
from attacks.auditing.noise_checks import check_noise, compare
from attacks.auditing.predictions import exact_total
from attacks.auditing.probes import check_moves, probing_records
from attacks.auditing.references import check_sensitivity
from attacks.auditing.residuals import Residual, residual
from attacks.auditing.result import AuditResult
from dpfedvis.data import FederatedData
from dpfedvis.estimators.simulation import simulated
from dpfedvis.mechanisms import HeuristicNoise, Mechanism, NoPerturbation, PreparedRecords, PublishedFedDL
from dpfedvis.numerics.exact import Integers
from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.noise_plan import HOME
from dpfedvis.protocol.uploads import Upload, in_units
from dpfedvis.server.callbacks import KeepLandmarks
from dpfedvis.server.feddl import FedDL, FedDLResult
from dpfedvis.server.round_log import Round

_COINS = 0x52454331  # keeps the coins apart from every noise stream of the same seed
_AT_LEAST = 20
_TWINS = 40  # clients of short runs to compare with


@dataclass(frozen=True, eq=False)
class Still:
    """The public set of one point: the server sends its worst Y in every round."""

    landmarks: Array

    def __call__(self, Y: Array) -> Array:
        """Return the point."""
        return self.landmarks.astype(Y.dtype)


@dataclass(frozen=True, kw_only=True)
class RecordAudit:
    """Settings of the audit; `run` runs it.

    Parameters
    ----------
    games : int
        Clients, each with one canary.
    rounds, local_steps, records, landmarks : int
        S, Q, n_p ≥ 2 and n_y. More rounds, records or landmarks change the cost and not the worst case.
    gamma : float
        Kernel width.
    scene : Scene, optional
        By default the worst case known for the mechanism.
    noise : {"seeded", "discrete"}
    seed : int
    confidence : float
        Of each bound.
    delta : float
        For mechanisms that claim nothing; a budget has its own.
    progress : callable, optional
        Called with (rounds done, rounds).
    """

    games: int = 1000
    rounds: int = 4
    local_steps: int = 1
    records: int = 4
    landmarks: int = 2
    gamma: float = 1.0
    scene: Scene | None = None
    noise: Literal["seeded", "discrete"] = "seeded"
    seed: int = 0
    confidence: float = 0.95
    delta: float = 1e-5
    progress: Progress | None = None

    def __post_init__(self) -> None:
        checks.at_least("games", self.games, _AT_LEAST)
        for name in ("rounds", "local_steps"):
            checks.count(name, getattr(self, name))
        for name in ("records", "landmarks"):
            checks.at_least(name, getattr(self, name), 2)
        checks.positive("gamma", self.gamma)
        checks.at_least("seed", self.seed, 0)
        checks.probability("confidence", self.confidence)
        checks.probability("delta", self.delta)

    def run(self, mechanism: Mechanism, budget: Budget | None) -> AuditResult:
        """Audit one mechanism at one budget.

        Parameters
        ----------
        mechanism : Mechanism
        budget : Budget, optional
            Replace-one. One without protection claims nothing, whatever the budget, and is played without one.
        """
        delta = self.delta if budget is None else budget.delta
        if mechanism.protection == "none":
            budget = None
        elif budget is not None and budget.adjacency != "replace-one":
            raise InvalidParameter("adjacency", budget.adjacency, "replace-one: a canary is one of two records")
        scene = self.scene or scene_for(
            mechanism,
            mu=None if budget is None else budget.mu,
            gamma=self.gamma,
            games=self.games,
            records=self.records,
            landmarks=self.landmarks,
            seed=self.seed,
        )
        if budget is not None and budget.unit == "client":
            scene = replace(scene, whole=True)
        played = self._play(mechanism, budget, scene)
        result = played.result
        seen: Sequence[Seen] = played.seen
        if mechanism.protection == "home":
            seen = recovered(played.seen, result.ledger, scene.landmarks)
        audited = audit_uploads(
            seen,
            played.model,
            played.coins,
            Claim.of_ledger(result.ledger, delta),
            confidence=self.confidence,
            title=f"{mechanism.name}, with records",
            description=(
                f"every upload and the server's Y; all {'others' if scene.whole else 'records but one of each client'} "
                f"are known. A canary is {'a client of ' if scene.whole else ''}one of {scene.note}."
            ),
            facts={
                "level": "records",
                "mechanism": mechanism.name,
                "trust": mechanism.trust,
                "noise": self.noise,
                "rounds": len(result.trace),
                "clients": self.games,
                "records": 1 + len(scene.rest),
                "landmarks": len(scene.landmarks),
                "seed": self.seed,
            },
        )
        return audited if budget is None else audited.checked(self._checks(played, budget))

    def _play(self, mechanism: Mechanism, budget: Budget | None, scene: Scene) -> RecordRun:
        """Run FedDL with a canary at each client."""
        tossed = np.random.default_rng([self.seed, _COINS]).random(self.games) < 0.5
        fed = FederatedData([scene.client(game, inside=bool(coin)) for game, coin in enumerate(tossed)])
        watcher, kept = Watcher(), KeepLandmarks()
        config = FedDL(
            landmarks=len(scene.landmarks),
            mechanism=mechanism,
            budget=budget,
            rounds=self.rounds,
            local_steps=self.local_steps,
            gamma=scene.kernel,
            start=scene.landmarks,
            tau_x=self._norm(mechanism, scene),
            projection=Still(scene.landmarks),
            noise=self.noise,
            seed=self.seed,
        )
        link = simulated(fed, budget=budget, noise=self.noise)
        result, session = config.learn(link, callbacks=[kept, self._show(mechanism)], witness=watcher)
        at_home = mechanism.protection == "home"
        homes = tuple(site.perturbed(session.label) for site in link.members) if at_home else ()
        model = Model(mechanism, scene, result, {0: result.start, **kept.kept})
        coins = {client.name: bool(coin) for client, coin in zip(fed.clients, tossed, strict=True)}
        return RecordRun(watcher.seen, model, coins, result, scene, homes)

    def _checks(self, played: RecordRun, budget: Budget) -> list[Checked]:
        """Check noise and ledger, and compare with two short runs: of another seed, and of the system's noise."""
        mechanism, result = played.model.mechanism, played.result
        short = replace(self, games=min(self.games, _TWINS), progress=None)
        others = {
            "runs of two seeds": replace(short, seed=self.seed + 1, noise="seeded"),
            "a run and one of the system's noise": replace(short, noise="discrete"),
        }
        noises = played.noises
        compared = [
            compare(noises, each._play(mechanism, budget, played.scene).noises, said) for said, each in others.items()
        ]
        rounds = {mechanism.what: len(result.trace)}
        return [
            *check_ledger(played.seen, result.ledger, budget, budget.delta, rounds),
            *played.stated(budget),
            *played.moved(self.seed),
            *check_noise(noises),
            *compared,
        ]

    def _norm(self, mechanism: Mechanism, scene: Scene) -> float | None:
        """Return a public norm for the grid of the records, where one is needed: it saves the release of one."""
        if not (mechanism.protection == "upload" and (mechanism.needs_norm or self.local_steps > 1)):
            return None
        points = np.concatenate([scene.inside, scene.outside, scene.rest, scene.landmarks])
        return 2 * float(np.linalg.norm(points, axis=1).max())

    def _show(self, mechanism: Mechanism) -> _Progress:
        return _Progress(self.progress, mechanism.uploads(self.rounds))


@dataclass(frozen=True)
class _Progress:
    """Callback of FedDL that reports progress."""

    progress: Progress | None
    rounds: int

    def __call__(self, done: Round, Y: Array) -> None:
        if self.progress is not None:
            self.progress(done.number, self.rounds)


@dataclass(frozen=True, eq=False)
class RecordRun:
    """One run, with everything that its server sees.

    Parameters
    ----------
    seen : list of Watched
    model : Model
    coins : dict of str to bool
    result : FedDLResult
    scene : Scene
    homes : tuple of Upload
        Records as they were perturbed at home, if they were.
    """

    seen: list[Watched]
    model: Model
    coins: dict[str, bool]
    result: FedDLResult
    scene: Scene
    homes: tuple[Upload, ...] = ()

    @property
    def noises(self) -> list[Residual]:
        """The noise of every protected upload, or of the canary at home."""
        seen = self.seen
        if self.model.mechanism.protection == "home":
            seen = [Watched((home.event,), home.values[0]) for home in self.homes]
        found = [residual(each, self.model, self.coins, self._unit(each)) for each in seen]
        return [each for each in found if each is not None]

    def stated(self, budget: Budget) -> list[Checked]:
        """Check the sensitivities that the ledger states."""
        mechanism, public = self.model.mechanism, self.result.public
        plans = {plan.name: plan for plan in self.result.plans}
        whole = budget.unit == "client" and mechanism.additive(public)
        found = []
        for event in self._first:
            plan = plans[event.client]
            records = 1.0 if budget.unit == "client" else plan.denominator
            weight = plan.weight if mechanism.trust != "local" else 1.0
            rounded = math.prod(mechanism.shape(public)) if whole else None
            found.append(check_sensitivity(event, mechanism, public, records, weight, rounded))
        return found

    def moved(self, seed: int) -> list[Checked]:
        """Check how far any record moves the first upload of the first client."""
        scene, mechanism = self.scene, self.model.mechanism
        points = np.concatenate([scene.inside[:1], scene.outside[:1], scene.landmarks[:1]])
        others = [scene.rest.astype(np.float32)]
        if scene.whole or not self._first:
            return []  # the canaries are whole clients
        event, relative = self._first[0], mechanism.relative_noise(self.result.public)
        probes = probing_records(points, seed)
        return [check_moves(lambda records: self.model.total(event, records), probes, others, event, relative)]

    @property
    def _first(self) -> list[GaussianRelease]:
        """The first protected release of each client."""
        known: dict[str, GaussianRelease] = {}
        for event in self.result.ledger.events():
            if isinstance(event, GaussianRelease) and event.what in (self.model.mechanism.what, HOME):
                known.setdefault(event.client, event)
        return list(known.values())

    def _unit(self, upload: Watched) -> str | None:
        return None if len(upload.events) == 1 else "sum"


class Model:
    """The adversary's model of FedDL's uploads: what a client computes from its records, with either canary.

    Parameters
    ----------
    mechanism : Mechanism
    scene : Scene
    result : FedDLResult
        Of which the public parts are used: setting, weights and names.
    trajectory : mapping of int to array of shape (n_y, m)
        Y after each round; 0 is the start.
    """

    def __init__(
        self, mechanism: Mechanism, scene: Scene, result: FedDLResult, trajectory: Mapping[int, Array]
    ) -> None:
        self.mechanism, self._scene, self._setting = mechanism, scene, result.public
        self._exact, self._beta = _without_noise(mechanism)
        self._trajectory = trajectory
        self._plans = {plan.name: plan for plan in result.plans}
        budget = result.contract.budget
        self._whole = budget is not None and budget.unit == "client"
        self._known: dict[tuple[int, int | None], Prediction] = {}

    def __call__(self, event: Event) -> Prediction | None:
        """Return what the client would have uploaded, or what stands at home if that was recovered."""
        game = self._plans[event.client].index % len(self._scene.inside)
        key = (game, event.round)
        if key not in self._known:
            inside, outside = (self._one(event, game, inside=side) for side in (True, False))
            relative = self.mechanism.relative_noise(self._setting)
            self._known[key] = Prediction(inside, outside, self._scale(inside), self._scale(outside), relative)
        return self._known[key]

    def _one(self, event: Event, game: int, *, inside: bool) -> Array:
        records = self._scene.client(game, inside=inside).astype(np.float32)
        if isinstance(event, GaussianRelease):
            return in_units(self.total(event, records), event)
        Y, plan = self._trajectory[(event.round or 1) - 1], self._plans[event.client]
        local = PreparedRecords(self.mechanism.prepare(records), plan.denominator)
        # The exact parts draw nothing; a batch of all records is the same in any order.
        values = self._exact.message(local, Y, self._setting, np.random.default_rng(0)).values
        return values if event.trust == "local" else plan.weight * values

    def total(self, event: Event, records: Array) -> Integers:
        """Return the integers that a client with these records would get its noise on; of the canary alone at home."""
        if event.what == HOME:
            canary: Integers = self.mechanism.at_home(records, self._setting)[0]
            return canary
        plan = self._plans[event.client]
        Y = self._trajectory[(event.round or 1) - 1]
        denominator = float(len(records)) if self._whole else plan.denominator
        return exact_total(self.mechanism, self._setting, PreparedRecords(records, denominator), Y, plan)

    def _scale(self, values: Array) -> float:
        return self._beta * float(np.std(values, dtype=np.float64))


def recovered(seen: Sequence[Watched], ledger: Ledger, landmarks: Array) -> list[Watched]:
    """Return the perturbed record behind each client's first upload, under the event of its perturbation.

    Later uploads of the same perturbed record tell nothing new.
    """
    home = {event.client: event for event in ledger.events(what=HOME)}
    first = [each for each in seen if isinstance(each.events[0], PostProcessing) and each.events[0].round == 1]
    found = [(home[each.events[0].client], invert(each.values, landmarks)) for each in first]
    return [Watched((event,), record / _grid(event)) for event, record in found]


def invert(gradient: Array, landmarks: Array) -> Array:
    """Recover a single record x̃, shape (m,), from its exact gradient at landmarks that are not all on one line with it.

    Row i of the gradient is parallel to x̃ − y_i. The point nearest to all lines y_i + ℝu_i solves
    Σ_i (I − u_i u_iᵀ)(x − y_i) = 0.
    """
    rows = np.asarray(gradient, dtype=np.float64)
    directions = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    across = np.eye(rows.shape[1]) - directions[:, :, None] * directions[:, None, :]
    point: Array = np.linalg.solve(across.sum(axis=0), np.einsum("ijk,ik->j", across, landmarks))
    return point


def _grid(event: Event) -> float:
    assert isinstance(event, GaussianRelease)
    return event.grid or 1.0


def _without_noise(mechanism: Mechanism) -> tuple[Mechanism, float]:
    """Return what computes the exact upload, and β of the noise that the mechanism adds by itself."""
    if isinstance(mechanism, HeuristicNoise):
        return NoPerturbation(), mechanism.beta
    if isinstance(mechanism, PublishedFedDL):
        return replace(mechanism, beta=0.0), mechanism.beta
    return mechanism, 0.0
