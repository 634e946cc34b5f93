"""The strong membership game, played many times through FedDL as it is: ledger, noise and all.

Every client of one run plays a game of its own: a fair coin puts x or x′ beside the records that the adversary knows.
Noise of different clients is independent, and the landmarks stay at their start, so that no client's upload depends on
another's: the games are independent, and tests on their counts are exact.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accounting import Budget, Ledger, checks
from attacks.auditing.evidence import Watcher
from attacks.membership.rates import Game, StrongGames, judge
from attacks.shared import gradients
from attacks.shared.gradients import Contribution, Float64, SeenGradient, check_seen
from attacks.shared.statistics import Limit
from dpfedvis.data import FederatedData
from dpfedvis.errors import DpfedvisError
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.mechanisms import Mechanism
from dpfedvis.numerics.kernels import Array
from dpfedvis.server.round_log import Round

STRONG = Game(
    "gradients, all other records known",
    "the record x, at a client of its own in each game",
    "another record x′ in its place",
    "x, x′, all other records of the client, the landmarks of each round, the noisy gradients, and the noise's law",
    independent=True,
)


def see(feddl: FedDL, parts: Iterable[Array], *, ledger: Ledger | None = None) -> list[tuple[SeenGradient, ...]]:
    """Run FedDL with these clients, and return what the server sees of each."""
    watcher, trajectory = Watcher(), {}

    def keep(done: Round, Y: Array) -> None:
        trajectory[done.number] = Y.astype(np.float64)

    fed = FederatedData(list(parts), bounds=feddl.bounds)
    run = feddl.run(fed, ledger=ledger, witness=watcher, callbacks=[keep])
    trajectory[0] = run.start.astype(np.float64)
    seen: dict[str, list[SeenGradient]] = defaultdict(list)
    for upload in watcher.seen:
        event = upload.events[0]
        if event.what == "gradient" and event.round is not None:
            values = upload.values.astype(np.float64)
            seen[event.client].append(SeenGradient(trajectory[event.round - 1], values, gradients.noise_of(event)))
    return [tuple(seen[name]) for name in run.contract.names]


@dataclass(frozen=True)
class LikelihoodScore:
    """The best test between two records, when all others are known.

    Parameters
    ----------
    z : float
        N(0, 1) if the other record was there, N(distance, 1) if the record was.
    distance : float
        √Σ_s ‖c_s(x) − c_s(x′)‖²/(n_p σ_s)², at most μ of the client's releases.
    """

    z: float
    distance: float


def likelihood_score(
    seen: Sequence[SeenGradient],
    contribution: Contribution,
    record: npt.ArrayLike,
    other: npt.ArrayLike,
    known: npt.ArrayLike,
    denominator: float,
) -> LikelihoodScore:
    """Score "x was there" against "x′ stood in its place", from gradients with Gaussian noise of known scale.

    The worst case of differential privacy: the adversary knows the rest of the client's records. With v_s = (c_s(x) −
    c_s(x′))/n_p and E_s = G_s − f_s(known) − c_s(x′)/n_p, the log-likelihood ratio is Σ_s (⟨E_s, v_s⟩ − ‖v_s‖²/2)/σ_s²,
    so that by Neyman & Pearson no test is better than a threshold on z = Σ_s ⟨E_s, v_s⟩/σ_s² / distance. The law of z
    is exact when the landmarks do not depend on the uploads, and nearly so otherwise.

    Parameters
    ----------
    record, other : arrays of shape (m,)
        x and x′.
    known : array of shape (n_p − 1, m)
    denominator : float
    """
    x, x2, rest = (np.atleast_2d(np.asarray(each, dtype=np.float64)) for each in (record, other, known))
    inner = square = 0.0
    for each in check_seen(seen):
        out = contribution.mean(np.concatenate([rest, x2]), each.landmarks, denominator)
        shift = contribution.mean(x, each.landmarks, denominator) - contribution.mean(x2, each.landmarks, denominator)
        inner += float(np.vdot(each.values - out, shift)) / each.scale**2
        square += float(np.vdot(shift, shift)) / each.scale**2
    if square == 0:
        raise DpfedvisError("the two records contribute the same: nothing can tell them apart")
    return LikelihoodScore(inner / math.sqrt(square), math.sqrt(square))


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Two neighbouring data sets of one client, and the landmarks at which they are told apart.

    Parameters
    ----------
    record, other : arrays of shape (m,)
        x and x′.
    known : array of shape (n_p − 1, m)
        All other records.
    landmarks : array of shape (n_y, m)
    """

    record: Float64
    other: Float64
    known: Float64
    landmarks: Float64

    @classmethod
    def worst(cls, *, gamma: float, records: int, landmarks: int, features: int) -> Neighbours:
        """Return the pair that attains the tight sensitivity: records at ±1/√(2γ), all landmarks halfway."""
        step = np.zeros(features)
        step[0] = 1 / math.sqrt(2 * checks.positive("gamma", gamma))
        zeros = np.zeros((checks.count("records", records) - 1, features))
        return cls(step, -step, zeros, np.zeros((landmarks, features)))


@dataclass(frozen=True)
class _Held:
    """A projection to one point: Y stays where it began."""

    rows: tuple[tuple[float, ...], ...]

    def __call__(self, Y: Array) -> Array:
        return np.array(self.rows, dtype=Y.dtype)


def play(
    neighbours: Neighbours,
    *,
    mechanism: Mechanism | str,
    budget: Budget | None,
    gamma: float,
    rounds: int = 1,
    games: int = 1000,
    rng: np.random.Generator,
) -> StrongGames:
    """Play the strong game `games` times, in one run of FedDL with as many clients.

    Parameters
    ----------
    neighbours : Neighbours
    mechanism : Mechanism or str
        One that uploads gradients to a server that sees each client's.
    budget : Budget, optional
    gamma : float
        Kernel width.
    rounds, games : int
    rng : numpy.random.Generator
        For the coins and the seed of the run's noise.
    """
    coins = rng.random(checks.count("games", games)) < 0.5
    if coins.all() or not coins.any():
        raise DpfedvisError(f"{games} games all fell on one side; play more")
    start = neighbours.landmarks.astype(np.float32)
    records = [
        np.concatenate([neighbours.known, (neighbours.record if coin else neighbours.other)[None]]) for coin in coins
    ]
    watcher = Watcher()
    run = FedDL(
        landmarks=len(start),
        mechanism=mechanism,
        budget=budget,
        rounds=rounds,
        gamma=gamma,
        start=start,
        projection=_Held(tuple(map(tuple, start.tolist()))),
        seed=int(rng.integers(2**31)),
    ).run(FederatedData(records, dtype=np.float32), witness=watcher)
    seen: dict[str, list[SeenGradient]] = defaultdict(list)
    for upload in watcher.seen:
        event = upload.events[0]
        if event.what != "gradient" or len(upload.events) > 1:
            raise DpfedvisError(f"the strong game reads gradients of single clients, not {event.what}")
        seen[event.client].append(
            SeenGradient(start.astype("f8"), upload.values.astype("f8"), gradients.noise_of(event))
        )
    # The clients hold float32.
    record, other, known = (each.astype("f4") for each in (neighbours.record, neighbours.other, neighbours.known))
    model, size = Contribution(run.public.kernel), len(neighbours.known) + 1
    scores = [likelihood_score(seen[name], model, record, other, known, size) for name in run.contract.names]
    z, limit = np.array([each.z for each in scores]), Limit.of_ledger(run.ledger, 1e-5, rows=True)
    return judge(z, coins, scores[0].distance, limit, STRONG)
