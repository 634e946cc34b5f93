"""Callbacks of the FedDL loop. They see public quantities only: the landmarks and the server's own numbers."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from accounting import checks
from dpfedvis.federation.round_log import Round
from dpfedvis.numerics.kernels import Array


@dataclass
class ProgressBar:
    """A bar on standard error with the time left; silent where standard error is not a terminal."""

    rounds: int
    _bar: Any = field(default=None, repr=False)

    def __call__(self, done: Round, landmarks: Array) -> None:
        """Move the bar."""
        if self._bar is None:
            # A run that goes on after an interruption begins in the middle, and only what is done now has a pace.
            self._bar = _bar(self.rounds, "round", initial=done.number - 1)
        self._bar.update(done.number - self._bar.n)
        if done.number == self.rounds:
            self.close()

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._bar is not None:
            self._bar.close()


@dataclass
class StageBars:
    """A bar on standard error for each stage after the rounds; silent where standard error is not a terminal."""

    _stage: str = field(default="", repr=False)
    _bar: Any = field(default=None, repr=False)

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Move the bar of a stage: so many parts of it are done, of so many in all."""
        if stage != self._stage:
            self.close()
            self._stage, self._bar = stage, _bar(total, "part", desc=stage)
        self._bar.update(done - self._bar.n)
        if done >= total:
            self.close()

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._bar is not None:
            self._bar.close()


def _bar(total: int, unit: str, **settings: Any) -> Any:
    from tqdm import tqdm

    return tqdm(total=total, unit=unit, disable=not sys.stderr.isatty(), leave=False, **settings)


@dataclass
class KeepLandmarks:
    """Keep a copy of Y after every `every` rounds, in `kept` by round."""

    every: int = 1
    kept: dict[int, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checks.count("every", self.every)

    def __call__(self, done: Round, landmarks: Array) -> None:
        """Copy Y."""
        if done.number % self.every == 0:
            self.kept[done.number] = landmarks.copy()
