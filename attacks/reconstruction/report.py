"""Reconstruction of every record from the rows of a recorded run, with its scores."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import GaussianRelease, Ledger, PostProcessing
from accounting.rounding import rounded_up
from attacks.reconstruction.rows import (
    Bounds,
    Float64,
    reconstruct_from_coordinates,
    reconstruct_from_distances,
    reconstruct_from_kernel,
)
from attacks.reconstruction.scores import CannotScore, Closeness, closeness, largest_pair_accuracy, share_below_zero
from attacks.shared.registry import NothingToAttack, Truth
from dpfedvis.mechanisms.rows import DistanceRows, KernelRows, Rows
from dpfedvis.numerics.kernels import Array
from dpfedvis.reporting.drawing import save_png
from dpfedvis.runs.upload_reader import RecordedUpload, Recording

SCORED, SHOWN = 2000, 10


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """The result of a reconstruction.

    Parameters
    ----------
    what : str
        Name of the rows, as in the ledger.
    mu : float
        GDP parameter of all that one record's client released; infinite if anything was unprotected.
    sigma, record_sigma : float
        Noise on the rows, and on the records before them; the largest over clients.
    closeness : Closeness
    pair_accuracy : float
        How often the likelihood of the row picks the true record and not another one of the run, drawn at random.
    allowed : float
        The largest pair accuracy that anyone could have against the worst pair of records.
    originals, guesses : arrays of shape (k, m)
        A few, to look at.
    image_shape : tuple of int, optional
    bounds : (float, float), optional
    """

    what: str
    mu: float
    sigma: float
    record_sigma: float
    closeness: Closeness
    pair_accuracy: float
    allowed: float
    originals: Array
    guesses: Float64
    image_shape: tuple[int, ...] | None
    bounds: Bounds | None

    @property
    def summary(self) -> Mapping[str, float | None]:
        """Numbers for tables."""
        scores = self.closeness
        return {
            "relative error": scores.relative_error,
            "error without rows": scores.baseline_error,
            "SSIM": scores.ssim,
            "SSIM without rows": scores.baseline_ssim,
            "recognised": scores.recognised,
            "pairs told apart": self.pair_accuracy,
            "at most": self.allowed,
        }

    def to_json(self) -> str:
        """Return everything but the pictures."""
        values: dict[str, Any] = {
            "kind": "reconstruction",
            "rows": self.what,
            "mu": _number(self.mu),
            "sigma": self.sigma,
            "record_sigma": self.record_sigma,
            **self.closeness.to_dict(),
            "pair_accuracy": self.pair_accuracy,
            "largest_pair_accuracy": self.allowed,
        }
        return json.dumps(values, indent=2, allow_nan=False)

    def markdown(self) -> str:
        """Return a page."""
        scores = self.closeness
        noise = "no noise" if not (self.sigma or self.record_sigma) else f"σ = {self.sigma or self.record_sigma:.4g}"
        on = "rows" if self.sigma or not self.record_sigma else "records before the rows were computed"
        mu = "∞: something was released without protection" if self.mu == math.inf else f"{self.mu:.4g}"
        lines = [
            "# Reconstruction",
            "",
            f"Each record was reconstructed from its {self.what} and the landmarks, by least squares with a prior from",
            f"the landmarks. Noise on the {on}: {noise}. μ of a record's client, end to end: {mu}.",
            "",
            "![Originals above, reconstructions below](reconstruction.png)",
            "",
            "| | |",
            "|---|---|",
            f"| records scored | {scores.scored} |",
            f"| relative error | {scores.relative_error:.3g} |",
            f"| relative error of the landmarks' mean, which uses no row | {scores.baseline_error:.3g} |",
            f"| PSNR, dB | {_shown(scores.psnr)} |",
            f"| SSIM | {_shown(scores.ssim)} |",
            f"| SSIM of the landmarks' mean | {_shown(scores.baseline_ssim)} |",
            f"| recognised: the nearest true record is the right one | {scores.recognised:.2%} |",
            f"| the same by guessing | {scores.chance:.2%} |",
            f"| told apart from another record of the run, by likelihood | {self.pair_accuracy:.2%} |",
            f"| most that μ allows for the worst pair, Φ(μ/2) | {rounded_up(100 * self.allowed)}% |",
        ]
        return "\n".join(lines) + "\n"

    def figure(self, path: Path) -> None:
        """Draw originals above reconstructions; for records that are no images, one against the other."""
        from matplotlib.figure import Figure

        if self.image_shape is None or len(self.image_shape) != 2:
            figure = Figure(figsize=(5, 5), layout="constrained")
            axes = figure.add_subplot()
            axes.scatter(self.originals.ravel(), self.guesses.ravel(), s=4, linewidths=0)
            axes.axline((0, 0), slope=1, color="0.7", zorder=0)
            axes.set(xlabel="feature of the record", ylabel="its reconstruction")
            save_png(figure, path)
            return
        count = len(self.originals)
        figure = Figure(figsize=(1.1 * count, 2.6), layout="constrained")
        grid = np.asarray(figure.subplots(2, count, squeeze=False))
        low, high = self.bounds or (float(self.originals.min()), float(self.originals.max()))
        for row, title, images in ((0, "original", self.originals), (1, "reconstruction", self.guesses)):
            for axes, image in zip(grid[row], images, strict=True):
                axes.imshow(image.reshape(self.image_shape), cmap="gray_r", vmin=low, vmax=high)
                axes.set_xticks([])
                axes.set_yticks([])
            grid[row, 0].set_ylabel(title)
        save_png(figure, path)


def attack(recording: Recording, truth: Truth, rng: np.random.Generator) -> Reconstruction:
    """Reconstruct records from the rows of a run.

    At most `SCORED` records, drawn at random, are reconstructed and scored, against all records of the run.
    """
    if not recording.rows:
        raise NothingToAttack("reconstruction needs one row a record, and the run released none")
    bounds = None if recording.facts.get("bounds") is None else tuple(recording.facts["bounds"])
    slices = {client.name: part for client, part in zip(truth.fed.clients, truth.fed.index.slices, strict=True)}
    chosen = np.sort(rng.permutation(len(truth.pooled))[:SCORED])
    others = _others(chosen, len(truth.pooled), rng)
    guesses, indices, noises, told = [], [], [], []
    with recording.ledger() as ledger:
        mu = mu_of(ledger)
        for upload in recording.rows:
            part = slices.get(upload.clients[0])
            if part is None or upload.shape[0] != part.stop - part.start:
                raise CannotScore(f"{upload.shape[0]} rows of {upload.clients[0]} belong to other records")
            here = (chosen >= part.start) & (chosen < part.stop)
            mine = chosen[here]
            if len(mine):
                noise = _noise(upload, ledger)
                values = upload.values[mine - part.start]
                guesses.append(_reconstruct(upload.what, values, recording, *noise, bounds))
                pair = (_mismatch(upload.what, values, truth.pooled[each], recording, noise[1] > 0)
                        for each in (mine, others[here]))  # fmt: skip
                told.append(np.subtract(*pair))
                indices.append(mine)
                noises.append(noise)
    guess, index = np.concatenate(guesses), np.concatenate(indices)
    baseline = recording.landmarks.mean(axis=0, dtype=np.float64)
    scores = closeness(guess, truth.pooled, index, baseline, bounds=bounds, image_shape=truth.image_shape)
    true = truth.pooled[index]
    adjacent = 1.0 if recording.public.adjacency == "replace-one" else 2.0
    shown = np.linspace(0, len(index) - 1, min(SHOWN, len(index))).round().astype(np.int64)
    return Reconstruction(
        what=recording.rows[0].what,
        mu=mu,
        sigma=max(noise[0] for noise in noises),
        record_sigma=max(noise[1] for noise in noises),
        closeness=scores,
        pair_accuracy=share_below_zero(np.concatenate(told)),
        # Replacing a record is taking one away and adding another.
        allowed=largest_pair_accuracy(adjacent * mu),
        originals=true[shown],
        guesses=guess[shown],
        image_shape=truth.image_shape,
        bounds=bounds,
    )


def mu_of(ledger: Ledger) -> float:
    """Return μ of everything that one client released, the largest over clients; infinite without protection.

    Sampling is left aside, which makes μ larger than it need be.
    """
    compositions = [ledger.composition(client, end_to_end=True) for client in ledger.clients]
    return max((math.inf if each.unprotected else each.total_mu for each in compositions), default=0.0)


def _reconstruct(
    what: str, values: Array, recording: Recording, sigma: float, record_sigma: float, bounds: Bounds | None
) -> Float64:
    Y = recording.landmarks
    if what == "distance rows":
        return reconstruct_from_distances(values, Y, sigma=sigma, record_sigma=record_sigma, bounds=bounds)
    if what == "kernel rows":
        gammas = recording.public.kernel.gammas
        return reconstruct_from_kernel(values, Y, gammas, sigma=sigma, record_sigma=record_sigma, bounds=bounds)
    if what == "gram rows":
        return reconstruct_from_coordinates(values, Y, sigma=math.hypot(sigma, record_sigma), bounds=bounds)
    raise NothingToAttack(f"reconstruction knows distance, kernel and gram rows, but the run released {what}")


def _mismatch(what: str, values: Array, candidates: Array, recording: Recording, perturbed: bool) -> Float64:
    """Squared distance between what was released and what a candidate record would have released; shape (n,).

    Noise that is Gaussian, independent and equal in every value makes the smaller of two the likelier: on rows as they
    are, and on coordinates in the landmarks' span where records were perturbed before exact rows were computed.
    """
    Y = recording.landmarks
    if what == "gram rows" or perturbed:
        centre = Y.mean(axis=0, dtype=np.float64)
        axes = np.linalg.svd(Y - centre, full_matrices=False)[2].T
        if what == "gram rows":
            seen, axes = values, axes[:, : values.shape[1]]
        else:
            seen = (_reconstruct(what, values, recording, 0.0, 0.0, None) - centre) @ axes
        return np.asarray(np.square(seen - (candidates - centre) @ axes).sum(axis=1))
    rows: Rows = KernelRows(recording.public.kernel) if what == "kernel rows" else DistanceRows()
    return np.asarray(np.square(values - rows.of(candidates, Y)).sum(axis=1))


def _noise(upload: RecordedUpload, ledger: Ledger) -> tuple[float, float]:
    """Return the noise on the rows and on the records that they were computed from, as the ledger has it."""
    event = upload.events[0]
    if isinstance(event, GaussianRelease):
        return event.sigma, 0.0
    if isinstance(event, PostProcessing):
        sources = ledger.events(client=event.client, what=event.of)
        return 0.0, max(each.sigma for each in sources if isinstance(each, GaussianRelease))
    return 0.0, 0.0


def _others(index: NDArray[np.int64], records: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """For each record another one of the run."""
    shifted: NDArray[np.int64] = (index + rng.integers(1, max(records, 2), len(index))) % records
    return shifted


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _number(value: float) -> float | str:
    return "inf" if value == math.inf else value
