"""The Nyström certificate of a recorded run: what the server can prove of its kernel estimate, from uploads alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from accounting import GaussianRelease
from dpfedvis.numerics.distances import CUTOFF, KernelFactor, nystrom_factor
from dpfedvis.numerics.kernels import Array, Kernel, kernel_matrix
from dpfedvis.runs.upload_reader import Recording


@dataclass(frozen=True)
class Certified:
    """‖K − K̂‖₂ ≤ ‖K − K̂‖_F ≤ `bound`, in exact arithmetic.

    Parameters
    ----------
    bound : float
        tr(K − K̂), with K − K̂ ⪰ 0: see `dpfedvis.numerics.distances.KernelFactor`.
    trivial : float
        What holds without any computation: the number of records.
    rows : str
        What it was computed from.
    perturbed : bool
        Whether the records carried noise before; the certificate is then for the noisy ones.
    """

    bound: float
    trivial: float
    rows: str
    perturbed: bool


def certified(recording: Recording) -> Certified | None:
    """Return the certificate, or None where no exact rows were released."""
    usable = [upload for upload in recording.rows if upload.what in ("distance rows", "kernel rows")]
    if not usable or any(isinstance(event, GaussianRelease) for upload in usable for event in upload.events):
        return None
    kernel, Y = recording.public.kernel, recording.landmarks.astype(np.float64)
    # As in `dpfedvis.numerics.distances.kernel_factor`, but the landmarks' part once for all clients.
    matrix, signs = nystrom_factor(kernel_matrix(Y, Y, kernel), cutoff=CUTOFF)
    total = 0.0
    for upload in usable:
        rows = upload.values if upload.what == "kernel rows" else _values(upload.values, kernel)
        total += KernelFactor(np.asarray(rows, np.float64) @ matrix[:, signs > 0]).certificate
    return Certified(
        bound=total,
        trivial=float(sum(upload.shape[0] for upload in usable)),
        rows=usable[0].what,
        perturbed=any(event.kind == "post-processing" for upload in usable for event in upload.events),
    )


def _values(distances: Array, kernel: Kernel) -> Array:
    squares = np.square(distances, dtype=np.float64)
    values: Array = np.zeros_like(squares)
    for gamma in kernel.gammas:
        values += np.exp(-gamma * squares) / len(kernel.gammas)
    return values
