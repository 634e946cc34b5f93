"""Probes: records of every kind in place of one record, and how far the exact total moves. No chance is in it.

Canaries are few and chosen to be told apart. Probes are chosen to break things: far beyond every bound, at 0, on a
landmark, next to it, in every direction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from accounting import GaussianRelease
from attacks.auditing.findings import Checked, Finding
from dpfedvis.numerics.exact import Integers
from dpfedvis.numerics.kernels import Array

_ROUNDING = 1e-12
_FAR = (2.0, 50.0, 1e9)


def probing_records(points: Array, seed: int) -> Array:
    """Return probes around public points, shape (probes, m), float32.

    Parameters
    ----------
    points : array of shape (k, m)
        Canaries and landmarks.
    seed : int
    """
    features = points.shape[1]
    generator = np.random.default_rng(seed)
    size = float(np.linalg.norm(points, axis=1).max()) or 1.0
    axes = np.eye(features)[:2] * size
    random = generator.standard_normal((2, features))
    random *= size / np.linalg.norm(random, axis=1, keepdims=True)
    near = points + 1e-3 * size * generator.standard_normal(points.shape)
    every = [np.zeros((1, features)), points, near, axes, -axes, random]
    every += [far * side for far in _FAR for side in (axes[:1], -axes[:1], random)]
    return np.concatenate(every).astype(np.float32)


def check_moves(
    total: Callable[[Array], Integers],
    probes: Array,
    company: Sequence[Array],
    event: GaussianRelease,
    relative: Array | None,
) -> Checked:
    """Check that no probe in place of another moves the total further than the event states.

    Parameters
    ----------
    total : callable
        From records to the exact integers that a client with them adds its noise to.
    probes : array of shape (probes, m)
    company : sequence of arrays of shape (n − 1, m)
        Other records of a client: the probe must not move their parts.
    event : GaussianRelease
        With its grid.
    relative : array, optional
        Relative noise of each value.
    """
    worst = 0.0
    for others in company:
        totals = [np.ravel(total(np.vstack([probe[None], others]))) for probe in probes]
        for first, second in combinations(totals, 2):
            apart = (first - second).astype(np.float64)
            if relative is not None:
                apart /= np.ravel(relative)
            worst = max(worst, float(np.linalg.norm(apart)) * (event.grid or 1.0))
    share = worst / event.sensitivity
    if share <= 1 + _ROUNDING:
        return Checked()
    words = f"One record moves {event.what} by {share:.3g} times the stated sensitivity."
    return Checked(0, (Finding("moved", event.what, 0.0, words),))
