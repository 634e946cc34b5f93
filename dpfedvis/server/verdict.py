"""What of a private map is signal, from released and public numbers alone. Post-processing: it costs no ε.

Three things can be asked of the releases. How many *directions* of the data stand above the noise of the second
moments; in how many *regions* the counts stand above theirs (`dpfedvis.server.regions`); and how many of the landmarks
lie in such a region. The thresholds of the verdict were chosen on digits, Fashion-MNIST and a Gaussian blob, and tried
on other data (reports/verdict).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from accounting.errors import InvalidParameter
from dpfedvis.mechanisms import KMeans
from dpfedvis.mechanisms.scale import Moments
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol import wire
from dpfedvis.server.feddl import FedDLResult
from dpfedvis.server.private_map import Learned
from dpfedvis.server.regions import Regions, pooled, regions, settled
from dpfedvis.server.round_log import Tally
from dpfedvis.server.session import Average, Session
from dpfedvis.server.subspace import edge_of, threshold

_R = TypeVar("_R", SecondMoments, Moments)
Signal = Literal["yes", "partly", "no"]
SIGNALS: tuple[Signal, ...] = ("yes", "partly", "no")
DIRECTIONS = 2  # a map has two
FRAME = 0.6  # of the variance of the map's frame is in directions that are seen, of a map that is signal
MOSTLY = 0.6  # of the landmarks that are drawn are then in clear regions
SOME = 0.4  # of all landmarks in clear regions make one that is signal in part where no direction is seen; and at least
SOME_REGIONS = 6
OFFSET = 1.5  # times its expectation, the squared length of the centre's noise hardly ever reaches
WIDE = 2.5  # standard deviations: 95 % where the scatter is known from six rounds
_OPTIONAL = ("edge", "share", "share_low", "share_high", "spread", "comes_back")
LEAST_DRAWN = 4  # landmarks: fewer are no map, and all are drawn


@dataclass(frozen=True)
class Region:
    """A region of the map.

    Parameters
    ----------
    landmarks : tuple of int
        Numbers of its landmarks.
    share, noise : float
        Share of the records, and the standard deviation of its noise.
    clear : bool
        Whether the share is above its noise.
    weak : bool
        Whether there is only a hint of records: drawn, and faded.
    place_noise : float
        Standard deviation of the noise in each coordinate of the mean of its landmarks, at most: that of one round. In
        the units of the records; infinite where no record is seen.
    """

    landmarks: tuple[int, ...]
    share: float
    noise: float
    clear: bool
    weak: bool
    place_noise: float | None = None

    def __post_init__(self) -> None:
        for name in ("share", "noise", "place_noise"):
            _number(f"{name} of a region", getattr(self, name), optional=name == "place_noise")
        for name in ("clear", "weak"):
            _flag(f"{name} of a region", getattr(self, name))


class Origins(NamedTuple):
    """Whose each published anchor is, shape (kept,), and which of all anchors are published, shape (anchors,)."""

    of: NDArray[np.int64]
    kept: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What of a map is signal.

    Parameters
    ----------
    signal : {"yes", "partly", "no"}
    sentence : str
        The same in words, with the numbers that it rests on.
    directions : tuple of float, optional
        Share of the records' variance in each direction that stands above the noise; None if directions were not asked
        for.
    edge : float, optional
        How large the share of a direction made of noise alone can seem.
    share, share_low, share_high : float, optional
        Share of the records in clear regions, with an interval; None if the mechanism counts no records.
    regions : tuple of Region
    drawn : tuple of bool
        Whether each landmark is laid out and drawn; empty where no map of landmarks was made.
    anchors : tuple of int
        The landmark of each published anchor.
    centre_noise : float
        Standard deviation of the noise in each feature of the records' mean, at most.
    spread : float, optional
        Variance of the records, summed over all features, as it was released.
    frame : float
        Share of the variance of the map's frame that is along the directions that stand above the noise.
    comes_back : float, optional
        How much of the map comes back when it is made again of records drawn from it, from 0 to 1; see
        `dpfedvis.evaluation.bootstrap`.
    """

    signal: Signal
    sentence: str
    directions: tuple[float, ...] | None = None
    edge: float | None = None
    share: float | None = None
    share_low: float | None = None
    share_high: float | None = None
    regions: tuple[Region, ...] = ()
    drawn: tuple[bool, ...] = ()
    anchors: tuple[int, ...] = ()
    centre_noise: float = 0.0
    spread: float | None = None
    frame: float = 0.0
    comes_back: float | None = None

    def __post_init__(self) -> None:
        if self.signal not in SIGNALS:
            raise InvalidParameter("signal", self.signal, " or ".join(SIGNALS))
        if not isinstance(self.sentence, str):
            raise InvalidParameter("sentence of a verdict", self.sentence, "text")
        for name in _OPTIONAL:
            _number(f"{name} of a verdict", getattr(self, name), optional=True)
        for name in ("centre_noise", "frame"):
            _number(f"{name} of a verdict", getattr(self, name))
        for each in _items("directions of a verdict", self.directions or ()):
            _number("a direction of a verdict", each)
        for each in _items("drawn landmarks of a verdict", self.drawn):
            _flag("whether a landmark is drawn", each)
        for region in _items("regions of a verdict", self.regions):
            if not isinstance(region, Region):
                raise InvalidParameter("a region of a verdict", region, "a region")
            self._check_landmarks("landmark of a region", region.landmarks)
        self._check_landmarks("landmark of an anchor", self.anchors)

    def _check_landmarks(self, name: str, numbers: object) -> None:
        """Raise unless these are numbers of landmarks: a negative one would count from the end."""
        for each in _items(name, numbers):
            if isinstance(each, bool) or not isinstance(each, int) or not 0 <= each < len(self.drawn):
                raise InvalidParameter(name, each, f"a number from 0 to {len(self.drawn) - 1}")

    @property
    def clear(self) -> tuple[bool, ...]:
        """Whether each landmark lies in a clear region."""
        found = np.zeros(len(self.drawn), dtype=bool)
        for region in self.regions:
            found[list(region.landmarks)] = region.clear
        return tuple(found.tolist())

    def origins(self, anchors: int, least: int) -> Origins:
        """Return which of so many anchors are drawn: all, if those of drawn landmarks are fewer than `least`."""
        of = np.arange(anchors) % len(self.drawn)  # as `dpfedvis.server.recipe.spread_out` has them
        kept = np.asarray(self.drawn)[of]
        if kept.sum() < least:
            kept = np.ones(anchors, dtype=bool)
        return Origins(of[kept], kept)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return asdict(self)

    def summary(self) -> dict[str, Any]:
        """Return the verdict without its lists."""
        return {
            "signal": self.signal,
            "sentence": self.sentence,
            "directions": None if self.directions is None else len(self.directions),
            "regions": len(self.regions),
            "clear_regions": sum(each.clear for each in self.regions),
            "share": self.share,
            "share_low": self.share_low,
            "share_high": self.share_high,
            "comes_back": self.comes_back,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Inverse of `to_dict`; raise `InvalidParameter` for what is no verdict."""
        try:
            own: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
            }
            own["regions"] = tuple(Region(**{**each, "landmarks": tuple(each["landmarks"])}) for each in own["regions"])
            return cls(**own)
        except (AttributeError, KeyError, TypeError) as error:
            raise InvalidParameter("verdict", type(values).__name__, f"the fields of one ({error})") from None


def _number(name: str, value: object, *, optional: bool = False) -> None:
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise InvalidParameter(name, value, "a number")


def _flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidParameter(name, value, "true or false")


def _items(name: str, values: object) -> tuple[Any, ...]:
    if not isinstance(values, tuple):
        raise InvalidParameter(name, values, "a list")
    return values


def verdict_of(learned: Learned) -> Verdict:
    """Return the verdict on a private map, from its releases.

    Parameters
    ----------
    learned : Learned
    """
    directions, edge = directions_of(learned.session, learned.session.contract.features)
    result, drawn = learned.feddl, np.ones(len(learned.feddl.landmarks), dtype=bool)
    if result.tally is None:
        signal: Signal = "partly" if directions else "no"
        said = _said(signal, directions, None, None)
        return Verdict(signal=signal, sentence=said, directions=directions, edge=edge, drawn=tuple(drawn.tolist()))
    found = regions(result.landmarks, *pooled(result.tally))
    number = None if directions is None else len(directions)
    clear, supported = float(found.clear_landmarks.mean()), float(found.supported.mean())
    spread = _spread(learned.session)
    frame = sum(directions or ()) * (spread or 0.0) / float(learned.subspace.variances.sum())
    signal = judged(number, frame, clear, supported, int(found.clear.sum()))
    low, share, high = share_of(result.tally, found.clear_landmarks)
    # Where all is noise, nothing of it is better than the rest.
    if signal != "no" and found.supported.sum() >= LEAST_DRAWN:
        drawn = found.supported
    return Verdict(
        signal=signal,
        sentence=_said(signal, directions, found, (low, share, high)),
        directions=directions,
        edge=edge,
        share=share,
        share_low=low,
        share_high=high,
        regions=_facts(found, result),
        drawn=tuple(drawn.tolist()),
        centre_noise=_centre_noise(learned.session),
        spread=spread,
        frame=frame,
    )


def directions_of(session: Session, features: int) -> tuple[tuple[float, ...] | None, float | None]:
    """Return the shares of variance of the directions above the noise of the second moments, and the noise's edge.

    A symmetric matrix of noise s on and s/√2 off the diagonal has eigenvalues up to e = s√(2m) (Wigner). A direction
    counts above e·`threshold`(m): pure noise gets there in at most 1 % of releases (simulated, m = 2 … 200). What noise
    adds to an eigenvalue is taken off (`dpfedvis.server.subspace.principal_subspace`).
    """
    found = _released(session, SecondMoments)
    if found is None:
        return None, None
    mechanism, (values, variance) = found
    size = math.isqrt(2 * len(values))  # of a triangle with m(m + 1)/2 values
    seen = np.linalg.eigvalsh(mechanism.matrix(values, size) / mechanism.clip**2)[::-1]
    edge = edge_of(math.sqrt(variance), size)
    above = seen[seen > edge * threshold(size)]
    shares = (above + np.sqrt(above**2 - edge**2)) / 2
    return tuple(_without_centre(shares, _centre_noise(session) ** 2 * features / mechanism.clip**2).tolist()), edge


def _without_centre(shares: Array, offset: float) -> Array:
    """Leave out the direction that the noise in the centre may have made, if there is one of that size.

    Second moments are about the released centre. Its noise, of squared length `offset` in units of C², is a direction
    of all records alike: it shows nothing of them.
    """
    if not len(shares) or shares.min() > OFFSET * offset:
        return shares
    return np.delete(shares, int(np.abs(shares - offset).argmin()))


def judged(directions: int | None, frame: float, clear: float, supported: float, count: int) -> Signal:
    """Return the verdict of a map with regions.

    Parameters
    ----------
    directions : int, optional
        How many stand above the noise; None if none were asked for.
    frame : float
        Share of the variance of the map's frame that is along these directions.
    clear : float
        Share of the landmarks in clear regions.
    supported : float
        Share of the landmarks in regions that are clear or have a hint of records: the others are not drawn.
    count : int
        Number of clear regions.
    """
    seen = directions is None or (directions >= DIRECTIONS and frame >= FRAME)
    if seen and clear > 0 and clear >= MOSTLY * supported:
        return "yes"
    if not directions and (clear < SOME or count < SOME_REGIONS):
        return "no"
    return "partly"


def share_of(tally: Tally, chosen: NDArray[np.bool_]) -> tuple[float, float, float]:
    """Return the share of the records on chosen landmarks, between the ends of an interval.

    *Choice.* The landmarks may have been chosen by the same counts. The sum of the j largest of k standard normal
    numbers is at most j·t + Σ(Zᵢ − t)₊ for every t, of mean j·t + k(φ(t) − t·Q(t)), which is k·φ(t) where Q(t) = j/k:
    so much of the noise may be luck, however they were chosen, and is taken off below.

    *Moving on.* The landmarks move after the last count: how much the share of a round differs from that of the next
    beyond its noise is added.
    """
    counts = settled(tally.counts)[:, chosen].sum(axis=1)
    rounds, k, j = len(counts), len(chosen), int(chosen.sum())
    single = float(np.mean(np.square(settled(tally.noise))))
    moved = max(float(counts.var(ddof=1)) - j * single, 0.0) if rounds > 1 else 0.0
    width = WIDE * math.sqrt(moved * (1 + 1 / rounds) + j * single / rounds)
    lucky = k * float(norm.pdf(norm.isf(j / k))) * math.sqrt(single / rounds) if 0 < j < k else 0.0
    low, share, high = (
        min(max(each, 0.0), 1.0) for each in (counts.mean() - lucky - width, counts.mean(), counts.mean() + width)
    )
    return float(low), float(share), float(high)


def verdict_of_rows(rows: Array, noise: float) -> Verdict:
    """Return the verdict on released rows that carry noise of this standard deviation in each value.

    Without signal the covariance of n rows of r values has eigenvalues up to σ²(1 + √(r/n))² (Marchenko & Pastur 1967).

    Parameters
    ----------
    rows : array of shape (n, r)
    noise : float
    """
    if not noise:
        return Verdict(signal="yes", sentence="Signal: yes. What the map is drawn from carries no noise.")
    n, r = rows.shape
    values = np.linalg.eigvalsh(np.cov(rows.T.astype(np.float64)).reshape(r, r))[::-1]
    edge = noise**2 * (1 + math.sqrt(r / n)) ** 2
    above = values[values > edge * threshold(r)]
    total = float(values.sum())
    signal = float((above - noise**2).sum()) / total
    said: Signal = "yes" if signal >= 0.5 and len(above) >= DIRECTIONS else "partly" if len(above) else "no"
    sentence = (
        f"Signal: {WORDS[said]}. {_counted(len(above), 'direction')} of the released rows {_stand(len(above))} above "
        f"their noise, which makes up {100 * (1 - max(signal, 0.0)):.0f} % of what is seen."
    )
    directions = tuple((above / total).tolist())
    return Verdict(signal=said, sentence=sentence, directions=directions, edge=edge / total)


def unjudged(why: str) -> Verdict:
    """Return the verdict where none can be given."""
    return Verdict(signal="partly", sentence=f"Signal: not judged, since {why}.")


WORDS: dict[Signal, str] = {"yes": "yes", "partly": "in part", "no": "none"}


def _said(
    signal: Signal,
    directions: tuple[float, ...] | None,
    found: Regions | None,
    share: tuple[float, float, float] | None,
) -> str:
    """Return the verdict in words. That nothing is above the noise is said of what was looked at alone."""
    number = None if directions is None else len(directions)
    if found is None or share is None:
        return f"Signal: {WORDS[signal]}. {_said_without_counts(number)}"
    clear, regions = int(found.clear.sum()), _counted(len(found.clear), "region")
    some = f"{clear} of {regions}"
    if signal == "no":
        none = " and no direction of the data" if number == 0 else ""
        nothing = "Neither a direction of the data nor a region" if number == 0 else "No region"
        said = (
            f"Only {some}{none} {_stand(clear)} above the noise: too little to tell this map from noise"
            if clear
            else f"{nothing} of the map stands above the noise: what it shows is noise"
        )
        return f"Signal: {WORDS[signal]}. {said}, whatever it looks like."
    if not clear:
        seen = f"{_counted(number or 0, 'direction')} of the data {_stand(number or 0)} above the noise, but no region"
        return f"Signal: {WORDS[signal]}. {seen}: where on this map the records lie is not known."
    seen = f"{_counted(number, 'direction')} of the data and {some} stand" if number else f"{some} {_stand(clear)}"
    but = ", but no direction of the data" if number == 0 else ""
    low, middle, high = (f"{100 * each:.0f}" for each in share)
    hold = "This region holds" if clear == 1 else "These regions hold"
    rest = "" if signal == "yes" else " The rest of the map may be noise."
    return (
        f"Signal: {WORDS[signal]}. {seen} above the noise{but}. {hold} about {middle} % of the records "
        f"({low} to {high} %).{rest}"
    )


def _said_without_counts(directions: int | None) -> str:
    if directions is None:
        return "Nothing was released by which this map could be told from noise."
    seen = f"{_counted(directions, 'direction')} of the data {_stand(directions)} above the noise"
    if not directions:
        return f"{seen}: what this map shows is noise, whatever it looks like."
    return f"{seen}. This mechanism counts no records, so that it is not known where on the map they are."


def _counted(number: int, noun: str) -> str:
    return f"{number or 'No'} {noun}{'' if number == 1 else 's' if number else ''}"


def _stand(number: int) -> str:
    return "stand" if number > 1 else "stands"


def _facts(found: Regions, result: FedDLResult) -> tuple[Region, ...]:
    mechanism = result.contract.mechanism
    radius = mechanism.radius(result.public) if isinstance(mechanism, KMeans) else None
    return tuple(
        Region(
            landmarks=tuple(np.flatnonzero(found.of == number).tolist()),
            share=float(share),
            noise=float(noise),
            clear=bool(clear),
            weak=bool(not clear and found.supported[found.of == number].any()),
            place_noise=_place_noise(radius, result, share, int((found.of == number).sum())),
        )
        for number, (share, noise, clear) in enumerate(zip(found.shares, found.noise, found.clear, strict=True))
    )


def _place_noise(radius: float | None, result: FedDLResult, share: float, members: int) -> float | None:
    """Noise of a mean of offsets, each at most `radius`, over the records of so many landmarks in one round."""
    if radius is None or result.tally is None or share <= 0:
        return None
    return float(radius * result.tally.noise[-1] * math.sqrt(members) / share)


def _spread(session: Session) -> float | None:
    found = _released(session, SecondMoments)
    return None if found is None else found[0].clip ** 2


def _centre_noise(session: Session) -> float:
    found = _released(session, Moments)
    return 0.0 if found is None else found[0].tau_x * math.sqrt(found[1].variance)


def _released(session: Session, kind: type[_R]) -> tuple[_R, Average] | None:
    """Return a single release of this kind, and what the server received."""
    for mechanism, average in session.singles.values():
        if isinstance(mechanism, kind):
            return mechanism, average
    return None


wire.register(Verdict, Region)
