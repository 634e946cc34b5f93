"""The adversary's model of an end-to-end map: canaries, and what a client with either would upload in each stage."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from accounting import Event, GaussianRelease
from attacks.auditing.evidence import Prediction, Watched
from attacks.auditing.predictions import exact_total
from dpfedvis import FedTSNE
from dpfedvis.mechanisms import Mechanism, PreparedRecords
from dpfedvis.mechanisms.density import GridCounts
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.scale import Moments, ScaleHistogram
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.numerics.exact import Integers
from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.density import cell_numbers
from dpfedvis.protocol.uploads import in_units

_PAIRS = 0x50414952  # keeps canaries apart from every noise stream of the same seed
_NO_NOISE = 1e-6  # stands in for no noise at all, as a part of what is stated
_REST = 0.25  # where the other records stand, as a part of the canary "out", on its other side


@dataclass(frozen=True, eq=False)
class Pairs:
    """Canaries and the other record of each client, in the units of the data.

    Parameters
    ----------
    inside, outside : arrays of shape (games, m)
        The records that a coin decides between.
    rest : array of shape (games, m)
        All other records of the client are this one.
    records : int
        n_p.
    """

    inside: Array
    outside: Array
    rest: Array
    records: int

    def client(self, game: int, *, inside: bool) -> Array:
        """Return the records of a client, the canary first; shape (n_p, m)."""
        canary = (self.inside if inside else self.outside)[game]
        return np.vstack([canary, np.tile(self.rest[game], (self.records - 1, 1))])


def orthogonal_pairs(games: int, features: int, records: int, seed: int) -> Pairs:
    """Two far, orthogonal records for each client, which move every stage at once.

    What they can attain; how far they come depends on where landmarks and map go (`Played.moved` tells). Gradients,
    whose sensitivity is that of landmarks all at one distance, they hardly move.

    - Second moments: orthogonal records beyond the clipping norm attain Δ, and C is the root mean square distance from
      the centre, which the other records keep small.
    - Cluster sums: different landmarks, and offsets that are clipped, attain Δ. Each client has a direction of its own,
      so that landmarks do not gather at the canaries.
    - Moments: 1/√2 of Δ, where τ is hardly above the norm. That is the case whether the histogram finds the octave of
      the canaries, [2m, 4m) in squares for m a power of two, or falls back to τ = 2√m.
    - Scale histogram: the pair with the canary falls into different octaves, 1.06 r² < 4m ≤ 1.56 r² for the r² below,
      whichever of its equal partners the shuffle takes. This moves half of what Δ² allows.
    - Density: two cells attain Δ.

    Parameters
    ----------
    games, features, records : int
        P, m and n_p.
    seed : int
    """
    generator = np.random.default_rng([seed, _PAIRS])
    frames, _ = np.linalg.qr(generator.standard_normal((games, features, 2)))
    radius = math.sqrt(0.9 * 4 * features)
    inside, outside = (radius * frames[:, :, side].astype(np.float32) for side in (0, 1))
    return Pairs(inside, outside, -_REST * outside, records)


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage as a client sees it.

    Parameters
    ----------
    mechanism : Mechanism
    public : PublicParameters
    records : callable
        From the client's records to what it passes to the mechanism.
    sent : mapping of int to array
        The server's Y in each round; round 0 for single releases.
    """

    mechanism: Mechanism
    public: PublicParameters
    records: Callable[[Array], Array]
    sent: Mapping[int, Array]

    def total(self, records: Array, round: int) -> Integers:
        """Return what a client with these records uploads, without noise, in cells of the event's grid."""
        local = PreparedRecords(self.records(records), float(len(records)))
        return exact_total(self.mechanism, self.public, local, self.sent[round])


def stages(
    estimator: FedTSNE,
    mechanism: Mechanism,
    seen: Sequence[Watched],
    public: PublicParameters,
    trajectory: Mapping[int, Array],
) -> dict[str, Stage]:
    """Work out each stage from public quantities: uploads, subspace, landmarks, map and grid.

    τ, the centre and C follow from averages as the server computes them (`dpfedvis.server.private_map.Learner`).
    An adversary who got one of them wrong would certify less, never more.

    Parameters
    ----------
    estimator : FedTSNE
        Fitted, of which only what is published is used.
    mechanism : Mechanism
        For the landmarks.
    seen : sequence of Watched
    public : PublicParameters
        Of single releases.
    trajectory : mapping of int to array of shape (n_y, d)
        Y after each round.
    """
    features, published, feddl = public.features, estimator.published_map_, estimator.feddl_
    histogram, tau = ScaleHistogram(), estimator.tau_x
    if tau is None:
        counts, variance = _averaged(seen, histogram.what)
        tau = histogram.norm_bound(counts, math.sqrt(variance), features)
    moments = Moments(tau_x=tau)
    means, variance = _averaged(seen, moments.what)
    clip = math.sqrt(moments.mean_squared_distance(means, variance) / 2)
    second = SecondMoments(centre=published.subspace.centre, clip=clip, norm=tau)
    once = {0: np.zeros((1, features))}
    before = {number + 1: Y for number, Y in {0: feddl.start, **trajectory}.items()}
    first: tuple[Mechanism, ...] = (moments, second) if estimator.tau_x is not None else (histogram, moments, second)
    found = {each.what: Stage(each, public, _as_they_are, once) for each in first}
    found[mechanism.what] = Stage(mechanism, feddl.public, published.subspace.coordinates, before)
    if estimator.density_ is not None:
        grid = estimator.density_.grid

        def cells(records: Array) -> Array:
            return cell_numbers(grid.cell(published.place(records)), grid, None, ())

        counted = GridCounts(cells=grid.cells**2)
        found[counted.what] = Stage(counted, public, cells, once)
    return found


class PipelineModel:
    """The adversary's model of all uploads of one run.

    Parameters
    ----------
    pairs : Pairs
    names : sequence of str
        Of the clients, in the order of the pairs.
    stages : dict of str to Stage
        By the name of the upload.
    known : mapping of str to bool, optional
        Clients whose coins the adversary knows.
    """

    def __init__(
        self,
        pairs: Pairs,
        names: Sequence[str],
        stages: dict[str, Stage],
        known: Mapping[str, bool] | None = None,
    ) -> None:
        self.stages = stages
        self.pairs, self._known = pairs, dict(known or {})
        self._places = {name: place for place, name in enumerate(names)}
        self._predicted: dict[tuple[str, str, int], Prediction] = {}

    def __call__(self, event: Event) -> Prediction:
        """Return what the client would have uploaded with either canary, or twice what it did if its coin is known."""
        key = (event.client, event.what, event.round or 0)
        if key not in self._predicted:
            sides = self._known.get(event.client, True), self._known.get(event.client, False)
            inside, outside = (self._upload(event, inside=side) for side in sides)
            stage = self.stages[event.what]
            relative = stage.mechanism.relative_noise(stage.public)
            self._predicted[key] = Prediction(inside, outside, relative=relative)
        return self._predicted[key]

    def _upload(self, event: Event, *, inside: bool) -> Array:
        records = self.pairs.client(self._places[event.client], inside=inside)
        return in_units(self.stages[event.what].total(records, event.round or 0), event)


def noise_seen(runs: Iterable[tuple[Sequence[Watched], PipelineModel]]) -> dict[tuple[str, int], float]:
    """Standard deviation of the noise that uploads show, over the stated σ, by name and round.

    Taken across the line through the two predictions, where the coin does not matter. With stated σ alone, a stage
    without noise would count for no more than its share, and could go unnoticed behind the noise of the others.
    """
    squares: defaultdict[tuple[str, int], float] = defaultdict(float)
    values: Counter[tuple[str, int]] = Counter()
    for each, model in ((each, model) for seen, model in runs for each in seen):
        event, pairs = each.events[0], [model(event) for event in each.events]
        assert isinstance(event, GaussianRelease)
        # In a sum the coin of one client is open, and the others' differences are 0.
        line = np.sum([pair.whitened for pair in pairs], axis=0)
        residual = each.values - np.sum([pair.outside.astype(np.float64) for pair in pairs], axis=0)
        if pairs[0].relative is not None:
            residual = residual / pairs[0].relative
        length = float(np.vdot(line, line))
        along = float(np.vdot(residual, line)) ** 2 / length if length > 0 else 0.0
        key = (event.what, event.round or 0)
        squares[key] += (float(np.vdot(residual, residual)) - along) / event.sigma**2
        values[key] += residual.size - (length > 0)
    return {key: math.sqrt(max(square, 0.0) / values[key]) for key, square in squares.items()}


def restated(upload: Watched, noise: Mapping[tuple[str, int], float]) -> Watched:
    """Return the upload with the noise that was seen in place of what its events state."""
    return Watched(tuple(_restated(event, noise) for event in upload.events), upload.integers)


def _restated(event: Event, noise: Mapping[tuple[str, int], float]) -> Event:
    assert isinstance(event, GaussianRelease)
    # An event on a grid has at least √12 cells of noise.
    least = 4 * (event.grid or 0.0)
    return replace(event, sigma=max(event.sigma * max(noise[event.what, event.round or 0], _NO_NOISE), least))


def _averaged(seen: Sequence[Watched], what: str) -> tuple[Array, float]:
    """Average of all clients in a single release, and the variance of the noise in each value.

    Of uploads of single clients, or of the one weighted sum that is the average. To the last bit as the server has it.
    """
    uploads = [each for each in seen if each.events[0].what == what]
    sigmas = [each.events[0].sigma for each in uploads if isinstance(each.events[0], GaussianRelease)]
    if len(uploads[0].events) > 1:
        return uploads[0].values, sigmas[0] ** 2
    weights = np.full(len(uploads), 1 / len(uploads))
    average = np.average(np.stack([each.values for each in uploads]), axis=0, weights=weights)
    return average, math.fsum((weight * sigma) ** 2 for weight, sigma in zip(weights, sigmas, strict=True))


def _as_they_are(records: Array) -> Array:
    return records
