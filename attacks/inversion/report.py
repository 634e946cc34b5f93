"""Gradient inversion on a recorded run: the smallest clients, from all gradients that the server saw of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from accounting import checks
from attacks.inversion.solver import Prior, invert_gradient
from attacks.shared.gradients import Float64, as_learned, contribution_of, gradients_of
from attacks.shared.registry import NothingToAttack, Truth
from dpfedvis.numerics.kernels import Kernel, squared_distances
from dpfedvis.reporting.drawing import save_png
from dpfedvis.runs.upload_reader import Recording

LARGEST, CLIENTS, ROUNDS, STARTS = 16, 4, 20, 4


@dataclass(frozen=True)
class InvertedClient:
    """One client, and how near the inversion came to its records.

    Parameters
    ----------
    client : str
    records, rounds : int
        n_p, and how many gradients were used.
    sigma : float
        Noise on each, from the ledger; 0 for none.
    ratio : float
        Root mean square error over that of a trivial guess: 0 is exact, 1 is no better than guessing.
    recovered : float
        Share of records with an error below a tenth of the trivial one.
    floor : float
        Least ratio that anyone could reach on average, for Gaussian records of the same covariance; 0 without noise.
    misfit : float
        See `attacks.inversion.solver.Inversion`.
    """

    client: str
    records: int
    rounds: int
    sigma: float
    ratio: float
    recovered: float
    floor: float
    misfit: float


@dataclass(frozen=True)
class InversionReport:
    """The result of gradient inversion.

    Parameters
    ----------
    clients : tuple of InvertedClient
    guess : str
        What the trivial guess is.
    dimensions : int, optional
        Of the published subspace, where gradients show no more of a record than its coordinates there.
    """

    clients: tuple[InvertedClient, ...]
    guess: str
    dimensions: int | None = None

    @property
    def summary(self) -> Mapping[str, float | None]:
        """Means over clients."""
        return {
            name: float(np.mean([getattr(each, field) for each in self.clients]))
            for name, field in (("error ratio", "ratio"), ("floor", "floor"), ("recovered", "recovered"))
        }

    def to_json(self) -> str:
        """Return the scores; recovered records are in no output."""
        values: dict[str, Any] = {"kind": "inversion", "clients": [asdict(each) for each in self.clients]}
        values |= {"trivial_guess": self.guess, "subspace_dimensions": self.dimensions}
        return json.dumps({**values, **self.summary}, indent=2, allow_nan=False)

    def markdown(self) -> str:
        """Return a page."""
        lines = [
            "# Gradient inversion",
            "",
            "Records of the smallest clients from their gradients: the lines through the landmarks for one record, the",
            f"posterior mode for several. The error is relative to that of a trivial guess, {self.guess}:",
            "0 is exact, 1 is no better than guessing. The floor is the least that anyone could reach on average",
            "through this noise, for Gaussian records of the same covariance (Van Trees).",
            *self._subspace(),
            "",
            "![Error of each client](inversion.png)",
            "",
            "| client | records | rounds | σ | error | floor | recovered |",
            "|---|---|---|---|---|---|---|",
        ]
        for each in self.clients:
            lines.append(
                f"| {each.client} | {each.records} | {each.rounds} | {each.sigma:.3g} | {each.ratio:.3g} | "
                f"{each.floor:.3g} | {each.recovered:.0%} |"
            )
        return "\n".join(lines) + "\n"

    def _subspace(self) -> list[str]:
        if self.dimensions is None:
            return []
        return [f"Records and errors are those in the {self.dimensions} dimensions of the published subspace."]

    def figure(self, path: Path) -> None:
        """Draw error and floor of each client."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(1.5 + len(self.clients), 4), layout="constrained")
        axes = figure.add_subplot()
        places = np.arange(len(self.clients))
        axes.bar(places, [each.ratio for each in self.clients], color="C0", label="error")
        axes.scatter(places, [each.floor for each in self.clients], color="C1", marker="_", s=300, label="floor")
        axes.axhline(1, color="0.6", linestyle="--")
        axes.set_xticks(places, [f"{each.client}\nn = {each.records}" for each in self.clients])
        axes.set_ylabel("error / error of the trivial guess")
        axes.legend(frameon=False, loc="upper right")
        save_png(figure, path)


def attack(recording: Recording, truth: Truth, rng: np.random.Generator) -> InversionReport:
    """Invert the gradients of the smallest clients.

    The adversary expects records to be like the last landmarks, which it knows. The trivial guess, and the covariance
    of the floor, come from fresh records where there are some, else from the records of all other clients.
    """
    contribution = contribution_of(recording)
    if contribution.clip is not None:
        raise NothingToAttack("inversion has no model of clipped gradients")
    if recording.public.sampling_rate is not None:
        raise NothingToAttack("inversion needs the same records in every round, and the run samples them")
    sizes = {each.name: each.stated_denominator for each in recording.clients}
    small = sorted(
        (each for each in recording.clients if sizes[each.name] <= LARGEST), key=lambda each: sizes[each.name]
    )
    if not small:
        least = min(sizes.values())
        raise NothingToAttack(f"inversion is for clients of at most {LARGEST} records; the smallest here has {least:g}")
    found = []
    for client in small[:CLIENTS]:
        seen = gradients_of(recording, client.name, rounds=ROUNDS)
        records = as_learned(recording, truth.client(client.name))
        others = as_learned(recording, _others(truth, client.name))
        inverted = invert_gradient(
            seen,
            contribution.kernel,
            records=len(records),
            denominator=sizes[client.name],
            prior=Prior.of(as_learned(recording, recording.landmarks)),
            starts=STARTS,
            rng=rng,
        )
        score = score_inversion(inverted.records, records, others.mean(axis=0))
        noise, floor = [each.sigma for each in seen], 0.0
        if min(noise) > 0 and len(others) > 1:
            lam = information(
                [(len(each.landmarks), each.sigma) for each in seen], contribution.kernel, sizes[client.name]
            )
            floor = error_floor(lam, np.maximum(np.linalg.eigvalsh(np.cov(others.T)), 0))
        sigma = math.sqrt(float(np.mean(np.square(noise))))
        found.append(
            InvertedClient(
                client.name, len(records), len(seen), sigma, score.ratio, score.recovered, floor, inverted.misfit
            )
        )
    source = "fresh records of the data set" if truth.fresh is not None else "records of the other clients"
    dimensions = recording.public.features if "axes" in recording.published else None
    return InversionReport(tuple(found), f"the mean of {source}", dimensions)


def _others(truth: Truth, client: str) -> Float64:
    if truth.fresh is not None and len(truth.fresh):
        return np.asarray(truth.fresh, dtype=np.float64)
    others = [each.X for each in truth.fed.clients if each.name != client]
    if not others:
        raise NothingToAttack("inversion of a run of one client has no other records to make a trivial guess from")
    return np.concatenate(others).astype(np.float64)


@dataclass(frozen=True, eq=False)
class InversionScore:
    """How near recovered records come to the true ones, matched one to one.

    Parameters
    ----------
    errors : array of shape (n_p,)
        ‖x̂ − x‖ for each true record.
    trivial : array of shape (n_p,)
        ‖guess − x‖, for one and the same guess that needs no gradient.
    """

    errors: Float64
    trivial: Float64

    @property
    def ratio(self) -> float:
        """Root mean square error over that of the trivial guess: 0 is exact, 1 is no better than guessing."""
        return float(np.linalg.norm(self.errors) / np.linalg.norm(self.trivial))

    @property
    def recovered(self) -> float:
        """Share of records with an error below a tenth of the trivial one."""
        return float(np.mean(self.errors < 0.1 * self.trivial))


def score_inversion(found: npt.ArrayLike, truth: npt.ArrayLike, guess: npt.ArrayLike) -> InversionScore:
    """Match recovered to true records by the assignment of least total squared error, and score.

    Parameters
    ----------
    found, truth : arrays of shape (n_p, m)
    guess : array of shape (m,)
        A guess that uses no upload, such as the mean of other records.
    """
    found, truth = np.asarray(found, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    squares = squared_distances(truth, found)
    rows, columns = linear_sum_assignment(squares)
    errors = np.linalg.norm(found[columns] - truth[rows], axis=1)
    return InversionScore(errors, np.linalg.norm(truth - np.asarray(guess, dtype=np.float64), axis=1))


def information(seen: Iterable[tuple[int, float]], kernel: Kernel, denominator: float) -> float:
    """Return a bound λ on the Fisher information about a record in gradients with noise: I(x) ⪯ λI, whatever the data.

    Parameters
    ----------
    seen : iterable of (int, float)
        n_y and σ of each round.

    Notes
    -----
    One record moves row i by −(4/(n_p n_y)) Σ_b (γ_b/B) M_b, with the Jacobian M_b of u e^{−γ_b‖u‖²}, whose eigenvalues
    lie in [−κ, 1] (`dpfedvis.numerics.mmd.smoothness`). So JᵀJ ⪯ n_y (4γ̄/(n_p n_y))² I, and Gaussian noise makes I(x) =
    Σ_s JᵀJ/σ_s² ⪯ Σ_s 16γ̄²/(n_p² n_y σ_s²) I. In terms of the replace-one μ of the tight sensitivity (one bandwidth)
    this is eγμ²/2. It also holds if all other records are known, and a fortiori if not; when Y_s depends on earlier
    uploads, the chain rule for Fisher information gives the same sum.
    """
    rate = 4 * kernel.mean_gamma / checks.positive("denominator", denominator)
    return math.fsum(rate**2 / (landmarks * checks.positive("sigma", sigma) ** 2) for landmarks, sigma in seen)


def error_floor(lam: float, variances: npt.ArrayLike) -> float:
    """Return the least ratio (`InversionScore.ratio`) that any estimator can have on average, for Gaussian records.

    Parameters
    ----------
    lam : float
        λ of `information`.
    variances : array of shape (m,)
        Eigenvalues s_k² of the covariance of records, a Gaussian prior that the adversary may know in full.

    Notes
    -----
    Van Trees' inequality (the Bayesian Cramér–Rao bound; Van Trees 1968, §2.4): the mean squared error matrix is at
    least (E I(x) + Σ⁻¹)⁻¹ ⪰ (λI + Σ⁻¹)⁻¹, whose trace is Σ_k s_k²/(1 + λs_k²); guessing the mean has Σ_k s_k². Real
    records are not Gaussian, and a sharper prior may allow more: the floor is exact for an idealised prior only.
    """
    values = np.asarray(variances, dtype=np.float64)
    lam = checks.nonnegative("lam", lam)
    return float(np.sqrt(np.sum(values / (1 + lam * values)) / np.sum(values)))
