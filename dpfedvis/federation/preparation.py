"""What happens before the first round: plan, scale, kernel, weights, start. All of it is public or released."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from accounting.budget import Adjacency, Budget
from accounting.errors import InvalidParameter, UnprotectedReleaseError
from dpfedvis.data import FederatedData
from dpfedvis.federation import Door, Failure, Federation, Outbox, Streams
from dpfedvis.federation.noise_plan import Extra, RunPlan, drawn_by, plan_run
from dpfedvis.federation.releases import Releases, single_release
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
from dpfedvis.numerics.projections import Box, Everywhere, Projection, Shrinking

if TYPE_CHECKING:
    from dpfedvis.federation.feddl import FedDL, Gamma


class Preparation:
    """Everything that a run needs before its first round.

    Parameters
    ----------
    config : FedDL
    mechanism : Mechanism
    fed : FederatedData
    door : Door
    folder : Path, optional
        Where unsent uploads are kept.
    """

    def __init__(
        self, config: FedDL, mechanism: Mechanism, fed: FederatedData, door: Door, folder: Path | None
    ) -> None:
        self._config, self._mechanism, self._fed, self._door = config, mechanism, fed, door
        self._streams = Streams(config.seed)
        self._outbox = None if folder is None else Outbox(folder / "outbox")
        self._adjacency: Adjacency = "replace-one" if config.budget is None else config.budget.adjacency
        self.failures: list[Failure] = []
        self._bounds = config.bounds or fed.bounds
        # Without public bounds the scale is learned, with protection where there is any to be had.
        self._protects = mechanism.protection != "none"
        learned: Gamma = "histogram" if self._protects else "median"
        default = learned if self._bounds is None else "public"
        self._gamma: Gamma = default if config.gamma is None else config.gamma
        self._start = config.start
        if config.start is None:
            self._start = "mean" if self._bounds is None else "uniform"
        self._refuse_early()
        self.plan: RunPlan | None = config.plan or self._planned()
        stand_in = replace(self._facts, grid=Grid.around(np.zeros((1, fed.n_features)), self._facts.kernel))
        for each in (*self._scales, mechanism):
            self.releases.check(each, stand_in)

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

    def _planned(self) -> RunPlan | None:
        config, mechanism, facts = self._config, self._mechanism, self._facts
        parties = drawn_by(mechanism.trust, self._fed.n_clients)
        extras = {
            each.what: Extra(config.share, each.stage, parties * math.prod(each.shape(facts))) for each in self._scales
        }
        at_home = mechanism.protection == "home"
        values = facts.features if at_home else parties * math.prod(mechanism.shape(facts))
        reserve = {**extras, **config.reserve}
        return plan_run(config.budget, mechanism, config.rounds, config.sampling_rate, config.noise, reserve, values)

    def _refuse_early(self) -> None:
        """Find what cannot work before anything is released."""
        budget, shape = self._config.budget, (self._config.landmarks, self._fed.n_features)
        start = self._start
        if isinstance(start, np.ndarray) and not (start.shape == shape and np.isfinite(start).all()):
            raise InvalidParameter("shape of start", start.shape, f"{shape}, all finite")
        refuse_unprotected(self._mechanism, budget)
        if isinstance(start, str) and start == "uniform" and self._bounds is None:
            raise InvalidParameter("start", start, "normal, mean or an array without public bounds")
        if self._config.local_steps > 1 and not self._mechanism.local_steps:
            raise InvalidParameter("local_steps", self._config.local_steps, f"1 for {self._mechanism.name!r}")
        refuse_data(self._fed, budget, self._config.noise)
        if self._protects:
            rate = self._config.sampling_rate or 1.0
            self._mechanism.sensitivity(self._facts, rate * self.denominators[0])

    @cached_property
    def denominators(self) -> list[float]:
        """Public denominators of the clients' means, before sampling."""
        if self._adjacency == "replace-one":
            return [float(records) for records in self._fed.records]
        if self._config.public_records is None:
            raise InvalidParameter("public_records", None, "given under add-remove, where every n_p is private")
        return [float(self._config.public_records)] * self._fed.n_clients

    @cached_property
    def weights(self) -> list[float]:
        """ω_p, summing to 1."""
        budget = self._config.budget
        # Where the unit is a whole client every n_p is private, and so would be weights made of them.
        if self._config.weights == "equal" or (budget is not None and budget.unit == "client"):
            return [1 / self._fed.n_clients] * self._fed.n_clients
        return [each / sum(self.denominators) for each in self.denominators]

    @cached_property
    def public(self) -> PublicParameters:
        """Public facts of the run. Finding the kernel may release a histogram, moments or medians."""
        config = self._config
        public = replace(self._facts, kernel=self._kernel(), grid=self._grid)
        own = config.step_size if config.optimiser != "adam" else None
        public = replace(public, step_size=1 / public.smoothness if own is None else own)
        return replace(public, noise=math.sqrt(self.releases.variance(self._mechanism, public)))

    @cached_property
    def _grid(self) -> Grid | None:
        """Grid of the records: from what is publicly known of them, or from the histogram of their norms.

        None where nothing is protected, and for kernel sums where neither is at hand: see `Grid.around`.
        """
        config, features = self._config, self._fed.n_features
        if not self._protects or config.grid is not None:
            return config.grid
        if self._bounds is not None:
            return Grid.of_bounds(*self._bounds, features)
        norm = config.tau_x
        if norm is None and self._histogram_used:
            noise = math.sqrt(self.releases.variance(self._histogram_release, single_release(self._facts)))
            norm = self._histogram_release.norm_bound(self._histogram, noise, features)
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
        start, shape = self._start, (self._config.landmarks, self._fed.n_features)
        dtype = self._fed.clients[0].X.dtype
        generator = self._streams.generator("start")
        # Spread of a point whose squared distance from the centre is one over 2γ.
        spread = 1 / math.sqrt(2 * self.public.kernel.mean_gamma * shape[1])
        if isinstance(start, np.ndarray):
            Y = start
        elif start == "mean":
            mean = self._moments_release.mean(self._moments) if self._protects else self._once(ExactMean())
            Y = mean + spread * generator.standard_normal(shape)
        elif start == "normal":
            Y = spread * generator.standard_normal(shape)
        elif start == "uniform" and self._bounds is not None:
            Y = generator.uniform(*self._bounds, shape)
        else:
            raise InvalidParameter("start", start, "uniform (with bounds), normal, mean or an array")
        return self.snapped(self.projection(Y.astype(dtype)))

    @cached_property
    def projection(self) -> Projection:
        """The run's own public set, then the mechanism's, on which its sensitivity rests; with room for rounding."""
        config, last = self._config, self._mechanism.projection
        first = config.projection or (Everywhere() if self._bounds is None else Box(*self._bounds))
        if self._mechanism.protection == "upload":
            shape = (config.landmarks, self._fed.n_features)
            step = self._mechanism.grid(self.public, np.zeros(shape)).step
            first, last = (each.shrunk(step, shape) if isinstance(each, Shrinking) else each for each in (first, last))
        return lambda Y: last(first(Y))

    @cached_property
    def releases(self) -> Releases:
        """The clients as they face the server."""
        config = self._config
        return Releases(
            self._fed,
            self.plan,
            self._door,
            self._streams,
            self.denominators,
            self.weights,
            config.noise,
            config.policy,
            config.workers,
            self._outbox,
        )

    def federation(self) -> Federation:
        """Return the clients of the run, ready for their first round."""
        return self.releases.federation(self._mechanism, self.public)

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
        config = self._config
        return PublicParameters(
            kernel=Kernel.gaussian(1.0),
            landmarks=config.landmarks,
            features=self._fed.n_features,
            rounds=config.rounds,
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
            return public_kernel(self._fed.n_features, self._bounds)
        if bandwidth == "histogram":
            release = self._histogram_release
            noise = math.sqrt(self.releases.variance(release, single_release(self._facts)))
            return kernel_of_distance(release.squared_distance(self._histogram, noise, self._fed.n_features))
        if bandwidth == "moments":
            moments = self._moments_release
            variance = self.releases.variance(moments, single_release(self._facts))
            return kernel_of_distance(moments.mean_squared_distance(self._moments, variance))
        if bandwidth == "median":
            return kernel_of_distance(float(self._once(MedianDistance())[0]))
        raise InvalidParameter("gamma", bandwidth, "a number, several, public, histogram, moments or median")

    @cached_property
    def _moments_release(self) -> Moments:
        tau_x = self._config.tau_x
        if tau_x is None:
            noise = math.sqrt(self.releases.variance(self._histogram_release, single_release(self._facts)))
            tau_x = self._histogram_release.norm_bound(self._histogram, noise, self._fed.n_features)
        return Moments(trust=self._mechanism.trust, tau_x=tau_x)

    @cached_property
    def _moments(self) -> Array:
        return self._once(self._moments_release)

    @property
    def _histogram_release(self) -> ScaleHistogram:
        return ScaleHistogram(trust=self._mechanism.trust)

    @cached_property
    def _histogram(self) -> Array:
        return self._once(self._histogram_release)

    def _once(self, mechanism: Mechanism) -> Array:
        average, failures = self.releases.once(mechanism, self._facts)
        self.failures += failures
        return average


def refuse_data(fed: FederatedData, budget: Budget | None, noise: str) -> None:
    """Raise if these data cannot be used under this budget and noise. What it asks is public: to refuse is to tell."""
    if budget is not None and fed.missing == "client-mean":
        raise InvalidParameter(
            "missing", fed.missing, "public-value or refuse under a budget: filled means tie records to each other"
        )
    if fed.dealt_by_label is not None and noise != "seeded":
        raise InvalidParameter(
            "partition", fed.dealt_by_label, "iid or groups with real noise: a deal by label tells of labels"
        )
    if budget is not None and budget.hides_records and fed.dealt is not None and noise != "seeded":
        raise InvalidParameter(
            "partition",
            fed.dealt,
            "groups, or clients that are given, with real noise where numbers of records are private: who gets a "
            "record must not depend on how many there are",
        )
    if (budget is None or budget.adjacency == "replace-one") and 0 in fed.records:
        empty = fed.clients[fed.records.index(0)].name
        raise InvalidParameter(f"number of records of {empty}", 0, "at least 1, except under add-remove")


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
