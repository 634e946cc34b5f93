"""Release events: immutable facts about what left a client. Accountants compute what they cost."""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, get_args

from accounting import checks
from accounting.budget import ADJACENCIES, UNITS, Adjacency, Unit
from accounting.errors import InvalidParameter
from accounting.sharing import Sharing

Trust = Literal["local", "aggregate", "central"]
Stage = Literal["scale", "subspace", "landmarks", "density", "release"]

ON_GRID = ("seeded", "discrete")  # noise sources that draw integers
# sigma in cells of the grid. One party's noise has s of at least 4, and √(4² − 4) is what that is worth; a million
# parties, each with at most 2⁴⁹, have less than 2⁵⁹.
_LEAST_CELLS, _MOST_CELLS = math.sqrt(12) * (1 - 1e-9), 2.0**59

_SHARING = ("parties", "threshold", "colluders")
TRUSTS: tuple[str, ...] = get_args(Trust)
STAGES: tuple[str, ...] = get_args(Stage)


@dataclass(frozen=True, kw_only=True)
class Event:
    """What all events have.

    Parameters
    ----------
    what : str
        The quantity, such as ``"gradient"`` or ``"distance rows"``.
    client : str
        The client whose records it was computed from.
    round : int, optional
        The round in which it was released.
    stage : {"scale", "subspace", "landmarks", "density", "release"}
        The part of a run that it belongs to. A budget with scope ``"landmarks"`` does not cover ``"release"``.
    adjacency, unit
        What the sensitivity is measured over; see `accounting.Budget`.
    trust : {"local", "aggregate", "central"}
        Who must be trusted for an observer to face noise of size sigma: nobody, the secure sum, or the server.
    noise : str
        Name of the noise source.
    """

    kind: ClassVar[str] = "event"

    what: str
    client: str
    round: int | None = None
    stage: Stage = "landmarks"
    adjacency: Adjacency = "replace-one"
    unit: Unit = "record"
    trust: Trust = "local"
    noise: str = "seeded"

    def __post_init__(self) -> None:
        for name in ("what", "client", "noise"):
            checks.text(name, getattr(self, name))
        if self.round is not None:
            object.__setattr__(self, "round", _whole("round", self.round))
        checks.one_of("stage", self.stage, STAGES)
        checks.one_of("adjacency", self.adjacency, ADJACENCIES)
        checks.one_of("unit", self.unit, UNITS)
        checks.one_of("trust", self.trust, TRUSTS)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the kind, ready for JSON."""
        return {"kind": self.kind, **vars(self)}

    def to_json(self) -> str:
        """Return one canonical line: sorted keys, floats in their shortest exact form."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


@dataclass(frozen=True, kw_only=True)
class GaussianRelease(Event):
    """`count` releases of L2 sensitivity `sensitivity`, each with fresh noise N(0, sigma² I).

    Parameters
    ----------
    sensitivity, sigma : float
        In the same units. On a grid, `sigma` is the noise of the equivalent Gaussian: grid·√(s² − 4) for discrete
        Gaussian integers of parameter s, by the lemma of `accounting.exactness`; the smallest, where values have noise
        of their own.
    count : int
    grid : float, optional
        Width of a cell, in the units of the two. The release is then a vector of integers, each data set's exactly on
        the public grid, plus discrete Gaussian integers. None: the noise is continuous.
    values : int
        Integers of noise drawn for one release: the length of the vector, times the number of parties where several
        add noise of their own and the sum is seen. What sampler and grid add to ε follows from it. 0 without a grid.
    parties, threshold, colluders : int, optional
        Who shares the noise, as in `accounting.sharing`: how many there are, fewest of them in a sum, and how many may
        take theirs off. `sigma` is what is left then.
    own : float, optional
        Part of `sigma` that the client adds beyond its share of the common noise, for a smaller ε of its own: σ² is
        that of the common noise plus `own` squared.
    """

    kind: ClassVar[str] = "gaussian"

    sensitivity: float
    sigma: float
    count: int = 1
    grid: float | None = None
    values: int = 0
    parties: int | None = None
    threshold: int | None = None
    colluders: int | None = None
    own: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "sensitivity", checks.positive("sensitivity", self.sensitivity))
        object.__setattr__(self, "sigma", checks.positive("sigma", self.sigma))
        object.__setattr__(self, "count", checks.count("count", self.count))
        ratio = self.sensitivity / self.sigma
        checks.positive("count·(sensitivity/sigma)²", checks.product(self.count, ratio * ratio))
        self._check_grid()
        given = [getattr(self, name) for name in _SHARING]
        if given != [None] * 3:
            if None in given:
                raise InvalidParameter(", ".join(_SHARING), given, "all given, or none")
            if self.trust != "aggregate":
                raise InvalidParameter("threshold", self.threshold, "left out where the noise is not shared")
            for name, value in zip(_SHARING, given, strict=True):
                object.__setattr__(self, name, checks.whole(name, value, 0))
            _ = self.sharing  # checks them
        if self.own is not None:
            if self.sharing is None:
                raise InvalidParameter("own", self.own, "left out where the noise is not shared")
            object.__setattr__(self, "own", checks.positive("own", self.own))
            checks.between("own", self.own, 0.0, self.sigma)

    @property
    def sharing(self) -> Sharing | None:
        """How the noise is shared; None of an event that does not say so."""
        if self.parties is None or self.threshold is None or self.colluders is None:
            return None
        return Sharing(self.parties, self.threshold, self.colluders)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields and the kind, ready for JSON; without those of sharing where the noise is not shared."""
        left_out = (*(_SHARING if self.threshold is None else ()), *(("own",) if self.own is None else ()))
        return {name: value for name, value in super().to_dict().items() if name not in left_out}

    def _check_grid(self) -> None:
        if self.grid is None:
            if self.noise in ("none", "discrete"):
                raise InvalidParameter("noise", self.noise, "a source of continuous noise, or the release has a grid")
            object.__setattr__(self, "values", checks.whole("values without a grid", self.values, 0, 0))
            return
        object.__setattr__(self, "grid", checks.positive("grid", self.grid))
        object.__setattr__(self, "values", checks.count("values", self.values))
        checks.one_of("noise on a grid", self.noise, ON_GRID)
        cells = self.sigma / self.grid
        if not _LEAST_CELLS <= cells <= _MOST_CELLS:
            raise InvalidParameter("sigma/grid", cells, "from √12, which noise of 4 cells is worth, to 2⁵⁹")

    @property
    def noise_multiplier(self) -> float:
        """sigma / sensitivity."""
        return self.sigma / self.sensitivity

    @property
    def mu(self) -> float:
        """GDP parameter of all `count` releases together, ignoring sampling."""
        ratio = self.sensitivity / self.sigma
        return math.sqrt(checks.product(self.count, ratio * ratio))


@dataclass(frozen=True, kw_only=True)
class SampledGaussianRelease(GaussianRelease):
    """Gaussian releases, each computed from a fresh Poisson sample of the records.

    Each record enters a sample with probability `sampling_rate`, independently. Amplification by sampling is proved for
    add-remove neighbours, so no other adjacency is accepted. The denominator of a mean must be public (the rate times
    a public number of records).
    """

    kind: ClassVar[str] = "sampled-gaussian"

    sampling_rate: float

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "sampling_rate", checks.rate("sampling_rate", self.sampling_rate))
        if self.adjacency != "add-remove":
            raise InvalidParameter("adjacency", self.adjacency, "add-remove under Poisson sampling")
        if self.unit != "record":
            raise InvalidParameter("unit", self.unit, "record under Poisson sampling of records")


@dataclass(frozen=True, kw_only=True)
class Unprotected(Event):
    """Something left a client without any guarantee: ε = ∞.

    Parameters
    ----------
    why : str
        Why there is no guarantee.
    nominal_sensitivity, nominal_sigma : float, optional
        For noise whose scale depends on the data. They say what it would be worth if the scale were public
        (`accounting.nominal_mu`), and guarantee nothing.
    """

    kind: ClassVar[str] = "unprotected"

    why: str
    noise: str = "none"
    nominal_sensitivity: float | None = None
    nominal_sigma: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.text("why", self.why)
        for name in ("nominal_sensitivity", "nominal_sigma"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, checks.positive(name, getattr(self, name)))


@dataclass(frozen=True, kw_only=True)
class PostProcessing(Event):
    """Something computed only from an earlier release of the same client: it costs nothing.

    Parameters
    ----------
    of : str
        `what` of that release. The ledger refuses the event if the client has not made it.
    """

    kind: ClassVar[str] = "post-processing"

    of: str
    noise: str = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.text("of", self.of)


def _whole(name: str, value: int) -> int:
    """Return `value` as an int that fits a column of the ledger, or raise."""
    expected = "a whole number from 0 to 2⁶³ − 1"
    if isinstance(value, bool):
        raise InvalidParameter(name, value, expected)
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidParameter(name, value, expected) from None
    if not 0 <= number < 2**63:
        raise InvalidParameter(name, value, expected)
    return number


KINDS: dict[str, type[Event]] = {
    event.kind: event for event in (GaussianRelease, SampledGaussianRelease, Unprotected, PostProcessing)
}


def in_round(event: Event, number: int | None) -> Event:
    """Return an event in another round. Nothing is checked again, so `number` must be a round of an event."""
    other = object.__new__(type(event))
    vars(other).update(vars(event), round=number)
    return other


def nominal_mu(events: Iterable[Event]) -> float | None:
    """μ that unprotected noise would be worth if its scales were public; None if an unprotected event has no noise.

    Not a guarantee: √Σ (nominal_sensitivity/nominal_sigma)² over one client's unprotected events.
    """
    total = 0.0
    for event in events:
        if isinstance(event, Unprotected):
            if event.nominal_sensitivity is None or event.nominal_sigma is None:
                return None
            ratio = event.nominal_sensitivity / event.nominal_sigma
            total += ratio * ratio
    return math.sqrt(total)


def from_dict(values: dict[str, Any]) -> Event:
    """Inverse of `Event.to_dict`."""
    values = dict(values)
    kind = values.pop("kind", None)
    checks.one_of("kind", kind, KINDS)
    known = {field.name for field in fields(KINDS[kind])}
    unknown = sorted(set(values) - known, key=str)
    if unknown:
        raise InvalidParameter(f"fields of a {kind} event", unknown, "among " + ", ".join(sorted(known)))
    try:
        return KINDS[kind](**values)
    except TypeError as error:
        raise InvalidParameter(f"fields of a {kind} event", sorted(values, key=str), f"complete ({error})") from None


def from_json(line: str) -> Event:
    """Inverse of `Event.to_json`."""
    checks.text("event", line)
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidParameter("event", line, f"JSON ({error})") from None
    if not isinstance(values, dict):
        raise InvalidParameter("event", line, "a JSON object")
    return from_dict(values)
