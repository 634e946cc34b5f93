"""Input perturbation (Thm 4): noise on the records, once, at the client; all uploads are post-processing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from accounting import checks, sensitivity
from accounting.errors import InvalidParameter
from dpfedvis.mechanisms.base import Protection
from dpfedvis.mechanisms.gradient import GradientUpload
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.exact import Grid, Integers
from dpfedvis.numerics.kernels import Array


@dataclass(frozen=True)
class InputPerturbation(GradientUpload):
    """Records clipped to τ_X and perturbed at the client; exact gradients of the perturbed records.

    Parameters
    ----------
    trust : {"local"}
        Trust model: always local, since the noise is on the records.
    tau_x : float
        Public bound on the norm of a record.
    """

    tau_x: float = 1.0
    name: ClassVar[str] = "input"
    protection: ClassVar[Protection] = "home"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.positive("tau_x", self.tau_x)
        if self.trust != "local":
            raise InvalidParameter("trust", self.trust, "local: the noise is on the records")

    def grid(self, public: PublicParameters, Y: Array) -> Grid:
        """Of records clipped to τ_X."""
        return Grid.of_norm(self.tau_x, public.features)

    def at_home(self, records: Array, public: PublicParameters) -> Integers:
        """Return the records as they get their noise: on the grid, clipped to τ_X; shape (n_p, m)."""
        grid = self.grid(public, records)
        return grid.clipped(records, self.tau_x).astype(np.int64)

    def sensitivity(self, public: PublicParameters, records: float) -> float:
        """2τ_X, for replacing one record."""
        return sensitivity.input(tau_x=self.tau_x, adjacency=public.adjacency)
