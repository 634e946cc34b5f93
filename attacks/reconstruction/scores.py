"""How close reconstructed records come to the true ones. Only scores look at the truth."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
from scipy.ndimage import uniform_filter
from scipy.special import ndtr

from accounting import checks
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.kernels import Array, squared_distances

Float64 = npt.NDArray[np.float64]

BLOCK_ROWS = 1024
# Wang, Bovik, Sheikh & Simoncelli 2004, "Image quality assessment", §III.C.
_K1, _K2, _WINDOW = 0.01, 0.03, 7


class CannotScore(DpfedvisError):
    """The arrays do not fit together."""


@dataclass(frozen=True)
class Closeness:
    """Scores of reconstructed records.

    Parameters
    ----------
    scored : int
        Number of records.
    relative_error : float
        ‖X̂ − X‖_F/‖X‖_F.
    baseline_error : float
        The same for a guess without any rows: the mean of the landmarks for every record.
    psnr : float, optional
        10 log₁₀(range²/mean squared error), in dB; None if there is no error, or no public range.
    ssim, baseline_ssim : float, optional
        Mean structural similarity, and that of the guess without rows; None where records are no images.
    recognised : float
        Share of records to which their own reconstruction is nearer than to any other true record.
    chance : float
        `recognised` of guessing.
    """

    scored: int
    relative_error: float
    baseline_error: float
    psnr: float | None
    ssim: float | None
    baseline_ssim: float | None
    recognised: float
    chance: float

    def to_dict(self) -> dict[str, float | None]:
        """Return the fields."""
        return asdict(self)


def relative_error(guess: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """‖X̂ − X‖_F/‖X‖_F, in float64; X must not be all zeros."""
    found, true = _pair(guess, truth)
    norm = float(np.linalg.norm(true))
    if norm == 0:
        raise CannotScore("the true records are all zero: a relative error is undefined")
    return float(np.linalg.norm(found - true)) / norm


def psnr(guess: npt.ArrayLike, truth: npt.ArrayLike, *, span: float) -> float | None:
    """10 log₁₀(span²/MSE) over all records together, in dB; None without any error.

    Parameters
    ----------
    guess, truth : arrays of shape (n, m)
    span : float
        Width of the features' public range.
    """
    found, true = _pair(guess, truth)
    checks.positive("span", span)
    error = float(np.square(found - true).mean())
    return None if error == 0 else 10 * math.log10(span**2 / error)


def ssim(guess: npt.ArrayLike, truth: npt.ArrayLike, image_shape: tuple[int, ...], *, span: float) -> Float64:
    """Structural similarity of each image, shape (n,): 1 for equal images.

    In each window of 7 × 7 pixels (less for images smaller than that) with means a, b, unbiased variances s_a, s_b and
    covariance s_ab

        (2ab + c₁)(2s_ab + c₂) / ((a² + b² + c₁)(s_a + s_b + c₂)),    c₁ = (0.01 L)²,  c₂ = (0.03 L)²,

    and the mean over all windows that lie inside the image.

    Parameters
    ----------
    guess, truth : arrays of shape (n, m)
    image_shape : (int, int)
    span : float
        L, width of the public range of pixels.
    """
    found, true = _pair(guess, truth)
    checks.positive("span", span)
    if len(image_shape) != 2 or min(image_shape) < 2 or math.prod(image_shape) != true.shape[1]:
        raise CannotScore(f"images of shape {image_shape} do not have {true.shape[1]} pixels in two dimensions")
    side = min(_WINDOW, min(image_shape) - (min(image_shape) + 1) % 2)
    out = np.empty(len(true))
    for start in range(0, len(true), BLOCK_ROWS):
        block = slice(start, start + BLOCK_ROWS)
        shape = (-1, *image_shape)
        out[block] = _ssim(found[block].reshape(shape), true[block].reshape(shape), max(side, 2), span)
    return out


def recognised(guess: npt.ArrayLike, truth: npt.ArrayLike, indices: npt.ArrayLike | None = None) -> float:
    """Share of guesses whose nearest true record is the right one; a tie with an equal record counts.

    Parameters
    ----------
    guess : array of shape (k, m)
    truth : array of shape (n, m)
    indices : array of shape (k,), optional
        Right record of each guess; by default the one of the same number.
    """
    found, true = (np.ascontiguousarray(each, dtype=np.float64) for each in (guess, truth))
    right = np.arange(len(found)) if indices is None else np.asarray(indices, dtype=np.int64)
    if len(right) != len(found) or (len(right) and (right.min() < 0 or right.max() >= len(true))):
        raise CannotScore(f"{len(found)} guesses, {len(right)} numbers of records among {len(true)}")
    hits = 0
    for start in range(0, len(found), BLOCK_ROWS):
        block = found[start : start + BLOCK_ROWS]
        squares = squared_distances(block, true)
        own = squares[np.arange(len(block)), right[start : start + BLOCK_ROWS]]
        # Squared distances carry a few ulp of the norms: equal records must not differ by them.
        slack = 1e-13 * (np.vecdot(block, block) + float(np.vecdot(true, true).max()))
        hits += int((own <= squares.min(axis=1) + slack).sum())
    return hits / len(found)


def share_below_zero(differences: npt.ArrayLike) -> float:
    """Share of negative values, zeros counted as half: how often the first of two scores is the smaller one."""
    values = np.asarray(differences, dtype=np.float64)
    if not values.size:
        raise CannotScore("no pairs to tell apart")
    return float(np.mean((values < 0) + 0.5 * (values == 0)))


def largest_pair_accuracy(mu: float) -> float:
    """Φ(μ/2): how often anyone can tell which of two records went into a μ-GDP release.

    By the definition of μ-GDP (Dong, Roth & Su 2022, Def. 4) telling the two apart is at least as hard as telling
    N(0, 1) from N(μ, 1), and between those, each as likely as the other, the best rule, a threshold at μ/2, is right
    with probability Φ(μ/2). Everything that an attack does with the release is post-processing. Without a guarantee μ
    is infinite and the bound 1.
    """
    if mu != math.inf:
        checks.nonnegative("mu", mu)
    return float(ndtr(mu / 2))


def _ssim(a: Float64, b: Float64, side: int, span: float) -> Float64:
    size, count = (1, side, side), side * side

    def mean(values: Float64) -> Float64:
        whole = uniform_filter(values, size)
        # `uniform_filter` centres windows of even side half a pixel up and left.
        low, high = side // 2, (side - 1) // 2
        inner: Float64 = whole[:, low : whole.shape[1] - high, low : whole.shape[2] - high]
        return inner

    mean_a, mean_b = mean(a), mean(b)
    unbiased = count / (count - 1)
    var_a = unbiased * (mean(a * a) - mean_a**2)
    var_b = unbiased * (mean(b * b) - mean_b**2)
    cov = unbiased * (mean(a * b) - mean_a * mean_b)
    c1, c2 = (_K1 * span) ** 2, (_K2 * span) ** 2
    values = (2 * mean_a * mean_b + c1) * (2 * cov + c2) / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))
    scores: Float64 = values.mean(axis=(1, 2))
    return scores


def _pair(guess: npt.ArrayLike, truth: npt.ArrayLike) -> tuple[Float64, Float64]:
    found, true = (np.asarray(each, dtype=np.float64) for each in (guess, truth))
    if found.shape != true.shape or true.ndim != 2 or not true.size:
        raise CannotScore(f"guesses of shape {found.shape} do not belong to records of shape {true.shape}")
    return found, true


def closeness(
    guess: Array,
    truth: Array,
    indices: npt.NDArray[np.int64],
    baseline: Array,
    *,
    bounds: tuple[float, float] | None,
    image_shape: tuple[int, ...] | None,
) -> Closeness:
    """Score guesses of some records.

    Parameters
    ----------
    guess : array of shape (k, m)
    truth : array of shape (n, m)
        All records of the run.
    indices : array of shape (k,)
        Which of them the guesses are of.
    baseline : array of shape (m,)
        A guess of every record that uses no row.
    bounds : (float, float), optional
        Public range of the features.
    image_shape : tuple of int, optional
    """
    true = np.asarray(truth[indices], dtype=np.float64)
    blind = np.broadcast_to(baseline, true.shape)
    similar = blind_similar = decibel = None
    if bounds is not None:
        span = bounds[1] - bounds[0]
        decibel = psnr(guess, true, span=span)
        if image_shape is not None and len(image_shape) == 2 and min(image_shape) > 1:
            similar, blind_similar = (float(ssim(each, true, image_shape, span=span).mean()) for each in (guess, blind))
    return Closeness(
        scored=len(guess),
        relative_error=relative_error(guess, true),
        baseline_error=relative_error(blind, true),
        psnr=decibel,
        ssim=similar,
        baseline_ssim=blind_similar,
        recognised=recognised(guess, truth, indices),
        chance=1 / len(truth),
    )
