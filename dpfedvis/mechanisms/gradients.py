"""What all mechanisms that upload gradients share: the upload, and the server's step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpfedvis.kernels import Array
from dpfedvis.mechanisms.base import BaseMechanism, Local, Message, Step
from dpfedvis.mmd import data_gradient, landmark_gradient
from dpfedvis.optimisers import Optimiser
from dpfedvis.setting import Setting


@dataclass(frozen=True)
class GradientUpload(BaseMechanism):
    """Upload of the data's part of ∇f_p(Y) (Eq. 9; Alg. 1 l. 11, "resp.").

    The part in Y alone is known to the server, which adds it exactly, so that it carries no noise.
    """

    what: ClassVar[str] = "gradient"

    def message(self, local: Local, Y: Array, setting: Setting, generator: np.random.Generator) -> Message:
        """Compute the data's part of the gradient."""
        return Message(
            data_gradient(
                local.records,
                Y,
                setting.kernel,
                denominator=local.denominator,
                squared_norms=local.squared_norms,
                workspace=local.workspace,
            )
        )

    def update(self, Y: Array, average: Array, setting: Setting, optimiser: Optimiser) -> Step:
        """One step on the average gradient (Alg. 1 l. 14)."""
        full = average + landmark_gradient(Y, setting.kernel, estimator=setting.estimator)
        return Step((Y + optimiser.step(full)).astype(Y.dtype, copy=False), full)
