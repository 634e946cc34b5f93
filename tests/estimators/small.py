"""Maps that take a fraction of a second, and federations for them."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.datasets import load_digits

from accounting import Budget
from dpfedvis import FederatedData, FedTSNE, FedUMAP

DIGITS, CLASSES = load_digits(return_X_y=True)
DIGITS = (DIGITS / 16).astype(np.float32)
FAST = {"early_exaggeration_iter": 30, "n_iter": 60}
BUDGET = Budget(2.0, 1e-5)
SPAN = {"start": np.random.default_rng(7).uniform(size=(10, 3)), "bounds": (0.0, 1.0)}


def tsne(**options):
    given = {"n_landmarks": 40, "mechanism": "none", "rounds": 3, "perplexity": 10.0, "n_jobs": 1}
    return FedTSNE(**{**given, "feddl": {"bounds": (0.0, 1.0)}, "tsne": FAST, **options})


def umap(**options):
    given = {"n_landmarks": 40, "mechanism": "none", "rounds": 3, "n_neighbors": 10}
    return FedUMAP(**{**given, "feddl": {"bounds": (0.0, 1.0)}, "umap": {"n_epochs": 60}, **options})


def digits(n=300, clients=3, seed=0, **options):
    return FederatedData.split(DIGITS[:n], CLASSES[:n], clients=clients, seed=seed, **options)


def blobs(parts=(30, 30, 30), features=3, seed=0):
    """One blob for each client, in the unit cube, float64."""
    rng = np.random.default_rng(seed)
    centres = rng.uniform(0.2, 0.8, (len(parts), features))
    return FederatedData(
        [c + rng.normal(0, 0.05, (n, features)) for c, n in zip(centres, parts, strict=True)],
        [np.full(n, p) for p, n in enumerate(parts)],
        dtype=np.float64,
    )


def dense_of(estimate):
    return cdist(estimate.left, estimate.left)
