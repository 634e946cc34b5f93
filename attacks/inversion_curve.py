"""Where noise stops gradient inversion: its error as a function of ε, and of the heuristic β, for small clients."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from accounting import Budget, Ledger
from attacks.auditing.uploads import Watcher
from attacks.gradients import SeenGradient
from attacks.inversion import Prior, invert_gradient
from attacks.inversion_score import error_floor, information, score_inversion
from attacks.views import noise_of
from dpfedvis.data import FederatedData
from dpfedvis.errors import DpfedvisError
from dpfedvis.federation.feddl import FedDL
from dpfedvis.federation.round_log import Round
from dpfedvis.mechanisms import HeuristicNoise, Mechanism, mechanism
from dpfedvis.numerics.kernels import Array, Kernel
from dpfedvis.reporting.figures import save_png


@dataclass(frozen=True)
class CurvePoint:
    """One mechanism, averaged over clients.

    Parameters
    ----------
    mechanism : str
    epsilon, beta : float, optional
        What it was run with; neither for exact gradients.
    records : int
        n_p.
    ratio : float
        Root mean square error over that of guessing the mean of fresh records.
    floor : float
        Least ratio that anyone could have on average, for Gaussian records of the same covariance; 0 without noise.
    recovered : float
        Share of records with an error below a tenth of the trivial one.
    """

    mechanism: str
    epsilon: float | None
    beta: float | None
    records: int
    ratio: float
    floor: float
    recovered: float


@dataclass(frozen=True)
class InversionCurve:
    """Points, and the public facts of the runs behind them."""

    points: tuple[CurvePoint, ...]
    landmarks: int
    rounds: int
    delta: float

    def to_json(self) -> str:
        """Return everything."""
        return json.dumps({"kind": "inversion curve", **asdict(self)}, indent=2, allow_nan=False)

    def markdown(self) -> str:
        """Return a table."""
        lines = [
            "# Where noise stops gradient inversion",
            "",
            f"{self.landmarks} landmarks, {self.rounds} rounds, δ = {self.delta:g}. Error relative to guessing the",
            "mean of fresh records. The adversary knows the mean and covariance of fresh records, the landmarks, and",
            "the law of the noise.",
            "",
            "| mechanism | records | error | floor | recovered |",
            "|---|---|---|---|---|",
        ]
        for each in self.points:
            lines.append(
                f"| {_name(each)} | {each.records} | {each.ratio:.3g} | {each.floor:.3g} | {each.recovered:.0%} |"
            )
        return "\n".join(lines) + "\n"

    def figure(self, path: Path) -> None:
        """Draw error and floor against ε."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.5, 4), layout="constrained")
        axes = figure.add_subplot()
        for number, records in enumerate(sorted({each.records for each in self.points})):
            ours = [each for each in self.points if each.records == records and each.epsilon is not None]
            epsilons = [each.epsilon for each in ours if each.epsilon is not None]
            axes.plot(epsilons, [each.ratio for each in ours], f"C{number}o-", label=f"{records} records")
            axes.plot(epsilons, [each.floor for each in ours], f"C{number}--", linewidth=1)
        axes.axhline(1, color="0.6", linestyle=":")
        axes.set(xscale="log", xlabel="ε", ylabel="error / error of the trivial guess (dashed: floor)", ylim=0)
        axes.legend(frameon=False)
        save_png(figure, path)


def inversion_curve(
    records: npt.ArrayLike,
    fresh: npt.ArrayLike,
    *,
    sizes: Sequence[int] = (1, 4),
    epsilons: Sequence[float] = (1.0, 10.0, 100.0, 1000.0),
    betas: Sequence[float] = (0.1, 1.0),
    clients: int = 4,
    landmarks: int = 50,
    rounds: int = 5,
    gamma: float,
    delta: float = 1e-5,
    bounds: tuple[float, float],
    starts: int = 3,
    seed: int = 0,
) -> InversionCurve:
    """Run FedDL with small clients at every noise, and invert what passes the door.

    Parameters
    ----------
    records : array of shape (n, m)
        Dealt to `clients` clients of each size in turn.
    fresh : array of shape (f, m)
        What the adversary knows the distribution from.
    sizes : sequence of int
        n_p of all clients.
    epsilons, betas : sequences of float
        Budgets of ``gradient``, and β of the heuristic noise; exact gradients come first.
    landmarks, rounds, gamma, bounds
        As in `FedDL`.
    """
    X = np.asarray(records)
    if len(X) < clients * max(sizes):
        raise DpfedvisError(f"{len(X)} records are too few for {clients} clients of {max(sizes)}")
    prior = Prior.of(fresh)
    runs: list[tuple[Mechanism, float | None, float | None]] = [(mechanism("none"), None, None)]
    runs += [(HeuristicNoise(beta=beta), None, beta) for beta in betas]
    runs += [(mechanism("gradient"), epsilon, None) for epsilon in epsilons]
    points = []
    for size in sizes:
        parts = [X[p * size : (p + 1) * size] for p in range(clients)]
        for chosen, epsilon, beta in runs:
            feddl = FedDL(
                landmarks=landmarks,
                mechanism=chosen,
                budget=None if epsilon is None else Budget(epsilon, delta),
                rounds=rounds,
                bandwidth=gamma,
                bounds=bounds,
                seed=seed,
            )
            seen = see(feddl, parts)
            scores = [
                _scored(each, Kernel.gaussian(gamma), part, prior, starts, seed)
                for each, part in zip(seen, parts, strict=True)
            ]
            ratio, floor, recovered = (float(each) for each in np.mean(scores, axis=0))
            points.append(CurvePoint(chosen.name, epsilon, beta, size, ratio, floor, recovered))
    return InversionCurve(tuple(points), landmarks, rounds, delta)


def see(feddl: FedDL, parts: Iterable[Array], *, ledger: Ledger | None = None) -> list[tuple[SeenGradient, ...]]:
    """Run FedDL with these clients, and return what the server sees of each."""
    watcher, trajectory = Watcher(), {}

    def keep(done: Round, Y: Array) -> None:
        trajectory[done.number] = Y.astype(np.float64)

    fed = FederatedData(list(parts), bounds=feddl.bounds)
    run = feddl.run(fed, ledger=ledger, witness=watcher, callbacks=[keep])
    trajectory[0] = run.start.astype(np.float64)
    seen: dict[str, list[SeenGradient]] = defaultdict(list)
    for upload in watcher.seen:
        event = upload.events[0]
        if event.what == "gradient" and event.round is not None:
            values = upload.values.astype(np.float64)
            seen[event.client].append(SeenGradient(trajectory[event.round - 1], values, noise_of(event)))
    return [tuple(seen[client.terms.name]) for client in run.clients]


def _scored(
    seen: tuple[SeenGradient, ...], kernel: Kernel, truth: Array, prior: Prior, starts: int, seed: int
) -> tuple[float, float, float]:
    rng = np.random.default_rng(seed)
    found = invert_gradient(seen, kernel, records=len(truth), prior=prior, starts=starts, rng=rng)
    score, floor = score_inversion(found.records, truth, prior.mean), 0.0
    if all(each.sigma > 0 for each in seen):
        lam = information([(len(each.landmarks), each.sigma) for each in seen], kernel, len(truth))
        floor = error_floor(lam, np.linalg.eigvalsh(prior.covariance))
    return score.ratio, floor, score.recovered


def _name(point: CurvePoint) -> str:
    if point.epsilon is not None:
        return f"{point.mechanism}, ε = {point.epsilon:g}"
    return point.mechanism if point.beta is None else f"{point.mechanism}, β = {point.beta:g} (no ε)"
