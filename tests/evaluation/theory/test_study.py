"""The true errors against dense matrices, and the study that puts bounds beside them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, eigsh
from scipy.spatial.distance import cdist

from accounting.errors import InvalidParameter
from dpfedvis.data import load
from dpfedvis.evaluation.theory import (
    DistanceError,
    Distances,
    KernelError,
    NotConverged,
    Smoothness,
    norms,
    thm1_printed,
)
from dpfedvis.evaluation.theory.other_theorems import other_theorems
from dpfedvis.evaluation.theory.study import Settings, Study
from dpfedvis.numerics.distances import GramDistances, NystromDistances, gram_frame, kernel_factor, nystrom_factor
from dpfedvis.numerics.kernels import InvalidPoints
from tests.evaluation.conftest import KERNEL, gaussian


class TestEmpirical:
    def test_kernel_error_against_lanczos_of_scipy(self, problem) -> None:
        X, Y = problem
        factor = kernel_factor(gaussian(X, Y), gaussian(Y, Y), rank=12)
        E = gaussian(X, X) - factor.left @ factor.left.T
        operator = LinearOperator(E.shape, matvec=lambda v: E @ v, dtype=np.float64)
        largest = eigsh(operator, k=1, return_eigenvectors=False, v0=np.ones(len(E)))[0]
        error = KernelError(X, KERNEL, np.asarray(factor.left))
        found = norms(error, np.random.default_rng(0), tile=40, tolerance=1e-8)
        assert found.spectral == pytest.approx(abs(largest), rel=1e-9)
        assert found.frobenius == pytest.approx(np.linalg.norm(E), rel=1e-12)
        assert found.residual <= 1e-8 * found.spectral

    @pytest.mark.parametrize("tile", [7, 64, 1000])
    def test_distance_errors_against_dense_ones(self, problem, tile) -> None:
        X, Y = problem
        B, W, D = cdist(X, Y), cdist(Y, Y), cdist(X, X)
        matrix, signs = nystrom_factor(W)
        nystrom = NystromDistances((B @ matrix).astype(np.float32), signs.astype(np.float32))
        gram = GramDistances(gram_frame(W).coordinates(B))
        shadow = np.maximum((B @ matrix * signs) @ (B @ matrix).T, 0)
        np.fill_diagonal(shadow, 0)
        for estimate, dense in ((nystrom, shadow), (gram, cdist(gram.left, gram.left))):
            found = norms(DistanceError(X, estimate), np.random.default_rng(0), tile=tile, tolerance=1e-6)
            assert found.frobenius == pytest.approx(np.linalg.norm(D - dense), rel=1e-3, abs=1e-3)
            assert found.spectral == pytest.approx(np.linalg.norm(D - dense, 2), rel=1e-3, abs=1e-3)
        whole = norms(Distances(X), np.random.default_rng(0), tile=tile)
        assert whole.spectral == pytest.approx(np.linalg.norm(D, 2), rel=1e-6)
        assert whole.frobenius == pytest.approx(np.linalg.norm(D), rel=1e-12)

    def test_the_largest_eigenvalue_may_be_negative(self) -> None:
        class Diagonal:
            size = 30

            def tile(self, rows: slice, columns: slice) -> np.ndarray:
                return np.diag(np.r_[-9.0, np.linspace(0, 4, 29)])[rows, columns]

        found = norms(Diagonal(), np.random.default_rng(0), tile=11, block=2, tolerance=1e-9)
        assert found.spectral == pytest.approx(9)

    def test_too_few_passes_are_an_error_with_the_interval(self, problem) -> None:
        X, _ = problem
        with pytest.raises(NotConverged, match="after 1 passes the spectral norm is"):
            norms(Distances(X), np.random.default_rng(0), most=1, tolerance=1e-12)

    def test_a_floor_ends_the_search_in_rounding_errors(self) -> None:
        class Noise:
            size = 200

            def tile(self, rows: slice, columns: slice) -> np.ndarray:
                values = np.random.default_rng(0).normal(size=(200, 200))
                return 1e-9 * (values + values.T)[rows, columns]

        found = norms(Noise(), np.random.default_rng(0), floor=1e-8, most=10)
        assert found.residual <= 1e-8
        with pytest.raises(NotConverged):
            norms(Noise(), np.random.default_rng(0), tolerance=1e-9, most=5)

    def test_not_a_number_is_refused(self) -> None:
        X = np.zeros((5, 2))
        X[3, 1] = np.nan
        with pytest.raises(InvalidPoints, match="row 3"):
            norms(Distances(X), np.random.default_rng(0))

    def test_progress_is_told_of_each_pass(self, problem) -> None:
        calls: list[None] = []
        found = norms(Distances(problem[0]), np.random.default_rng(0), progress=lambda: calls.append(None))
        assert len(calls) == found.passes > 1


@pytest.fixture(scope="module")
def study() -> Study:
    return Study(load("digits", records=80), TestStudy.SETTINGS)


class TestStudy:
    SETTINGS = Settings(landmarks=(6, 12), sigmas=(0.0, 0.2), rounds=8)

    def test_every_own_bound_is_above_the_truth(self, study) -> None:
        cases = study.run()
        assert [(case.kind, case.landmarks, case.sigma) for case in cases] == study.plan()
        assert len(cases) == 8
        for case in cases:
            for bound in case.bounds:
                truth = case.truth.spectral if bound.norm == "spectral" else case.truth.frobenius
                if bound.form != "printed":
                    assert truth <= bound.value
                if bound.statement in ("Thm 3", "Thm 5"):
                    assert bound.vacuous
            for each in case.distances:
                assert each.truth.spectral <= each.truth.frobenius * (1 + 1e-9)
                for bound in each.bounds:
                    truth = each.truth.spectral if bound.norm == "spectral" else each.truth.frobenius
                    assert truth <= bound.value

    def test_certificates_of_noisy_rows_are_above_the_truth(self, study) -> None:
        study.run()
        cases = study.rows()
        assert [(case.landmarks, case.sigma) for case in cases] == [(6, 0.2), (12, 0.2)]
        for case in cases:
            assert case.truth.spectral <= case.bounds[0].value
            assert case.truth.frobenius <= case.bounds[1].value
            assert case.bounds[0].holds_with == 0.95
            assert case.rank <= case.landmarks

    def test_truth_is_that_of_the_dense_matrices(self, study) -> None:
        case = next(each for each in study.run() if each.kind == "sampled")
        rng = study._rng("sampled", case.landmarks, 0.0)
        Y = study.X[rng.permutation(80)[: case.landmarks]]
        factor = kernel_factor(gaussian(study.X, Y, study.kernel), gaussian(Y, Y, study.kernel))
        E = gaussian(study.X, study.X, study.kernel) - factor.left @ factor.left.T
        assert case.truth.spectral == pytest.approx(np.linalg.norm(E, 2), rel=1e-6)
        assert study.diameter == pytest.approx(cdist(study.X, study.X).max())
        assert study.size == pytest.approx(np.linalg.norm(cdist(study.X, study.X)))

    def test_the_same_seed_gives_the_same_cases_and_another_one_does_not(self, study) -> None:
        again = Study(study.dataset, self.SETTINGS).run()
        assert again == study.run()
        other = Study(study.dataset, replace(self.SETTINGS, seed=1)).run()
        assert other[0].truth != again[0].truth

    def test_other_theorems(self, study) -> None:
        found = other_theorems(study)
        assert {each.what.split(":")[0].split(",")[0] for each in found} == {"Thm 1", "Thm 4", "Thm 6"}
        for each in found[:2]:
            assert each.truth <= each.bounds[0].value
        assert found[1].bounds[1].value is None

    def test_bad_settings_are_named(self) -> None:
        with pytest.raises(InvalidParameter, match="landmarks"):
            Study(load("digits", records=10), Settings((11,), ()))
        with pytest.raises(InvalidParameter, match="landmarks"):
            Settings((1,), ())
        with pytest.raises(InvalidParameter, match="sigma"):
            Settings((5,), (-1.0,))
        with pytest.raises(InvalidParameter, match="typical squared distance"):
            Study(replace(load("digits", records=10), X=np.ones((10, 3))), Settings((3,), ()))

    def test_thm1_printed_needs_a_value_of_zeta(self) -> None:
        with pytest.raises(InvalidParameter, match="zeta"):
            thm1_printed(constants=Smoothness((1.0,), (1.0,)), zeta=-1, rounds=1, local_steps=1, decrease=0)
