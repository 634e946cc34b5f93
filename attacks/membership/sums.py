"""Membership from the noisy sums of a private map: does a record's own part stand out of all rounds together?

A server knows the landmarks Y_t of each round and sees S_t = (1/n) Σ_x g_t(x) + noise of σ_t, where g_t(x) is a vector
in the row of x's nearest landmark: its offset in units of the radius, clipped to 1, and a 1. With a reference for what
the others add, m_t, the log-likelihood ratio of "x took part" against "another did" is, but for a constant,

    Σ_t (⟨g_t(x), S_t − m_t⟩/n − ‖g_t(x)‖²/2n²)/σ_t².

The others differ from their reference by much more than one record: an adversary who knows them all does better, and no
adversary does better than the guarantee allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attacks.shared.gradients import Float64, as_learned
from attacks.shared.registry import NothingToAttack
from dpfedvis.mechanisms import KMeans
from dpfedvis.numerics.kernels import squared_distances
from dpfedvis.runs.upload_reader import Recording


@dataclass(frozen=True, eq=False)
class SeenSum:
    """One upload of sums, and the landmarks that it answers.

    Parameters
    ----------
    landmarks : array of shape (k, d)
    values : array of shape (k, d + 1)
        Mean of offsets and counts over all records behind it, with its noise.
    sigma : float
    records : float
        n.
    """

    landmarks: Float64
    values: Float64
    sigma: float
    records: float


def sums_of(recording: Recording, clients: Sequence[str]) -> list[SeenSum]:
    """Return the sums that these clients, and no others, are in.

    Raises
    ------
    NothingToAttack
        If there are none, or the mechanism is another.
    """
    if not isinstance(recording.mechanism, KMeans):
        raise NothingToAttack("sums are attacked where landmarks are learned by k-means")
    denominators = {each.name: each.denominator for each in recording.clients}
    found = []
    for upload in recording.of(KMeans.what):
        sizes = [denominators[name] for name in upload.clients]
        if set(upload.clients) != set(clients) or None in sizes:
            continue
        event, values = upload.events[0], np.asarray(upload.values, "f8")
        sigma = getattr(event, "sigma", 0.0)
        records = float(sum(size for size in sizes if size is not None))
        found.append(SeenSum(np.asarray(recording.seen(upload), "f8"), values, max(sigma, 1e-12), records))
    if not found:
        raise NothingToAttack("the server saw no sums of cluster offsets whose number of records is public")
    return found


def sum_scores(recording: Recording, seen: Sequence[SeenSum], candidates: npt.ArrayLike, reference: npt.ArrayLike
               ) -> Float64:  # fmt: skip
    """Score candidates by all rounds together, shape (k,).

    Parameters
    ----------
    recording : Recording
    seen : sequence of SeenSum
    candidates, reference : arrays of shape (k, m), (r, m)
        In the space of the records. The reference stands for the records behind the sums.
    """
    assert isinstance(recording.mechanism, KMeans)
    radius = recording.mechanism.reach / np.sqrt(2 * recording.public.kernel.mean_gamma)
    asked, others = (np.asarray(as_learned(recording, np.asarray(each)), "f8") for each in (candidates, reference))
    scores: Float64 = np.zeros(len(asked))
    for each in seen:
        expected = np.zeros_like(each.values)
        row, part = _parts(others, each.landmarks, radius)
        np.add.at(expected, row, part / len(others))
        row, part = _parts(asked, each.landmarks, radius)
        n = each.records
        inner = np.einsum("ij,ij->i", part, (each.values - expected)[row]) / n
        scores += (inner - np.einsum("ij,ij->i", part, part) / (2 * n * n)) / each.sigma**2
    return scores


def _parts(X: Float64, Y: Float64, radius: float) -> tuple[npt.NDArray[np.int64], Float64]:
    """Row of each record's part in a sum, and the part, shape (k, d + 1)."""
    nearest = squared_distances(X, Y).argmin(axis=1)
    offsets = (X - Y[nearest]) / radius
    norms = np.linalg.norm(offsets, axis=1, keepdims=True)
    clipped = offsets / np.maximum(norms, 1.0)
    return nearest, np.column_stack([clipped, np.ones(len(X))])
