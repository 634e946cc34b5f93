"""The protocol of all mechanisms.

A mechanism defines how a client clips its records, what it uploads, how far one record can move that (the
sensitivity), and what the server does with the average upload. It draws no noise and does no accounting:
`dpfedvis.federation.client` does both for all mechanisms, from the sensitivity.
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
    """Records at a client after the mechanism's `prepare`, and after sampling if the round samples.

    Parameters
    ----------
    records : array of shape (n_p, m)
    denominator : float
        Public number that sums are divided by: n_p, or q·n̄ with sampling.
    workspace : Workspace
        Memory reused in every round.
    squared_norms : array of shape (n_p,)
    """

    records: Array
    denominator: float
    workspace: Workspace
    squared_norms: Array

    @classmethod
    def of(cls, records: Array, denominator: float) -> PreparedRecords:
        """Return records with their norms and a new workspace."""
        return cls(records, denominator, Workspace(), squared_norms(records, "records"))

    def sample(self, rate: float, generator: np.random.Generator) -> PreparedRecords:
        """Return a Poisson sample: each record with probability `rate`; same denominator."""
        chosen = generator.random(len(self.records)) < rate
        return replace(self, records=self.records[chosen], squared_norms=self.squared_norms[chosen])


@dataclass(frozen=True)
class Message:
    """A client's upload before noise.

    Parameters
    ----------
    values : array
    nominal_sigma : float, optional
        Scale of noise already in `values` that depends on the data, and so has no guarantee.
    """

    values: Array
    nominal_sigma: float | None = None


@dataclass(frozen=True)
class Update:
    """The server's update from an average upload.

    Parameters
    ----------
    landmarks : array of shape (n_y, m)
        The next Y.
    gradient : array of shape (n_y, m), optional
        Estimate of ∇F at the previous Y, if the average gives one; for the trace.
    """

    landmarks: Array
    gradient: Array | None = None


class Mechanism(Protocol):
    """Protocol of a mechanism; `BaseMechanism` has defaults for most of it.

    Attributes
    ----------
    name : str
        Short name, as on the command line.
    what : str
        Name of the upload, as in the ledger.
    trust : {"local", "aggregate", "central"}
    protection : {"upload", "home", "none"}
        Where noise is added: to every upload; to the records once, at the client (all uploads are then
        post-processing); or nowhere. Without protection each upload is logged as unprotected, with the reason `why`.
    stage : str
        Stage of the run, as in the ledger.
    local_steps : bool
        Whether clients take local steps before they upload.
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
        """Number of uploads of a client in a run of this many rounds."""

    def shape(self, public: PublicParameters) -> tuple[int, ...]:
        """Shape of one upload."""

    def sensitivity(self, public: PublicParameters, records: float) -> float | None:
        """L2 sensitivity of the protected quantity for a client with this denominator; None without protection."""

    def prepare(self, records: Array) -> Array:
        """Clip the records, shape (n_p, m), to public bounds; done at the client."""

    def message(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, generator: np.random.Generator
    ) -> Message:
        """Compute the upload from prepared records and the server's Y."""

    def update(self, Y: Array, average: Array, public: PublicParameters, optimiser: Optimiser) -> Update:
        """Return the next Y, from the weighted average of the uploads; done at the server."""


@dataclass(frozen=True)
class BaseMechanism:
    """Defaults: no clipping, one upload of Y's shape in each round, noise on every upload.

    Parameters
    ----------
    trust : {"local", "aggregate", "central"}
        Trust model: what the server sees of the clients. ``local``: each upload, with its own
        noise. ``aggregate``: only the sum; each client adds a share of the noise. ``central``: the exact sum, to which
        a trusted server adds the noise.
    """

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
        """Return the records unchanged."""
        return records
