"""The rounds of a run in numbers, as the server knows them."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, fields

import numpy as np

from dpfedvis.numerics.kernels import Array


@dataclass(frozen=True)
class Round:
    """A round in numbers.

    Parameters
    ----------
    number : int
        From 1 to S.
    step : float
        Frobenius norm of the round's change of Y.
    change : float
        Estimate of F(Y) − F(Y⁰) at the round's start, from released quantities; nan if the mechanism gives no gradient.
        See `Slope`.
    """

    number: int
    step: float
    change: float = math.nan


@dataclass(frozen=True, eq=False)
class Tally:
    """Noisy counts of each landmark's records, as released in each round.

    Parameters
    ----------
    counts : array of shape (rounds, n_y)
        Shares of all records.
    noise : array of shape (rounds,)
        Standard deviation of the noise in each count of a round.
    """

    counts: Array
    noise: Array

    @classmethod
    def of(cls, rounds: list[tuple[Array, float]]) -> Tally | None:
        """Return the tally of rounds, each as (counts, noise); None if there are none."""
        if not rounds:
            return None
        counts, noise = zip(*rounds, strict=True)
        return cls(np.stack(counts), np.array(noise, dtype=np.float64))

    def rounds(self) -> list[tuple[Array, float]]:
        """Inverse of `of`."""
        return list(zip(self.counts, self.noise.tolist(), strict=True))


class Slope:
    """Running estimate of the objective from noisy gradients.

    F(Y_s) − F(Y_{s−1}) = ⟨∇F(Y_s), Y_s − Y_{s−1}⟩ up to (L/2)‖Y_s − Y_{s−1}‖². The gradient at the *new* point
    has noise that is independent of the step, so it does not bias the estimate; the noise at the old point would.
    """

    def __init__(self, change: float = 0.0, step: Array | None = None) -> None:
        self.change, self._step = change, step

    def see(self, gradient: Array | None) -> float:
        """Add the gradient at the current Y; return the estimate of F(Y) − F(Y⁰)."""
        if gradient is None:
            return math.nan
        if self._step is not None:
            self.change += float(np.vdot(gradient, self._step))
        return self.change

    def move(self, step: Array) -> None:
        """Record the step from the current Y."""
        self._step = step


def as_array(trace: list[Round]) -> Array:
    """Return the numbers of all rounds, shape (rounds, columns)."""
    return np.array([astuple(each) for each in trace], dtype=np.float64).reshape(len(trace), len(fields(Round)))


def from_array(values: Array) -> list[Round]:
    """Inverse of `as_array`."""
    return [Round(int(row[0]), *(float(value) for value in row[1:])) for row in values]
