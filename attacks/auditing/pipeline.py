"""The audit of the end-to-end private map as one mechanism: every stage of one run, against one adversary.

Every client hosts one game: its canary is one of two records, by the toss of its coin. The adversary sees what passed
the door in all stages (scale histogram, moments, second moments, landmarks, density) and everything that the server
publishes, computes what the client would have uploaded in either case, and adds up the likelihood ratios. The claim is
what the ledger says of all stages together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from accounting import Budget, checks
from accounting.errors import InvalidParameter
from attacks.auditing.claims import Claim
from attacks.auditing.pipeline_model import PipelineModel, noise_seen, orthogonal_pairs, restated, stages
from attacks.auditing.result import AuditResult
from attacks.auditing.uploads import Watched, Watcher, audit_uploads
from dpfedvis import FedTSNE
from dpfedvis.billboard import ByWeights, Learner
from dpfedvis.callbacks import KeepLandmarks
from dpfedvis.data import FederatedData
from dpfedvis.mechanisms import Mechanism
from dpfedvis.reporting.audited import Audited
from dpfedvis.reporting.statement import Statement

_COINS = 0x50495045  # keeps the coins apart from every noise stream of the same seed
_AT_LEAST = 20
_ANCHORS = 40
_BRIEF = {"early_exaggeration_iter": 20, "n_iter": 40}  # the map itself is not looked at, and a rough one will do
_PLACEMENT = ByWeights()


@dataclass(frozen=True, kw_only=True)
class PipelineAudit:
    """Settings of the audit; `run` runs it, and `play` leaves the run to be looked at.

    Parameters
    ----------
    games : int
        Clients, each with one canary.
    rounds : int
        S, for mechanisms that take rounds.
    records : int
        n_p, even, so that every record has a partner in the scale histogram.
    features : int
        m, a power of two; see `orthogonal_pairs`.
    noise : {"seeded", "system", "discrete"}
    seed : int
    confidence : float
        Of each bound.
    """

    games: int = 400
    rounds: int = 4
    records: int = 4
    features: int = 4
    noise: Literal["seeded", "system", "discrete"] = "seeded"
    seed: int = 0
    confidence: float = 0.95

    def __post_init__(self) -> None:
        checks.at_least("games", self.games, _AT_LEAST)
        checks.count("rounds", self.rounds)
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
        """Fit one private map of many clients, with everything that its server sees.

        Parameters
        ----------
        mechanism : Mechanism
            For the landmarks; protects uploads, with trust ``local``.
        budget : Budget
            End to end, replace-one, per record.
        """
        if budget is None:
            raise InvalidParameter("budget", None, "given for the audit of a whole map")
        if (budget.adjacency, budget.unit) != ("replace-one", "record"):
            raise InvalidParameter(
                "adjacency and unit", (budget.adjacency, budget.unit), "replace-one, record: a canary is a record"
            )
        if mechanism.protection != "upload" or mechanism.trust != "local":
            raise InvalidParameter(
                "mechanism", f"{mechanism.name} ({mechanism.trust})", "one that protects uploads, with trust local"
            )
        pairs = orthogonal_pairs(self.games, self.features, self.records, self.seed)
        tossed = np.random.default_rng([self.seed, _COINS]).random(self.games) < 0.5
        fed = FederatedData([pairs.client(game, inside=bool(coin)) for game, coin in enumerate(tossed)])
        watcher, kept = Watcher(), KeepLandmarks()
        estimator = FedTSNE(
            budget=budget,
            mechanism=mechanism,
            release="none",
            rounds=self.rounds,
            random_state=self.seed,
            n_jobs=1,
            feddl={"noise": self.noise},
            billboard={"anchors": _ANCHORS, "placement": _PLACEMENT, "density": True},
            tsne=_BRIEF,
        )
        estimator.watch(witness=watcher, callbacks=[kept]).fit(fed)
        setting = Learner(budget=budget, mechanism=mechanism, seed=self.seed).setting(self.features)
        names = [client.name for client in fed.clients]
        return Played(
            self,
            watcher.seen,
            PipelineModel(pairs, names, stages(estimator, mechanism, watcher.seen, setting, kept.kept, _PLACEMENT)),
            dict(zip(names, map(bool, tossed), strict=True)),
            estimator,
            mechanism,
            budget.delta,
        )


@dataclass(frozen=True, eq=False)
class Played:
    """A run that was watched, with the adversary's model of it.

    Parameters
    ----------
    level : PipelineAudit
    seen : list of Watched
    model : PipelineModel
    coins : dict of str to bool
    estimator : FedTSNE
        Fitted.
    mechanism : Mechanism
    delta : float
    """

    level: PipelineAudit
    seen: list[Watched]
    model: PipelineModel
    coins: dict[str, bool]
    estimator: FedTSNE
    mechanism: Mechanism
    delta: float

    @property
    def statement(self) -> Statement:
        """What may be said of the run that was watched."""
        return self.estimator.statement_

    def audit(self, claim: Claim | None = None) -> AuditResult:
        """Hold what was seen against a claim, by default the ledger's."""
        noise = noise_seen(self.seen, self.model)
        return audit_uploads(
            [restated(each, noise) for each in self.seen],
            self.model,
            self.coins,
            claim or Claim.of_ledger(self.estimator.ledger_, self.delta),
            confidence=self.level.confidence,
            title=f"end-to-end map with {self.mechanism.name}",
            description=(
                f"every upload of every stage ({', '.join(self.model.stages)}) and all that the server publishes; all "
                "records but one of each client are known. A canary is one of two far, orthogonal records. Uploads are "
                "weighed by the noise that is seen in them, and so is the reach. Clients meet only in what the server "
                "publishes, to which each adds one part in as many as there are."
            ),
            facts={
                "level": "pipeline",
                "mechanism": self.mechanism.name,
                "trust": self.mechanism.trust,
                "noise": self.level.noise,
                "stages": list(self.model.stages),
                "placement": "weights",
                "rounds": self.level.rounds,
                "clients": self.level.games,
                "records": self.level.records,
                "features": self.level.features,
                "landmarks": len(self.estimator.landmarks_),
                "seed": self.level.seed,
                "noise_seen": {f"{what}, round {number}": share for (what, number), share in noise.items()},
            },
        )


def for_statement(result: AuditResult, command: str) -> Audited:
    """Return the result as a statement carries it; `command` is what made it."""
    return Audited(
        verdict=result.verdict,
        claimed_epsilon=result.claim.epsilon,
        delta=result.claim.delta,
        lower_bounds={each.method: each.epsilon for each in result.bounds},
        confidence=result.bounds[0].confidence,
        games=result.counts.games,
        stages=tuple(result.facts["stages"]),
        placement=result.facts["placement"],
        command=command,
    )
