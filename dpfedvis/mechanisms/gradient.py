"""Gradient perturbation: Gaussian noise on every uploaded gradient (Thm 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from accounting import checks, sensitivity
from accounting.errors import InvalidParameter
from accounting.sensitivity import Bound
from dpfedvis.mechanisms.base import BaseMechanism, Message, PreparedRecords, Update
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.mmd import data_gradient, landmark_gradient
from dpfedvis.numerics.optimisers import Optimiser
from dpfedvis.numerics.projections import Everywhere, Projection, SpectralBall, clip_norms


@dataclass(frozen=True)
class GradientUpload(BaseMechanism):
    """Upload of the data's part of ∇f_p(Y) (Eq. 9; Alg. 1 l. 11, "resp.").

    The server knows the part in Y alone and adds it exactly, without noise.
    """

    what: ClassVar[str] = "gradient"

    def message(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, generator: np.random.Generator
    ) -> Message:
        """Compute the data's part of the gradient."""
        return Message(
            data_gradient(
                local.records,
                Y,
                public.kernel,
                denominator=local.denominator,
                squared_norms=local.squared_norms,
                workspace=local.workspace,
            )
        )

    def update(self, Y: Array, average: Array, public: PublicParameters, optimiser: Optimiser) -> Update:
        """One step on the average gradient (Alg. 1 l. 14)."""
        full = average + landmark_gradient(Y, public.kernel, estimator=public.estimator)
        return Update((Y + optimiser.step(full)).astype(Y.dtype, copy=False), full)


@dataclass(frozen=True)
class GradientPerturbation(GradientUpload):
    """Gaussian noise on the gradient.

    Parameters
    ----------
    trust : {"local", "aggregate", "central"}
        Trust model: what the server sees of the clients.
    bound : {"tight", "theorem"}
        Sensitivity to calibrate to: tight, or the paper's theorem. ``"tight"`` needs no bound on the
        data. ``"theorem"`` is Thm 6 of the paper; its
        constants are enforced: records are clipped to `tau_x`, landmarks to norm `upsilon` − `tau_x` (so
        ‖x − y‖ ≤ Υ) and Y to spectral norm `tau_y`.
    tau_x : float, optional
        Public bound on the norm of a record, for Thm 6.
    tau_y : float, optional
        Public bound on the spectral norm of Y, for Thm 6.
    upsilon : float, optional
        Public bound on the distance of a record and a landmark, for Thm 6.
    """

    bound: Bound = "tight"
    tau_x: float | None = None
    tau_y: float | None = None
    upsilon: float | None = None
    name: ClassVar[str] = "gradient"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of("bound", self.bound, ("tight", "theorem"))
        if self.bound == "theorem":
            constants = {"tau_x": self.tau_x, "tau_y": self.tau_y, "upsilon": self.upsilon}
            for name, value in constants.items():
                if value is None:
                    raise InvalidParameter(name, value, 'given with bound="theorem"')
                checks.positive(name, value)
            if self.tau_x is not None and self.upsilon is not None and self.upsilon <= self.tau_x:
                raise InvalidParameter(
                    "upsilon", self.upsilon, f"above tau_x = {self.tau_x}: landmarks get norm upsilon − tau_x"
                )

    @property
    def projection(self) -> Projection:
        """The set in which τ_Y and Υ hold."""
        if self.tau_x is None or self.tau_y is None or self.upsilon is None:
            return Everywhere()
        return SpectralBall(self.upsilon - self.tau_x, self.tau_y)

    def prepare(self, records: Array) -> Array:
        """Clip the records to τ_X, which Thm 6 needs."""
        return clip_norms(records, self.tau_x) if self.bound == "theorem" and self.tau_x is not None else records

    def sensitivity(self, public: PublicParameters, records: float) -> float:
        """Δ of the gradient (`accounting.sensitivity.gradient`)."""
        return sensitivity.gradient(
            gamma=public.kernel.gammas,
            records=records,
            landmarks=public.landmarks,
            bound=self.bound,
            adjacency=public.adjacency,
            tau_x=self.tau_x,
            tau_y=self.tau_y,
            upsilon=self.upsilon,
        )
