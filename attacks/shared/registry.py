"""The registry of attacks: their names, what an attack is given, and what it returns.

An attack is a function of a `Recording`, all that an honest-but-curious server has, and of the `Truth`, which it may
use only to score itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Protocol

import numpy as np

from accounting import checks
from dpfedvis.data import FederatedData
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.kernels import Array
from dpfedvis.runs.upload_reader import Recording

KINDS = ("reconstruction", "inversion", "membership", "exposure")  # attacks/KIND/report.py has `attack`


class NothingToAttack(DpfedvisError):
    """The run released nothing that this attack works on; the message says what it would need."""


@dataclass(frozen=True, eq=False)
class Truth:
    """The records of the simulated clients, for scoring only.

    Parameters
    ----------
    fed : FederatedData
        The records of the run, as dealt to its clients.
    fresh : array of shape (f, m), optional
        Records of the same data set that took no part in the run, if there are any.
    image_shape : tuple of int, optional
        Of one record, where records are images.
    exchangeable : bool
        Whether the records of the run were drawn at random, so that fresh ones have the same distribution.
    """

    fed: FederatedData
    fresh: Array | None = None
    image_shape: tuple[int, ...] | None = None
    exchangeable: bool = False

    @cached_property
    def pooled(self) -> Array:
        """All records in the order of the clients, shape (n, m): the order of rows and of the map."""
        return self.fed.pooled()[0]

    @property
    def caution(self) -> str:
        """A warning for pages that compare with fresh records; empty if none is needed."""
        if self.fresh is None or self.exchangeable:
            return ""
        return (
            "Fresh records come from later in the file than those of the run, so a small difference may come from the "
            "order of the file and not from leakage; a run with `--sample random` avoids this."
        )

    def client(self, name: str) -> Array:
        """Return the records of one client, shape (n_p, m)."""
        for each in self.fed.clients:
            if each.name == name:
                return each.X
        raise KeyError(name)


class Result(Protocol):
    """The scored result of an attack."""

    @property
    def summary(self) -> Mapping[str, float | None]:
        """A few numbers for tables, by name; None where a number has no meaning."""

    def to_json(self) -> str:
        """Everything, as JSON without infinities or NaN."""

    def markdown(self) -> str:
        """A page: what was tried, what came out, and the most that the noise allows."""

    def figure(self, path: Path) -> None:
        """Draw a PNG."""


class Attack(Protocol):
    """An attack: ``attack`` of its module."""

    def __call__(self, recording: Recording, truth: Truth, rng: np.random.Generator) -> Result:
        """Attack the recording, score against the truth; raises `NothingToAttack`."""


def kind(name: str) -> Attack:
    """Return the attack of this name."""
    checks.one_of("kind", name, KINDS)
    attack: Attack = import_module(f"attacks.{name}.report").attack
    return attack
