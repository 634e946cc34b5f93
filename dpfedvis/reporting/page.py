"""Parts of a page about a run that the demo shows too."""

from __future__ import annotations

import math

from accounting.rounding import rounded_up
from dpfedvis.reporting.html_parts import Content, Html, element, shown, table
from dpfedvis.reporting.rendering import span
from dpfedvis.reporting.run_facts import RunFacts
from dpfedvis.reporting.run_report import REPORT as REPORT


def headline(epsilon: float, delta: float, meaning: str) -> Html:
    """Return ε in large letters, and for machines."""
    value = element("span", f"ε = {rounded_up(epsilon)}", class_="value")
    return element(
        "p",
        value,
        element("span", meaning, class_="meaning"),
        class_="headline infinite" if math.isinf(epsilon) else "headline",
        data_epsilon=repr(epsilon),
        data_delta=repr(delta),
    )


def releases_table(facts: RunFacts) -> Html:
    """Return everything that passed the door."""
    rows: list[list[Content]] = []
    for line in facts.statement["releases"]:
        sampled = f", sampled at {shown(line['sampling_rate'])}" if line["sampling_rate"] is not None else ""
        rows.append([
            line["what"], line["stage"], f"{line['kind']}{sampled}", line["noise"], str(line["clients"]),
            str(line["per_client"]), span(line["sensitivity"]), span(line["sigma"]),
            "–" if line["share"] is None else f"{line['share']:.1%}", line["note"],
        ])  # fmt: skip
    head = ["release", "stage", "protection", "noise", "clients", "per client", "Δ", "σ", "of μ²", "note"]
    return table("Everything that passed the door, as the ledger has it", head, rows)
