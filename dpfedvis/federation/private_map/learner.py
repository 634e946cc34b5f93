"""The server's side of the published map: scale → principal subspace → landmarks, all inside one budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal

import numpy as np

from accounting import Budget, Ledger, checks, sensitivity
from accounting.errors import InvalidParameter
from accounting.events import Stage
from dpfedvis.data import FederatedData
from dpfedvis.federation import Door, Failure, Outbox, Streams, Witness
from dpfedvis.federation.checkpoint import claim, fingerprint, ledger_beside, read_or_make
from dpfedvis.federation.feddl import Callback, FedDL, FedDLResult
from dpfedvis.federation.noise_plan import RunPlan, plan_run
from dpfedvis.federation.private_map.subspace import Subspace, client_level_remark, principal_subspace
from dpfedvis.federation.releases import Releases
from dpfedvis.mechanisms import Mechanism
from dpfedvis.mechanisms.density import GridCounts
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.scale import Moments, ScaleHistogram
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.numerics.kernels import Kernel

LEAST_LANDMARKS, MOST_LANDMARKS = 20, 1000
STANDS_OUT = 1.5  # times the noise: the share of records that a landmark is to have
TYPICAL_RECORDS = 1000  # of a client whose own number is private


@dataclass(frozen=True)
class Shares:
    """Shares of μ² for the stages; the landmarks get the rest.

    Parameters
    ----------
    scale : float
        Histogram of norms; not used where a public bound on norms is given.
    moments : float
        Mean and mean square.
    subspace : float
        Second moments.
    density : float
        Counts on the grid; used only where they are asked for.
    """

    scale: float = 0.02
    moments: float = 0.03
    subspace: float = 0.2
    density: float = 0.1

    def __post_init__(self) -> None:
        for each in fields(self):
            checks.probability(f"share of {each.name}", getattr(self, each.name))

    def planned(self, *, scale: bool, density: bool) -> dict[str, tuple[float, Stage]]:
        """Name, share and stage of every release beside the landmarks'."""
        every: list[tuple[bool, Mechanism, float]] = [
            (scale, ScaleHistogram(), self.scale),
            (True, Moments(), self.moments),
            (True, SecondMoments(), self.subspace),
            (density, GridCounts(), self.density),
        ]
        return {release.what: (share, release.stage) for used, release, share in every if used}


@dataclass(frozen=True, kw_only=True)
class Learner:
    """Settings of the server's side; `run` runs it.

    Parameters
    ----------
    budget : Budget
        End to end.
    mechanism : Mechanism
        For the landmarks; its trust is that of all stages.
    landmarks : int, optional
        By default as many as the noise allows; see `landmarks_for`.
    rounds : int
        S, for mechanisms that take rounds.
    components : int
        Dimension of the subspace at most.
    factors : tuple of float
        Bandwidths γ_b of the landmarks' kernel, times the mean squared distance of two records in the subspace.
    shares : Shares
    density : bool
        Whether to leave room for counts on the grid.
    tau_x : float, optional
        Public bound on the norm of records.
    public_records : int, optional
        Public stand-in for every n_p, needed under add-remove.
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
    density: bool = False
    tau_x: float | None = None
    public_records: int | None = None
    noise: Literal["seeded", "system", "discrete"] = "seeded"
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
            As in `dpfedvis.federation.feddl.FedDL.run`; the checkpoint also keeps what
            `Learned.releases` releases later.
        """
        self._check(fed)
        plan = self.plan()
        folder = None if checkpoint is None else Path(checkpoint)
        if folder is not None:
            hidden = self.budget.hides_records
            claim(folder, fingerprint(self, fed.n_clients if hidden else fed.records, fed.n_features))
        ledger = ledger_beside(folder, ledger, self.budget)
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
        found, failures = self._subspace(releases)
        subspace = Subspace(**read_or_make(folder and folder / "subspace.npz", lambda: dict(vars(found))))
        landmarks = self.landmarks or landmarks_for(self._landmark_noise(releases, plan))
        generator = Streams(self.seed).generator("billboard start")
        start = generator.standard_normal((landmarks, len(subspace.variances))) * np.sqrt(subspace.variances)
        typical = 2 * float(subspace.variances.sum())
        feddl = FedDL(
            landmarks=landmarks,
            mechanism=self.mechanism,
            budget=self.budget,
            rounds=self.rounds,
            bandwidth=Kernel(tuple(factor / typical for factor in self.factors)),
            weights=self._weighting,
            public_records=self.public_records,
            start=start,
            reserve=self._planned(),
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

    def plan(self) -> RunPlan:
        """Split the budget over the stages: the noise multiplier of each, before anything is released."""
        plan = plan_run(self.budget, self.mechanism, self.rounds, None, self.noise, self._planned())
        if plan is None or self.mechanism.protection != "upload":
            raise InvalidParameter("mechanism", self.mechanism.name, "one that protects uploads, for release='none'")
        return plan

    def _planned(self) -> dict[str, tuple[float, Stage]]:
        return self.shares.planned(scale=self.tau_x is None, density=self.density)

    @property
    def _weighting(self) -> Literal["records", "equal"]:
        # Under client-level adjacency every n_p is private, and so would be weights made of them.
        return "equal" if self.budget.unit == "client" else "records"

    def _check(self, fed: FederatedData) -> None:
        if self.budget.scope != "end-to-end":
            raise InvalidParameter("scope", self.budget.scope, "end-to-end for release='none'")
        if fed.n_features < 2:
            raise InvalidParameter("number of features", fed.n_features, "at least 2 for a map")
        if fed.missing == "client-mean" and any(fed.imputed):
            raise InvalidParameter(
                "missing", fed.missing, "public-value under a budget: filled means tie records to each other"
            )
        # Some mechanisms have no sensitivity under some adjacencies, and say so here rather than after the first stage.
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
        """Public number of records that a client has, on the average: what stands for it where n_p is private."""
        if self.budget.unit == "client":
            return float(self.public_records or TYPICAL_RECORDS)
        return math.fsum(self._denominators(fed)) / fed.n_clients

    def public_for(self, features: int) -> PublicParameters:
        """Public facts for a single release of data with so many features."""
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
        # Noise must not carry the centre out of the ball that all records were clipped to.
        centre = centre * min(1.0, tau / max(float(np.linalg.norm(centre)), tau))
        second = SecondMoments(trust=trust, centre=centre, clip=math.sqrt(spread))
        average, failed = releases.once(second, public)
        failures += failed
        noise = math.sqrt(releases.variance(second, public)) * second.clip**2
        return principal_subspace(centre, second.matrix(average, features), noise, self.components), failures

    def remarks(self, learned: Learned) -> tuple[str, ...]:
        """What to say of the noise, from public quantities alone: how much of it there is for whole clients."""
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
        """Standard deviation of the noise in a sum over all records of vectors of norm 1, for one upload of k-means."""
        sigma = plan.multipliers[self.mechanism.what].sigma
        whole = self.budget.unit == "client"
        delta = sensitivity.cluster_sums(records=1, adjacency=self.budget.adjacency)
        own = [delta * sigma * weight / (1.0 if whole else denominator)
               for weight, denominator in zip(releases.weights, releases.denominators, strict=True)]  # fmt: skip
        return max(own) if self.mechanism.trust != "local" else math.hypot(*own)


@dataclass(frozen=True, eq=False)
class Learned:
    """What the server has when the landmarks are there."""

    subspace: Subspace
    feddl: FedDLResult
    releases: Releases
    plan: RunPlan
    failures: tuple[Failure, ...]


def landmarks_for(noise: float) -> int:
    """Choose the number of landmarks from public quantities.

    Of k landmarks each has a share 1/k of the records. The largest k is taken for which that share is at least
    `STANDS_OUT` times the noise in it.

    Parameters
    ----------
    noise : float
        Standard deviation of the noise in a mean over all records of vectors of norm at most 1.
    """
    fitting = 1 / (STANDS_OUT * noise) if noise > 0 else math.inf
    return int(min(max(fitting, LEAST_LANDMARKS), MOST_LANDMARKS))
