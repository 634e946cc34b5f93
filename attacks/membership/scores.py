"""How much a release speaks for a record: scores from gradients, from landmarks and from a map."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve

from attacks.shared.gradients import Contribution, Float64, SeenGradient, check_seen
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.kernels import Array, squared_distances

BLOCK = 1024
EPS = float(np.finfo(np.float64).eps)


def gradient_scores(
    seen: Sequence[SeenGradient],
    contribution: Contribution,
    candidates: npt.ArrayLike,
    reference: npt.ArrayLike,
    denominator: float,
) -> Float64:
    """Score candidates by the gradients of one client whose other records are not known, shape (k,).

    The other records are as good as noise: G − c̄ is about N(0, C/n_p + Σ_s σ_s² I) without the candidate, with mean c̄
    and covariance C of contributions taken from reference records, and shifted by (c(x) − c̄)/n_p with it. So the
    log-likelihood ratio is ⟨c(x) − c̄, G − c̄⟩/n_p − ‖c(x) − c̄‖²/(2n_p²) in the inner product of the inverse covariance,
    which by the Woodbury identity needs inner products of contributions alone. Without noise they are taken with as
    much as float64 needs (`_heat`).

    Parameters
    ----------
    candidates : array of shape (k, m)
    reference : array of shape (r, m)
        Records of the same distribution, of which none is asked about. The cost grows with r³.
    """
    X, R = (np.ascontiguousarray(each, dtype=np.float64) for each in (candidates, reference))
    if len(R) < 2:
        raise DpfedvisError(f"{len(R)} reference records say nothing of how contributions vary; at least 2")
    k, r = len(X), len(R)
    cross, own, squares = np.zeros((k, r)), np.zeros((r, r)), np.zeros(k)
    to_x, to_r = np.zeros(k), np.zeros(r)
    for each in check_seen(seen):
        Y, G, scale = each.landmarks, each.values, each.scale**-2
        cross += scale * contribution.gram(X, R, Y)
        own += scale * contribution.gram(R, R, Y)
        squares += scale * contribution.squares(X, Y)
        to_x += scale * contribution.products(X, Y, G)
        to_r += scale * contribution.products(R, Y, G)
    heat = _heat(own, r * denominator)
    level, mean_x, mean_r = float(own.mean()), cross.mean(axis=1), own.mean(axis=1)
    # ⟨c(x) − c̄, G − c̄⟩ and ⟨c(x) − c̄, c(x′) − c̄⟩, from products of what is not centred.
    inner_x, inner_r = to_x - to_r.mean() - mean_x + level, to_r - to_r.mean() - mean_r + level
    cross = cross - mean_x[:, None] - mean_r + level
    own = own - mean_r[:, None] - mean_r + level
    squares = squares - 2 * mean_x + level
    factor = cho_factor(own + heat * r * denominator * np.eye(r), lower=True)
    solved = cho_solve(factor, cross.T).T
    inner = inner_x - solved @ inner_r
    lengths = squares - np.vecdot(solved, cross)
    scores: Float64 = (inner / denominator - lengths / (2 * denominator**2)) / heat
    return scores


def list_scores(
    seen: Sequence[SeenGradient], contribution: Contribution, candidates: npt.ArrayLike, denominator: float
) -> Float64:
    """Score candidates by the gradients of one client whose records are all among them, shape (k,).

    G = Σ_j b_j c(x_j)/n_p + noise is linear in the b_j, 1 for those that are in. With a prior of the right mean n_p/k
    and variance, the posterior mean of b follows by linear algebra from inner products of contributions, and is the
    score.

    Parameters
    ----------
    candidates : array of shape (k, m)
        More than n_p of them. The cost grows with k³.
    """
    X = np.ascontiguousarray(candidates, dtype=np.float64)
    k = len(X)
    share = denominator / k
    if not 0 < share < 1:
        raise DpfedvisError(f"{k} candidates for {denominator:g} places: a list must be longer than that")
    own, inner = np.zeros((k, k)), np.zeros(k)
    for each in check_seen(seen):
        own += contribution.gram(X, X, each.landmarks) / each.scale**2
        inner += contribution.products(X, each.landmarks, each.values) / each.scale**2
    own /= denominator**2
    inner = inner / denominator - share * own.sum(axis=1)
    precision = 1 / (share * (1 - share))
    precision *= _heat(own, precision)
    scores: Float64 = cho_solve(cho_factor(own + precision * np.eye(k), lower=True), inner)
    return scores


def _heat(own: Float64, ridge: float) -> float:
    """Return the factor, at least 1, on the noise's variance with which own + heat·ridge·I is definite.

    `own` holds inner products in units of the noise. Without noise that unit is rounding, `own` is large, and its small
    eigenvalues are rounding too: up to about k·ε·tr(own) for k rows, of either sign. So heat·ridge is never below
    that; with noise of any consequence heat is 1.
    """
    return max(1.0, len(own) * EPS * float(np.trace(own)) / ridge)


def landmark_scores(candidates: npt.ArrayLike, landmarks: npt.ArrayLike) -> Float64:
    """Score candidates by the landmarks alone: minus the distance to the nearest, shape (k,)."""
    return -nearest_distances(candidates, landmarks)


def insider_scores(
    candidates: npt.ArrayLike, own: npt.ArrayLike, own_places: Array, other_places: Array, *, neighbours: int = 5
) -> Float64:
    """Score candidates by a published map, as a client does who finds its own records in it, shape (k,).

    A candidate is placed at the mean of the places of the insider's most similar records, weighted by exp(−d/d̄); a
    point of another client near by speaks for it. The score is minus the distance to the nearest such point.

    Parameters
    ----------
    candidates : array of shape (k, m)
    own : array of shape (a, m)
        The insider's records.
    own_places, other_places : arrays of shape (a, 2), (b, 2)
        Where the map shows them, and where it shows the records of all others.
    """
    X, mine = (np.ascontiguousarray(each, dtype=np.float64) for each in (candidates, own))
    distances = np.sqrt(squared_distances(X, mine))
    count = min(neighbours, len(mine))
    near = np.argpartition(distances, count - 1, axis=1)[:, :count]
    away = np.take_along_axis(distances, near, axis=1)
    weight = np.exp(-away / np.maximum(away.mean(axis=1, keepdims=True), 1e-300))
    weight /= weight.sum(axis=1, keepdims=True)
    places = np.einsum("ij,ijk->ik", weight, np.asarray(own_places, dtype=np.float64)[near])
    return -nearest_distances(places, other_places)


def nearest_distances(points: npt.ArrayLike, targets: npt.ArrayLike) -> Float64:
    """Return the distance of each point to the nearest target, shape (k,), in blocks."""
    X, T = (np.ascontiguousarray(each, dtype=np.float64) for each in (points, targets))
    parts = [squared_distances(X[i : i + BLOCK], T).min(axis=1) for i in range(0, len(X), BLOCK)]
    distances: Float64 = np.sqrt(np.concatenate(parts))
    return distances
