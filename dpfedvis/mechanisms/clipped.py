"""Clipped gradient perturbation: each record's part of the gradient is clipped, then noise is added (DP-SGD)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from accounting import checks, sensitivity
from dpfedvis.mechanisms.base import Message, PreparedRecords
from dpfedvis.mechanisms.gradient import GradientUpload
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.mmd import clipped_data_gradient, max_clip


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
            clip=self._norm(public),
            adjacency=public.adjacency,
        )

    def message(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, generator: np.random.Generator
    ) -> Message:
        """Compute the clipped data gradient."""
        return Message(
            clipped_data_gradient(
                local.records,
                Y,
                public.kernel,
                clip=self._norm(public),
                denominator=local.denominator,
                squared_norms=local.squared_norms,
                workspace=local.workspace,
            )
        )

    def _norm(self, public: PublicParameters) -> float:
        return self.clip * max_clip(public.kernel, public.landmarks)
