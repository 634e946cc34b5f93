"""What a site computes uploads from: its records, their coordinates in a public subspace, their cells on a map."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accounting.errors import InvalidParameter
from dpfedvis.numerics.exact import AXES_UNIT, check_axes
from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.density import cell_numbers
from dpfedvis.protocol.messages import MALFORMED
from dpfedvis.protocol.published_map import PublishedMap
from dpfedvis.protocol.subspace import Subspace
from dpfedvis.protocol.views import DensityView, SubspaceView, View
from dpfedvis.site.policy import Refusal

Labels = NDArray[np.str_]

# Far above any feature; its square still fits float32.
LARGEST_VALUE = 1e15


def checked_records(site: str, records: Array, labels: Labels | None = None) -> Array:
    """Return the records of a site, with features within ±`LARGEST_VALUE`; raise, at home, for what are none.

    An absurd value must not make a site fail: the failure would reveal it.
    """
    if not isinstance(records, np.ndarray) or records.ndim != 2 or records.dtype.kind not in "fiu":
        found = f"{type(records).__name__} of shape {np.shape(records)}"
        raise InvalidParameter(f"records of {site}", found, "an array of numbers, of shape (records, features)")
    with np.errstate(invalid="ignore"):  # NaN is found by either
        lowest, highest = records.min(initial=0), records.max(initial=0)
    if not (np.isfinite(lowest) and np.isfinite(highest)):
        raise InvalidParameter(f"records of {site}", "nan or inf", "finite numbers")
    if labels is not None and len(labels) != len(records):
        raise InvalidParameter(f"labels of {site}", len(labels), f"one for each of {len(records)} records")
    if lowest >= -LARGEST_VALUE and highest <= LARGEST_VALUE:
        return records
    inside: Array = np.clip(records, -LARGEST_VALUE, LARGEST_VALUE)
    return inside


def view_of(view: View, records: Array, labels: Labels | None) -> Array:
    """Return what uploads are computed from, shape (n, any): each row from one record by itself."""
    if isinstance(view, SubspaceView):
        return view.subspace.coordinates(records)
    return _cells(view, records, labels)


def check_view(view: View, features: int, labels: Labels | None) -> None:
    """Refuse, from public facts, a view that uploads cannot be computed from."""
    if isinstance(view, SubspaceView):
        _check(view.subspace, features)
    elif isinstance(view, DensityView):
        check_map(view.published, features)
        if view.classes and labels is None:
            raise Refusal(MALFORMED, "the records of this site have no labels")
    else:
        raise Refusal(MALFORMED, "the view is of no known kind")


def _cells(view: DensityView, records: Array, labels: Labels | None) -> Array:
    cells = view.grid.cell(view.published.place(records))
    return cell_numbers(cells, view.grid, labels if view.classes else None, view.classes)


def check_map(published: PublishedMap, features: int) -> None:
    """Refuse a map that is not one: of another subspace, or with anchors or places of another shape or far away."""
    _check(published.subspace, features)
    anchors, places = published.anchors, published.places
    if anchors.ndim != 2 or not len(anchors) or anchors.shape[1] != len(published.subspace.variances):
        raise Refusal(MALFORMED, "the anchors of the map have another shape")
    if places.shape != (len(anchors), 2):
        raise Refusal(MALFORMED, "the places of the map have another shape")
    centres = places[:1] if published.centres is None else published.centres
    if centres.ndim != 2 or not len(centres) or centres.shape[1] != 2:
        raise Refusal(MALFORMED, "the centres of the clusters have another shape")
    if max(float(np.abs(each).max()) for each in (anchors, places, centres)) > LARGEST_VALUE:
        raise Refusal(MALFORMED, "the map is too large")


def _check(subspace: Subspace, features: int) -> None:
    """Refuse a subspace that is not finite, or of other features, or whose axes make a record longer."""
    arrays = (subspace.centre, subspace.axes, subspace.variances)
    dimensions = len(subspace.variances)
    if subspace.centre.shape != (features,) or subspace.axes.shape != (features, dimensions):
        raise Refusal(MALFORMED, "the subspace has other features than the records")
    if not dimensions or not all(np.isfinite(each).all() for each in arrays):
        raise Refusal(MALFORMED, "the subspace is empty or not finite")
    if not 0 <= float(np.abs(subspace.centre).max()) <= LARGEST_VALUE or not (
        LARGEST_VALUE**-2 <= float(subspace.variances.sum()) <= LARGEST_VALUE**2
    ):
        raise Refusal(MALFORMED, "the subspace is too small, too large or too far away")
    try:
        check_axes(np.rint(subspace.axes * AXES_UNIT))
    except InvalidParameter:
        raise Refusal(MALFORMED, "the axes of the subspace make records longer") from None
