"""The audit with records: whole runs of FedDL against an adversary who knows all records but one of each client.

Every client hosts one game. Its canary is one of two records, by the toss of its coin; the adversary sees the uploads
and the server's Y, computes what the client would have uploaded in either case, and takes the likelihood
ratio. Clients hold disjoint records, so that one run of P clients is P games. This audits sensitivity, clipping, noise,
composition and ledger together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from accounting import Budget, Event, Ledger, PostProcessing, checks
from accounting.errors import InvalidParameter
from attacks.auditing.bounds import Claim
from attacks.auditing.canaries import Scene, scene_for
from attacks.auditing.evidence import Prediction, Seen, Watched, Watcher
from attacks.auditing.games import audit_uploads
from attacks.auditing.noise import Progress
from attacks.auditing.result import AuditResult
from dpfedvis.data import FederatedData
from dpfedvis.federation.callbacks import KeepLandmarks
from dpfedvis.federation.feddl import FedDL, FedDLResult
from dpfedvis.federation.noise_plan import HOME
from dpfedvis.federation.round_log import Round
from dpfedvis.mechanisms import HeuristicNoise, Mechanism, NoPerturbation, PreparedRecords, PublishedFedDL
from dpfedvis.numerics.kernels import Array

_COINS = 0x52454331  # keeps the coins apart from every noise stream of the same seed
_AT_LEAST = 20


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
    noise : {"seeded", "system", "discrete"}
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
    noise: Literal["seeded", "system", "discrete"] = "seeded"
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
            projection=Still(scene.landmarks),
            noise=self.noise,
            seed=self.seed,
        )
        result = config.run(fed, callbacks=[kept, self._show(mechanism)], witness=watcher)
        seen: Sequence[Seen] = watcher.seen
        if mechanism.protection == "home":
            seen = recovered(watcher.seen, result.ledger, scene.landmarks)
        predict = Model(mechanism, scene, result, {0: result.start, **kept.kept})
        return audit_uploads(
            seen,
            predict,
            {client.name: bool(coin) for client, coin in zip(fed.clients, tossed, strict=True)},
            Claim.of_ledger(result.ledger, delta),
            confidence=self.confidence,
            title=f"{mechanism.name}, with records",
            description=(
                "every upload and the server's Y; all records but one of each client are known. "
                f"A canary is one of {scene.note}."
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
        self._mechanism, self._scene, self._setting = mechanism, scene, result.public
        self._exact, self._beta = _without_noise(mechanism)
        self._trajectory = trajectory
        self._plans = {client.plan.name: client.plan for client in result.clients}
        self._known: dict[tuple[int, int | None], Prediction] = {}

    def __call__(self, event: Event) -> Prediction | None:
        """Return what the client would have uploaded, or what stands at home if that was recovered."""
        game = self._plans[event.client].index % len(self._scene.inside)
        key = (game, event.round)
        if key not in self._known:
            inside, outside = (self._one(event, game, inside=side) for side in (True, False))
            self._known[key] = Prediction(inside, outside, self._scale(inside), self._scale(outside))
        return self._known[key]

    def _one(self, event: Event, game: int, *, inside: bool) -> Array:
        records = self._mechanism.prepare(self._scene.client(game, inside=inside).astype(np.float32))
        if event.what == HOME:
            canary: Array = records[0]
            return canary
        plan = self._plans[event.client]
        Y = self._trajectory[(event.round or 1) - 1]
        local = PreparedRecords.of(records, plan.denominator)
        # The exact parts draw nothing; a batch of all records is the same in any order.
        values = self._exact.message(local, Y, self._setting, np.random.default_rng(0)).values
        return values if event.trust == "local" else plan.weight * values

    def _scale(self, values: Array) -> float:
        return self._beta * float(np.std(values, dtype=np.float64))


def recovered(seen: Sequence[Watched], ledger: Ledger, landmarks: Array) -> list[Watched]:
    """Return the perturbed record behind each client's first upload, under the event of its perturbation.

    Later uploads of the same perturbed record tell nothing new.
    """
    home = {event.client: event for event in ledger.events(what=HOME)}
    first = [each for each in seen if isinstance(each.events[0], PostProcessing) and each.events[0].round == 1]
    return [Watched((home[each.events[0].client],), invert(each.values, landmarks)) for each in first]


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


def _without_noise(mechanism: Mechanism) -> tuple[Mechanism, float]:
    """Return what computes the exact upload, and β of the noise that the mechanism adds by itself."""
    if isinstance(mechanism, HeuristicNoise):
        return NoPerturbation(), mechanism.beta
    if isinstance(mechanism, PublishedFedDL):
        return replace(mechanism, beta=0.0), mechanism.beta
    return mechanism, 0.0
