"""The exact error of K̂ for 40,000 records of MNIST, without an n × n matrix: large.json beside this file.

DPFEDVIS_DATA=... OPENBLAS_NUM_THREADS=1 python reports/theory/large.py
"""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path

import numpy as np

from dpfedvis.data import load
from dpfedvis.distances import kernel_factor
from dpfedvis.evaluation.bounds import KernelError, centred, norms
from dpfedvis.kernels import kernel_matrix, squared_distances
from dpfedvis.scale import kernel_of_distance

HERE = Path(__file__).parent
RECORDS, LANDMARKS = 40_000, 500


def main() -> None:
    """Measure once; the landmarks are sampled records."""
    X = centred(load("mnist", records=RECORDS).X)
    rng = np.random.default_rng(0)
    kernel = kernel_of_distance(float(np.median(squared_distances(X[:1000], X[:1000])[np.triu_indices(1000, 1)])))
    Y = X[rng.permutation(len(X))[:LANDMARKS]]
    factor = kernel_factor(kernel_matrix(X, Y, kernel), kernel_matrix(Y, Y, kernel))
    began = time.time()
    truth = norms(KernelError(X, kernel, np.asarray(factor.left, np.float64)), rng, progress=lambda: print("pass"))
    result = {
        "command": "python reports/theory/large.py",
        "records": RECORDS,
        "landmarks": LANDMARKS,
        "spectral": truth.spectral,
        "frobenius": truth.frobenius,
        "residual": truth.residual,
        "certificate": factor.certificate,
        "passes": truth.passes,
        "seconds": round(time.time() - began),
        "cpu_seconds": round(time.process_time()),
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }
    (HERE / "large.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
