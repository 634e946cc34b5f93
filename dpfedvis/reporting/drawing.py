"""Figures as files. They are drawn on a `Figure` of their own, without pyplot and its global state."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def svg(figure: Figure) -> str:
    """Return a figure as SVG: the same text for the same figure, whenever it is drawn.

    The resolution is that of rasterised points.
    """
    from matplotlib import rc_context

    text = io.StringIO()
    # Unless told otherwise, names inside an SVG are random and its date is today.
    with rc_context({"svg.hashsalt": "dpfedvis"}):
        figure.savefig(text, format="svg", dpi=200, metadata={"Date": None, "Creator": None})
    return text.getvalue()


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure so that the file is there whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    figure.savefig(temporary, format="png", dpi=120, metadata={"Software": None})
    temporary.replace(path)


def plain(text: str) -> str:
    """Return text that matplotlib shows as it is: a dollar sign would begin a formula, and a first underscore hides."""
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")
