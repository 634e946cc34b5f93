"""Sensitivities worked out a second time, apart from the code that is audited: what an event must state at least.

For replacing one record of n, or a whole client, which counts as one record. Formulas of `accounting.sensitivity`'s
proofs, written out.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from accounting import GaussianRelease
from attacks.auditing.findings import Checked, Finding
from dpfedvis.mechanisms import ClippedGradientPerturbation, InputPerturbation, Mechanism
from dpfedvis.mechanisms.public_parameters import PublicParameters

_ROUNDING = 1e-9


def reference(mechanism: Mechanism, public: PublicParameters, records: float) -> float | None:
    """Return the least sensitivity of a mean over so many records; None for a mechanism that is not known here."""
    known: dict[str, Callable[[], float]] = {
        "gradient": lambda: _gradient(public) / records,
        "clipped": lambda: _gradient(public) / records * _clip(mechanism),
        "variable": lambda: _gradient(public) / records * public.step_size,
        "mean-embedding": lambda: 2 / records,
        "k-means": lambda: 2 / records,
        "moments": lambda: 2 / records,
        "second-moments": lambda: math.sqrt(2) / records,
        "scale-histogram": lambda: 2 / records,
        "grid-counts": lambda: math.sqrt(2) / records,
        "input": lambda: 2 * mechanism.tau_x if isinstance(mechanism, InputPerturbation) else 0.0,
    }
    found = known.get(mechanism.name)
    return None if found is None else found()


def check_sensitivity(
    event: GaussianRelease,
    mechanism: Mechanism,
    public: PublicParameters,
    records: float,
    weight: float = 1.0,
    rounded: int | None = None,
) -> Checked:
    """Check what an event states.

    Parameters
    ----------
    event : GaussianRelease
    mechanism : Mechanism
    public : PublicParameters
    records : float
        n_p; 1 where the unit is a client.
    weight : float
        ω_p where the server sees a weighted sum, else 1.
    rounded : int, optional
        Values that were rounded one by one, by default those of the mechanism: each adds a cell.
    """
    least = reference(mechanism, public, records)
    if least is None:
        return Checked()
    if rounded is None:
        rounded = 1 if mechanism.name == "moments" else 0  # of the squared norm
    least = weight * least + (event.grid or 0.0) * math.sqrt(rounded)
    if event.sensitivity >= least * (1 - _ROUNDING):
        return Checked()
    words = f"The stated sensitivity of {event.what} is {event.sensitivity:.6g}; it is {least:.6g} at least."
    return Checked(0, (Finding("sensitivity", event.what, 0.0, words),))


def _gradient(public: PublicParameters) -> float:
    """8√(γ/2e)/√n_y for one record, the mean over the bandwidths: ‖(x − y)e^{−γ‖x−y‖²}‖ ≤ 1/√(2eγ)."""
    gammas = public.kernel.gammas
    mean = math.fsum(8 * math.sqrt(gamma / (2 * math.e)) for gamma in gammas) / len(gammas)
    return mean / math.sqrt(public.landmarks)


def _clip(mechanism: Mechanism) -> float:
    return mechanism.clip if isinstance(mechanism, ClippedGradientPerturbation) else 1.0
