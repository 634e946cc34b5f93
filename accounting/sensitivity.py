"""L2 sensitivities: how far one record can move what a client uploads.

Each function carries its proof. Under ``"replace-one"`` one record is exchanged for another and the number of records
is public; under ``"add-remove"`` one record is added or taken away, and every denominator (`records`) must be a
public number. Rows are records; γ is the width of k(x, y) = exp(−γ‖x − y‖²). A sequence of γ stands for the mean
kernel k = (1/B) Σ_b k_b, whose data term is the mean of the single ones, so that its sensitivity is at most the mean
of theirs.

Where no source is named, the bound and its proof are this project's own. "Thm 6" and "Eq. 9" are those of "Federated
t-SNE and UMAP for Distributed Data Visualization" (AAAI 2025).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from statistics import fmean
from typing import Literal, ParamSpec

from accounting import checks
from accounting.budget import ADJACENCIES, Adjacency
from accounting.errors import InvalidParameter

Bound = Literal["tight", "theorem"]
Gamma = float | Sequence[float]
Parameters = ParamSpec("Parameters")

_EXTREME = 1e140  # a square of it is a float
_ROWS = "replace-one, since a release of one row per record shows the number of records"


def _named(function: Callable[Parameters, float]) -> Callable[Parameters, float]:
    """Let a sensitivity that is no ordinary float be a named error: neither 0 nor infinity is ever returned."""

    @wraps(function)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> float:
        try:
            value = function(*args, **kwargs)
        except OverflowError:
            value = math.inf
        return checks.normal(f"sensitivity of {function.__name__}", value)

    return checked


@_named
def gradient(
    *,
    gamma: Gamma,
    records: float,
    landmarks: int,
    bound: Bound = "tight",
    adjacency: Adjacency = "replace-one",
    tau_x: float | None = None,
    tau_y: float | None = None,
    upsilon: float | None = None,
) -> float:
    """Sensitivity of the MMD gradient ∇f_p(Y), Eq. 9, at one and the same Y.

    Parameters
    ----------
    gamma : float or sequence of float
        Kernel width, or widths of the mean kernel.
    records : float
        Denominator n_p: the number of records, or a public stand-in for it.
    landmarks : int
        Number n_y of landmarks.
    bound : {"tight", "theorem"}
        `tight` needs nothing of the data; `theorem` is the Δ of Thm 6 and needs the three bounds below.
    adjacency : {"replace-one", "add-remove"}
    tau_x, tau_y, upsilon : float, optional
        Public, enforced bounds for ``bound="theorem"``: on ‖x‖, on the spectral norm of Y, and on ‖x − y‖.

    Notes
    -----
    *Tight.* Only the data term −(4γ/(n_p n_y)) Σ_j (x_j − y_i) k(x_j, y_i) sees records. One record's part of row i has
    norm at most max_r r e^{−γr²} = 1/√(2eγ), attained at r = 1/√(2γ), so its n_y rows together have norm at most
    (4γ/(n_p n_y)) √(n_y/(2eγ)) = 4 √(γ/(2e)) / (n_p √n_y). That is the add-remove sensitivity; replacing moves two such
    parts. Attained: all landmarks at 0, two records at ±1/√(2γ) along one axis.

    *Theorem, replace-one*: as printed in Thm 6.

    *Theorem, add-remove.* Half of the printed Δ would be wrong (it vanishes for τ_X → 0, while a record at the origin
    still pulls every landmark). From the same three constants: ‖(x − y_i) k‖ ≤ Υ, so Δ = 4γΥ/(n_p √n_y).
    """
    gammas = _gammas(gamma)
    records = _positive("records", records)
    landmarks = checks.count("landmarks", landmarks)
    checks.one_of("adjacency", adjacency, ADJACENCIES)
    checks.one_of("bound", bound, ("tight", "theorem"))
    root = math.sqrt(landmarks)
    if bound == "tight":
        one_record = fmean(4 * math.sqrt(g / (2 * math.e)) / (records * root) for g in gammas)
        return _pair(one_record, adjacency)
    tau_x, tau_y = _needed("tau_x", tau_x), _needed("tau_y", tau_y)
    upsilon = _needed("upsilon", upsilon)
    if adjacency == "add-remove":
        return fmean(4 * g * upsilon / (records * root) for g in gammas)
    return fmean(8 * g * tau_x / (records * root) * (1 + 2 * g * (tau_x + tau_y) * (tau_x + upsilon)) for g in gammas)


@_named
def clipped_gradient(
    *, gamma: Gamma, records: float, landmarks: int, clip: float, adjacency: Adjacency = "replace-one"
) -> float:
    """Sensitivity of the data gradient when each record's part is clipped.

    Record x contributes the n_y × m matrix (4/(n_p n_y)) u with rows u_i = (x − y_i) w_i, w_i = (1/B) Σ_b γ_b k_b(x,
    y_i), and u is scaled to ‖u‖_F ≤ γ̄C, γ̄ the mean of the γ_b and C = `clip` (for one width: √(Σ_i d_i² k_i²) ≤ C).

    Notes
    -----
    By clipping, one part has norm at most 4γ̄C/(n_p n_y); replacing moves two. Without clipping it is at most that of
    `gradient`, so the smaller of the two holds: a C above √(n_y/(2eγ)) does nothing.
    """
    gammas = _gammas(gamma)
    clip = _positive("clip", clip)
    unclipped = gradient(gamma=gamma, records=records, landmarks=landmarks, adjacency=adjacency)
    return min(_pair(4 * fmean(gammas) * clip / (records * landmarks), adjacency), unclipped)


@_named
def variable(
    *,
    gamma: Gamma,
    records: float,
    landmarks: int,
    step_size: float,
    local_steps: int,
    bound: Bound = "tight",
    adjacency: Adjacency = "replace-one",
    tau_x: float | None = None,
    tau_y: float | None = None,
    upsilon: float | None = None,
    smoothness: float | None = None,
) -> float:
    """Sensitivity of Y_p after Q local gradient steps of size η from a common start.

    Parameters
    ----------
    step_size, local_steps : float, int
        η and Q.
    smoothness : float, optional
        A Lipschitz constant L of ∇f_p; by default 12γ/n_y, which holds for every n_y and all data of at most
        2·`records` records (the proof, with a sharper constant, is in `dpfedvis.numerics.mmd.smoothness`). The
        curvature of the data's part grows with the number of records over the denominator, so that under add-remove,
        or with any public stand-in, a client must not sum more records than that.
    gamma, records, landmarks, bound, adjacency, tau_x, tau_y, upsilon
        As in `gradient`.

    Notes
    -----
    Let e_t be the distance of the two runs after t steps, e_0 = 0. One step maps Y to Y − η∇f_p(Y): the same data at
    two points move apart by a factor of at most 1 + ηL, other data at one point by at most ηΔ. So e_{t+1} ≤ (1 + ηL)
    e_t + ηΔ, and e_Q ≤ ηΔ ((1 + ηL)^Q − 1)/(ηL). A projection to a convex set, the same in both runs, does not expand
    distances, so that it may follow each step.
    """
    step_size = _positive("step_size", step_size)
    local_steps = checks.count("local_steps", local_steps)
    delta = gradient(
        gamma=gamma,
        records=records,
        landmarks=landmarks,
        bound=bound,
        adjacency=adjacency,
        tau_x=tau_x,
        tau_y=tau_y,
        upsilon=upsilon,
    )
    if smoothness is None:
        smoothness = 12 * fmean(_gammas(gamma)) / landmarks
    growth = step_size * _positive("smoothness", smoothness)
    exponent = local_steps * math.log1p(growth)
    if exponent > 700:
        raise InvalidParameter("local_steps", local_steps, f"smaller: (1 + {growth:g})^Q overflows")
    return step_size * (math.expm1(exponent) / growth) * delta


@_named
def input(*, tau_x: float, adjacency: Adjacency = "replace-one") -> float:
    """Sensitivity of the records themselves, each clipped to norm `tau_x` (Thm 4).

    Replacing x by x′ moves one row by ‖x − x′‖ ≤ 2τ_X, attained by opposite records.
    """
    _rows_only(adjacency)
    return 2 * _positive("tau_x", tau_x)


@_named
def gram_rows(*, tau_x: float, adjacency: Adjacency = "replace-one") -> float:
    """Sensitivity of a record's coordinates in the landmarks' affine span.

    The coordinates are an orthonormal projection of x − ȳ, which does not expand distances: at most ‖x − x′‖ ≤ 2τ_X for
    all coordinates together. Attained by opposite records inside the span.
    """
    return input(tau_x=tau_x, adjacency=adjacency)


@_named
def distance_rows(*, tau_x: float, landmarks: int, adjacency: Adjacency = "replace-one") -> float:
    """Sensitivity of a record's row of distances to the landmarks.

    |‖x − y‖ − ‖x′ − y‖| ≤ ‖x − x′‖ ≤ 2τ_X for each of n_y landmarks, so 2τ_X√n_y. Attained: all landmarks on one far
    point of the line through the two records.
    """
    return input(tau_x=tau_x, adjacency=adjacency) * math.sqrt(checks.count("landmarks", landmarks))


@_named
def kernel_rows(
    *, gamma: Gamma, landmarks: int, tau_x: float | None = None, adjacency: Adjacency = "replace-one"
) -> float:
    """Sensitivity of a record's row of kernel values at the landmarks.

    Kernel values lie in (0, 1], and r ↦ e^{−γr²} has slope at most √(2γ/e) (at r = 1/√(2γ)), so each entry moves by
    at most min(1, 2τ_X √(2γ/e)), and n_y of them by √n_y times that. Without a bound on the records the first part
    remains.
    """
    _rows_only(adjacency)
    gammas = _gammas(gamma)
    root = math.sqrt(checks.count("landmarks", landmarks))
    if tau_x is None:
        return root
    tau_x = _positive("tau_x", tau_x)
    return root * fmean(min(1.0, 2 * tau_x * math.sqrt(2 * g / math.e)) for g in gammas)


@_named
def mean_embedding(*, records: float, adjacency: Adjacency = "replace-one") -> float:
    """Sensitivity of the mean of feature vectors of norm 1 (cos/sin pairs of random Fourier features).

    One record's part has norm 1/n_p; replacing moves two.
    """
    checks.one_of("adjacency", adjacency, ADJACENCIES)
    return _pair(1 / _positive("records", records), adjacency)


@_named
def moments(*, records: float, adjacency: Adjacency = "replace-one") -> float:
    """Sensitivity of the mean of (x/τ, ‖x‖²/τ²) over records clipped to norm τ: mean and mean square in one release.

    One record's part, with a = ‖x‖/τ ≤ 1, has norm √(a² + a⁴)/n_p ≤ √2/n_p. Replacing, with b = ‖x′‖/τ: the squared
    distance is at most (a + b)² + (a² − b²)² = (a + b)² (1 + (a − b)²), which is at most 4: with s = a + b and a, b ≤
    1 we have |a − b| ≤ 2 − s for s ≥ 1, and s²(1 + (2 − s)²) grows on [1, 2] up to 4; for s ≤ 1 it is at most 2. So
    2/n_p, attained by opposite records.
    """
    checks.one_of("adjacency", adjacency, ADJACENCIES)
    records = _positive("records", records)
    return math.sqrt(2) / records if adjacency == "add-remove" else 2 / records


@_named
def cluster_sums(*, records: float, adjacency: Adjacency = "replace-one") -> float:
    """Sensitivity of (1/n) Σ_x e_{j(x)} ⊗ (u, 1), where j(x) is the cluster of x and ‖u‖ ≤ 1 its clipped offset.

    A record fills one row, of norm at most √2: √2/n. Replacing it changes two rows, √(2 + 2)/n, or one, where the 1
    stays and the offset moves by at most 2: 2/n either way.
    """
    checks.one_of("adjacency", adjacency, ADJACENCIES)
    records = _positive("records", records)
    return (math.sqrt(2) if adjacency == "add-remove" else 2.0) / records


@_named
def second_moment(*, clip: float, adjacency: Adjacency = "replace-one") -> float:
    """Frobenius sensitivity of Σ x xᵀ with each record clipped to norm `clip`.

    ‖xxᵀ‖_F = ‖x‖² ≤ C². Replacing: ‖xxᵀ − x′x′ᵀ‖²_F = ‖x‖⁴ + ‖x′‖⁴ − 2⟨x, x′⟩² ≤ 2C⁴, attained by orthogonal records.
    """
    checks.one_of("adjacency", adjacency, ADJACENCIES)
    clip = _positive("clip", clip)
    square = clip * clip
    return square if adjacency == "add-remove" else math.sqrt(2) * square


def histogram(*, adjacency: Adjacency = "replace-one") -> float:
    """Sensitivity of counts over disjoint cells: a record adds 1 to one cell; replacing moves it between two, √2."""
    checks.one_of("adjacency", adjacency, ADJACENCIES)
    return 1.0 if adjacency == "add-remove" else math.sqrt(2)


def scale_histogram(*, adjacency: Adjacency = "replace-one") -> float:
    """Sensitivity of two histograms: squared distances of disjoint pairs of records, and squared norms of records.

    Replacing a record changes one pair and one norm, and each change moves one count from a cell to another:
    √(2 + 2) = 2, whatever the data. Adding a record may change every pair, so replace-one only.
    """
    checks.one_of("adjacency", adjacency, ADJACENCIES)
    if adjacency != "replace-one":
        raise InvalidParameter("adjacency", adjacency, "replace-one, since a new record changes every pair")
    return 2.0


def _positive(name: str, value: float) -> float:
    """Return a positive number whose products and quotients, by few others such, lose no digits."""
    number = checks.positive(name, value)
    return checks.between(name, number, 1 / _EXTREME, _EXTREME)


def _pair(one_record: float, adjacency: Adjacency) -> float:
    return one_record if adjacency == "add-remove" else 2 * one_record


def _rows_only(adjacency: Adjacency) -> None:
    checks.one_of("adjacency", adjacency, ADJACENCIES)
    if adjacency != "replace-one":
        raise InvalidParameter("adjacency", adjacency, _ROWS)


def _gammas(gamma: Gamma) -> tuple[float, ...]:
    values = tuple(gamma) if isinstance(gamma, Iterable) and not isinstance(gamma, str) else (gamma,)
    if not values:
        raise InvalidParameter("gamma", gamma, "at least one kernel width")
    return tuple(_positive("gamma", value) for value in values)


def _needed(name: str, value: float | None) -> float:
    if value is None:
        raise InvalidParameter(name, None, 'a public bound, which bound="theorem" needs')
    return _positive(name, value)
