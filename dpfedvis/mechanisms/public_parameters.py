"""Public parameters of a run: server and clients agree on them before any record is read."""

from __future__ import annotations

from dataclasses import dataclass

from accounting.budget import Adjacency
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.mmd import Estimator, smoothness


@dataclass(frozen=True)
class PublicParameters:
    """What everyone knows about a run.

    Parameters
    ----------
    kernel : Kernel
    landmarks, features : int
        Shape (n_y, m) of Y.
    rounds, local_steps : int
        S and Q.
    step_size : float
        η of a local step, and of a plain server step.
    estimator : {"unbiased", "biased"}
        Which MMD is minimised.
    adjacency : {"replace-one", "add-remove"}
    sampling_rate : float, optional
        Poisson sampling rate q of the records in each round.
    grid : Grid, optional
        Grid of records and landmarks. Without one, kernel sums take one around the landmarks.
    noise : float
        Standard deviation of the noise in each value of the server's average; follows from the noise plan.
    public_seed : int
        For public randomness, such as the frequencies of random features.
    """

    kernel: Kernel
    landmarks: int
    features: int
    rounds: int
    local_steps: int
    step_size: float
    estimator: Estimator = "unbiased"
    adjacency: Adjacency = "replace-one"
    sampling_rate: float | None = None
    grid: Grid | None = None
    noise: float = 0.0
    public_seed: int = 0

    @property
    def smoothness(self) -> float:
        """Lipschitz constant L of every client's gradient."""
        return smoothness(self.kernel, self.landmarks, estimator=self.estimator)
