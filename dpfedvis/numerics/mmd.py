"""The squared maximum mean discrepancy (MMD) of records and landmarks, and its gradient in the landmarks.

The gradient has two parts, because privacy needs them apart: only `data_gradient` reads the records;
`landmark_gradient` is a function of the landmarks, which the server knows. Records are processed in blocks; no
array of size records × landmarks × features, or records × records, is ever formed.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidParameter
from dpfedvis.numerics.kernels import (
    Array,
    Kernel,
    Workspace,
    as_points,
    block_rows,
    check_same_features,
    distances_into,
    frame_of,
    gaussian_into,
    gemm_into,
    mix_into,
    squared_norms,
)

Estimator = Literal["unbiased", "biased"]

# κ = 2e^{−3/2}: the most negative curvature of a Gaussian bump, see `smoothness`.
KAPPA = 2 * math.exp(-1.5)


def mmd2(X: npt.ArrayLike, Y: npt.ArrayLike, kernel: Kernel, *, estimator: Estimator = "unbiased") -> float:
    """Return the squared MMD between records and landmarks: f_p(Y) of the paper when unbiased.

    Parameters
    ----------
    X, Y : arrays of shape (n, m) and (n_y, m)
    estimator : {"unbiased", "biased"}
        ``unbiased`` omits each point's kernel with itself, and needs n, n_y ≥ 2.

    Returns
    -------
    float
        The terms in X alone, in X and Y, in Y alone: `self_similarity(X)` − 2 `similarity(X, Y)` +
        `self_similarity(Y)`. The first costs n² and never changes: compute it once.
    """
    own = [self_similarity(points, kernel, estimator=estimator) for points in (X, Y)]
    return own[0] - 2 * similarity(X, Y, kernel) + own[1]


def similarity(X: npt.ArrayLike, Y: npt.ArrayLike, kernel: Kernel) -> float:
    """Return the mean of k(x, y) over all pairs of rows."""
    X, Y = as_points(X, "X"), as_points(Y, "Y")
    check_same_features(X, Y)
    return _kernel_sum(X, Y, kernel, symmetric=False) / (len(X) * len(Y))


def self_similarity(X: npt.ArrayLike, kernel: Kernel, *, estimator: Estimator = "unbiased") -> float:
    """Return the mean of k(x, x') over pairs of rows: of different rows when unbiased, of all when biased."""
    left_out = _left_out(estimator)
    X = as_points(X, f"points of the {estimator} MMD", minimum=1 + left_out)
    n = len(X)
    return (_kernel_sum(X, X, kernel, symmetric=True) + n * (1 - left_out)) / (n * (n - left_out))


def gradient(
    X: npt.ArrayLike,
    Y: npt.ArrayLike,
    kernel: Kernel,
    *,
    estimator: Estimator = "unbiased",
    squared_norms: Array | None = None,
    workspace: Workspace | None = None,
) -> Array:
    """Return ∇f_p(Y), Eq. 9, shape (n_y, m): `data_gradient` over all records, plus `landmark_gradient`."""
    X = as_points(X, "records")
    data = _data_gradient(X, Y, kernel, len(X), squared_norms, None, workspace)
    return data + landmark_gradient(Y, kernel, estimator=estimator, workspace=workspace)


def landmark_gradient(
    Y: npt.ArrayLike, kernel: Kernel, *, estimator: Estimator = "unbiased", workspace: Workspace | None = None
) -> Array:
    """Return the part of ∇f_p(Y) in Y alone, shape (n_y, m); n_y ≥ 2 when unbiased.

    It is minus the data's part with the landmarks as records; a landmark adds nothing to itself.
    """
    left_out = _left_out(estimator)
    Y = as_points(Y, f"landmarks of the {estimator} MMD", minimum=1 + left_out)
    return -_data_gradient(Y, Y, kernel, len(Y) - left_out, None, None, workspace)


def data_gradient(
    X: npt.ArrayLike,
    Y: npt.ArrayLike,
    kernel: Kernel,
    *,
    denominator: float,
    squared_norms: Array | None = None,
    block: int | None = None,
    workspace: Workspace | None = None,
) -> Array:
    """Return the part of ∇f_p(Y) that depends on the records, the first line of Eq. 9.

    Row i is −(4/(denominator·n_y)) Σ_j Σ_b (γ_b/B) (x_j − y_i) exp(−γ_b‖x_j − y_i‖²).

    Parameters
    ----------
    X : array of shape (n, m)
        The records; n may be 0, as in an empty Poisson sample.
    Y : array of shape (n_y, m)
    denominator : float
        n_p, or a public number such as q·n for sampled batches.
    squared_norms : array of shape (n,), optional
        ‖x‖² of the records, if already computed; ignored if of another dtype.
    block : int, optional
        Records per block.
    workspace : Workspace, optional
        Memory to reuse.

    Returns
    -------
    array of shape (n_y, m)
        float32 if X and Y are, but computed in float64 where float32 would lose digits of the distances.
    """
    return _data_gradient(X, Y, kernel, denominator, squared_norms, block, workspace)


def max_clip(kernel: Kernel, landmarks: int) -> float:
    """Return the norm above which nothing is clipped: √(n_y/(2eγ)) for one bandwidth.

    Proof. r·e^{−γr²} has derivative (1 − 2γr²)e^{−γr²}, so its maximum is 1/√(2eγ), at r = 1/√(2γ).
    With v_i = Σ_b (γ_b/(Bγ̄)) k_b, row i of a record's matrix has norm at most Σ_b (γ_b/(Bγ̄))/√(2eγ_b), and
    n_y rows have √n_y times this. For one bandwidth, landmarks that coincide attain it.
    """
    _check_landmarks(landmarks)
    pairs = zip(kernel.gradient_coefficients, kernel.gammas, strict=True)
    return math.sqrt(landmarks) * math.fsum(part / math.sqrt(2 * math.e * gamma) for part, gamma in pairs)


def smoothness(kernel: Kernel, landmarks: int, *, estimator: Estimator = "unbiased") -> float:
    """Return L with ‖∇f_p(Y) − ∇f_p(Y')‖ ≤ L‖Y − Y'‖ (Frobenius) for any records.

    For one bandwidth it is 4γ(κ/n_y + 1/(n_y − 1)) unbiased and 4γ(κ/n_y + 1/n_y) biased, κ = 2e^{−3/2};
    4γ for n_y = 1, where only the data's part remains. For several bandwidths, the mean. Never above 12γ̄/n_y.

    Proof. g(u) = u·e^{−γ‖u‖²} has the symmetric Jacobian M(u) = (I − 2γuuᵀ)e^{−γ‖u‖²}. With t = γ‖u‖² its
    eigenvalues are e^{−t}, in (0, 1], and (1 − 2t)e^{−t}, which falls from 1 to −κ at t = 3/2 and then rises
    to 0. So −κI ⪯ M ⪯ I.

    The data's part has rows (4γ/(n_p n_y)) Σ_j g(y_i − x_j). Its Hessian is block diagonal, and each block
    is a mean over j of (4γ/n_y) M(y_i − x_j): it lies in (4γ/n_y)[−κ, 1].

    The landmarks' part has rows −c Σ_j g(y_i − y_j) with c = 4γ/(n_y(n_y − 1)). Its Hessian H is minus a
    Laplacian: zᵀHz = −c Σ_{i<j} (z_i − z_j)ᵀ M(y_i − y_j) (z_i − z_j). Because Σ_{i<j} ‖z_i − z_j‖² =
    n_y‖z‖² − ‖Σ_i z_i‖² ≤ n_y‖z‖², it lies in (4γ/(n_y − 1))[−1, κ]. Biased, n_y stands for n_y − 1.

    The sum lies between −4γ(κ/n_y + 1/(n_y − 1)) and 4γ(1/n_y + κ/(n_y − 1)); the former is the larger in
    absolute value, as κ < 1. It is attained, so for one bandwidth no smaller L will do: let all landmarks
    coincide, all records lie at one point √(3/(2γ)) away, and the z_i point there with Σ_i z_i = 0.
    """
    _check_landmarks(landmarks)
    left_out = _left_out(estimator)
    if landmarks == 1:
        return 4 * kernel.mean_gamma
    return 4 * kernel.mean_gamma * (KAPPA / landmarks + 1 / (landmarks - left_out))


def _data_gradient(
    records: npt.ArrayLike,
    landmarks: npt.ArrayLike,
    kernel: Kernel,
    denominator: float,
    norms: Array | None,
    block: int | None,
    workspace: Workspace | None,
) -> Array:
    X, Y = as_points(records, "records", minimum=0), as_points(landmarks, "landmarks")
    check_same_features(X, Y)
    _check_positive("denominator", denominator)
    frame = frame_of(X, Y, kernel)
    dtype, result_dtype, Y = frame.dtype, np.result_type(X, Y), frame.place(Y)
    y_norms = squared_norms(Y, "landmarks")
    if norms is not None and norms.shape != (len(X),):
        raise InvalidParameter("squared_norms", norms.shape, f"of shape {(len(X),)}")
    rows = block_rows(len(X), len(Y), dtype.itemsize) if block is None else block
    if rows < 1:
        raise InvalidParameter("block", block, "at least 1")
    workspace = Workspace() if workspace is None else workspace

    pulls, totals = np.zeros(Y.shape, dtype), np.zeros(len(Y))
    for start in range(0, len(X), rows):
        part = slice(start, start + rows)
        x = frame.place(X[part])
        known = norms[part] if norms is not None and norms.dtype == dtype and frame.centre is None else None
        x_norms = squared_norms(x, "records", known=known, first_row=start)
        weights = workspace.block(0, len(x), len(Y), dtype)
        if len(kernel.gammas) == 1:
            gaussian_into(x, x_norms, Y, y_norms, kernel.gammas[0], weights)
        else:
            distances_into(x, x_norms, Y, y_norms, weights)
            distances, weights, scratch = weights, *(workspace.block(k, len(x), len(Y), dtype) for k in (1, 2))
            mix_into(distances, kernel.gammas, kernel.gradient_coefficients, weights, scratch)
        # Summed over blocks in float64: the product with Y cancels most of `pulls`.
        totals += weights.sum(axis=0)
        gemm_into(1.0, x.T, weights.T, pulls.T)
    pulls -= totals.astype(dtype)[:, None] * Y
    pulls *= -4 * kernel.mean_gamma / (float(denominator) * len(Y))
    return pulls.astype(result_dtype, copy=False)


def _kernel_sum(X: Array, Y: Array, kernel: Kernel, *, symmetric: bool) -> float:
    """Sum k over all pairs of rows, in tiles; if `symmetric`, X is Y and pairs of a row with itself are omitted."""
    frame = frame_of(X, Y, kernel)
    dtype = frame.dtype
    tile = block_rows(max(len(X), len(Y)), 1024, dtype.itemsize)
    workspace, total = Workspace(), 0.0
    for i in range(0, len(X), tile):
        x = frame.place(X[i : i + tile])
        for j in range(i if symmetric else 0, len(Y), tile):
            y = frame.place(Y[j : j + tile])
            distances, values, scratch = (workspace.block(k, len(x), len(y), dtype) for k in range(3))
            distances_into(x, squared_norms(x), y, squared_norms(y), distances)
            mix_into(distances, kernel.gammas, kernel.value_coefficients, values, scratch)
            if symmetric and i == j:
                np.fill_diagonal(values, 0)
            total += float(values.sum(dtype=np.float64)) * (2 if symmetric and i < j else 1)
    return total


def _left_out(estimator: str) -> int:
    """Return 1 if a point is not paired with itself (unbiased), else 0."""
    if estimator not in ("unbiased", "biased"):
        raise InvalidParameter("estimator", estimator, "'unbiased' or 'biased'")
    return int(estimator == "unbiased")


def _check_landmarks(landmarks: int) -> None:
    if landmarks < 1:
        raise InvalidParameter("landmarks", landmarks, "at least 1")


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidParameter(name, value, "positive and finite")
