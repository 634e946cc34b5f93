"""What happens before the first round: contract, scale, kernel, weights, start. All of it is public or released."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from accounting.budget import Adjacency, Budget
from accounting.errors import InvalidParameter, UnprotectedReleaseError
from dpfedvis.mechanisms import Mechanism
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.scale import (
    ExactMean,
    MedianDistance,
    Moments,
    ScaleHistogram,
    kernel_of_distance,
    public_kernel,
)
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.kernels import Array, Kernel
from dpfedvis.numerics.optimisers import Momentum
from dpfedvis.numerics.projections import Box, Everywhere, Projection, Shrinking
from dpfedvis.numerics.random_streams import Streams
from dpfedvis.protocol.contract import Contract
from dpfedvis.protocol.noise_plan import Extra, drawn_by
from dpfedvis.protocol.views import RAW, ViewName
from dpfedvis.server.members import Members
from dpfedvis.server.rounds import FROM_AFAR, WITHOUT_CHOICE, added_up, chooses, moved_by, rounds_for
from dpfedvis.server.session import Average, Session

if TYPE_CHECKING:
    from dpfedvis.server.feddl import FedDL, Gamma


class Preparation:
    """Everything that a run needs before its first round.

    Parameters
    ----------
    config : FedDL
    mechanism : Mechanism
    members : Members
    features : int
        m, of the view that landmarks are learned in.
    dtype : str
        Type of the landmarks.
    session : Session, optional
        Of a larger run that this one is a part of; by default `begin` gives it one of its own.
    view : str
        What the sites compute uploads from.
    """

    def __init__(
        self,
        config: FedDL,
        mechanism: Mechanism,
        members: Members,
        features: int,
        dtype: str,
        session: Session | None = None,
        view: ViewName = RAW,
    ) -> None:
        self._config, self._mechanism, self._members = config, mechanism, members
        self._features, self._dtype, self.view = features, np.dtype(dtype), view
        self._streams, self._session = Streams(config.seed), session
        self._adjacency: Adjacency = "replace-one" if config.budget is None else config.budget.adjacency
        self._bounds = config.bounds
        # Without public bounds the scale is learned, with protection where there is any to be had.
        self._protects = mechanism.protection != "none"
        learned: Gamma = "histogram" if self._protects else "median"
        default = learned if self._bounds is None else "public"
        self._gamma: Gamma = default if config.gamma is None else config.gamma
        self._start = config.start
        if config.start is None:
            self._start = "mean" if self._bounds is None else "uniform"
        self._refuse_early()

    @property
    def session(self) -> Session:
        """The session of the run."""
        if self._session is None:
            raise RuntimeError("the run has not begun")
        return self._session

    def contract(self, run: str) -> Contract:
        """Return what all sites are to sign."""
        return self._contract(run, self.rounds)

    @cached_property
    def rounds(self) -> int:
        """S, as given, or chosen from public numbers: the contract tells it to the sites."""
        config, mechanism = self._config, self._mechanism
        if config.rounds is not None:
            return config.rounds
        if not chooses(mechanism, config.budget):
            return WITHOUT_CHOICE
        # Only the ratio of step and width matters for the step 1/L, so that any kernel stands in for one to be learned.
        known = not isinstance(self._gamma, str) or self._gamma == "public"
        # Poisson samples of rate q have 1/q of the records, and nearly q of the noise multiplier.
        public = replace(self._facts_of(1), sampling_rate=None)
        public = replace(public, kernel=self._kernel() if known else Kernel.gaussian(1.0))
        own = config.step_size if known and config.optimiser != "adam" else None
        public = replace(public, step_size=1 / public.smoothness if own is None else own)
        once = replace(self._contract("rounds", 1), sampling_rate=None)
        noise = math.sqrt(once.planned_variance(mechanism, public))
        moved, decay = moved_by(noise, public, mechanism), Momentum.decay if config.optimiser == "momentum" else 0.0
        return rounds_for(lambda rounds: moved * added_up(rounds, decay), FROM_AFAR)

    def _contract(self, run: str, rounds: int) -> Contract:
        config, mechanism, facts = self._config, self._mechanism, self._facts_of(rounds)
        parties = drawn_by(mechanism.trust, self._members.count)
        extras = {
            each.what: Extra(config.share, each.stage, parties * math.prod(each.shape(facts))) for each in self._scales
        }
        # A record changes the values of its own row.
        width = max(config.landmarks, self._features)
        extras |= {what: Extra(share, "release", width) for what, share in config.noisy_rows.items()}
        at_home = mechanism.protection == "home"
        values = facts.features if at_home else parties * math.prod(mechanism.shape(facts))
        return Contract(
            run=run,
            budget=config.budget,
            mechanism=mechanism,
            rounds=rounds,
            noise=config.noise,
            seed=config.seed,
            features=self._features,
            members=self._members.agreed(self.denominators, self.weights),
            extras=extras,
            values=values,
            sampling_rate=config.sampling_rate,
            tau_x=config.tau_x,
            preparation=self._members.preparation,
            threshold=config.threshold,
            colluders=config.colluders,
            retries=config.retries,
            unprotected=(*self._unprotected, *config.exact_rows),
        )

    def begin(self, session: Session) -> None:
        """Check that all noise can be drawn, and let the sites sign."""
        self._session = session
        stand_in = replace(self._facts, grid=Grid.around(np.zeros((1, self._features)), self._facts.kernel))
        for each in (*self._scales, self._mechanism):
            session.check(each, stand_in)
        session.open()

    @property
    def _unprotected(self) -> list[str]:
        """Names of what is released without noise before the rows."""
        found = [] if self._protects else [self._mechanism.what]
        if isinstance(self._gamma, str) and self._gamma == "median":
            found.append(MedianDistance.what)
        if isinstance(self._start, str) and self._start == "mean" and not self._protects:
            found.append(ExactMean.what)
        return found

    @property
    def _scales(self) -> list[Mechanism]:
        """Releases that find the scale of the data."""
        trust = self._mechanism.trust
        found: list[Mechanism] = []
        if self._histogram_used:
            found.append(ScaleHistogram(trust=trust))
        if self._moments_used:
            found.append(Moments(trust=trust))
        return found

    def _refuse_early(self) -> None:
        """Find what cannot work before anything is released."""
        budget, shape = self._config.budget, (self._config.landmarks, self._features)
        start = self._start
        if isinstance(start, np.ndarray) and not (start.shape == shape and np.isfinite(start).all()):
            raise InvalidParameter("shape of start", start.shape, f"{shape}, all finite")
        refuse_unprotected(self._mechanism, budget)
        if isinstance(start, str) and start == "uniform" and self._bounds is None:
            raise InvalidParameter("start", start, "normal, mean or an array without public bounds")
        if self._config.local_steps > 1 and not self._mechanism.local_steps:
            raise InvalidParameter("local_steps", self._config.local_steps, f"1 for {self._mechanism.name!r}")
        if self._protects:
            rate = self._config.sampling_rate or 1.0
            self._mechanism.sensitivity(self._facts_of(1), rate * self.denominators[0])

    @cached_property
    def denominators(self) -> list[float]:
        """Public denominators of the sites' means, before sampling."""
        return self._members.denominators(self._config.budget, self._config.public_records)

    @cached_property
    def weights(self) -> list[float]:
        """ω_p, summing to 1."""
        budget = self._config.budget
        # Where the unit is a whole site every n_p is private, and so would be weights made of them.
        whole = budget is not None and budget.unit == "client"
        return self._members.weights(self.denominators, equal=self._config.weights == "equal" or whole)

    @cached_property
    def public(self) -> PublicParameters:
        """Public facts of the run. Finding the kernel may release a histogram, moments or medians."""
        config = self._config
        public = replace(self._facts, kernel=self._kernel(), grid=self._grid)
        own = config.step_size if config.optimiser != "adam" else None
        public = replace(public, step_size=1 / public.smoothness if own is None else own)
        return replace(public, noise=math.sqrt(self.session.planned_variance(self._mechanism, public)))

    @cached_property
    def _grid(self) -> Grid | None:
        """Grid of the records: from what is publicly known of them, or from the histogram of their norms.

        None where nothing is protected, and for kernel sums where neither is at hand: see `Grid.around`.
        """
        config, features = self._config, self._features
        if not self._protects or config.grid is not None:
            return config.grid
        if self._bounds is not None:
            return Grid.of_bounds(*self._bounds, features)
        norm = config.tau_x
        if norm is None and self._histogram_used:
            norm = self._norm_bound
        return None if norm is None else Grid.of_norm(norm, features)

    def snapped(self, Y: Array) -> Array:
        """Return Y on the grid, as clients take it: the server rounds it."""
        if self._mechanism.protection != "upload":
            return Y
        return self._mechanism.grid(self.public, Y).snap(Y)

    @property
    def server_step(self) -> float:
        """Step size of the server's optimiser."""
        if self._config.optimiser == "adam":
            return 0.1 if self._config.step_size is None else self._config.step_size
        return self.public.step_size

    @cached_property
    def start(self) -> Array:
        """Y⁰, shape (n_y, m), inside the projection's set."""
        start, shape = self._start, (self._config.landmarks, self._features)
        generator = self._streams.generator("start")
        # Spread of a point whose squared distance from the centre is one over 2γ.
        spread = 1 / math.sqrt(2 * self.public.kernel.mean_gamma * shape[1])
        if isinstance(start, np.ndarray):
            Y = start
        elif start == "mean":
            once = self._moments if self._protects else self._once(ExactMean())
            mean = self._moments_release.mean(once.values) if self._protects else once.values
            Y = mean + spread * generator.standard_normal(shape)
        elif start == "normal":
            Y = spread * generator.standard_normal(shape)
        elif start == "uniform" and self._bounds is not None:
            Y = generator.uniform(*self._bounds, shape)
        else:
            raise InvalidParameter("start", start, "uniform (with bounds), normal, mean or an array")
        return self.snapped(self.projection(Y.astype(self._dtype)))

    @cached_property
    def projection(self) -> Projection:
        """The run's own public set, then the mechanism's, on which its sensitivity rests; with room for rounding."""
        config, last = self._config, self._mechanism.projection
        first = config.projection or (Everywhere() if self._bounds is None else Box(*self._bounds))
        if self._mechanism.protection == "upload":
            shape = (config.landmarks, self._features)
            step = self._mechanism.grid(self.public, np.zeros(shape)).step
            first, last = (each.shrunk(step, shape) if isinstance(each, Shrinking) else each for each in (first, last))
        return lambda Y: last(first(Y))

    @property
    def _moments_used(self) -> bool:
        start = isinstance(self._start, str) and self._start == "mean" and self._protects
        return start or (isinstance(self._gamma, str) and self._gamma == "moments")

    @property
    def _histogram_used(self) -> bool:
        """For the bandwidth, for the norm that moments are clipped to, or for the grid of the records."""
        config, mechanism = self._config, self._mechanism
        bandwidth = isinstance(self._gamma, str) and self._gamma == "histogram"
        known = config.tau_x is not None or self._bounds is not None or config.grid is not None
        gridded = mechanism.protection == "upload" and (mechanism.needs_norm or config.local_steps > 1)
        return bandwidth or (self._moments_used and config.tau_x is None) or (gridded and not known)

    @property
    def _facts(self) -> PublicParameters:
        """All public facts but the kernel and the step, which stand in for what is not known yet."""
        return self._facts_of(self.rounds)

    def _facts_of(self, rounds: int) -> PublicParameters:
        config = self._config
        return PublicParameters(
            kernel=Kernel.gaussian(1.0),
            landmarks=config.landmarks,
            features=self._features,
            rounds=rounds,
            local_steps=config.local_steps,
            step_size=1.0,
            estimator=config.mmd,
            adjacency=self._adjacency,
            sampling_rate=config.sampling_rate,
            public_seed=config.seed,
        )

    def _kernel(self) -> Kernel:
        bandwidth = self._gamma
        if isinstance(bandwidth, Kernel):
            return bandwidth
        if not isinstance(bandwidth, str):
            # Real is a number in name only: mypy does not see that a float is one.
            return Kernel((float(bandwidth),) if isinstance(bandwidth, Real) else tuple(bandwidth))  # type: ignore[arg-type]
        if bandwidth == "public":
            return public_kernel(self._features, self._bounds)
        if bandwidth == "histogram":
            counts, variance = self._histogram
            release = self._histogram_release
            return kernel_of_distance(release.squared_distance(counts, math.sqrt(variance), self._features))
        if bandwidth == "moments":
            return kernel_of_distance(self._moments_release.mean_squared_distance(*self._moments))
        if bandwidth == "median":
            return kernel_of_distance(float(self._once(MedianDistance()).values[0]))
        raise InvalidParameter("gamma", bandwidth, "a number, several, public, histogram, moments or median")

    @cached_property
    def _moments_release(self) -> Moments:
        tau_x = self._config.tau_x
        return Moments(trust=self._mechanism.trust, tau_x=self._norm_bound if tau_x is None else tau_x)

    @cached_property
    def _moments(self) -> Average:
        return self._once(self._moments_release)

    @property
    def _histogram_release(self) -> ScaleHistogram:
        return ScaleHistogram(trust=self._mechanism.trust)

    @cached_property
    def _histogram(self) -> Average:
        return self._once(self._histogram_release)

    @property
    def _norm_bound(self) -> float:
        """Norm that few records exceed, from the histogram of their norms."""
        counts, variance = self._histogram
        return self._histogram_release.norm_bound(counts, math.sqrt(variance), self._features)

    def _once(self, mechanism: Mechanism) -> Average:
        return self.session.once(mechanism, self._facts, self.view)


def refuse_unprotected(mechanism: Mechanism, budget: Budget | None) -> None:
    """Raise if a mechanism protects nothing of what the budget covers."""
    if mechanism.protection == "none" and budget is not None and budget.covers(mechanism.stage):
        raise UnprotectedReleaseError(
            what=mechanism.what,
            why=mechanism.why,
            spent=0.0,
            budget=budget,
            client="every client",
            hint=f"Mechanism {mechanism.name!r} protects nothing: leave the budget out, or choose another",
        )
