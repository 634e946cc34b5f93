"""What `dpfedvis audit` prints, and the files that it leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attacks.auditing import AuditResult


def as_text(result: AuditResult) -> str:
    """Return a few lines for people."""
    from accounting.rounding import rounded_down

    counts, claim = result.counts, result.claim
    lines = [f"{result.title}: {result.verdict}", f"  {result.sentence}"]
    for bound in result.bounds:
        share = f", {bound.epsilon / claim.epsilon:.0%} of the claim" if claim.exists else ""
        lines.append(
            f"  {bound.method:<8} ε ≥ {rounded_down(bound.epsilon)}{share}; assumes {', '.join(bound.assumptions)}"
        )
    lines.append(
        f"  {counts.games} canaries, {counts.false_positives + counts.false_negatives} guessed wrong, "
        f"confidence {result.bounds[0].confidence:g}"
    )
    return "\n".join(lines)


def make_folder(name: str) -> Path:
    """Make a folder, or see that it can be written to."""
    from dpfedvis.runs.folder import make

    make(Path(name))
    return Path(name)


def write_audit(
    result: AuditResult, folder: Path, stem: str, facts: Mapping[str, Any] | None = None, further: str = ""
) -> None:
    """Leave a page, a picture and JSON; `facts` stand in the JSON, by default the result's, `further` on the page."""
    from dpfedvis.runs.folder import FolderUnusable

    try:
        result.figure(folder / f"{stem}.png")
    except OSError as error:
        raise FolderUnusable(f"{folder} cannot be written to: {error.strerror}") from error
    numbers = json.dumps(facts or result.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
    page = result.markdown(f"{stem}.png") + (f"\n{further}" if further else "")
    write_texts(folder, {f"{stem}.json": numbers, f"{stem}.md": page})


def write_texts(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files, each whole or not at all."""
    from dpfedvis.numerics.files import write_text
    from dpfedvis.runs.folder import FolderUnusable

    try:
        for name, text in texts.items():
            write_text(folder / name, text.rstrip("\n") + "\n")
    except OSError as error:
        raise FolderUnusable(f"{folder} cannot be written to: {error.strerror}") from error
