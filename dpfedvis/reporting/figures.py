"""Pictures of maps. They are drawn on a `Figure` of their own, without pyplot and its global state."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def save_png(figure: Any, path: Path) -> None:
    """Write a figure so that the file is there whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    figure.savefig(temporary, format="png", dpi=120, metadata={"Software": None})
    temporary.replace(path)


def save(figure: Any, path: Path) -> None:
    """Write PATH.png and PATH.svg, each whole or not at all, and the same for the same figure whenever it is drawn."""
    from matplotlib import rc_context

    save_png(figure, path.with_name(path.name + ".png"))
    temporary = path.with_name(path.name + ".svg.tmp")
    # Names inside an SVG are random and its date is today, unless told otherwise.
    with rc_context({"svg.hashsalt": path.name}):
        figure.savefig(temporary, format="svg", dpi=200, metadata={"Date": None, "Creator": None})
    temporary.replace(path.with_name(path.name + ".svg"))


def plain(text: str) -> str:
    """Return text that matplotlib shows as it is: a dollar sign would begin a formula, and a first underscore hides."""
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")
