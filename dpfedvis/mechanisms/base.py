"""The protocol of all mechanisms.

A mechanism defines what a client uploads, how far one record can move that (the sensitivity), and what the server does
with the average upload. It draws no noise and does no accounting: `dpfedvis.site.computation` does both for all
mechanisms, from the sensitivity.

What is protected is a sum of integers over records (`total`), on a public grid. There are two ways to write one.
Plain: a child of `PlainMechanism` says what one record adds, in floats, and how long that can be. Fast: a child of
`BaseMechanism` has a `total` of its own, by matrix products of integers (`dpfedvis.numerics.exact_sums`). What is not
protected (`message`) may be float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np

from accounting import checks
from accounting.events import TRUSTS, Stage, Trust
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.exact import CellRows, Floats, Grid, Integers
from dpfedvis.numerics.exact_sums import plain_cells, plain_sums
from dpfedvis.numerics.kernels import Array, Workspace, squared_norms
from dpfedvis.numerics.optimisers import Optimiser
from dpfedvis.numerics.projections import Everywhere, Projection

Protection = Literal["upload", "home", "none"]


class PreparedRecords:
    """Records at a client, after sampling if the round samples.

    Parameters
    ----------
    records : array of shape (n_p, m)
    denominator : float
        Public number that sums are divided by: n_p, or q·n̄ with sampling.

    Attributes
    ----------
    workspace : Workspace
        Memory reused in every round.
    """

    def __init__(self, records: Array, denominator: float) -> None:
        self.records, self.denominator, self.workspace = records, denominator, Workspace()
        self._squared_norms: Array | None = None
        self._cells: tuple[Grid, float | None, CellRows] | None = None

    @property
    def squared_norms(self) -> Array:
        """‖x‖² of the records, shape (n_p,)."""
        if self._squared_norms is None:
            self._squared_norms = squared_norms(self.records, "records")
        return self._squared_norms

    def cells(self, grid: Grid, norm: float | None = None) -> CellRows:
        """Return the records on a grid, shape (n_p, m), clipped to a public norm if one is given; the last is kept."""
        if self._cells is None or self._cells[:2] != (grid, norm):
            self._cells = (grid, norm, grid.rows(self.records, norm))
        return self._cells[2]

    def sample(self, rate: float, generator: np.random.Generator) -> PreparedRecords:
        """Return a Poisson sample: each record with probability `rate`; same denominator."""
        chosen = generator.random(len(self.records)) < rate
        sampled = PreparedRecords(self.records[chosen], self.denominator)
        sampled.workspace = self.workspace
        if self._cells is not None:
            grid, norm, cells = self._cells
            if isinstance(cells, np.ndarray):
                sampled._cells = (grid, norm, cells[chosen])
        return sampled


@dataclass(frozen=True)
class Message:
    """An upload in floats, without a guarantee.

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
    needs_norm : bool
        Whether records must have a public bound, of their features or their norms. Kernel sums do without.
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
    def needs_norm(self) -> bool: ...

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
        """Clip the records, shape (n_p, m), of an unprotected upload."""

    def at_home(self, records: Array, public: PublicParameters) -> Integers:
        """Return the records as they get noise at home, clipped, in cells of `grid`; shape (n_p, m)."""

    def grid(self, public: PublicParameters, Y: Array) -> Grid:
        """Return the public grid of the records."""

    def cell(self, public: PublicParameters, grid: Grid) -> float:
        """Return what one cell of `total` is worth, before the division by the denominator."""

    def total(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, grid: Grid, factor: float = 1.0
    ) -> Integers:
        """Sum what each record adds, times `factor` and rounded, in cells; of the shape of the upload."""

    def additive(self, public: PublicParameters) -> bool:
        """Whether `total` is a sum over records, to be divided by the denominator; otherwise it is a mean."""

    def rounded(self, public: PublicParameters) -> float:
        """Number of values whose rounding the sensitivity does not cover: each adds a cell (Δ + cell·√values)."""

    def relative_noise(self, public: PublicParameters) -> Floats | None:
        """Noise of each value relative to the largest, if not equal; the sensitivity is then that of values over it."""

    def message(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, generator: np.random.Generator
    ) -> Message:
        """Compute an unprotected upload, or a protected one without its noise, in floats."""

    def update(self, Y: Array, average: Array, public: PublicParameters, optimiser: Optimiser) -> Update:
        """Return the next Y, from the weighted average of the uploads; done at the server."""


@runtime_checkable
class Counting(Protocol):
    """A mechanism whose uploads count each landmark's records: a verdict can be given on its maps."""

    def counts(self, average: Array) -> Array:
        """Return each landmark's share of the records in an average, shape (n_y,)."""


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
    needs_norm: ClassVar[bool] = True

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

    def at_home(self, records: Array, public: PublicParameters) -> Integers:
        """Perturb records: only a mechanism with protection at home does."""
        raise NotImplementedError(f"{type(self).__name__} perturbs no records")

    def grid(self, public: PublicParameters, Y: Array) -> Grid:
        """The run's grid, or one around the landmarks."""
        return public.grid or Grid.around(Y, public.kernel)

    def cell(self, public: PublicParameters, grid: Grid) -> float:
        """Return what one cell is worth: there is none without a `total`."""
        raise NotImplementedError(f"{type(self).__name__} has no protected upload")

    def total(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, grid: Grid, factor: float = 1.0
    ) -> Integers:
        """Sum what records add; a mechanism with protection has its own."""
        raise NotImplementedError(f"{type(self).__name__} has no protected upload")

    def additive(self, public: PublicParameters) -> bool:
        """A sum over records."""
        return True

    def rounded(self, public: PublicParameters) -> float:
        """None: rounding towards zero makes nothing longer."""
        return 0.0

    def relative_noise(self, public: PublicParameters) -> Floats | None:
        """The same for all values."""
        return None

    def message(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, generator: np.random.Generator
    ) -> Message:
        """The protected upload without its noise."""
        grid = self.grid(public, Y)
        cells = self.total(local, Y, public, grid)
        worth = self.cell(public, grid) / (local.denominator if self.additive(public) else 1.0)
        return Message(cells * worth)


@dataclass(frozen=True)
class PlainMechanism(BaseMechanism):
    """The plain way: a child says what one record adds (`contribution`), and how long that can be (`bound`).

    Values are clipped to the bound, rounded towards zero and summed as integers. So the sensitivity is twice the bound
    over n_p for replacing a record, whatever `contribution` does; half of it for adding one.
    """

    def contribution(self, records: Floats, Y: Array, public: PublicParameters) -> Floats:
        """Return what each record adds, shape (n, …): a function of that record, Y and public facts alone.

        It is called with one record at a time, n = 1, so that no record's values depend on its place.
        """
        raise NotImplementedError

    def bound(self, public: PublicParameters) -> float:
        """Return the largest norm of what one record adds."""
        raise NotImplementedError

    def sensitivity(self, public: PublicParameters, records: float) -> float:
        """2·bound/n_p, or bound/n_p under add-remove, by the triangle inequality."""
        return self.bound(public) * (2 if public.adjacency == "replace-one" else 1) / records

    def cell(self, public: PublicParameters, grid: Grid) -> float:
        """The bound, over its number of cells."""
        return self.bound(public) / plain_cells(math.prod(self.shape(public)))

    def total(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, grid: Grid, factor: float = 1.0
    ) -> Integers:
        """Evaluate record by record, clip, round towards zero, and sum."""
        cells, shape = local.cells(grid), self.shape(public)
        size = math.prod(shape)
        landmarks = grid.points(grid.nearest(Y))
        return plain_sums(
            lambda records: self.contribution(records, landmarks, public),
            lambda rows: grid.points(cells[rows]),
            len(cells),
            size,
            self.bound(public),
            cells=plain_cells(size),
            factor=factor,
        ).reshape(shape)
