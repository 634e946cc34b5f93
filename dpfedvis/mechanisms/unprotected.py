"""Uploads without a guarantee: the paper's FedDL, and its "+" noise, which has no ε."""

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
    """Exact gradients, as in the paper's protocol: no protection."""

    name: ClassVar[str] = "none"
    protection: ClassVar[Protection] = "none"
    why: ClassVar[str] = "exact gradients, no noise"

    def sensitivity(self, public: PublicParameters, records: float) -> None:
        """Nothing is protected."""
        return None


@dataclass(frozen=True)
class LocalSteps(VariableUpload):
    """Exact Y_p after Q local steps, as in the paper's protocol: no protection."""

    name: ClassVar[str] = "local-steps"
    protection: ClassVar[Protection] = "none"
    why: ClassVar[str] = "exact landmarks of one client, no noise"

    def sensitivity(self, public: PublicParameters, records: float) -> None:
        """Nothing is protected."""
        return None


@dataclass(frozen=True)
class HeuristicNoise(GradientUpload):
    """Noise N(0, β² sd²(∇f_p)) on every gradient, as in Fed-tSNE+ and Fed-UMAP+.

    The scale depends on the data, so there is no (ε, δ), and uploads are logged as unprotected. The ledger keeps the
    scale, from which `accounting.nominal_mu` computes a nominal ε, as if it were public, with the tight sensitivity.

    Parameters
    ----------
    trust : {"local"}
        Trust model: always local, since there is no protection to share.
    beta : float
        Noise scale β of the paper: 1 for maps, 0.1 for clustering.
    """

    beta: float = 1.0
    name: ClassVar[str] = "heuristic"
    protection: ClassVar[Protection] = "none"
    why: ClassVar[str] = "noise scaled by the gradient's own standard deviation"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive("beta", self.beta)

    def sensitivity(self, public: PublicParameters, records: float) -> float:
        """Δ for the nominal ε."""
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
