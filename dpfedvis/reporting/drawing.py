"""Drawings: figures of numbers as SVG, drawn once for the page and for the file beside it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def svg(figure: Figure) -> str:
    """Return a figure as SVG: the same text for the same figure, whenever it is drawn."""
    from matplotlib import rc_context

    text = io.StringIO()
    # Unless told otherwise, names inside an SVG are random and its date is today.
    with rc_context({"svg.hashsalt": "dpfedvis"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()
