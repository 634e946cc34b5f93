"""The protocol of all mechanisms.

A mechanism says what a client clips at home, what it uploads, how far one record can move that, and what the server
does with the average of the uploads. It draws no noise and does no accounting: both are done in one place for all of
them (`dpfedvis.federation.client`), from the sensitivity that it states.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Protocol

import numpy as np

from accounting import checks
from accounting.events import TRUSTS, Stage, Trust
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.kernels import Array, Workspace, squared_norms
from dpfedvis.numerics.optimisers import Optimiser
from dpfedvis.numerics.projections import Everywhere, Projection

Protection = Literal["upload", "home", "none"]


@dataclass(frozen=True)
class PreparedRecords:
    """Records at a client, ready for use: prepared by the mechanism, and sampled if the round samples.

    Parameters
    ----------
    records : array of shape (n_p, m)
    denominator : float
        Public number that means are divided by: n_p, or q·n̄ under sampling.
    workspace : Workspace
        Memory reused from round to round.
    squared_norms : array of shape (n_p,)
    """

    records: Array
    denominator: float
    workspace: Workspace
    squared_norms: Array

    @classmethod
    def of(cls, records: Array, denominator: float) -> PreparedRecords:
        """Return records with their norms and fresh memory."""
        return cls(records, denominator, Workspace(), squared_norms(records, "records"))

    def sample(self, rate: float, generator: np.random.Generator) -> PreparedRecords:
        """Return a Poisson sample: each record with probability `rate`; the denominator stays as it is."""
        chosen = generator.random(len(self.records)) < rate
        return replace(self, records=self.records[chosen], squared_norms=self.squared_norms[chosen])


@dataclass(frozen=True)
class Message:
    """What a client would upload, before noise.

    Parameters
    ----------
    values : array
    nominal_sigma : float, optional
        Scale of noise that is in `values` already and depends on the data, so that it protects nothing provably.
    """

    values: Array
    nominal_sigma: float | None = None


@dataclass(frozen=True)
class Update:
    """What the server makes of an average.

    Parameters
    ----------
    landmarks : array of shape (n_y, m)
        The next Y.
    gradient : array of shape (n_y, m), optional
        What the average says of ∇F at the Y before, if it says anything; for the trace.
    """

    landmarks: Array
    gradient: Array | None = None


class Mechanism(Protocol):
    """The plug-in point of FedDL; `BaseMechanism` has defaults for most of it.

    Attributes
    ----------
    name : str
        Short name, as on the command line.
    what : str
        Name of the upload, as in the ledger.
    trust : {"local", "aggregate", "central"}
    protection : {"upload", "home", "none"}
        Where the noise goes: on every upload; on the records at home, once, so that all uploads are post-processing; or
        nowhere that counts, and then every upload is logged as unprotected, for the reason `why`.
    stage : str
        The part of a run that it belongs to, as in the ledger.
    local_steps : bool
        Whether clients take steps of their own before they upload.
    """

    @property
    def name(self) -> str: ...

    @property
    def what(self) -> str: ...

    @property
    def trust(self) -> Trust: ...

    @property
    def protection(self) -> Protection: ...

    @property
    def why(self) -> str: ...

    @property
    def stage(self) -> Stage: ...

    @property
    def local_steps(self) -> bool: ...

    @property
    def projection(self) -> Projection:
        """Public set that Y must stay in for the sensitivity to hold."""

    def uploads(self, rounds: int) -> int:
        """How many uploads a client makes in a run of so many rounds."""

    def shape(self, public: PublicParameters) -> tuple[int, ...]:
        """Shape of one upload."""

    def sensitivity(self, public: PublicParameters, records: float) -> float | None:
        """L2 sensitivity of what is protected, for a client with this denominator; None without protection."""

    def prepare(self, records: Array) -> Array:
        """Clip the records at home, to public bounds."""

    def message(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, generator: np.random.Generator
    ) -> Message:
        """Compute the upload from prepared records and the server's Y."""

    def update(self, Y: Array, average: Array, public: PublicParameters, optimiser: Optimiser) -> Update:
        """Server side: the next Y from the weighted average of the uploads."""


@dataclass(frozen=True)
class BaseMechanism:
    """Defaults: nothing clipped, one upload of the shape of Y in each round, noise on every upload."""

    trust: Trust = "local"

    protection: ClassVar[Protection] = "upload"
    stage: ClassVar[Stage] = "landmarks"
    local_steps: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.one_of("trust", self.trust, TRUSTS)

    why: ClassVar[str] = ""

    @property
    def projection(self) -> Projection:
        """No bound on Y."""
        return Everywhere()

    def uploads(self, rounds: int) -> int:
        """One in each round."""
        return rounds

    def shape(self, public: PublicParameters) -> tuple[int, ...]:
        """The shape (n_y, m) of Y."""
        return public.landmarks, public.features

    def prepare(self, records: Array) -> Array:
        """Leave the records as they are."""
        return records
