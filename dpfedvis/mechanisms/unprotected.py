"""Uploads without a guarantee: the paper's FedDL as it stands, and its "+" noise, which has no ε."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from accounting import checks, sensitivity
from dpfedvis.mechanisms.base import Message, PreparedRecords, Protection
from dpfedvis.mechanisms.gradient import GradientUpload
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.variable import VariableUpload
from dpfedvis.numerics.kernels import Array


@dataclass(frozen=True)
class NoPerturbation(GradientUpload):
    """Exact gradients."""

    name: ClassVar[str] = "none"
    protection: ClassVar[Protection] = "none"
    why: ClassVar[str] = "exact gradients, no noise"

    def sensitivity(self, public: PublicParameters, records: float) -> None:
        """Nothing is protected."""
        return None


@dataclass(frozen=True)
class LocalSteps(VariableUpload):
    """Exact Y_p after Q local steps."""

    name: ClassVar[str] = "local-steps"
    protection: ClassVar[Protection] = "none"
    why: ClassVar[str] = "exact landmarks of one client, no noise"

    def sensitivity(self, public: PublicParameters, records: float) -> None:
        """Nothing is protected."""
        return None


@dataclass(frozen=True)
class HeuristicNoise(GradientUpload):
    """Noise N(0, β² sd²(∇f_p)) on every gradient, as in Fed-tSNE+ and Fed-UMAP+.

    The scale depends on the data, so no (ε, δ) follows: uploads are logged as unprotected. The scale that was used
    goes into the ledger, and `accounting.nominal_mu` prices it as if it had been public, with the tight sensitivity.

    Parameters
    ----------
    beta : float
        β of the paper: 1 for maps, 0.1 for clustering.
    """

    beta: float = 1.0
    name: ClassVar[str] = "heuristic"
    protection: ClassVar[Protection] = "none"
    why: ClassVar[str] = "noise scaled by the gradient's own standard deviation"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive("beta", self.beta)

    def sensitivity(self, public: PublicParameters, records: float) -> float:
        """Δ by which the noise is priced."""
        return sensitivity.gradient(
            gamma=public.kernel.gammas, records=records, landmarks=public.landmarks, adjacency=public.adjacency
        )

    def message(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, generator: np.random.Generator
    ) -> Message:
        """Add the noise to the exact gradient."""
        exact = super().message(local, Y, public, generator).values
        scale = self.beta * float(np.std(exact, dtype=np.float64))
        noisy = exact + scale * generator.standard_normal(exact.shape)
        return Message(noisy.astype(exact.dtype, copy=False), nominal_sigma=scale or None)
