"""What a site computes uploads from: its records, their coordinates in a public subspace, their cells on a map."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpfedvis.numerics.exact import AXES_UNIT, check_axes
from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.density import cell_numbers
from dpfedvis.protocol.messages import MALFORMED
from dpfedvis.protocol.subspace import Subspace
from dpfedvis.protocol.views import DensityView, SubspaceView, View
from dpfedvis.site.policy import Refusal

Labels = NDArray[np.str_]

# Far above any feature; its square still fits float32.
LARGEST_VALUE = 1e15


def within(records: Array) -> Array:
    """Return records whose features are within ±`LARGEST_VALUE`.

    An absurd value must not make a site fail: the failure would reveal it.
    """
    if float(np.abs(records).max(initial=0.0)) <= LARGEST_VALUE:
        return records
    inside: Array = np.clip(records, -LARGEST_VALUE, LARGEST_VALUE)
    return inside


def view_of(view: View, records: Array, labels: Labels | None) -> Array:
    """Return what uploads are computed from, shape (n, any): each row from one record by itself."""
    if isinstance(view, SubspaceView):
        _check(view.subspace, records.shape[1])
        return view.subspace.coordinates(records)
    _check(view.published.subspace, records.shape[1])
    if view.classes and labels is None:
        raise Refusal(MALFORMED, "the records of this site have no labels")
    return _cells(view, records, labels)


def _cells(view: DensityView, records: Array, labels: Labels | None) -> Array:
    cells = view.grid.cell(view.published.place(records))
    return cell_numbers(cells, view.grid, labels if view.classes else None, view.classes)


def _check(subspace: Subspace, features: int) -> None:
    """Refuse a subspace that is not finite, or of other features, or whose axes make a record longer."""
    arrays = (subspace.centre, subspace.axes, subspace.variances)
    dimensions = len(subspace.variances)
    if subspace.centre.shape != (features,) or subspace.axes.shape != (features, dimensions):
        raise Refusal(MALFORMED, "the subspace has other features than the records")
    if not all(np.isfinite(each).all() for each in arrays):
        raise Refusal(MALFORMED, "the subspace is not finite")
    check_axes(np.rint(subspace.axes * AXES_UNIT))
