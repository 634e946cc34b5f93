"""The exact errors of K̂ and D̂ for 40,000 records of MNIST, without an n × n matrix: large.json beside this file.

DPFEDVIS_DATA=... OPENBLAS_NUM_THREADS=1 python reports/theory/large.py

Each of the three errors is measured and written by itself, so that an interrupted run resumes.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dpfedvis.data import load
from dpfedvis.evaluation.theory import DistanceError, KernelError, centred, norms
from dpfedvis.mechanisms.scale import kernel_of_distance
from dpfedvis.numerics.distances import GramDistances, NystromDistances, gram_frame, kernel_factor, nystrom_factor
from dpfedvis.numerics.kernels import kernel_matrix, squared_distances
from dpfedvis.runs.code_version import code_version

HERE = Path(__file__).parent
RECORDS, LANDMARKS = 40_000, 500


def kernel_error(X: np.ndarray, Y: np.ndarray) -> tuple[KernelError, dict[str, float]]:
    """Return K − K̂, and the certificate."""
    kernel = kernel_of_distance(float(np.median(squared_distances(X[:1000], X[:1000])[np.triu_indices(1000, 1)])))
    factor = kernel_factor(kernel_matrix(X, Y, kernel), kernel_matrix(Y, Y, kernel))
    return KernelError(X, kernel, np.asarray(factor.left, np.float64)), {"certificate": factor.certificate}


def nystrom_error(X: np.ndarray, Y: np.ndarray) -> tuple[DistanceError, dict[str, float]]:
    """Return D − D̂ of the paper's estimate."""
    B, W = (np.sqrt(squared_distances(points, Y)) for points in (X, Y))
    np.fill_diagonal(W, 0.0)
    matrix, signs = nystrom_factor(W)
    return DistanceError(X, NystromDistances((B @ matrix).astype(np.float32), signs.astype(np.float32))), {}


def gram_error(X: np.ndarray, Y: np.ndarray) -> tuple[DistanceError, dict[str, float]]:
    """Return D − D̂ of the Gram estimate."""
    B, W = (np.sqrt(squared_distances(points, Y)) for points in (X, Y))
    np.fill_diagonal(W, 0.0)
    return DistanceError(X, GramDistances(gram_frame(W).coordinates(B))), {}


ERRORS: dict[str, Callable[..., tuple[Any, dict[str, float]]]] = {
    "kernel": kernel_error,
    "nystrom distances": nystrom_error,
    "gram distances": gram_error,
}


def main() -> None:
    """Measure what is not there yet; the landmarks are sampled records."""
    X = centred(load("mnist", records=RECORDS).X)
    Y = X[np.random.default_rng(0).permutation(len(X))[:LANDMARKS]]
    path = HERE / "large.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for name, make in ERRORS.items():
        if name in found:
            continue
        began, cpu = time.time(), time.process_time()
        error, further = make(X, Y)
        truth = norms(error, np.random.default_rng(1), progress=lambda: print("pass", flush=True))
        found[name] = {
            "records": RECORDS,
            "landmarks": LANDMARKS,
            "spectral": truth.spectral,
            "frobenius": truth.frobenius,
            "residual": truth.residual,
            **further,
            "code": str(code_version()),
            "passes": truth.passes,
            "seconds": round(time.time() - began),
            "cpu_seconds": round(time.process_time() - cpu),
            "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
        }
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(found, indent=1) + "\n")
        temporary.replace(path)


if __name__ == "__main__":
    main()
