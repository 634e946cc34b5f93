"""The strong membership game, played many times: through FedDL as it is, door, ledger, noise and all.

Every client of one run plays a game of its own: a fair coin puts x or x′ beside the records that the adversary knows.
Noise of different clients is independent, and the landmarks are held at their start, so that no client's upload depends
on another's: the games are independent, and tests on their counts are exact.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from accounting import Budget, checks
from attacks.auditing.uploads import Watcher
from attacks.gradients import Contribution, Float64, SeenGradient
from attacks.membership import Game, Membership, membership
from attacks.membership_scores import likelihood_score
from attacks.roc import Interval, Limit, exceeds, rate
from attacks.views import noise_of
from dpfedvis.data import FederatedData
from dpfedvis.errors import DpfedvisError
from dpfedvis.federation.feddl import FedDL
from dpfedvis.mechanisms import Mechanism
from dpfedvis.numerics.kernels import Array

STRONG = Game(
    "gradients, all other records known",
    "the record x, at a client of its own in each game",
    "another record x′ in its place",
    "x, x′, all other records of the client, the landmarks of each round, the noisy gradients, and the noise's law",
    independent=True,
)


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


@dataclass(frozen=True, eq=False)
class StrongGames:
    """Outcome of many strong games.

    Parameters
    ----------
    outcome : Membership
    distance : float
        Of the two hypotheses in units of the noise, the mean over games: what is possible for these pairs. At most μ if
        the code keeps its claim.
    accuracy : Interval
        Share of right guesses, at the threshold halfway between the two.
    allowed : float
        The largest probability of a right guess that the guarantee allows, Φ(μ/2) for μ-GDP (`Limit.accuracy`).
    possible : float
        Φ(distance/2), that of the best test for this pair with noise of that scale; the mean over games.
    excess, excess_possible : float
        p-values of "no more right guesses than allowed", and than possible; exact, one-sided. A small one is a leak.
    """

    outcome: Membership
    distance: float
    accuracy: Interval
    allowed: float
    possible: float
    excess: float
    excess_possible: float

    @property
    def summary(self) -> dict[str, float | None]:
        """Numbers for tables."""
        return {"accuracy": self.accuracy.value, "accuracy at most": self.allowed, **self.outcome.summary}

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the scores, ready for JSON."""
        names = ("distance", "allowed", "possible", "excess", "excess_possible")
        values: dict[str, Any] = {name: getattr(self, name) for name in names}
        return values | {"accuracy": self.accuracy.to_dict(), **self.outcome.to_dict()}

    def to_json(self) -> str:
        """Return `to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def markdown(self) -> str:
        """Return a section."""
        return self.outcome.markdown() + (
            f"\nGuessed right: {self.accuracy}; the best test for these records {self.possible:.4g}, most that the "
            f"guarantee allows {self.allowed:.4g}. Exact one-sided p-values of no more than that: "
            f"{self.excess_possible:.3g} and {self.excess:.3g}.\n"
        )


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
        bandwidth=gamma,
        start=start,
        projection=_Held(tuple(map(tuple, start.tolist()))),
        seed=int(rng.integers(2**31)),
    ).run(FederatedData(records, dtype=np.float32), witness=watcher)
    seen: dict[str, list[SeenGradient]] = defaultdict(list)
    for upload in watcher.seen:
        event = upload.events[0]
        if event.what != "gradient" or len(upload.events) > 1:
            raise DpfedvisError(f"the strong game reads gradients of single clients, not {event.what}")
        seen[event.client].append(SeenGradient(start.astype("f8"), upload.values.astype("f8"), noise_of(event)))
    # The clients hold float32.
    record, other, known = (each.astype("f4") for each in (neighbours.record, neighbours.other, neighbours.known))
    model, size = Contribution(run.public.kernel), len(neighbours.known) + 1
    scores = [likelihood_score(seen[client.terms.name], model, record, other, known, size) for client in run.clients]
    return judge(
        np.array([each.z for each in scores]), coins, scores[0].distance, Limit.of_ledger(run.ledger, 1e-5, rows=True)
    )


def judge(
    z: npt.ArrayLike,
    coins: npt.NDArray[np.bool_],
    distance: npt.ArrayLike,
    limit: Limit,
    game: Game = STRONG,
) -> StrongGames:
    """Return rates and p-values of games with scores z, N(0, 1) out and N(distance, 1) in, and these coins.

    Distances may differ between games. Then the number of right guesses is a sum of coins of different probabilities,
    whose tail from one above the mean on is no heavier than that of the binomial with the mean probability (Hoeffding
    1956, Thm 4): small p-values err on the side of the code.
    """
    scores = np.asarray(z, dtype=np.float64)
    apart = np.broadcast_to(np.asarray(distance, dtype=np.float64), scores.shape)
    correct, games = int(((scores > apart / 2) == coins).sum()), len(scores)
    allowed, possible = limit.accuracy(), float(ndtr(apart / 2).mean())
    return StrongGames(
        membership(scores[coins], scores[~coins], game=game, limit=limit),
        float(apart.mean()),
        rate(correct, games),
        allowed,
        possible,
        exceeds(correct, games, allowed),
        exceeds(correct, games, possible),
    )
