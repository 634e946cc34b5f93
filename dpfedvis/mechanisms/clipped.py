"""Clipped gradient perturbation: each record's part of the gradient is clipped, then noise is added (DP-SGD)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from accounting import checks, sensitivity
from dpfedvis.mechanisms.gradient import GradientUpload
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.mmd import max_clip


@dataclass(frozen=True)
class ClippedGradientPerturbation(GradientUpload):
    """Noise on a gradient clipped record by record, as in DP-SGD.

    Parameters
    ----------
    trust : {"local", "aggregate", "central"}
        Trust model: what the server sees of the clients.
    clip : float
        Clipping norm as a fraction of the largest possible norm. That is √(n_y/(2eγ)); 1 clips nothing.
    """

    clip: float = 0.5
    name: ClassVar[str] = "clipped"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.rate("clip", self.clip)

    def sensitivity(self, public: PublicParameters, records: float) -> float:
        """Δ of the clipped gradient (`accounting.sensitivity.clipped_gradient`)."""
        return sensitivity.clipped_gradient(
            gamma=public.kernel.gammas,
            records=records,
            landmarks=public.landmarks,
            clip=self._clip(public),
            adjacency=public.adjacency,
        )

    def _clip(self, public: PublicParameters) -> float:
        """C."""
        return self.clip * max_clip(public.kernel, public.landmarks)
