"""Variable perturbation: the client takes Q steps of its own and uploads its Y_p with noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from accounting import sensitivity
from accounting.errors import InvalidParameter
from dpfedvis.kernels import Array
from dpfedvis.mechanisms.base import BaseMechanism, Local, Message, Step
from dpfedvis.mmd import data_gradient, landmark_gradient
from dpfedvis.optimisers import Optimiser
from dpfedvis.setting import Setting


@dataclass(frozen=True)
class VariablePerturbation(BaseMechanism):
    """Noise on Y_p after Q local steps (Alg. 1 l. 6–11); the server averages (l. 13).

    The paper names this perturbation and does not calibrate it; the sensitivity is ours
    (`accounting.sensitivity.variable`).
    """

    what: ClassVar[str] = "landmarks"
    name: ClassVar[str] = "variable"

    def sensitivity(self, setting: Setting, records: float) -> float:
        """Δ of Y_p, with the sharp smoothness constant.

        That constant is for a mean over the records, so that the denominator must be their number: neither sampling,
        whose batches may be larger than their expected size, nor a public stand-in for the number will do.
        """
        if setting.adjacency != "replace-one" or setting.sampling_rate is not None:
            raise InvalidParameter("adjacency", setting.adjacency, "replace-one, without sampling, for variable")
        return sensitivity.variable(
            gamma=setting.kernel.gammas,
            records=records,
            landmarks=setting.landmarks,
            step_size=setting.step_size,
            local_steps=setting.local_steps,
            adjacency=setting.adjacency,
            smoothness=setting.smoothness,
        )

    def message(self, local: Local, Y: Array, setting: Setting, generator: np.random.Generator) -> Message:
        """Take Q local steps of size η from the server's Y."""
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
        """Take the average as the next Y; with one local step the way to it is a gradient."""
        gradient = (Y - average) / setting.step_size if setting.local_steps == 1 else None
        return Step(average.astype(Y.dtype, copy=False), gradient)
