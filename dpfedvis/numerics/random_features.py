"""Random Fourier features of the mean kernel (Rahimi & Recht 2007): every record becomes a vector of norm 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from accounting import checks
from dpfedvis.numerics.exact import MOST_BITS, Floats
from dpfedvis.numerics.kernels import Array, Kernel


@dataclass(frozen=True)
class RandomFeatures:
    """φ(x) = (cos Wᵀx, sin Wᵀx)/√K with the columns of W drawn from the kernel's spectrum.

    exp(−γ‖x − y‖²) is the characteristic function of N(0, 2γI), so E⟨φ(x), φ(y)⟩ = k(x, y). Each of several
    bandwidths gets an equal part of the K frequencies. Since cos² + sin² = 1, ‖φ(x)‖ = 1 for every x and W.

    Parameters
    ----------
    kernel : Kernel
    features : int
        Number m of coordinates of x.
    frequencies : int
        K, at least the number of bandwidths; φ(x) has 2K values.
    seed : int
        Public: all clients and the server use the same frequencies.
    """

    kernel: Kernel
    features: int
    frequencies: int
    seed: int

    def __post_init__(self) -> None:
        checks.count("features", self.features)
        checks.count("frequencies", self.frequencies)

    @property
    def integers(self) -> Floats:
        """W in units of `unit`, shape (m, K), float64 without fractions."""
        return _frequencies(self)[0]

    @property
    def unit(self) -> float:
        """A power of two, so that W has `bits` bits."""
        return _frequencies(self)[1]

    @property
    def matrix(self) -> Array:
        """W, shape (m, K), float32."""
        return _frequencies(self)[2]

    @property
    def bits(self) -> int:
        """Bits of a frequency: with 20 of a coordinate and those of m they are 52, so that Wᵀx is exact."""
        return min(20, 52 - MOST_BITS - math.ceil(math.log2(self.features)))

    def _draw(self) -> tuple[Floats, float, Array]:
        generator = np.random.default_rng([self.seed, 0x52464621])
        gammas = np.resize(np.asarray(self.kernel.gammas), self.frequencies)
        normal = generator.standard_normal((self.features, self.frequencies))
        drawn = normal * np.sqrt(2 * gammas)
        unit = 2.0 ** (math.ceil(math.log2(float(np.abs(drawn).max()))) - self.bits)
        integers = np.rint(drawn / unit)
        return integers, unit, (integers * unit).astype(np.float32)

    @property
    def size(self) -> int:
        """Length 2K of φ(x)."""
        return 2 * self.frequencies

    def gap(self, Y: Array, target: Array) -> tuple[float, Array]:
        """‖(1/n_y) Σ_i φ(y_i) − target‖² and its gradient in Y, shape (n_y, m).

        With u the difference, row i of the gradient is (2/(n_y √K)) (cos(Wᵀy_i)∘u_sin − sin(Wᵀy_i)∘u_cos) Wᵀ.
        """
        angles = Y.astype(np.float32, copy=False) @ self.matrix
        cosine, sine = np.cos(angles), np.sin(angles)
        root = math.sqrt(self.frequencies)
        mean = np.concatenate([cosine.mean(axis=0, dtype=np.float64), sine.mean(axis=0, dtype=np.float64)]) / root
        difference = mean - target
        u_cos, u_sin = np.split(difference.astype(np.float32), 2)
        pull = cosine * u_sin - sine * u_cos
        gradient = (2 / (len(Y) * root)) * (pull @ self.matrix.T)
        return float(difference @ difference), gradient


@lru_cache(maxsize=4)
def _frequencies(features: RandomFeatures) -> tuple[Floats, float, Array]:
    """Return W in integers, their unit, and W; cached, because all clients of a round use the same one."""
    return features._draw()
