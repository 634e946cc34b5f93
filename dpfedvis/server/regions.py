"""Regions of a private map: neighbouring landmarks, merged until their count is well above its noise.

A single landmark will not do: by design its share of the records is a few times the noise of its count, so that few
stand out even where the map is good, and those that do are winners of a lottery.

*Noise.* Every round counts with new noise, drawn after the landmarks had moved. So the noise of a sum of one landmark's
counts over r rounds has variance r·s², however the landmarks moved (a sum of martingale differences with a fixed
variance each, Gaussian given the past, is Gaussian). The mean over r rounds has noise s/√r, and that of j landmarks
together s·√(j/r).

*Choice.* Regions are nodes of one tree of the landmarks' places (Ward's linkage). k landmarks have 2k − 1 nodes, and
all are tested: a node counts as clear above the quantile of 1 − 0.05/(2k − 1) (Bonferroni), so that with pure noise at
most one map in twenty has a clear region that holds nobody. The tree follows from places that earlier noise has moved:
this is exact for a fixed tree, and checked by simulation for this one (reports/verdict).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from dpfedvis.numerics.kernels import Array
from dpfedvis.server.round_log import Tally

FALSE = 0.05  # chance that pure noise has a clear region
HINT = 2.0  # a region below so many standard deviations of its noise has nothing to show for itself
SETTLED = 0.5  # share of the rounds, the last ones, that are counted: before, landmarks are on their way


@dataclass(frozen=True, eq=False)
class Regions:
    """Landmarks merged into regions.

    Parameters
    ----------
    of : array of shape (n_y,)
        Number of each landmark's region.
    shares, noise : arrays of shape (regions,)
        Share of the records, and the standard deviation of its noise.
    clear : array of shape (regions,)
        Whether the share is above its noise, corrected for the choice among all nodes of the tree.
    """

    of: NDArray[np.int64]
    shares: Array
    noise: Array
    clear: NDArray[np.bool_]

    @property
    def supported(self) -> NDArray[np.bool_]:
        """Whether each landmark's region is clear, or has at least a hint of records; shape (n_y,)."""
        hint: NDArray[np.bool_] = (self.clear | (self.shares > HINT * self.noise))[self.of]
        return hint

    @property
    def clear_landmarks(self) -> NDArray[np.bool_]:
        """Whether each landmark's region is clear, shape (n_y,)."""
        found: NDArray[np.bool_] = self.clear[self.of]
        return found


def pooled(tally: Tally) -> tuple[Array, float]:
    """Return each landmark's mean count over the settled rounds, shape (n_y,), and the noise in it."""
    noise = settled(tally.noise)
    return settled(tally.counts).mean(axis=0), math.sqrt(float(np.sum(np.square(noise)))) / len(noise)


def settled(rounds: Array) -> Array:
    """Return the part of values by round, shape (rounds, …), in which landmarks have settled."""
    return rounds[-max(1, math.ceil(len(rounds) * SETTLED)) :]


def quantile(landmarks: int) -> float:
    """Return how many standard deviations a node must be above 0 to be clear."""
    return float(norm.isf(FALSE / max(2 * landmarks - 1, 1)))


def regions(landmarks: Array, counts: Array, noise: float) -> Regions:
    """Merge landmarks into regions.

    Parameters
    ----------
    landmarks : array of shape (k, d)
    counts : array of shape (k,)
        Pooled.
    noise : float
        Standard deviation of the noise in each.
    """
    k = len(landmarks)
    least = quantile(k)
    members, children = _tree(landmarks)
    totals = np.array([counts[own].sum() for own in members])
    spreads = noise * np.sqrt([len(own) for own in members])
    clear = totals > least * spreads
    within = clear.copy()  # itself or a part of it
    for node in range(k, len(members)):
        one, other = children[node - k]
        within[node] |= within[one] | within[other]
    chosen = _chosen(len(members) - 1, children, within, totals > HINT * spreads, k)
    of = np.empty(k, dtype=np.int64)
    for number, node in enumerate(chosen):
        of[members[node]] = number
    return Regions(of, totals[chosen], spreads[chosen], clear[chosen])


def _tree(landmarks: Array) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """Return the landmarks below each node, leaves first, and the two children of each inner node."""
    from scipy.cluster.hierarchy import linkage

    k = len(landmarks)
    members: list[list[int]] = [[each] for each in range(k)]
    children: list[tuple[int, int]] = []
    for row in linkage(landmarks.astype(np.float64), "ward") if k > 1 else ():
        one, other = int(row[0]), int(row[1])
        children.append((one, other))
        members.append(members[one] + members[other])
    return members, children


def _chosen(
    root: int, children: list[tuple[int, int]], within: NDArray[np.bool_], hint: NDArray[np.bool_], k: int
) -> list[int]:
    """Return the nodes that are regions: as small as they can be, each with a clear count wherever there is one.

    A node is parted where both parts have something clear in them. Where only one has, the other stands apart, unless
    it has a hint of records and its neighbour is one region: then they are one region together.
    """
    found: list[int] = []
    stack: list[Any] = [root]
    while stack:
        node = stack.pop()
        if node < k:
            found.append(node)
            continue
        parts = sorted(children[node - k], key=lambda each: not within[each])
        if within[parts[0]] and within[parts[1]]:
            stack += parts
        elif not within[parts[0]] or (hint[parts[1]] and _whole(parts[0], children, within, k)):
            found.append(node)
        else:
            stack.append(parts[0])
            found.append(parts[1])
    return sorted(found)


def _whole(node: int, children: list[tuple[int, int]], within: NDArray[np.bool_], k: int) -> bool:
    """Whether a node would not be parted: no part of it is clear by itself."""
    return node < k or not any(within[each] for each in children[node - k])
