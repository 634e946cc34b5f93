"""Variable perturbation: a client takes Q local steps and uploads its Y_p with noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from accounting import sensitivity
from accounting.errors import InvalidParameter
from dpfedvis.mechanisms.base import BaseMechanism, Message, PreparedRecords, Update
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.mmd import data_gradient, landmark_gradient
from dpfedvis.numerics.optimisers import Optimiser


@dataclass(frozen=True)
class VariableUpload(BaseMechanism):
    """Upload of Y_p after Q local steps of size η (Alg. 1 l. 6–11)."""

    what: ClassVar[str] = "landmarks"
    local_steps: ClassVar[bool] = True

    def message(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, generator: np.random.Generator
    ) -> Message:
        """Take Q local steps from the server's Y."""
        for _ in range(public.local_steps):
            gradient = data_gradient(
                local.records,
                Y,
                public.kernel,
                denominator=local.denominator,
                squared_norms=local.squared_norms,
                workspace=local.workspace,
            ) + landmark_gradient(Y, public.kernel, estimator=public.estimator, workspace=local.workspace)
            Y = (Y - public.step_size * gradient).astype(Y.dtype, copy=False)
        return Message(Y)

    def update(self, Y: Array, average: Array, public: PublicParameters, optimiser: Optimiser) -> Update:
        """Step towards the average (Alg. 1 l. 13); the plain optimiser goes all the way.

        With one local step, (Y − average)/η is a gradient. With more it is the usual pseudo-gradient of federated
        averaging.
        """
        direction = (Y - average) / public.step_size
        gradient = direction if public.local_steps == 1 else None
        return Update((Y + optimiser.step(direction)).astype(Y.dtype, copy=False), gradient)


@dataclass(frozen=True)
class VariablePerturbation(VariableUpload):
    """Noise on Y_p after Q local steps.

    The paper names this perturbation but does not calibrate it; the sensitivity is ours
    (`accounting.sensitivity.variable`).

    Parameters
    ----------
    trust : {"local", "aggregate", "central"}
        Trust model: what the server sees of the clients.
    """

    name: ClassVar[str] = "variable"

    def sensitivity(self, public: PublicParameters, records: float) -> float:
        """Δ of Y_p, with the sharp smoothness constant.

        That constant is for a mean over the records, so the denominator must be their number. It excludes sampling,
        where a batch may be larger than expected, and add-remove, where n_p is replaced by a public number.
        """
        if public.sampling_rate is not None:
            raise InvalidParameter("sampling_rate", public.sampling_rate, "None for variable")
        if public.adjacency != "replace-one":
            raise InvalidParameter("adjacency", public.adjacency, "replace-one for variable")
        return sensitivity.variable(
            gamma=public.kernel.gammas,
            records=records,
            landmarks=public.landmarks,
            step_size=public.step_size,
            local_steps=public.local_steps,
            adjacency=public.adjacency,
            smoothness=public.smoothness,
        )
