"""What all mechanisms that upload the client's own landmarks share: Q local steps, and the server's average."""

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
class VariableUpload(BaseMechanism):
    """Upload of Y_p after Q local steps of size η (Alg. 1 l. 6–11)."""

    what: ClassVar[str] = "landmarks"
    local_steps: ClassVar[bool] = True

    def message(self, local: Local, Y: Array, setting: Setting, generator: np.random.Generator) -> Message:
        """Take Q local steps from the server's Y."""
        for _ in range(setting.local_steps):
            gradient = data_gradient(
                local.records,
                Y,
                setting.kernel,
                denominator=local.denominator,
                squared_norms=local.squared_norms,
                workspace=local.workspace,
            ) + landmark_gradient(Y, setting.kernel, estimator=setting.estimator, workspace=local.workspace)
            Y = (Y - setting.step_size * gradient).astype(Y.dtype, copy=False)
        return Message(Y)

    def update(self, Y: Array, average: Array, setting: Setting, optimiser: Optimiser) -> Step:
        """Step along the way to the average (Alg. 1 l. 13): the plain optimiser goes all of it.

        With one local step that way is a gradient; with more it is what servers of federated averaging take for one.
        """
        direction = (Y - average) / setting.step_size
        gradient = direction if setting.local_steps == 1 else None
        return Step((Y + optimiser.step(direction)).astype(Y.dtype, copy=False), gradient)
