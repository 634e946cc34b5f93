"""The paper's "+" noise: scaled by the gradient's own standard deviation, and therefore no differential privacy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from accounting import checks, sensitivity
from dpfedvis.kernels import Array
from dpfedvis.mechanisms.base import Local, Message, Protection
from dpfedvis.mechanisms.gradients import GradientUpload
from dpfedvis.setting import Setting


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

    def sensitivity(self, setting: Setting, records: float) -> float:
        """Δ by which the noise is priced."""
        return sensitivity.gradient(
            gamma=setting.kernel.gammas, records=records, landmarks=setting.landmarks, adjacency=setting.adjacency
        )

    def message(self, local: Local, Y: Array, setting: Setting, generator: np.random.Generator) -> Message:
        """Add the noise to the exact gradient."""
        exact = super().message(local, Y, setting, generator).values
        scale = self.beta * float(np.std(exact, dtype=np.float64))
        noisy = exact + scale * generator.standard_normal(exact.shape)
        return Message(noisy.astype(exact.dtype, copy=False), nominal_sigma=scale or None)
