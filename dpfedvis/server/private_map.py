"""The server's side of the private map: scale → principal subspace → landmarks, in one budget."""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal

import numpy as np

from accounting import Budget, Ledger, checks, sensitivity
from accounting.errors import InvalidParameter
from dpfedvis.mechanisms import Mechanism
from dpfedvis.mechanisms.density import GridCounts
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.scale import Moments, ScaleHistogram
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.random_streams import Streams
from dpfedvis.protocol.ask import Ask
from dpfedvis.protocol.contract import Contract
from dpfedvis.protocol.density import MOST_CELLS
from dpfedvis.protocol.messages import Receipt
from dpfedvis.protocol.noise_plan import Extra, drawn_by
from dpfedvis.protocol.subspace import Subspace
from dpfedvis.protocol.uploads import Witness
from dpfedvis.protocol.views import SubspaceView
from dpfedvis.server.checkpoint import claim, fingerprint, ledger_for, read_or_make
from dpfedvis.server.feddl import Callback, FedDL, FedDLResult, NoiseName
from dpfedvis.server.frame import Frame
from dpfedvis.server.members import Members
from dpfedvis.server.mirror import Mirror
from dpfedvis.server.preparation import Preparation
from dpfedvis.server.session import Session
from dpfedvis.server.subspace import MOST_UNSEEN, client_level_remark

LEAST_LANDMARKS, MOST_LANDMARKS = 20, 1000
MOST_FEATURES = 4096  # second moments are a matrix of them
STANDS_OUT = 3.0  # a landmark's share of the records, in units of its noise
FEW = 5.8  # landmarks, times the square root of that noise
TYPICAL_RECORDS = 1000  # assumed where a client's number of records is private


@dataclass(frozen=True)
class BudgetShares:
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

    def planned(
        self, public: PublicParameters, *, seen: PublicParameters, parties: int, scale: bool, layers: int
    ) -> dict[str, Extra]:
        """Every release except the landmarks', by name.

        Parameters
        ----------
        public : PublicParameters
        seen : PublicParameters
            Of the second moments.
        parties : int
            Clients that draw noise for one sum.
        scale : bool
            Whether norms are learned.
        layers : int
            Classes whose density is counted; 0 without a density.
        """
        every: list[tuple[bool, Mechanism, float, PublicParameters]] = [
            (scale, ScaleHistogram(), self.scale, public),
            (True, Moments(), self.moments, public),
            (True, SecondMoments(), self.subspace, seen),
            (layers > 0, GridCounts(cells=MOST_CELLS**2 * max(layers, 1)), self.density, public),
        ]
        return {
            release.what: Extra(share, release.stage, parties * math.prod(release.shape(facts)))
            for used, release, share, facts in every
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
    shares : BudgetShares
    layers : int
        Classes whose density is counted on the grid; 0 reserves no budget for it.
    tau_x : float, optional
        Public bound on the norm of records.
    bounds : (float, float), optional
        Public range of every feature: what is expected where nothing can be seen.
    image : tuple of int, optional
        Public shape of a record that is an image: its second moments are those of low spatial frequencies.
    public_records : int, optional
        Public number used instead of every n_p; required under add-remove.
    threshold, colluders, retries, noise, seed
        As in `dpfedvis.server.feddl.FedDL`.
    """

    budget: Budget
    mechanism: Mechanism
    landmarks: int | None = None
    rounds: int = 50
    components: int = 32
    factors: tuple[float, ...] = (1.0,)
    shares: BudgetShares = field(default_factory=BudgetShares)
    layers: int = 0
    tau_x: float | None = None
    bounds: tuple[float, float] | None = None
    image: tuple[int, ...] | None = None
    public_records: int | None = None
    threshold: int | None = None
    colluders: int | None = None
    retries: int = 0
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
        ask: Ask,
        *,
        run: str | None = None,
        ledger: Ledger | None = None,
        witness: Witness | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: Path | None = None,
        receipts: Sequence[Receipt] = (),
    ) -> Learned:
        """Learn subspace and landmarks.

        Parameters
        ----------
        ask : Ask
        run, ledger, witness, callbacks, checkpoint, receipts
            As in `dpfedvis.server.feddl.FedDL.learn`.
        """
        members = Members.asked(ask, self.budget)
        self._check(members)
        contract = self.contract(members, run or uuid.uuid4().hex)
        if checkpoint is not None:
            name = claim(checkpoint, fingerprint(self, members.size, members.features), run)
            contract = replace(contract, run=name)
        mirror = Mirror(ledger_for(checkpoint, ledger, self.budget), checkpoint, receipts)
        folder = None if checkpoint is None else checkpoint / "curated"
        session = Session(ask, contract, mirror, witness, folder=folder)
        self._check_noise(session)
        session.open()
        found = self._frame.learn(session)
        subspace = Subspace.of_arrays(read_or_make(checkpoint and checkpoint / "subspace.npz", found.arrays))
        landmarks = self.landmarks or landmarks_for(self._landmark_noise(session))
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
            grid=subspace.grid,
            noise=self.noise,
            seed=self.seed,
        )
        session.prepare(SubspaceView(subspace))
        below = None if checkpoint is None else checkpoint / "landmarks"
        mark = fingerprint(feddl, members.size, len(subspace.variances))
        if below is not None:
            claim(below, mark, contract.run)
        preparation = Preparation(
            feddl, self.mechanism, members, len(subspace.variances), "float32", session, "subspace"
        )
        return Learned(subspace, feddl.rounds_of(preparation, self.mechanism, callbacks, below, mark), session)

    def contract(self, members: Members, run: str) -> Contract:
        """Return what all sites are to sign: the budget split among the stages, before anything is released."""
        features, count = members.features, members.count
        parties, public = drawn_by(self.mechanism.trust, count), self.public_for(features)
        seen = self.public_for(self._frame.seen(features))
        planned = self.shares.planned(public, seen=seen, parties=parties, scale=self.tau_x is None, layers=self.layers)
        widest = max(2, min(max(self.components, MOST_UNSEEN), features))
        largest = replace(public, landmarks=self.landmarks or MOST_LANDMARKS, features=widest)
        denominators = self._denominators(members)
        contract = Contract(
            run=run,
            budget=self.budget,
            mechanism=self.mechanism,
            rounds=self.rounds,
            noise=self.noise,
            seed=self.seed,
            features=features,
            members=members.agreed(denominators, self._weights(members)),
            extras=planned,
            preparation=members.preparation,
            threshold=self.threshold,
            colluders=self.colluders,
            retries=self.retries,
            values=parties * math.prod(self.mechanism.shape(largest)),
        )
        if contract.plan is None or self.mechanism.protection != "upload":
            raise InvalidParameter("mechanism", self.mechanism.name, "one with protected uploads, for release='none'")
        return contract

    def _check_noise(self, session: Session) -> None:
        """Raise before the first release if the noise of any stage cannot be drawn."""
        trust, features = self.mechanism.trust, session.contract.features
        public = self.public_for(features)
        for stage, facts in self._frame.stages(features):
            session.check(stage, facts)
        if self.layers:
            session.check(GridCounts(trust=trust), public)
        components = max(2, min(self.components, features))
        grid = Grid.of_range(2.0**8, 2.0**-12, components)
        landmarks = self.landmarks or LEAST_LANDMARKS
        session.check(self.mechanism, replace(public, landmarks=landmarks, features=components, grid=grid))

    @property
    def _frame(self) -> Frame:
        return Frame(
            trust=self.mechanism.trust,
            public=self.public_for(1),
            components=self.components,
            tau_x=self.tau_x,
            bounds=self.bounds,
            image=self.image,
        )

    @property
    def _weighting(self) -> Literal["records", "equal"]:
        # If the privacy unit is a client, every n_p is private, and weights made of them would be too.
        return "equal" if self.budget.unit == "client" else "records"

    def _check(self, members: Members) -> None:
        if self.budget.scope != "end-to-end":
            raise InvalidParameter("scope", self.budget.scope, "end-to-end for release='none'")
        if not 2 <= members.features <= MOST_FEATURES:
            raise InvalidParameter(
                "number of features",
                members.features,
                f"from 2 to {MOST_FEATURES} for a private map; leave columns out, or map records by public features",
            )
        # A mechanism without a sensitivity under this adjacency must raise now, not after the first stage.
        self.mechanism.sensitivity(replace(self.public_for(2), landmarks=2), self._denominators(members)[0])

    def _denominators(self, members: Members) -> list[float]:
        return members.denominators(self.budget, self.public_records)

    def _weights(self, members: Members) -> list[float]:
        return members.weights(self._denominators(members), equal=self._weighting == "equal")

    def records_a_client(self, contract: Contract) -> float:
        """Public mean number of records per client; an assumed number where every n_p is private."""
        if self.budget.unit == "client":
            return float(self.public_records or TYPICAL_RECORDS)
        return math.fsum(member.denominator for member in contract.members) / len(contract.members)

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

    def remarks(self, session: Session) -> tuple[str, ...]:
        """Remarks about the noise if the privacy unit is a client, from public quantities alone."""
        if self.budget.unit != "client":
            return ()
        trust, features = self.mechanism.trust, session.contract.features
        seen = self._frame.seen(features)
        moments = math.sqrt(session.planned_variance(Moments(trust=trust), self.public_for(features)))
        second = math.sqrt(session.planned_variance(SecondMoments(trust=trust), self.public_for(seen)))
        clients = len(session.contract.members)
        local = trust == "local"
        remark = client_level_remark(
            clients=clients, features=features, seen=seen, moments=moments, second_moments=second, local=local
        )
        return (remark,)

    def _landmark_noise(self, session: Session) -> float:
        """Standard deviation of the noise in a mean of vectors of norm 1 over all records, in one k-means upload."""
        plan, members = session.plan, session.contract.members
        assert plan is not None
        sigma = plan.multipliers[self.mechanism.what].sigma
        whole = self.budget.unit == "client"
        delta = self.budget.rows * sensitivity.cluster_sums(records=1, adjacency=self.budget.adjacency)
        sigma *= session.contract.noise_ratio
        own = [delta * sigma * each.weight / (1.0 if whole else each.denominator) for each in members]
        sharing = session.contract.sharing
        if sharing is not None:
            return max(own) * sharing.factor
        return max(own) if self.mechanism.trust != "local" else math.hypot(*own)


@dataclass(frozen=True, eq=False)
class Learned:
    """What the server has learned: subspace and landmarks; and the session, for further releases."""

    subspace: Subspace
    feddl: FedDLResult
    session: Session


def landmarks_for(noise: float) -> int:
    """Choose the number of landmarks from public quantities.

    Each of k landmarks has a share 1/k of the records. Returns the largest k for which that share is at least
    `STANDS_OUT` times its noise, and which is at most `FEW`/√noise: on public data twice as many gave no better maps
    (reports/end-to-end/budget.md).

    Parameters
    ----------
    noise : float
        Standard deviation of the noise in a mean over all records of vectors of norm at most 1.
    """
    fitting = min(1 / (STANDS_OUT * noise), FEW / math.sqrt(noise)) if noise > 0 else math.inf
    return int(min(max(fitting, LEAST_LANDMARKS), MOST_LANDMARKS))
