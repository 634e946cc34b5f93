"""The server's side of the private map: scale → principal subspace → landmarks, in one budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal

import numpy as np

from accounting import Budget, Ledger, checks, sensitivity
from accounting.errors import InvalidParameter
from dpfedvis.data import FederatedData
from dpfedvis.federation import Door, Failure, Outbox, Streams, Witness
from dpfedvis.federation.checkpoint import claim, fingerprint, ledger_for, read_or_make
from dpfedvis.federation.feddl import Callback, FedDL, FedDLResult, NoiseName
from dpfedvis.federation.noise_plan import Extra, RunPlan, drawn_by, plan_run
from dpfedvis.federation.preparation import refuse_data
from dpfedvis.federation.private_map.density import MOST_CELLS
from dpfedvis.federation.private_map.subspace import Subspace, client_level_remark, principal_subspace
from dpfedvis.federation.releases import Releases
from dpfedvis.mechanisms import Mechanism
from dpfedvis.mechanisms.density import GridCounts
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.scale import Moments, ScaleHistogram
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.kernels import Kernel

LEAST_LANDMARKS, MOST_LANDMARKS = 20, 1000
STANDS_OUT = 1.5  # a landmark's share of the records, in units of its noise
TYPICAL_RECORDS = 1000  # assumed where a client's number of records is private


@dataclass(frozen=True)
class Shares:
    """Shares of the budget (of μ²) for the stages; the landmarks get the rest.

    Parameters
    ----------
    scale : float
        Share of the histogram of norms. Not used if a public bound on norms is given.
    moments : float
        Share of mean and mean square.
    subspace : float
        Share of the second moments.
    density : float
        Share of the counts on the grid. Used only if a density is released.
    """

    scale: float = 0.02
    moments: float = 0.03
    subspace: float = 0.2
    density: float = 0.1

    def __post_init__(self) -> None:
        for each in fields(self):
            checks.share(f"share of {each.name}", getattr(self, each.name))

    def planned(self, public: PublicParameters, *, parties: int, scale: bool, layers: int) -> dict[str, Extra]:
        """Every release except the landmarks', by name.

        Parameters
        ----------
        public : PublicParameters
        parties : int
            Clients that draw noise for one sum.
        scale : bool
            Whether norms are learned.
        layers : int
            Classes whose density is counted; 0 without a density.
        """
        every: list[tuple[bool, Mechanism, float]] = [
            (scale, ScaleHistogram(), self.scale),
            (True, Moments(), self.moments),
            (True, SecondMoments(), self.subspace),
            (layers > 0, GridCounts(cells=MOST_CELLS**2 * max(layers, 1)), self.density),
        ]
        return {
            release.what: Extra(share, release.stage, parties * math.prod(release.shape(public)))
            for used, release, share in every
            if used
        }


@dataclass(frozen=True, kw_only=True)
class Learner:
    """Settings of the server's side; `run` learns the map's frame and landmarks.

    Parameters
    ----------
    budget : Budget
        For the whole run; its scope must be end-to-end.
    mechanism : Mechanism
        For the landmarks. All stages use its trust.
    landmarks : int, optional
        Number of landmarks. By default as many as the noise allows (`landmarks_for`).
    rounds : int
        Number of rounds S, for mechanisms with rounds.
    components : int
        Largest dimension of the subspace.
    factors : tuple of float
        Bandwidths γ_b of the landmarks' kernel, times the mean squared distance of two records in the subspace.
    shares : Shares
    layers : int
        Classes whose density is counted on the grid; 0 reserves no budget for it.
    tau_x : float, optional
        Public bound on the norm of records.
    public_records : int, optional
        Public number used instead of every n_p; required under add-remove.
    noise, seed
        As in `dpfedvis.federation.feddl.FedDL`.
    """

    budget: Budget
    mechanism: Mechanism
    landmarks: int | None = None
    rounds: int = 50
    components: int = 16
    factors: tuple[float, ...] = (1.0,)
    shares: Shares = field(default_factory=Shares)
    layers: int = 0
    tau_x: float | None = None
    public_records: int | None = None
    noise: NoiseName = "seeded"
    seed: int = 0

    def __post_init__(self) -> None:
        checks.at_least("seed", self.seed, 0)
        checks.count("rounds", self.rounds)
        if self.landmarks is not None:
            checks.at_least("landmarks", self.landmarks, 2)
        if self.public_records is not None:
            checks.count("public_records", self.public_records)

    def run(
        self,
        fed: FederatedData,
        *,
        ledger: Ledger | None = None,
        witness: Witness | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | Path | None = None,
    ) -> Learned:
        """Learn subspace and landmarks.

        Parameters
        ----------
        fed : FederatedData
        ledger : Ledger, optional
            By default a new one in memory, or in the folder of the checkpoint.
        witness, callbacks, checkpoint
            As in `dpfedvis.federation.feddl.FedDL.run`; the checkpoint also stores what `Learned.releases` releases
            later.
        """
        self._check(fed)
        plan = self.plan(fed.n_clients, fed.n_features)
        folder = None if checkpoint is None else Path(checkpoint)
        if folder is not None:
            hidden = self.budget.hides_records
            claim(folder, fingerprint(self, fed.n_clients if hidden else fed.records, fed.n_features))
        ledger = ledger_for(folder, ledger, self.budget)
        releases = Releases(
            fed,
            plan,
            Door(ledger, witness, once=folder is not None),
            Streams(self.seed),
            self._denominators(fed),
            self._weights(fed),
            self.noise,
            outbox=None if folder is None else Outbox(folder / "outbox"),
        )
        self._check_noise(releases)
        found, failures = self._subspace(releases)
        subspace = Subspace.of_arrays(read_or_make(folder and folder / "subspace.npz", found.arrays))
        landmarks = self.landmarks or landmarks_for(self._landmark_noise(releases, plan))
        # The name selects the random stream: another one would give other landmarks.
        generator = Streams(self.seed).generator("billboard start")
        start = generator.standard_normal((landmarks, len(subspace.variances))) * np.sqrt(subspace.variances)
        typical = 2 * float(subspace.variances.sum())
        feddl = FedDL(
            landmarks=landmarks,
            mechanism=self.mechanism,
            budget=self.budget,
            rounds=self.rounds,
            gamma=Kernel(tuple(factor / typical for factor in self.factors)),
            weights=self._weighting,
            public_records=self.public_records,
            start=start,
            plan=plan,
            grid=subspace.grid,
            noise=self.noise,
            seed=self.seed,
        )
        result = feddl.run(
            fed.transformed(subspace.coordinates),
            ledger=ledger,
            witness=witness,
            callbacks=callbacks,
            checkpoint=folder and folder / "landmarks",
        )
        return Learned(subspace, result, releases, plan, tuple(failures))

    def plan(self, clients: int, features: int) -> RunPlan:
        """Return the noise plan: the budget split among the stages, before anything is released."""
        parties, public = drawn_by(self.mechanism.trust, clients), self.public_for(features)
        planned = self.shares.planned(public, parties=parties, scale=self.tau_x is None, layers=self.layers)
        largest = replace(
            public, landmarks=self.landmarks or MOST_LANDMARKS, features=max(2, min(self.components, features))
        )
        values = parties * math.prod(self.mechanism.shape(largest))
        plan = plan_run(self.budget, self.mechanism, self.rounds, None, self.noise, planned, values)
        if plan is None or self.mechanism.protection != "upload":
            raise InvalidParameter("mechanism", self.mechanism.name, "one with protected uploads, for release='none'")
        return plan

    def _check_noise(self, releases: Releases) -> None:
        """Raise before the first release if the noise of any stage cannot be drawn."""
        trust, features = self.mechanism.trust, releases.fed.n_features
        public = self.public_for(features)
        stages: list[Mechanism] = [Moments(trust=trust), SecondMoments(trust=trust)]
        if self.tau_x is None:
            stages.append(ScaleHistogram(trust=trust))
        if self.layers:
            stages.append(GridCounts(trust=trust))
        for stage in stages:
            releases.check(stage, public)
        components = max(2, min(self.components, features))
        grid = Grid.of_range(2.0**8, 2.0**-12, components)
        landmarks = self.landmarks or LEAST_LANDMARKS
        releases.check(self.mechanism, replace(public, landmarks=landmarks, features=components, grid=grid))

    @property
    def _weighting(self) -> Literal["records", "equal"]:
        # If the privacy unit is a client, every n_p is private, and weights made of them would be too.
        return "equal" if self.budget.unit == "client" else "records"

    def _check(self, fed: FederatedData) -> None:
        if self.budget.scope != "end-to-end":
            raise InvalidParameter("scope", self.budget.scope, "end-to-end for release='none'")
        if fed.n_features < 2:
            raise InvalidParameter("number of features", fed.n_features, "at least 2 for a map")
        refuse_data(fed, self.budget, self.noise)
        # A mechanism without a sensitivity under this adjacency must raise now, not after the first stage.
        self.mechanism.sensitivity(replace(self.public_for(2), landmarks=2), self._denominators(fed)[0])

    def _denominators(self, fed: FederatedData) -> list[float]:
        if self.budget.adjacency == "replace-one":
            return [float(records) for records in fed.records]
        if self.public_records is None:
            raise InvalidParameter("public_records", None, "given under add-remove, where every n_p is private")
        return [float(self.public_records)] * fed.n_clients

    def _weights(self, fed: FederatedData) -> list[float]:
        denominators = self._denominators(fed)
        if self._weighting == "equal":
            return [1 / fed.n_clients] * fed.n_clients
        return [each / sum(denominators) for each in denominators]

    def records_a_client(self, fed: FederatedData) -> float:
        """Public mean number of records per client; an assumed number where every n_p is private."""
        if self.budget.unit == "client":
            return float(self.public_records or TYPICAL_RECORDS)
        return math.fsum(self._denominators(fed)) / fed.n_clients

    def public_for(self, features: int) -> PublicParameters:
        """Public parameters of a single release of data with this many features."""
        return PublicParameters(
            kernel=Kernel.gaussian(1.0),
            landmarks=1,
            features=features,
            rounds=1,
            local_steps=1,
            step_size=1.0,
            adjacency=self.budget.adjacency,
            public_seed=self.seed,
        )

    def _subspace(self, releases: Releases) -> tuple[Subspace, list[Failure]]:
        trust, features = self.mechanism.trust, releases.fed.n_features
        public, failures, tau = self.public_for(features), [], self.tau_x
        if tau is None:
            histogram = ScaleHistogram(trust=trust)
            counts, failed = releases.once(histogram, public)
            tau = histogram.norm_bound(counts, math.sqrt(releases.variance(histogram, public)), features)
            failures += failed
        moments = Moments(trust=trust, tau_x=tau)
        average, failed = releases.once(moments, public)
        failures += failed
        spread = moments.mean_squared_distance(average, releases.variance(moments, public)) / 2
        centre = moments.mean(average)
        # Noise must not move the centre out of the ball to which all records were clipped.
        centre = centre * min(1.0, tau / max(float(np.linalg.norm(centre)), tau))
        raw = Grid.of_norm(tau, features)
        centre = raw.snap(centre)
        second = SecondMoments(trust=trust, centre=centre, clip=math.sqrt(spread), norm=tau)
        average, failed = releases.once(second, public)
        failures += failed
        noise = math.sqrt(releases.variance(second, public)) * second.clip**2
        matrix = second.matrix(average, features)
        return principal_subspace(centre, matrix, noise, self.components, raw), failures

    def remarks(self, learned: Learned) -> tuple[str, ...]:
        """Remarks about the noise if the privacy unit is a client, from public quantities alone."""
        if self.budget.unit != "client":
            return ()
        trust, features = self.mechanism.trust, learned.releases.fed.n_features
        moments, second = (
            math.sqrt(learned.releases.variance(release, self.public_for(features)))
            for release in (Moments(trust=trust), SecondMoments(trust=trust))
        )
        clients = len(learned.releases.weights)
        local = trust == "local"
        remark = client_level_remark(
            clients=clients, features=features, moments=moments, second_moments=second, local=local
        )
        return (remark,)

    def _landmark_noise(self, releases: Releases, plan: RunPlan) -> float:
        """Standard deviation of the noise in a mean of vectors of norm 1 over all records, in one k-means upload."""
        sigma = plan.multipliers[self.mechanism.what].sigma
        whole = self.budget.unit == "client"
        delta = sensitivity.cluster_sums(records=1, adjacency=self.budget.adjacency)
        own = [delta * sigma * weight / (1.0 if whole else denominator)
               for weight, denominator in zip(releases.weights, releases.denominators, strict=True)]  # fmt: skip
        return max(own) if self.mechanism.trust != "local" else math.hypot(*own)


@dataclass(frozen=True, eq=False)
class Learned:
    """What the server has learned: subspace, landmarks, and the clients for further releases."""

    subspace: Subspace
    feddl: FedDLResult
    releases: Releases
    plan: RunPlan
    failures: tuple[Failure, ...]


def landmarks_for(noise: float) -> int:
    """Choose the number of landmarks from public quantities.

    Each of k landmarks has a share 1/k of the records. Returns the largest k for which that share is at least
    `STANDS_OUT` times its noise.

    Parameters
    ----------
    noise : float
        Standard deviation of the noise in a mean over all records of vectors of norm at most 1.
    """
    fitting = 1 / (STANDS_OUT * noise) if noise > 0 else math.inf
    return int(min(max(fitting, LEAST_LANDMARKS), MOST_LANDMARKS))
