"""Federated t-SNE, UMAP and spectral clustering, with every upload accounted for.

>>> from accounting import Budget
>>> from dpfedvis import FederatedData, FedTSNE

The estimators are imported when first used, so that the command line starts at once.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accounting import UnprotectedReleaseError
    from dpfedvis.data import FederatedData
    from dpfedvis.errors import NoSignalWarning
    from dpfedvis.estimators.clusters import FedSpectralClustering
    from dpfedvis.estimators.feddl import FedDL
    from dpfedvis.estimators.tsne import FedTSNE
    from dpfedvis.estimators.umap import FedUMAP

# Idle OpenMP threads of openTSNE and scikit-learn should sleep: spinning, they take the cores from those at work.
# Read when their library is loaded, so set before that; whoever has set it keeps it.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

_HOMES = {
    "FedDL": "dpfedvis.estimators.feddl",
    "FedSpectralClustering": "dpfedvis.estimators.clusters",
    "FedTSNE": "dpfedvis.estimators.tsne",
    "FedUMAP": "dpfedvis.estimators.umap",
    "FederatedData": "dpfedvis.data",
    "NoSignalWarning": "dpfedvis.errors",
    "UnprotectedReleaseError": "accounting",
}

__version__: str

__all__ = [
    "FedDL",
    "FedSpectralClustering",
    "FedTSNE",
    "FedUMAP",
    "FederatedData",
    "NoSignalWarning",
    "UnprotectedReleaseError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def _version() -> str:
    """Return the version of the installed package, or that of the source tree if none is installed."""
    import tomllib
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("dpfedvis")
    except PackageNotFoundError:
        source = Path(__file__).parents[1] / "pyproject.toml"
        return str(tomllib.loads(source.read_text())["project"]["version"]) if source.is_file() else "unknown"
