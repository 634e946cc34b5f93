"""Variable perturbation: a client takes Q local steps and uploads its Y_p with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from accounting import sensitivity
from accounting.errors import InvalidParameter
from dpfedvis.mechanisms.base import BaseMechanism, Message, PreparedRecords, Update
from dpfedvis.mechanisms.gradient import GradientPerturbation
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.exact import Grid, Integers
from dpfedvis.numerics.exact_steps import FINE, kernel_error, local_steps
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
    """Noise on Y_p − Y, the client's Q local steps.

    The paper names this perturbation but does not calibrate it; the sensitivity is ours
    (`accounting.sensitivity.variable`). For Q = 1 the upload is −η times the data's part of the gradient, an exact sum
    over records, and the server adds the part in Y alone. For Q > 1 the iterates depend on all records, so that the
    upload is no sum: it is the same for any order, block size and number of threads, but not additive.

    Parameters
    ----------
    trust : {"local", "aggregate", "central"}
        Trust model: what the server sees of the clients.
    """

    name: ClassVar[str] = "variable"
    needs_norm: ClassVar[bool] = False

    def sensitivity(self, public: PublicParameters, records: float) -> float:
        """Δ of Y_p, with the sharp smoothness constant, and with the rounding of each of Q > 1 steps.

        That constant is for a mean over the records, so the denominator must be their number. It excludes sampling,
        where a batch may be larger than expected, and add-remove, where n_p is replaced by a public number.

        Proof for Q > 1. Let e_t be the distance of two neighbours' iterates. A step with the true gradient moves them
        apart to (1 + ηL)e_t + ηΔ at most. The rounded kernel is off by ρ at each of them, and rounding Y to its grid of
        width h adds h√(n_y m): e_{t+1} ≤ (1 + ηL)e_t + η(Δ + 2ρ) + h√(n_y m), summed from e_0 = 0.
        """
        if public.sampling_rate is not None:
            raise InvalidParameter("sampling_rate", public.sampling_rate, "None for variable")
        if public.adjacency != "replace-one":
            raise InvalidParameter("adjacency", public.adjacency, "replace-one for variable")
        gamma, landmarks, eta = public.kernel.gammas, public.landmarks, public.step_size
        exact = sensitivity.variable(
            gamma=gamma,
            records=records,
            landmarks=landmarks,
            step_size=eta,
            local_steps=public.local_steps,
            adjacency=public.adjacency,
            smoothness=public.smoothness,
        )
        if self.additive(public):
            return exact
        delta = sensitivity.gradient(gamma=gamma, records=records, landmarks=landmarks, adjacency=public.adjacency)
        # Before the grid is known, what rounding adds is left out.
        moved = math.sqrt(landmarks * public.features) * (public.grid.step * FINE if public.grid else 0.0)
        error = 2 * eta * kernel_error(public.kernel, landmarks, public.estimator)
        return exact * (eta * delta + error + moved) / (eta * delta)

    def additive(self, public: PublicParameters) -> bool:
        """For one local step."""
        return public.local_steps == 1

    def cell(self, public: PublicParameters, grid: Grid) -> float:
        """A cell of the gradient times η; a cell of the iterates' finer grid for Q > 1."""
        if self.additive(public):
            return GradientPerturbation().cell(public, grid) * public.step_size
        return grid.step * FINE

    def grid(self, public: PublicParameters, Y: Array) -> Grid:
        """For Q > 1 that of the run: the width of a cell must not depend on Y, since the sensitivity depends on it."""
        if not self.additive(public) and public.grid is None:
            raise InvalidParameter("grid", None, "given for more than one local step")
        return super().grid(public, Y)

    def total(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, grid: Grid, factor: float = 1.0
    ) -> Integers:
        """Take Q local steps from the server's Y."""
        if self.additive(public):
            return GradientPerturbation().total(local, Y, public, grid, factor)
        steps = local_steps(
            np.asarray(local.cells(grid)[:]),  # iterates read all of them
            grid.nearest(Y),
            public.kernel,
            grid,
            steps=public.local_steps,
            size=public.step_size,
            denominator=local.denominator,
            estimator=public.estimator,
        )
        return steps if factor == 1 else np.trunc(steps * factor).astype(np.int64)

    def message(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, generator: np.random.Generator
    ) -> Message:
        """The protected upload without its noise."""
        return BaseMechanism.message(self, local, Y, public, generator)

    def update(self, Y: Array, average: Array, public: PublicParameters, optimiser: Optimiser) -> Update:
        """Step along the average (Alg. 1 l. 13); the plain optimiser goes all the way."""
        if self.additive(public):
            # The sum holds the data's gradient; the sign and η are those of a local step.
            gradient = average / public.step_size + landmark_gradient(Y, public.kernel, estimator=public.estimator)
            return Update((Y + optimiser.step(gradient)).astype(Y.dtype, copy=False), gradient)
        direction = -average / public.step_size
        return Update((Y + optimiser.step(direction)).astype(Y.dtype, copy=False))
