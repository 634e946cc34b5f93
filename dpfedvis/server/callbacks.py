"""Callbacks of the FedDL loop. They see only what the server knows: landmarks and its own numbers."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from accounting import checks
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.progress import bar
from dpfedvis.server.round_log import Round


@dataclass
class ProgressBar:
    """Progress bar of the rounds on standard error; silent if that is no terminal."""

    rounds: int | None
    _bar: Any = field(default=None, repr=False)
    _missing: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)

    def __call__(self, done: Round, landmarks: Array) -> None:
        """Move the bar."""
        if self._bar is None:
            # A resumed run starts in the middle, and only new rounds count for its speed.
            self._bar = bar(self.rounds, "round", "landmarks", initial=done.number - 1)
        self._bar.update(done.number - self._bar.n)
        if done.number == self.rounds:
            self.close()

    def told(self, facts: Mapping[str, Any]) -> None:
        """Move the bar by what the server of real sites says of a run; say on standard error who is missing."""
        missing = {name: tuple(facts.get(name) or ()) for name in ("away", "waiting")}
        for name, words in (("away", "goes on without"), ("waiting", "waits for the approval of")):
            if missing[name] != self._missing.get(name, ()) and missing[name]:
                names = ", ".join(name for name in missing[name] if str(name).isprintable())
                print(f"the run {words} {names}", file=sys.stderr, flush=True)
        self._missing = missing
        if facts["stage"] == "rounds" and facts["done"] > 0:
            if self._bar is None:
                self._bar = bar(self.rounds, "round", "landmarks", initial=facts["done"])
            self._bar.update(max(facts["done"] - self._bar.n, 0))

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._bar is not None:
            self._bar.close()


@dataclass
class StageBars:
    """Progress bar of each stage after the rounds, on standard error; silent if that is no terminal."""

    _stage: str = field(default="", repr=False)
    _bar: Any = field(default=None, repr=False)

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Move the bar of a stage to `done` of `total` parts."""
        if stage != self._stage:
            self.close()
            self._stage, self._bar = stage, bar(total, "part", stage)
        self._bar.update(done - self._bar.n)
        if done >= total:
            self.close()

    def close(self) -> None:
        """Take the bar off the screen."""
        if self._bar is not None:
            self._bar.close()


@dataclass
class KeepLandmarks:
    """Keep copies of Y in `kept`, by round: one every `every` rounds."""

    every: int = 1
    kept: dict[int, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        checks.count("every", self.every)

    def __call__(self, done: Round, landmarks: Array) -> None:
        """Copy Y."""
        if done.number % self.every == 0:
            self.kept[done.number] = landmarks.copy()
