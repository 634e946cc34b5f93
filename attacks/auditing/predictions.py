"""What a client's upload is before its noise, in exact integers: the adversary computes it as the client does."""

from __future__ import annotations

import numpy as np

from dpfedvis.mechanisms import Mechanism, PreparedRecords
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.exact import Integers
from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.noise_plan import MEAN_CELLS, SitePlan


def exact_total(
    mechanism: Mechanism, public: PublicParameters, local: PreparedRecords, Y: Array, plan: SitePlan | None = None
) -> Integers:
    """Return the integers that the noise is added to, in cells of the event's grid; of the shape of the upload.

    Parameters
    ----------
    mechanism : Mechanism
        With protected uploads.
    public : PublicParameters
    local : PreparedRecords
    Y : array of shape (n_y, m)
    plan : SitePlan, optional
        Has what a client's records count for, and whether it divides by their number; a plain sum without one.
    """
    grid = mechanism.grid(public, Y)
    total = mechanism.total(local, Y, public, grid, 1.0 if plan is None else plan.factor)
    if plan is None:
        return total
    dropped = plan.bits_dropped(mechanism.cell(public, grid))
    if plan.mean:
        return np.trunc(total / max(len(local.records), 1) * (MEAN_CELLS * 2.0**-dropped)).astype(np.int64)
    return total >> dropped
