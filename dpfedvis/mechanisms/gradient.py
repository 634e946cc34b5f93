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
from dpfedvis.numerics.exact import KERNEL_BITS, Grid, Integers
from dpfedvis.numerics.exact_sums import kernel_pulls
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.mmd import data_gradient, landmark_gradient
from dpfedvis.numerics.optimisers import Optimiser
from dpfedvis.numerics.projections import Everywhere, Projection, SpectralBall


@dataclass(frozen=True)
class GradientUpload(BaseMechanism):
    """Upload of the data's part of ∇f_p(Y) (Eq. 9; Alg. 1 l. 11, "resp.").

    The server knows the part in Y alone and adds it exactly, without noise.
    """

    what: ClassVar[str] = "gradient"
    needs_norm: ClassVar[bool] = False

    def cell(self, public: PublicParameters, grid: Grid) -> float:
        """A cell of the pulls (x − y)k, times the factor 4γ̄/n_y of the gradient."""
        return 4 * public.kernel.mean_gamma / public.landmarks * grid.step * 2.0**-KERNEL_BITS

    def total(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, grid: Grid, factor: float = 1.0
    ) -> Integers:
        """Sum −(x − y_i)k̂ over the records; see `dpfedvis.numerics.exact_sums.kernel_pulls`."""
        return -kernel_pulls(
            local.cells(grid, self._norm()),
            grid.nearest(Y),
            public.kernel,
            grid,
            factor=factor,
            clip=self._clip(public),
        )

    def _norm(self) -> float | None:
        """Norm that records are clipped to, if the sensitivity rests on it."""
        return None

    def _clip(self, public: PublicParameters) -> float | None:
        """Norm that each record's part is clipped to, if it is."""
        return None

    def message(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, generator: np.random.Generator
    ) -> Message:
        """Compute the data's part of the gradient, in the dtype of the records."""
        if self.protection == "upload":
            return super().message(local, Y, public, generator)
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

    At equal budget S rounds have √S times the noise of one. Where no S is given, the server chooses it from public
    numbers (`dpfedvis.server.rounds`).

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
        constants = {"tau_x": self.tau_x, "tau_y": self.tau_y, "upsilon": self.upsilon}
        for name, value in constants.items():
            if value is not None:
                checks.between(name, value, 1e-12, 1e12)
        if self.bound == "theorem":
            for name, value in constants.items():
                if value is None:
                    raise InvalidParameter(name, value, 'given with bound="theorem"')
            if self.tau_x is not None and self.upsilon is not None and self.upsilon <= self.tau_x:
                raise InvalidParameter(
                    "upsilon", self.upsilon, f"above tau_x = {self.tau_x}: landmarks get norm upsilon − tau_x"
                )

    @property
    def projection(self) -> Projection:
        """The set in which τ_Y and Υ hold."""
        if self.bound != "theorem" or self.tau_x is None or self.tau_y is None or self.upsilon is None:
            return Everywhere()
        return SpectralBall(self.upsilon - self.tau_x, self.tau_y)

    def grid(self, public: PublicParameters, Y: Array) -> Grid:
        """The run's grid; for Thm 6 without one, that of points up to Υ."""
        if self.bound == "theorem" and self.upsilon is not None and public.grid is None:
            return Grid.of_norm(self.upsilon, public.features)
        return super().grid(public, Y)

    def total(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, grid: Grid, factor: float = 1.0
    ) -> Integers:
        """Sum over the records, at landmarks within the bounds of Thm 6, if the sensitivity rests on them."""
        bounds = self.projection
        if isinstance(bounds, SpectralBall) and not bounds.contains(grid.points(grid.nearest(Y))):
            raise InvalidParameter("landmarks", "too long", f"within norm {bounds.radius:g} and {bounds.spectral:g}")
        return super().total(local, Y, public, grid, factor)

    def _norm(self) -> float | None:
        """τ_X, which Thm 6 needs."""
        return self.tau_x if self.bound == "theorem" else None

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

    def rounded(self, public: PublicParameters) -> float:
        """None, but for Thm 6 under replace-one: 4 n_y (Υ/step)², as if so many values were rounded one by one.

        Proof. A bound on ‖(x − y)k‖, as the tight one and that for adding a record, still holds when k is rounded down.
        Thm 6 bounds a difference, and of two near records one may be rounded and the other not. Rounding lowers k by
        2^{−b} + 2⁻⁴⁰ at most, so that each landmark's part is off by that times Υ for either record: Υ/step cells of
        step·2^{−b}. All n_y together are off by √n_y times as much in norm, and two records by twice that.
        """
        if self.bound != "theorem" or self.upsilon is None or public.adjacency != "replace-one":
            return 0.0
        step = self.grid(public, np.zeros((1, public.features))).step
        cells = 2 * (1 + 2.0 ** (KERNEL_BITS - 40)) * self.upsilon / step
        return cells**2 * public.landmarks
