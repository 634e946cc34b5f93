"""How near inverted gradients come to the records, and how near anyone can come through Gaussian noise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from accounting import checks
from attacks.gradients import Float64
from dpfedvis.numerics.kernels import Kernel, squared_distances


@dataclass(frozen=True, eq=False)
class InversionScore:
    """How near recovered records come to the true ones, matched one to one.

    Parameters
    ----------
    errors : array of shape (n_p,)
        ‖x̂ − x‖ for each true record.
    trivial : array of shape (n_p,)
        ‖guess − x‖, for one and the same guess that needs no gradient.
    """

    errors: Float64
    trivial: Float64

    @property
    def ratio(self) -> float:
        """Root mean square error over that of the trivial guess: 0 is exact, 1 is no better than guessing."""
        return float(np.linalg.norm(self.errors) / np.linalg.norm(self.trivial))

    @property
    def recovered(self) -> float:
        """Share of records with an error below a tenth of the trivial one."""
        return float(np.mean(self.errors < 0.1 * self.trivial))


def score_inversion(found: npt.ArrayLike, truth: npt.ArrayLike, guess: npt.ArrayLike) -> InversionScore:
    """Match recovered to true records by the assignment of least total squared error, and score.

    Parameters
    ----------
    found, truth : arrays of shape (n_p, m)
    guess : array of shape (m,)
        What someone would say who has seen nothing, such as the mean of other records.
    """
    found, truth = np.asarray(found, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    squares = squared_distances(truth, found)
    rows, columns = linear_sum_assignment(squares)
    errors = np.linalg.norm(found[columns] - truth[rows], axis=1)
    return InversionScore(errors, np.linalg.norm(truth - np.asarray(guess, dtype=np.float64), axis=1))


def information(seen: Iterable[tuple[int, float]], kernel: Kernel, denominator: float) -> float:
    """Return a bound λ on the Fisher information about a record in gradients with noise: I(x) ⪯ λI, whatever the data.

    Parameters
    ----------
    seen : iterable of (int, float)
        n_y and σ of each round.

    Notes
    -----
    One record moves row i by −(4/(n_p n_y)) Σ_b (γ_b/B) M_b, with the Jacobian M_b of u e^{−γ_b‖u‖²}, whose eigenvalues
    lie in [−κ, 1] (`dpfedvis.numerics.mmd.smoothness`). So JᵀJ ⪯ n_y (4γ̄/(n_p n_y))² I, and Gaussian noise makes I(x) =
    Σ_s JᵀJ/σ_s² ⪯ Σ_s 16γ̄²/(n_p² n_y σ_s²) I. In terms of the replace-one μ of the tight sensitivity (one bandwidth)
    this is eγμ²/2. It also holds if all other records are known, and a fortiori if not; when Y_s depends on earlier
    uploads, the chain rule for Fisher information gives the same sum.
    """
    rate = 4 * kernel.mean_gamma / checks.positive("denominator", denominator)
    return math.fsum(rate**2 / (landmarks * checks.positive("sigma", sigma) ** 2) for landmarks, sigma in seen)


def error_floor(lam: float, variances: npt.ArrayLike) -> float:
    """Return the least ratio (`InversionScore.ratio`) that any estimator can have on average, for Gaussian records.

    Parameters
    ----------
    lam : float
        λ of `information`.
    variances : array of shape (m,)
        Eigenvalues s_k² of the covariance of records, a Gaussian prior that the adversary may know in full.

    Notes
    -----
    Van Trees' inequality (the Bayesian Cramér–Rao bound; Van Trees 1968, §2.4): the mean squared error matrix is at
    least (E I(x) + Σ⁻¹)⁻¹ ⪰ (λI + Σ⁻¹)⁻¹, whose trace is Σ_k s_k²/(1 + λs_k²); guessing the mean has Σ_k s_k². Real
    records are not Gaussian, and a sharper prior may allow more: the floor is exact for an idealised prior only.
    """
    values = np.asarray(variances, dtype=np.float64)
    lam = checks.nonnegative("lam", lam)
    return float(np.sqrt(np.sum(values / (1 + lam * values)) / np.sum(values)))
