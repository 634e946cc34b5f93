"""Clipped gradient perturbation: each record's part of the gradient is clipped, then noise is added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from accounting import checks, sensitivity
from dpfedvis.kernels import Array
from dpfedvis.mechanisms.base import Local, Message
from dpfedvis.mechanisms.gradients import GradientUpload
from dpfedvis.mmd import clipped_data_gradient, max_clip
from dpfedvis.setting import Setting


@dataclass(frozen=True)
class ClippedGradientPerturbation(GradientUpload):
    """Noise on a gradient whose parts are clipped record by record, as in DP-SGD.

    Parameters
    ----------
    trust : {"local", "aggregate", "central"}
    clip : float
        Clipping norm as a fraction of the largest that can occur, √(n_y/(2eγ)): 1 clips nothing.
    """

    clip: float = 0.5
    name: ClassVar[str] = "clipped"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.rate("clip", self.clip)

    def sensitivity(self, setting: Setting, records: float) -> float:
        """Δ of the clipped gradient."""
        return sensitivity.clipped_gradient(
            gamma=setting.kernel.gammas,
            records=records,
            landmarks=setting.landmarks,
            clip=self._norm(setting),
            adjacency=setting.adjacency,
        )

    def message(self, local: Local, Y: Array, setting: Setting, generator: np.random.Generator) -> Message:
        """Compute the clipped data gradient."""
        return Message(
            clipped_data_gradient(
                local.records,
                Y,
                setting.kernel,
                clip=self._norm(setting),
                denominator=local.denominator,
                squared_norms=local.squared_norms,
                workspace=local.workspace,
            )
        )

    def _norm(self, setting: Setting) -> float:
        return self.clip * max_clip(setting.kernel, setting.landmarks)
