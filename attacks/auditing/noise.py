"""The noise-and-accounting audit: canaries of exactly the stated sensitivity in the mechanism's own noise path.

Contract, plan, sites, noise streams and ledgers are those of a run. Only what a site computes is
replaced: record i adds ±Δ/2 to a coordinate of its own, by the toss of its coin, so that exchanging it for its
opposite moves the upload by the stated Δ. One run hosts thousands of such games, as their coordinates are orthogonal.
It finds too little noise, reused noise and releases that were not counted. It does not check the stated sensitivity:
the audit with records does (`attacks.auditing.records`).

The sign of every canary alternates from round to round. Noise that repeats itself then cancels while the canary adds
up; with a constant sign both would add up, and the fault would go unseen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from accounting import Budget, Event, GaussianRelease, Ledger, checks
from accounting.errors import InvalidParameter
from attacks.auditing.bounds import Claim
from attacks.auditing.evidence import Prediction, Watched
from attacks.auditing.games import audit_games, scores_of
from attacks.auditing.ledger_checks import check_ledger
from attacks.auditing.noise_checks import check_noise
from attacks.auditing.predictions import exact_total
from attacks.auditing.residuals import claimed_noise, residual
from attacks.auditing.result import AuditResult
from dpfedvis.data import FederatedData
from dpfedvis.estimators.simulation import simulated
from dpfedvis.mechanisms import Mechanism, Message, PreparedRecords, Update
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.exact import Grid, Integers
from dpfedvis.numerics.kernels import Array, Kernel
from dpfedvis.numerics.optimisers import Optimiser
from dpfedvis.protocol.contract import Contract, Member
from dpfedvis.protocol.noise_plan import HOME, drawn_by
from dpfedvis.protocol.uploads import Values, in_units
from dpfedvis.server.mirror import Mirror
from dpfedvis.server.session import Session

Progress = Callable[[int, int], None]
Places = NDArray[np.int64]

_COINS = 0x434F494E  # keeps the coins apart from every noise stream of the same seed
_CELLS = 2.0**21  # of the stated sensitivity
_MOST_KEPT = 2**22  # values of uploads whose noise is looked at
_AT_LEAST = 20  # games, so that both sides of the coin come up


class CanaryUpload:
    """A mechanism in all but its total: a record (s, i, 0, …), s = ±1, adds sΔ/2 to coordinate i of the upload.

    Replacing it by its opposite moves that one coordinate by Δ, so that the inner mechanism's sensitivity is exact
    here. Of the server's Y only the sign is used, which is that of the round.

    Parameters
    ----------
    inner : Mechanism
        Whose sensitivity, protection, trust and shape these are.
    """

    needs_norm = False

    def __init__(self, inner: Mechanism) -> None:
        self.inner = inner
        self.name, self.what, self.stage, self.why = inner.name, inner.what, inner.stage, inner.why
        self.trust, self.protection, self.projection = inner.trust, inner.protection, inner.projection
        self.local_steps = inner.local_steps

    def uploads(self, rounds: int) -> int:
        """As the inner mechanism."""
        return self.inner.uploads(rounds)

    def shape(self, public: PublicParameters) -> tuple[int, ...]:
        """As the inner mechanism."""
        return self.inner.shape(public)

    def sensitivity(self, public: PublicParameters, records: float) -> float | None:
        """As the inner mechanism states it."""
        return self.inner.sensitivity(public, records)

    def records(self, signs: Array, coordinates: Places, public: PublicParameters) -> Array:
        """Return the records of one client, shape (canaries, m)."""
        records = np.zeros((len(signs), public.features), dtype=np.float32)
        records[:, 0], records[:, 1] = signs, coordinates
        return records

    def prepare(self, records: Array) -> Array:
        """Leave the records as they are: they are signs and places."""
        return records

    def at_home(self, records: Array, public: PublicParameters) -> Integers:
        """As the inner mechanism."""
        return self.inner.at_home(records, public)

    def grid(self, public: PublicParameters, Y: Array) -> Grid:
        """As the inner mechanism; a total does not use it."""
        return self.inner.grid(public, Y) if self.protection == "home" else Grid(1.0, 1)

    def cell(self, public: PublicParameters, grid: Grid) -> float:
        """A part of the stated sensitivity of a client with one record."""
        return (self.sensitivity(public, 1.0) or 0.0) / _CELLS

    def additive(self, public: PublicParameters) -> bool:
        """As the inner mechanism."""
        return self.inner.additive(public)

    def rounded(self, public: PublicParameters) -> int:
        """None: each canary is rounded down."""
        return 0

    def relative_noise(self, public: PublicParameters) -> None:
        """The same for all values: canaries are alike."""

    def total(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, grid: Grid, factor: float = 1.0
    ) -> Integers:
        """Place the canaries; rounded down, so that none moves the upload by more than Δ."""
        delta = checks.positive("sensitivity", self.sensitivity(public, local.denominator) or 0.0)
        divided = local.denominator if self.additive(public) else 1.0
        half = math.floor(factor * delta * divided / 2 / self.cell(public, grid))
        signs = np.sign(Y.flat[0]) * local.records[:, 0]
        values = np.zeros(math.prod(self.shape(public)), dtype=np.int64)
        values[local.records[:, 1].astype(np.int64)] = half * signs.astype(np.int64)
        return values.reshape(self.shape(public))

    def message(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, generator: np.random.Generator
    ) -> Message:
        """There is none: what is protected is a total."""
        raise NotImplementedError

    def update(self, Y: Array, average: Array, public: PublicParameters, optimiser: Optimiser) -> Update:
        """Turn the sign over."""
        return Update(-Y)


class CanaryAtHome(CanaryUpload):
    """The same for noise on the records themselves: record i is (±Δ/2, 0, …), and the upload shows what became of it.

    What is computed from perturbed records is post-processing, so that it may be anything: here the first feature of
    each, in its place.
    """

    def records(self, signs: Array, coordinates: Places, public: PublicParameters) -> Array:
        """Return the records of one client, shape (canaries, m)."""
        records = np.zeros((len(signs), public.features), dtype=np.float32)
        records[:, 0] = signs * (self.sensitivity(public, len(signs)) or 0.0) / 2
        return records

    def message(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, generator: np.random.Generator
    ) -> Message:
        """Show the first feature of each perturbed record."""
        values = np.zeros(math.prod(self.shape(public)), dtype=Y.dtype)
        values[: len(local.records)] = local.records[:, 0]
        return Message(values.reshape(self.shape(public)))


class _Tally:
    """A witness that sums the log-likelihood ratios of every canary."""

    def __init__(self, ledger: Ledger, coordinates: dict[str, Places]) -> None:
        self._ledger, self._coordinates = ledger, coordinates
        self._home: dict[str, GaussianRelease] = {}
        self.ratios = {client: np.zeros(len(each)) for client, each in coordinates.items()}

    def __call__(self, events: Sequence[Event], values: Values) -> None:
        flat = in_units(values, events[0]).reshape(-1)
        for event in events:
            sign = _sign(event.round)
            if not isinstance(event, GaussianRelease):
                event, sign = self._at_home(event.client), 1.0
            ours = flat[self._coordinates[event.client]].astype(np.float64)
            self.ratios[event.client] += sign * event.sensitivity / event.sigma**2 * ours

    def _at_home(self, client: str) -> GaussianRelease:
        """Return the event of the client's perturbation at home, which is in the ledger before the first upload."""
        if not self._home:
            events = self._ledger.events(what=HOME)
            self._home = {event.client: event for event in events if isinstance(event, GaussianRelease)}
        return self._home[client]


@dataclass(frozen=True, kw_only=True)
class NoiseAudit:
    """Settings of the audit; `run` runs it.

    Parameters
    ----------
    canaries : int
        Games in one run, dealt evenly to the clients. Each needs a coordinate of its own: of its client's upload, or of
        the sum where only that is seen.
    rounds, landmarks, local_steps : int
        S, n_y and Q.
    features : int, optional
        m; by default as many as the canaries need.
    clients : int
    gamma : float
        Kernel width; sensitivity and noise scale with it alike.
    noise : {"seeded", "discrete"}
    seed : int
    confidence : float
        Of each bound.
    progress : callable, optional
        Called with (rounds done, rounds).
    """

    canaries: int = 10_000
    rounds: int = 50
    landmarks: int = 100
    local_steps: int = 1
    features: int | None = None
    clients: int = 5
    gamma: float = 1.0
    noise: str = "seeded"
    seed: int = 0
    confidence: float = 0.95
    progress: Progress | None = None

    def __post_init__(self) -> None:
        checks.at_least("canaries", self.canaries, _AT_LEAST)
        for name in ("rounds", "landmarks", "local_steps", "clients"):
            checks.count(name, getattr(self, name))
        if self.features is not None:
            checks.at_least("features", self.features, 2)
        checks.positive("gamma", self.gamma)
        checks.at_least("seed", self.seed, 0)
        checks.probability("confidence", self.confidence)

    def run(self, mechanism: Mechanism, budget: Budget | None) -> AuditResult:
        """Audit one mechanism at one budget.

        Parameters
        ----------
        mechanism : Mechanism
            One that protects: without noise and a claim there is nothing to audit here.
        budget : Budget
            Replace-one.
        """
        if mechanism.protection == "none":
            raise InvalidParameter("mechanism", mechanism.name, "one that protects, for the noise audit")
        if budget is None:
            raise InvalidParameter("budget", None, f"given: mechanism {mechanism.name!r} protects what it uploads")
        if budget.adjacency != "replace-one":
            raise InvalidParameter("adjacency", budget.adjacency, "replace-one: a canary is one of two records")
        at_home = mechanism.protection == "home"
        canary = CanaryAtHome(mechanism) if at_home else CanaryUpload(mechanism)
        # Noise that is added once is seen once: later uploads would repeat it.
        rounds = 1 if at_home else canary.uploads(self.rounds)
        shared = mechanism.trust != "local"
        public = self._setting(shared=shared)
        places = self._places(math.prod(canary.shape(public)), shared=shared)
        tossed = np.random.default_rng([self.seed, _COINS]).random(self.canaries) < 0.5
        signs = np.split(np.where(tossed, 1.0, -1.0), np.cumsum([len(each) for each in places])[:-1])
        names = [f"client-{index}" for index in range(self.clients)]
        sizes = [float(len(each)) for each in places]

        ledger = Ledger(budget=budget)
        tally = _Tally(ledger, dict(zip(names, places, strict=True)))
        size = public.features if at_home else math.prod(canary.shape(public))
        weights = [each / self.canaries for each in sizes]
        records = [canary.records(ours, where, public) for ours, where in zip(signs, places, strict=True)]
        watcher = _FirstRounds(tally)
        link = simulated(FederatedData(records), budget=budget, noise=self.noise)
        contract = Contract(
            run="audit",
            budget=budget,
            mechanism=canary,
            rounds=self.rounds,
            noise=self.noise,
            seed=self.seed,
            features=public.features,
            members=tuple(
                Member(name, each, weight, site.identity.public)
                for name, each, weight, site in zip(names, sizes, weights, link.members, strict=True)
            ),
            values=size * drawn_by(mechanism.trust, self.clients),
            **claimed_noise(mechanism.trust, self.clients),
        )
        session = Session(link, contract, Mirror(ledger), watcher)
        session.open()
        if at_home:
            session.perturb(canary, public)
        for number in range(1, rounds + 1):
            session.average(canary, public, _sent(public, number), number)
            if self.progress is not None:
                self.progress(number, rounds)
        plans = contract.site_plans(canary, public)
        claim = Claim.of_ledger(ledger, budget.delta)
        scores, threshold = scores_of(np.concatenate([tally.ratios[name] for name in names]), claim)
        result = audit_games(
            scores[tossed],
            scores[~tossed],
            claim,
            threshold=threshold,
            confidence=self.confidence,
            title=f"{mechanism.name}, noise and accounting",
            seen=(
                "every upload; a canary is a vector of the stated sensitivity in a coordinate of "
                "its own, with a sign that alternates between rounds."
            ),
            facts=self._facts(mechanism, rounds, public, canary),
        )
        held = {plan.name: PreparedRecords(own, plan.denominator) for plan, own in zip(plans, records, strict=True)}

        def predict(event: Event) -> Prediction:
            plan = plans[names.index(event.client)]
            if at_home:
                total = canary.at_home(held[event.client].records, public)
            else:
                total = exact_total(canary, public, held[event.client], _sent(public, event.round or 1), plan)
            values = in_units(total, event)
            return Prediction(values, values)

        seen = watcher.seen
        if at_home:
            homes = [site.perturbed(session.label) for site in link.members]
            seen = [Watched((home.event,), home.values) for home in homes]
        noises = [residual(each, predict, {}, "sum" if len(each.events) > 1 else None) for each in seen]
        return result.checked(
            [
                *check_ledger(watcher.seen, ledger, budget, budget.delta, {mechanism.what: rounds}),
                *check_noise([each for each in noises if each is not None]),
            ]
        )

    def _setting(self, *, shared: bool) -> PublicParameters:
        kernel = Kernel.gaussian(self.gamma)
        each = self.canaries if shared else math.ceil(self.canaries / self.clients)
        features = max(2, math.ceil(each / self.landmarks)) if self.features is None else self.features
        public = PublicParameters(
            kernel, self.landmarks, features, self.rounds, self.local_steps, step_size=1.0, public_seed=self.seed
        )
        return replace(public, step_size=1 / public.smoothness)

    def _places(self, size: int, *, shared: bool) -> list[Places]:
        """Return the coordinates of each client's canaries: apart where all clients share one sum."""
        room = size if shared else size * self.clients
        if self.canaries > room:
            raise InvalidParameter("canaries", self.canaries, f"at most {room}, one for each coordinate that is seen")
        if self.canaries < self.clients:
            raise InvalidParameter("clients", self.clients, f"at most the number of canaries, {self.canaries}")
        dealt: list[Places] = np.array_split(np.arange(self.canaries, dtype=np.int64), self.clients)
        return dealt if shared else [each - each[0] for each in dealt]

    def _facts(
        self, mechanism: Mechanism, rounds: int, public: PublicParameters, canary: CanaryUpload
    ) -> dict[str, str | int | float]:
        return {
            "level": "noise",
            "mechanism": mechanism.name,
            "trust": mechanism.trust,
            "noise": self.noise,
            "rounds": rounds,
            "clients": self.clients,
            "coordinates": math.prod(canary.shape(public)),
            "seed": self.seed,
        }


class _FirstRounds:
    """A witness that passes everything on, and keeps the first uploads, as many as memory easily holds."""

    def __init__(self, tally: _Tally) -> None:
        self._tally, self._left = tally, _MOST_KEPT
        self.seen: list[Watched] = []

    def __call__(self, events: Sequence[Event], values: Values) -> None:
        self._tally(events, values)
        self._left -= values.size
        if self._left >= 0 or not self.seen:
            self.seen.append(Watched(tuple(events), values.copy()))


def _sent(public: PublicParameters, number: int) -> Array:
    """Return what the server sends in a round: its sign."""
    return np.full((public.landmarks, public.features), _sign(number), dtype=np.float32)


def _sign(number: int | None) -> float:
    return 1.0 if number is None or number % 2 else -1.0
