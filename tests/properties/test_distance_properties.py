"""Statements that hold for all landmarks: projection, sensitivity of rows, the certificate of kernel Nyström."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from dpfedvis.estimators.clusters import spectral_embedding
from dpfedvis.mechanisms.rows import DistanceRows, GramRows, KernelRows
from dpfedvis.numerics.distances import gram_frame, kernel_factor
from dpfedvis.numerics.kernels import Kernel, kernel_matrix
from dpfedvis.numerics.projections import clip_norms

LAYOUTS = ("spread", "coincident", "collinear", "far clusters", "near duplicates", "records")


def landmarks_of(layout, X, count, rng):
    features = X.shape[1]
    if layout == "coincident":
        return np.repeat(rng.normal(size=(1, features)), count, axis=0)
    if layout == "collinear":
        return rng.normal(size=(count, 1)) * rng.normal(size=features)
    if layout == "far clusters":
        return rng.normal(size=(count, features)) + 100.0 * rng.integers(0, 2, (count, 1))
    if layout == "near duplicates":
        half = rng.normal(size=((count + 1) // 2, features))
        return np.concatenate([half, half + 10.0 ** rng.uniform(-9, -3) * rng.normal(size=half.shape)])[:count]
    if layout == "records":
        return X[rng.integers(0, len(X), count)]
    return rng.normal(size=(count, features))


@st.composite
def layouts(draw, kinds=LAYOUTS):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, features, count = draw(st.integers(1, 25)), draw(st.integers(1, 6)), draw(st.integers(1, 20))
    kind = draw(st.sampled_from(kinds))
    X = rng.normal(size=(n, features))
    if kind == "far clusters":
        X = X + 100.0 * rng.integers(0, 2, (n, 1))
    return X, landmarks_of(kind, X, count, rng)


@given(
    layouts(),
    st.floats(1e-3, 30.0),
    st.one_of(st.none(), st.integers(1, 20)),
    st.sampled_from([0.0, 1e-12, 1e-6, 0.1, 3.0]),
)
def test_the_certificate_holds(points, gamma, rank, ridge):
    """E ⪰ 0, ‖E‖₂ ≤ ‖E‖_F ≤ tr E, |E_ij| ≤ √(E_ii E_jj), all from the uploads."""
    X, Y = points
    kernel = Kernel.gaussian(gamma)
    factor = kernel_factor(kernel_matrix(X, Y, kernel), kernel_matrix(Y, Y, kernel), rank=rank, ridge=ridge)
    E = np.exp(-gamma * cdist(X, X) ** 2) - factor.left @ factor.left.T
    slack = 1e-7 * len(X)
    assert np.linalg.eigvalsh((E + E.T) / 2)[0] >= -slack
    assert np.linalg.norm(E, 2) <= np.linalg.norm(E) + slack
    assert np.linalg.norm(E) <= factor.certificate + slack
    np.testing.assert_allclose(factor.residuals, np.diag(E), atol=slack)
    bounds = np.sqrt(np.outer(factor.residuals, factor.residuals))
    # √ turns a slack of 1e-7 in a residual of 0 into one of 3e-4 in the bound.
    assert (np.abs(E) <= bounds + np.sqrt(slack)).all()


@given(layouts(("spread", "collinear", "far clusters", "records")))
def test_gram_never_lengthens(points):
    X, Y = points
    if np.ptp(Y, axis=0).max() == 0:
        return
    frame = gram_frame(cdist(Y, Y))
    Z = (cdist(X, Y) ** 2 - frame.offset) @ frame.matrix
    scale = max(1.0, float(np.abs(X).max()))
    assert (cdist(Z, Z) <= cdist(X, X) + 1e-4 * scale).all()


@given(layouts(), st.floats(0.05, 200.0), st.floats(1e-3, 10.0), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_rows_of_neighbours_are_within_the_sensitivity(points, tau_x, gamma, noise, seed):
    """Replace one record, clip to τ_X as a client does: all rows together move by at most Δ."""
    X, Y = points
    rng = np.random.default_rng(seed)
    other = X.copy()
    other[rng.integers(len(X))] = rng.normal(size=X.shape[1]) * 10.0 ** rng.uniform(-2, 4)
    before, after = clip_norms(X, tau_x), clip_norms(other, tau_x)
    for rows in (DistanceRows(), GramRows(noise), KernelRows(Kernel((gamma, 2 * gamma)))):
        moved = np.linalg.norm(rows.of(before, Y) - rows.of(after, Y))
        # Distances of nearly coincident points carry an error of about 1e-8 of their norms.
        slack = 1e-6 * (1 + np.sqrt(len(Y))) * max(1.0, float(np.abs(Y).max()), tau_x)
        assert moved <= rows.sensitivity(tau_x, len(Y), "replace-one") + slack


@given(st.integers(2, 30), st.integers(1, 6), st.integers(0, 2**32 - 1), st.booleans())
def test_the_spectral_embedding_is_finite_and_bounded(n, rank, seed, cancelling):
    """‖row‖ ≤ 1/√degree, whatever the signs of K̂."""
    F = np.random.default_rng(seed).normal(size=(n, rank))
    F = F if cancelling else np.abs(F)
    embedding = spectral_embedding(F, 3)
    assert np.isfinite(embedding).all()
    own = np.einsum("ij,ij->i", F, F)
    degrees = np.maximum(np.maximum(F @ F.sum(axis=0), own), 1e-6 * own.max())
    assert (np.linalg.norm(embedding, axis=1) <= (1 + 1e-6) / np.sqrt(degrees)).all()
