"""Watched runs of the end-to-end map, and what an adversary makes of them: an audit, and a membership attack."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from accounting import GaussianRelease
from accounting.audit_summary import Audited, Rate
from accounting.errors import InvalidParameter
from accounting.statement import Statement
from attacks.auditing.bounds import Claim
from attacks.auditing.evidence import Evidence, Watched, weigh
from attacks.auditing.findings import Checked
from attacks.auditing.games import audit_evidence
from attacks.auditing.ledger_checks import check_ledger
from attacks.auditing.noise_checks import check_noise, compare
from attacks.auditing.pipeline_model import PipelineModel, noise_seen, restated
from attacks.auditing.probes import check_moves, probing_records
from attacks.auditing.references import check_sensitivity
from attacks.auditing.residuals import Residual, residual
from attacks.auditing.result import AuditResult
from attacks.membership.rates import Game, StrongGames, judge
from attacks.shared.statistics import Interval, Limit
from dpfedvis import FedTSNE

_ROUNDING = 1e-12  # of the norm of an exact difference
WHOLE = Game(
    "every upload of every stage, all other records known",
    "the record x, at the client of its game",
    "another record x′ in its place",
    "x, x′, all other records, all uploads as the server sees them, all that it publishes, and the noise's law",
    independent=True,
)


@dataclass(frozen=True, eq=False)
class WatchedRun:
    """One run, with everything that its server sees.

    Parameters
    ----------
    seen : list of Watched
    model : PipelineModel
    coins : dict of str to bool
        Of the clients that host a game.
    estimator : FedTSNE
        Fitted.
    """

    seen: list[Watched]
    model: PipelineModel
    coins: dict[str, bool]
    estimator: FedTSNE

    @property
    def landmark_stage(self) -> str:
        """Name of the uploads that come in rounds."""
        return next(what for what, stage in self.model.stages.items() if max(stage.sent) > 0)

    def noises(self, name: str) -> list[Residual]:
        """The noise of every upload; that of a sum belongs to the run of this name."""
        found = [residual(each, self.model, self.coins, name if len(each.events) > 1 else None) for each in self.seen]
        return [each for each in found if each is not None]

    def stated(self) -> list[Checked]:
        """Check the sensitivities that the ledger states, of the first client."""
        weight = 1.0 if len(self._first[0].events) == 1 else 1 / len(self._first[0].events)
        found = []
        for upload in self._first:
            (event, *_), stage = upload.events, self.model.stages[upload.events[0].what]
            assert isinstance(event, GaussianRelease)
            found.append(check_sensitivity(event, stage.mechanism, stage.public, self.model.pairs.records, weight))
        return found

    def moved(self, seed: int) -> list[Checked]:
        """Check how far any record moves the first upload of each stage, by the first client."""
        pairs, found = self.model.pairs, []
        probes = probing_records(np.stack([pairs.inside[0], pairs.outside[0], pairs.rest[0]]), seed)
        mixed = np.random.default_rng(seed).permutation(probes)[: pairs.records - 1]
        company = [pairs.client(0, inside=True)[1:], mixed]
        for upload in self._first:
            event, stage = upload.events[0], self.model.stages[upload.events[0].what]
            assert isinstance(event, GaussianRelease)
            relative, total = stage.mechanism.relative_noise(stage.public), partial(stage.total, round=event.round or 0)
            found.append(check_moves(total, probes, company, event, relative))
        return found

    @property
    def _first(self) -> list[Watched]:
        """The first upload of each stage."""
        known: dict[str, Watched] = {}
        for each in self.seen:
            known.setdefault(each.events[0].what, each)
        return list(known.values())


@dataclass(frozen=True, eq=False)
class Played:
    """All games, in one run or in as many as there are games.

    Parameters
    ----------
    runs : tuple of WatchedRun
        With the same settings, and noise of their own.
    delta : float
        At which ε is claimed.
    confidence : float
        Of each bound.
    facts : dict
        Settings, ready for JSON.
    others : mapping of str to WatchedRun
        Short runs whose noise must have nothing in common with that of the first, and what the two are.
    """

    runs: tuple[WatchedRun, ...]
    delta: float
    confidence: float
    facts: dict[str, Any]
    others: Mapping[str, WatchedRun] = field(default_factory=dict)

    @property
    def estimator(self) -> FedTSNE:
        """The first run's: all have the same plan, and claim the same."""
        return self.runs[0].estimator

    @property
    def statement(self) -> Statement:
        """The privacy statement of the first run."""
        return self.estimator.statement_

    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the uploads of each stage."""
        return tuple(self.runs[0].model.stages)

    @cached_property
    def noise(self) -> dict[tuple[str, int], float]:
        """The noise that was seen, over what was stated; see `noise_seen`."""
        return noise_seen((run.seen, run.model) for run in self.runs)

    @cached_property
    def coins(self) -> dict[str, bool]:
        """All coins, by a name for each game."""
        return {_game(number, host): coin for number, run in enumerate(self.runs) for host, coin in run.coins.items()}

    @cached_property
    def evidence(self) -> Evidence:
        """What the uploads say about each coin, by the noise that was seen in them."""
        ratios: dict[str, float] = {}
        distance: dict[str, float] = {}
        for number, run in enumerate(self.runs):
            found = weigh([restated(each, self.noise) for each in run.seen], run.model)
            ratios |= {_game(number, host): found.ratios[host] for host in run.coins}
            distance |= {_game(number, host): found.distance[host] for host in run.coins}
        return Evidence(ratios, distance)

    @cached_property
    def moved(self) -> dict[str, tuple[float, float]]:
        """How far the two sides of a coin are apart in each stage, over the stated sensitivity: mean and largest."""
        apart: defaultdict[str, list[float]] = defaultdict(list)
        for run in self.runs:
            for event in (event for each in run.seen for event in each.events if event.client in run.coins):
                assert isinstance(event, GaussianRelease)
                apart[event.what].append(float(np.linalg.norm(run.model(event).whitened)) / event.sensitivity)
        return {what: (float(np.mean(shares)), max(shares)) for what, shares in apart.items()}

    @property
    def proof(self) -> str:
        """Name the stages that one record moves further than their stated sensitivity, which no chance explains."""
        wrong = {what: most for what, (_, most) in self.moved.items() if most > 1 + _ROUNDING}
        told = " and ".join(f"{what} by {most:.3g} times" for what, most in wrong.items())
        return f"One record moves {told} the stated sensitivity: the code does not keep the claim." if wrong else ""

    def audit(self, claim: Claim | None = None) -> AuditResult:
        """Compare what was seen with a claim, by default the ledger's."""
        noise = {f"{what}, round {number}": share for (what, number), share in self.noise.items()}
        moved = {what: mean for what, (mean, _) in self.moved.items()}
        result = audit_evidence(
            self.evidence,
            self.coins,
            claim or Claim.of_ledger(self.estimator.ledger_, self.delta),
            confidence=self.confidence,
            title=f"end-to-end map with {self.facts['mechanism']}",
            description=(
                f"every upload of every stage ({', '.join(self.stages)}) as the server sees it, and all that it "
                "publishes; all other records are known. A canary is one of two far, orthogonal records. Uploads are "
                f"weighed by the noise that is seen in them, and so is the reach. {self._independence}"
            ),
            facts={**self.facts, "stages": list(self.stages), "moved": moved, "noise_seen": noise},
        )
        return replace(result, proof=self.proof).checked(self._checks())

    def _checks(self) -> list[Checked]:
        """Check noise and ledger of all stages; stated sensitivities and probes in the first run."""
        first = self.runs[0]
        noises = [each.noises(f"run {number}") for number, each in enumerate(self.runs)]
        budget, rounds = self.estimator.budget, {first.landmark_stage: self.facts["rounds"]}
        assert budget is not None
        return [
            *(
                found
                for each in self.runs
                for found in check_ledger(each.seen, each.estimator.ledger_, budget, self.delta, rounds)
            ),
            *first.stated(),
            *first.moved(self.facts["seed"]),
            *check_noise([each for own in noises for each in own]),
            *(compare(noises[0], other.noises("run 0"), said) for said, other in self.others.items()),
        ]

    @property
    def _independence(self) -> str:
        if len(self.runs) > 1:
            return "Every game is a run of its own: the server sees sums over clients, of which one hosts the canary."
        return "Clients meet only in what the server publishes, to which each adds one part in as many as there are."

    def membership(self) -> StrongGames:
        """Attack membership with the same games: rates, beside the most that the ledger allows.

        With the distance d of the two hypotheses in units of the noise that was seen, a log-likelihood ratio is
        N(±d²/2, d²), so that ratio/d + d/2 is N(0, 1) out and N(d, 1) in.

        Games of one run meet in what the server publishes. The test by right guesses holds all the same: given all that
        was seen, the coins are independent, and game i is guessed right with probability q_i, the larger of the two
        posteriors. Whatever the other games show, the guarantee leaves q_i a mean of at most Φ(μ/2), and the
        probability of at least k right guesses is multilinear in the q_i and grows with each, so that it is at most
        that of a binomial. Intervals of AUC and TPR take the games for independent.
        """
        ratios, distances = (
            np.array([values[game] for game in self.coins]) for values in (self.evidence.ratios, self.evidence.distance)
        )
        if not distances.all():
            raise InvalidParameter("canaries", "a pair that uploads the same", "records that can be told apart")
        limit = Limit.of_ledger(self.estimator.ledger_, self.delta, rows=True)
        tossed = np.array(list(self.coins.values()), dtype=bool)
        return judge(ratios / distances + distances / 2, tossed, distances, limit, WHOLE)


def for_statement(result: AuditResult, games: StrongGames, command: str) -> Audited:
    """Return both results for a statement; `command` reproduces them."""
    return Audited(
        verdict=result.verdict,
        claimed_epsilon=result.claim.epsilon,
        delta=result.claim.delta,
        lower_bounds={each.method: each.epsilon for each in result.bounds},
        confidence=result.bounds[0].confidence,
        games=result.counts.games,
        sentence=result.sentence,
        moved=result.facts["moved"],
        trust=result.facts["trust"],
        noise=result.facts["noise"],
        membership=_rates(games),
        excess=games.excess,
        command=command,
    )


def _rates(games: StrongGames) -> tuple[Rate, ...]:
    outcome, limit = games.outcome, games.outcome.limit
    found: list[tuple[str, Interval, float, float | None]] = [
        ("right guesses", games.accuracy, games.allowed, None),
        ("AUC", outcome.auc, limit.auc(), None),
    ]
    for point in outcome.points:
        if point.fpr is not None and point.tpr is not None:
            name = f"TPR at FPR {point.target:.1%} (counted {point.fpr.value:.1%})"
            found.append((name, point.tpr, point.allowed, point.fpr.value))
    return tuple(Rate(name, each.value, each.low, each.high, allowed, at) for name, each, allowed, at in found)


def _game(number: int, host: str) -> str:
    return f"run {number}, {host}"
