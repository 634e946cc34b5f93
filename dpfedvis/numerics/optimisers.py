"""Optimisers of the server. They see only what was released: post-processing, which costs no privacy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from accounting import checks
from dpfedvis.numerics.kernels import Array

State = dict[str, NDArray[np.float64]]


class Optimiser(Protocol):
    """Protocol: turns a sequence of gradients into steps."""

    @property
    def state(self) -> State:
        """Arrays to keep in a snapshot, for `restore`."""

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""

    def step(self, gradient: Array) -> Array:
        """Return what to add to Y, shape of `gradient`."""


@dataclass
class Plain:
    """Gradient descent: −η g."""

    step_size: float
    state: State = field(default_factory=dict)

    def __post_init__(self) -> None:
        checks.positive("step_size", self.step_size)

    def restore(self, state: State) -> None:
        """Nothing to restore."""

    def step(self, gradient: Array) -> Array:
        """Return −η g."""
        return -self.step_size * gradient


@dataclass
class Momentum:
    """Heavy ball (Polyak 1964): v ← βv + g, step −ηv."""

    step_size: float
    decay: float = 0.9
    state: State = field(default_factory=dict)

    def __post_init__(self) -> None:
        checks.positive("step_size", self.step_size)
        checks.probability("decay", self.decay)

    def restore(self, state: State) -> None:
        """Set the velocity."""
        self.state = dict(state)

    def step(self, gradient: Array) -> Array:
        """Return −ηv."""
        velocity = self.decay * self.state.get("velocity", np.zeros(1)) + gradient
        self.state = {"velocity": velocity}
        return -self.step_size * velocity


@dataclass
class Adam:
    """Adam (Kingma & Ba 2015) with its bias correction."""

    step_size: float = 0.1
    first: float = 0.9
    second: float = 0.999
    tiny: float = 1e-8
    state: State = field(default_factory=dict)

    def __post_init__(self) -> None:
        checks.positive("step_size", self.step_size)
        checks.probability("first", self.first)
        checks.probability("second", self.second)

    def restore(self, state: State) -> None:
        """Set the moments and the count."""
        self.state = dict(state)

    def step(self, gradient: Array) -> Array:
        """Return the corrected step."""
        zero = np.zeros(1)
        count = self.state.get("count", zero) + 1
        mean = self.first * self.state.get("mean", zero) + (1 - self.first) * gradient
        square = self.second * self.state.get("square", zero) + (1 - self.second) * np.square(gradient)
        self.state = {"count": count, "mean": mean, "square": square}
        corrected = mean / (1 - self.first**count)
        return -self.step_size * corrected / (np.sqrt(square / (1 - self.second**count)) + self.tiny)


def optimiser(name: str, step_size: float) -> Optimiser:
    """Return a new optimiser by name: ``"plain"``, ``"momentum"`` or ``"adam"``."""
    kinds: dict[str, type[Plain] | type[Momentum] | type[Adam]] = {"plain": Plain, "momentum": Momentum, "adam": Adam}
    return kinds[checks.one_of("optimiser", name, kinds)](step_size)
