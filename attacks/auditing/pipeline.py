"""The audit of the end-to-end private map as one mechanism: every stage, against one adversary.

A game is a canary at one client: one of two records, by the toss of a coin. The adversary sees the uploads of
all stages (scale histogram, moments, second moments, landmarks, density) and everything that the server publishes,
computes what would have been uploaded in either case, and adds up the likelihood ratios. The claim is what the ledger
says of all stages together.

With trust ``local`` every client of one run hosts a game. With trust ``aggregate`` the server sees nothing but sums
over clients; then every game is a run of its own, in which one client hosts the canary and the rest is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from accounting import Budget, checks
from accounting.errors import InvalidParameter
from attacks.auditing.evidence import Watcher
from attacks.auditing.noise import Progress
from attacks.auditing.pipeline_games import Played, WatchedRun
from attacks.auditing.pipeline_model import PipelineModel, orthogonal_pairs, stages
from attacks.auditing.residuals import claimed_noise
from attacks.auditing.result import AuditResult
from dpfedvis import FedTSNE
from dpfedvis.data import FederatedData
from dpfedvis.mechanisms import Mechanism
from dpfedvis.server.callbacks import KeepLandmarks
from dpfedvis.server.private_map import Learner
from dpfedvis.site.placement import ByWeights

_RUNS = 0x52554E53  # keeps the seeds of many runs apart from the seed they come from
_COINS = 0x50495045  # keeps the coins apart from every noise stream of the same seed
_AT_LEAST = 20
_TWINS = 20  # clients of short runs to compare with
_ANCHORS = 40
_BRIEF = {"early_exaggeration_iter": 20, "n_iter": 40}  # the map itself is not looked at, and a rough one will do
_PLACEMENT = ByWeights()  # of views, which are not released and not looked at


@dataclass(frozen=True, kw_only=True)
class PipelineAudit:
    """Settings of the audit: `run` audits, `play` returns the runs.

    Parameters
    ----------
    games : int
        One canary each.
    rounds : int
        S, for mechanisms that take rounds.
    records : int
        n_p, even, so that every record has a partner in the scale histogram.
    features : int
        m, a power of two; see `orthogonal_pairs`.
    clients : int
        Of each run, where every game is a run of its own.
    scale, density : bool
        Whether a scale histogram and counts on the grid are released. Without the first a bound on norms is public.
    shares : mapping of str to float, optional
        As in `dpfedvis.server.private_map.Shares`.
    noise : {"seeded", "discrete"}
    seed : int
    confidence : float
        Of each bound.
    progress : callable, optional
        Called with the runs done and their number.
    """

    games: int = 400
    rounds: int = 4
    records: int = 4
    features: int = 4
    clients: int = 20
    scale: bool = True
    density: bool = True
    shares: Mapping[str, float] | None = None
    noise: Literal["seeded", "discrete"] = "seeded"
    seed: int = 0
    confidence: float = 0.95
    progress: Progress | None = None

    def __post_init__(self) -> None:
        checks.at_least("games", self.games, _AT_LEAST)
        checks.count("rounds", self.rounds)
        checks.at_least("clients", self.clients, 2)
        checks.at_least("seed", self.seed, 0)
        checks.probability("confidence", self.confidence)
        if self.records < 2 or self.records % 2:
            raise InvalidParameter("records", self.records, "even, and at least 2")
        if self.features < 2 or self.features & (self.features - 1):
            raise InvalidParameter("features", self.features, "a power of two, and at least 2")

    def run(self, mechanism: Mechanism, budget: Budget | None) -> AuditResult:
        """Audit the map whose landmarks a mechanism learns, at one budget for all stages."""
        return self.play(mechanism, budget).audit()

    def play(self, mechanism: Mechanism, budget: Budget | None) -> Played:
        """Fit private maps of many clients, with everything that their server sees.

        Parameters
        ----------
        mechanism : Mechanism
            For the landmarks; protects uploads, with trust ``local`` or ``aggregate``.
        budget : Budget
            End to end, replace-one, per record.
        """
        if budget is None:
            raise InvalidParameter("budget", None, "given for the audit of a whole map")
        if budget.unit != "record":
            raise InvalidParameter("unit", budget.unit, "record: a canary is a record")
        if budget.adjacency != "replace-one":
            raise InvalidParameter("adjacency", budget.adjacency, "replace-one: a canary is one of two records")
        if mechanism.protection != "upload" or mechanism.trust not in ("local", "aggregate"):
            raise InvalidParameter(
                "mechanism",
                f"{mechanism.name} ({mechanism.trust})",
                "one that protects uploads, with trust local or aggregate",
            )
        runs: tuple[WatchedRun, ...]
        if mechanism.trust == "local":
            runs = (self._watched(mechanism, budget, self.seed, clients=self.games, hosts=self.games),)
        else:
            seeds = np.random.default_rng([self.seed, _RUNS]).integers(2**31, size=self.games)
            runs = tuple(
                self._told(number, self._watched(mechanism, budget, int(seed), clients=self.clients, hosts=1))
                for number, seed in enumerate(seeds, 1)
            )
        facts = {
            "level": "pipeline",
            "mechanism": mechanism.name,
            "trust": mechanism.trust,
            "noise": self.noise,
            "rounds": mechanism.uploads(self.rounds),
            "runs": len(runs),
            "clients": self.games if mechanism.trust == "local" else self.clients,
            "records": self.records,
            "features": self.features,
            "landmarks": len(runs[0].estimator.landmarks_),
            "seed": self.seed,
        }
        return Played(runs, budget.delta, self.confidence, facts, self._others(mechanism, budget))

    def _others(self, mechanism: Mechanism, budget: Budget) -> dict[str, WatchedRun]:
        """Return short runs to compare the first one's noise with: of another seed, and of the system's noise."""
        seeds = np.random.default_rng([self.seed, _RUNS]).integers(2**31, size=2)
        local = mechanism.trust == "local"
        number = min(self.games, _TWINS) if local else self.clients
        few = {"clients": number, "hosts": number if local else 1}
        same, other = (self.seed, self.seed + 1) if local else seeds.tolist()
        return {
            "runs of two seeds": replace(self, noise="seeded")._watched(mechanism, budget, other, **few),
            "a run and one of the system's noise": replace(self, noise="discrete")._watched(
                mechanism, budget, same, **few
            ),
        }

    def _watched(self, mechanism: Mechanism, budget: Budget, seed: int, *, clients: int, hosts: int) -> WatchedRun:
        """Fit one map; the first `hosts` clients host a game, and of the others the adversary knows the coin."""
        pairs = orthogonal_pairs(clients, self.features, self.records, seed)
        tossed = np.random.default_rng([seed, _COINS]).random(clients) < 0.5
        fed = FederatedData([pairs.client(place, inside=bool(coin)) for place, coin in enumerate(tossed)])
        watcher, kept = Watcher(), KeepLandmarks()
        estimator = FedTSNE(
            budget=budget,
            mechanism=mechanism,
            release="none",
            rounds=self.rounds,
            # Beyond the records, as close as a public bound would be.
            tau_x=None if self.scale else 2 * math.sqrt(self.features),
            random_state=seed,
            n_jobs=1,
            noise=self.noise,
            **claimed_noise(mechanism.trust, clients),
            private_map={
                "anchors": _ANCHORS,
                "placement": _PLACEMENT,
                "density": self.density,
                "shares": dict(self.shares or {}),
            },
            tsne=_BRIEF,
        )
        estimator.watch(witness=watcher, callbacks=[kept], warns=False).fit(fed)
        public = Learner(budget=budget, mechanism=mechanism, seed=seed).public_for(self.features)
        coins = {client.name: bool(coin) for client, coin in zip(fed.clients, tossed, strict=True)}
        names = list(coins)
        model = PipelineModel(
            pairs,
            names,
            stages(estimator, mechanism, watcher.seen, public, kept.kept),
            known={name: coins[name] for name in names[hosts:]},
        )
        return WatchedRun(watcher.seen, model, {name: coins[name] for name in names[:hosts]}, estimator)

    def _told(self, number: int, run: WatchedRun) -> WatchedRun:
        if self.progress is not None:
            self.progress(number, self.games)
        return run
