"""Federated distribution learning (Algorithm 1): landmarks Y that follow the data of all sites.

    server sends Y → each site computes and adds its noise → its ledger → the server averages and steps

Lines "l." are those of Alg. 1 in "Federated t-SNE and UMAP for Distributed Data Visualization" (AAAI 2025).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from accounting import Budget, Ledger, checks
from accounting.errors import InvalidParameter
from dpfedvis.mechanisms import Mechanism, mechanism
from dpfedvis.mechanisms.base import Counting
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.scale import Bounds
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.kernels import Array, Kernel
from dpfedvis.numerics.mmd import Estimator
from dpfedvis.numerics.optimisers import optimiser
from dpfedvis.numerics.projections import Projection
from dpfedvis.protocol.ask import Ask
from dpfedvis.protocol.contract import Contract
from dpfedvis.protocol.messages import Receipt
from dpfedvis.protocol.noise import NOISE_SOURCES
from dpfedvis.protocol.noise_plan import RunPlan, SitePlan
from dpfedvis.protocol.uploads import Witness
from dpfedvis.server.checkpoint import Snapshot, SnapshotMismatch, claim, fingerprint, ledger_for
from dpfedvis.server.members import Members
from dpfedvis.server.mirror import Mirror
from dpfedvis.server.preparation import Preparation
from dpfedvis.server.round_log import Round, Slope, Tally, as_array, from_array
from dpfedvis.server.session import Failure, OnFailure, Session

Callback = Callable[[Round, Array], bool | None]
GammaSource = Literal["public", "histogram", "moments", "median"]
Gamma = float | Sequence[float] | Kernel | GammaSource
NoiseName = Literal["seeded", "discrete"]


@dataclass(frozen=True)
class FedDLResult:
    """What a run leaves.

    Parameters
    ----------
    landmarks : array of shape (n_y, m)
    public : PublicParameters
        The public facts, with the kernel that was used.
    contract : Contract
        What the sites signed.
    ledger : Ledger
        The server's mirror of the sites' ledgers.
    trace : tuple of Round
    failures : tuple of Failure
        Sites that gave nothing usable, and when.
    start : array of shape (n_y, m)
        Y⁰, which the first round's uploads were computed at.
    tally : Tally, optional
        Counts of the landmarks' records, of mechanisms that release them.
    """

    landmarks: Array
    public: PublicParameters
    contract: Contract
    ledger: Ledger
    trace: tuple[Round, ...]
    failures: tuple[Failure, ...]
    start: Array
    tally: Tally | None = None

    @property
    def plan(self) -> RunPlan | None:
        """Noise multipliers; None if nothing was protected."""
        return self.contract.plan

    @property
    def plans(self) -> list[SitePlan]:
        """The noise plan of each site for an upload of a round."""
        return self.contract.site_plans(self.contract.mechanism, self.public)


@dataclass(frozen=True, kw_only=True, eq=False)
class FedDL:
    """Settings of a run; `learn` runs it.

    Parameters
    ----------
    landmarks : int
        n_y.
    mechanism : Mechanism or str
        What is uploaded and how it is protected; see `dpfedvis.mechanisms`.
    budget : Budget, optional
        Needed by every mechanism that protects.
    rounds : int, optional
        S. By default 50; for gradients and local steps under a budget, as many as its noise allows
        (`dpfedvis.server.rounds`).
    local_steps : int
        Local steps Q of variable and local-steps.
    gamma : float, sequence of float, Kernel, "public", "histogram", "moments" or "median", optional
        Kernel width γ, several for the mean kernel, or its source: public, histogram, moments or median. Public feature
        bounds; protected releases of a histogram of scales or of moments; or the median heuristic, an unprotected
        release. By default public where there are bounds; otherwise the histogram, or the median in a run that
        protects nothing.
    optimiser : {"plain", "momentum", "adam"}
        Optimiser of the server: plain, momentum or adam; mean-embedding has its own.
    step_size : float, optional
        Step size η of the server and of local steps (1/L, from kernel and n_y; adam: 0.1). Adam's is its own and leaves
        local steps at 1/L.
    weights : {"records", "equal"}
        Weights ω_p of clients: records (n_p/n) or equal (1/P). Equal in any case where the unit of the budget is a
        whole client, whose n_p is private.
    sampling_rate : float, optional
        Poisson sampling rate q of records in each round; needs add-remove.
    public_records : int, optional
        Public stand-in for every n_p; needed under add-remove, where n_p is private.
    bounds : (float, float), optional
        Public range that all features share; values outside may be clipped (that of built-in data; a file has none).
        Y starts in it, and stays in it if `projection` is not given.
    tau_x : float, optional
        Public bound on the norm of records, for moments; without one they are clipped to the histogram's.
    projection : Projection, optional
        Public set that Y is kept in.
    start : "uniform", "normal", "mean" or array of shape (n_y, m), optional
        Start of the landmarks: uniform, normal or mean (uniform with bounds, else mean). Public random points of the
        box, or around 0; random points around the mean of the records, which is a release; or a public sample.
    share : float
        Share of the budget for the histogram of scales, and the same for the moments, where they are released.
    noisy_rows : mapping of str to float
        Names of noisy rows that the caller asks for afterwards, and their shares of the budget.
    exact_rows : tuple of str
        Names of exact rows that the caller asks for afterwards.
    grid : Grid, optional
        Public grid that the records lie on; by default from bounds, `tau_x` or the histogram of scales.
    mmd : {"unbiased", "biased"}
        Estimator of the MMD that is minimised: unbiased or biased.
    noise : {"seeded", "discrete"}
        Seeded noise makes a run a simulation: two runs of one seed share their noise.
    policy : {"fail", "continue"}
        When a client fails: fail, or continue without it.
    threshold, colluders, retries : int, optional
        Under trust `aggregate`: fewest clients in a sum, clients that may work together, and sums that may be repeated;
        see `dpfedvis.protocol.contract.Contract`.
    seed : int
    """

    landmarks: int = 100
    mechanism: Mechanism | str = "none"
    budget: Budget | None = None
    rounds: int | None = None
    local_steps: int = 1
    gamma: Gamma | None = None
    optimiser: str = "plain"
    step_size: float | None = None
    weights: Literal["records", "equal"] = "records"
    sampling_rate: float | None = None
    public_records: int | None = None
    bounds: Bounds | None = None
    tau_x: float | None = None
    projection: Projection | None = None
    start: Literal["uniform", "normal", "mean"] | Array | None = None
    share: float = 0.1
    noisy_rows: Mapping[str, float] = field(default_factory=dict)
    exact_rows: tuple[str, ...] = ()
    grid: Grid | None = None
    mmd: Estimator = "unbiased"
    noise: NoiseName = "seeded"
    policy: OnFailure = "fail"
    threshold: int | None = None
    colluders: int | None = None
    retries: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        checks.count("landmarks", self.landmarks)
        checks.at_least("seed", self.seed, 0)
        if self.rounds is not None:
            checks.count("rounds", self.rounds)
        checks.count("local_steps", self.local_steps)
        checks.share("share", self.share)
        checks.one_of("weights", self.weights, ("records", "equal"))
        checks.one_of("mmd", self.mmd, ("unbiased", "biased"))
        checks.one_of("noise", self.noise, NOISE_SOURCES)
        checks.one_of("policy", self.policy, ("fail", "continue"))
        optimiser(self.optimiser, 1.0 if self.step_size is None else self.step_size)
        if self.step_size is not None:
            checks.between("step_size", self.step_size, 1e-12, 1e12)
        _check_gamma(self.gamma)
        if self.sampling_rate is not None:
            checks.rate("sampling_rate", self.sampling_rate)
        if self.public_records is not None:
            checks.count("public_records", self.public_records)
        _check_bounds(self.bounds)
        if self.bounds is not None and max(map(abs, self.bounds)) > 1e12:
            raise InvalidParameter("bounds", self.bounds, "within ±1e12")
        if self.tau_x is not None:
            checks.positive("tau_x", self.tau_x)
        if isinstance(self.start, str):
            checks.one_of("start", self.start, ("uniform", "normal", "mean"))
        elif self.start is not None and not isinstance(self.start, np.ndarray):
            raise InvalidParameter("start", type(self.start).__name__, "uniform, normal, mean or an array")
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise InvalidParameter("budget", self.budget, "a Budget, such as Budget(2, 1e-5)")
        if self.landmarks == 1 and self.mmd == "unbiased":
            raise InvalidParameter("landmarks", 1, "at least 2 for the unbiased estimator")

    def learn(
        self,
        ask: Ask,
        *,
        run: str | None = None,
        ledger: Ledger | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: Path | None = None,
        witness: Witness | None = None,
        receipts: Sequence[Receipt] = (),
    ) -> tuple[FedDLResult, Session]:
        """Agree with the sites, and learn the landmarks; return the session, too, for what follows.

        Parameters
        ----------
        ask : Ask
        run : str, optional
            Name of the run; by default a new one, or that in the checkpoint.
        ledger : Ledger, optional
            Where to mirror the sites' ledgers; by default in memory, or in the folder of the checkpoint. With a
            checkpoint it must be a file, and that of this run alone.
        callbacks : sequence of callables
            Called with (Round, Y) after each round; one that returns True ends the run. After an interruption they may
            see the last round again.
        checkpoint : Path, optional
            Folder to keep the mirror and a snapshot in. A run that finds its own goes on from there, and spends nothing
            twice.
        witness : Witness, optional
            Sees what the server sees.
        receipts : sequence of Receipt
            Of the sites in an earlier run (`Published.receipts`): one whose ledger is older finds it.
        """
        chosen, members = mechanism(self.mechanism), Members.asked(ask, self.budget)
        mark = fingerprint(self, members.size, members.features)
        run = claim(checkpoint, mark, run) if checkpoint is not None else run or uuid.uuid4().hex
        mirror = Mirror(ledger_for(checkpoint, ledger, self.budget), checkpoint, receipts)
        preparation = Preparation(self, chosen, members, members.features, members.dtype)
        contract = preparation.contract(run)
        folder = None if checkpoint is None else checkpoint / "curated"
        session = Session(ask, contract, mirror, witness, self.policy, folder)
        preparation.begin(session)
        return self.rounds_of(preparation, chosen, callbacks, checkpoint, mark), session

    def rounds_of(
        self,
        preparation: Preparation,
        chosen: Mechanism,
        callbacks: Sequence[Callback] = (),
        checkpoint: Path | None = None,
        mark: str = "",
    ) -> FedDLResult:
        """Carry out the rounds of a run that the sites have agreed to."""
        session, public, Y = preparation.session, preparation.public, preparation.start
        steps = optimiser(self.optimiser, preparation.server_step)
        trace: list[Round] = []
        counted: list[tuple[Array, float]] = []
        if chosen.protection == "home":
            session.perturb(chosen, public)
        snapshot = None if checkpoint is None else Snapshot.read(checkpoint / "snapshot.npz", mark)
        if snapshot is not None:
            _check_accounted(session.mirror.ledger, chosen, snapshot.rounds)
            Y, trace = snapshot.landmarks, from_array(snapshot.trace)
            session.failures = [Failure(*each) for each in snapshot.failures]
            steps.restore(snapshot.optimiser)
            counted = [] if snapshot.tally is None else snapshot.tally.rounds()
        slope = Slope() if snapshot is None else Slope(trace[-1].change, snapshot.step)
        for s in range(len(trace) + 1, chosen.uploads(session.contract.rounds) + 1):
            average = session.average(chosen, public, Y, s, preparation.view)  # l. 3–12
            seen = replace(public, noise=public.noise * session.present(chosen.what))
            update = chosen.update(Y, average, seen, steps)  # l. 13–14
            change = slope.see(update.gradient)
            if isinstance(chosen, Counting):
                counted.append((chosen.counts(average), seen.noise))
            before, Y = Y, preparation.snapped(preparation.projection(update.landmarks))
            slope.move(step := Y - before)
            trace.append(Round(s, float(np.linalg.norm(step)), change))
            # Before the snapshot: a round that it covers is not shown again.
            answers = [callback(trace[-1], Y) for callback in callbacks]
            if checkpoint is not None:
                failures = [astuple(each) for each in session.failures]
                state = Snapshot(s, Y, steps.state, as_array(trace), step, failures, Tally.of(counted))
                state.write(checkpoint / "snapshot.npz", mark)
            if any(answers):
                break
        return FedDLResult(
            Y,
            public,
            session.contract,
            session.mirror.ledger,
            tuple(trace),
            tuple(session.failures),
            preparation.start,
            Tally.of(counted),
        )


def _check_accounted(ledger: Ledger, chosen: Mechanism, rounds: int) -> None:
    """Refuse a ledger that does not know of as many rounds as a snapshot says were done; some may be repeated ones."""
    known = {event.round for event in ledger.events(what=chosen.what)}
    if len(known) < rounds:
        missing = min(set(range(1, rounds + 1)) - known)
        raise SnapshotMismatch(f"the ledger has no {chosen.what} of round {missing}, which was released")


def _check_bounds(bounds: Bounds | None) -> None:
    if bounds is None:
        return
    try:
        low, high = (float(each) for each in bounds)
    except (TypeError, ValueError):
        low = high = 0.0
    if not (np.isfinite([low, high]).all() and low < high):
        raise InvalidParameter("bounds", bounds, "(low, high), both finite, low below high")


def _check_gamma(gamma: Gamma | None) -> None:
    if isinstance(gamma, str):
        checks.one_of("gamma", gamma, get_args(GammaSource))
    elif gamma is not None:
        values = np.ravel(gamma.gammas if isinstance(gamma, Kernel) else gamma).tolist()
        if not values:
            raise InvalidParameter("gamma", gamma, "at least one number")
        for each in values:
            checks.positive("gamma", each)
