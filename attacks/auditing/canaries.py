"""Worst cases made of real records: pairs of records that move an upload as far as the stated sensitivity allows.

A scene is what the auditor chooses: the two records that the coin decides between, the other records of each client,
the kernel, and the landmarks that the server sends. All of it is known to the adversary, as differential privacy
allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.mechanisms import InputPerturbation, MeanEmbedding, Mechanism
from dpfedvis.numerics.kernels import Array, Kernel
from dpfedvis.numerics.random_features import RandomFeatures

_TRIANGLE = 2 * math.pi * np.arange(3) / 3 + 0.5


@dataclass(frozen=True, eq=False)
class Scene:
    """What the auditor sets up.

    Parameters
    ----------
    inside, outside : arrays of shape (games, m), or (1, m) for the same canary in all games
        The records that a coin decides between.
    rest : array of shape (n_p − 1, m)
        The other records of every client.
    landmarks : array of shape (n_y, m)
        The server's Y, in every round.
    kernel : Kernel
    note : str
        What the canary is, for the result.
    whole : bool
        Whether all records of a client are the canary: the unit is a client.
    """

    inside: Array
    outside: Array
    rest: Array
    landmarks: Array
    kernel: Kernel
    note: str
    whole: bool = False

    def __post_init__(self) -> None:
        m = self.landmarks.shape[-1]
        for name in ("inside", "outside", "rest", "landmarks"):
            array = getattr(self, name)
            if array.ndim != 2 or array.shape[1] != m or not np.isfinite(array).all():
                raise InvalidParameter(f"shape of {name}", array.shape, f"(…, {m}), all finite")
        if len(self.inside) != len(self.outside):
            raise InvalidParameter("outside", len(self.outside), f"as many as inside, {len(self.inside)}")

    def client(self, game: int, *, inside: bool) -> Array:
        """Return the records of the client that hosts a game, the canary first; shape (n_p, m)."""
        canaries = self.inside if inside else self.outside
        canary = canaries[game % len(canaries)]
        if self.whole:
            return np.tile(canary, (1 + len(self.rest), 1))
        return np.vstack([canary, self.rest])


def opposite_sides(kernel: Kernel, *, games: int, records: int, landmarks: int, own_axes: bool) -> Scene:
    """Two records on opposite sides of coinciding landmarks, where r·e^{−γr²} is largest.

    With all landmarks at 0 and records at ±e/√(2γ), the parts of the two records in the MMD gradient are opposite, and
    each has the largest norm that can be, so that they attain Δ of `accounting.sensitivity.gradient`, of
    `clipped_gradient`, of `variable` for one local step, and of `cluster_sums` where offsets of that length are clipped
    (proofs there). The other records are at 0, where they add
    nothing; but for one that stands where "out" would, so that the whole upload is 0 with "in". Then noise that is
    scaled by the upload vanishes. (Not with own axes, where the other records are the same for all games.)

    Parameters
    ----------
    kernel : Kernel
        Of one width for the maximum to be exact.
    games, records, landmarks : int
        Games, n_p ≥ 2 and n_y.
    own_axes : bool
        An axis for each game, so that canaries stay apart in a sum of clients.
    """
    checks.at_least("records", records, 2)
    features = max(2, games) if own_axes else 2
    radius = 1 / math.sqrt(2 * kernel.mean_gamma)
    inside = radius * np.eye(games if own_axes else 1, features)
    rest = np.zeros((records - 1, features))
    if not own_axes:
        rest[0] = -inside[0]
    note = "two records on opposite sides of coinciding landmarks, at distance 1/√(2γ)"
    return Scene(inside, -inside, rest, np.zeros((landmarks, features)), kernel, note)


def opposite_phases(mechanism: MeanEmbedding, kernel: Kernel, *, records: int, landmarks: int, seed: int) -> Scene:
    """Two records whose random features are opposite.

    φ(x) = −φ(0) if Wᵀx = π(1, …, 1), for cos and sin then change their signs. With m = 2K features these K equations
    have solutions. So ‖φ(x) − φ(0)‖ = 2, and Δ = 2/n_p is attained.
    """
    features = 2 * mechanism.frequencies
    frequencies = RandomFeatures(kernel, features, mechanism.frequencies, seed).matrix.astype(np.float64)
    # The smallest solution, W(WᵀW)⁻¹π: a Gaussian W twice as long as wide is well conditioned.
    record = frequencies @ np.linalg.solve(frequencies.T @ frequencies, np.full(mechanism.frequencies, math.pi))
    rest, start = np.zeros((records - 1, features)), np.zeros((landmarks, features))
    note = "two records with opposite random features"
    return Scene(record[None], np.zeros((1, features)), rest, start, kernel, note)


def opposite_records(mechanism: InputPerturbation, mu: float) -> Scene:
    """Two records of norm τ_X in opposite directions, alone at their client, and three landmarks around them.

    They are 2τ_X apart, which is Δ. A client of one perturbed record x̃ uploads rows parallel to x̃ − y_i, and the lines
    through the y_i in these directions meet in x̃ (`attacks.auditing.records.invert`). The kernel is wide against the
    noise, σ = 2τ_X/μ, so that no row vanishes.
    """
    tau = mechanism.tau_x
    spread = max(tau, 2 * tau / mu)
    inside = np.array([[tau, 0.0]])
    landmarks = spread * np.stack([np.cos(_TRIANGLE), np.sin(_TRIANGLE)], axis=1)
    note = "two opposite records of norm τ_X, alone at their client"
    return Scene(inside, -inside, np.empty((0, 2)), landmarks, Kernel.gaussian(0.02 / spread**2), note)


def scene_for(
    mechanism: Mechanism,
    *,
    mu: float | None,
    gamma: float,
    games: int,
    records: int,
    landmarks: int,
    seed: int,
) -> Scene:
    """Return the worst case known for a mechanism; any gradient of records gets opposite sides.

    Parameters
    ----------
    mechanism : Mechanism
    mu : float, optional
        GDP parameter of the budget, if there is one.
    gamma : float
    games, records, landmarks : int
    seed : int
        Public seed of the run.
    """
    kernel = Kernel.gaussian(gamma)
    if mechanism.protection == "home":
        if not isinstance(mechanism, InputPerturbation) or mu is None:
            raise InvalidParameter("mechanism", mechanism.name, "input, or given with a scene of its own")
        return opposite_records(mechanism, mu)
    if isinstance(mechanism, MeanEmbedding):
        if mechanism.trust != "local":
            raise InvalidParameter("trust", mechanism.trust, "local for canaries of mean-embedding with records")
        return opposite_phases(mechanism, kernel, records=records, landmarks=landmarks, seed=seed)
    own_axes = mechanism.trust != "local"
    return opposite_sides(kernel, games=games, records=records, landmarks=landmarks, own_axes=own_axes)
