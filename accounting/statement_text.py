"""The privacy statement in words, as Markdown."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from accounting.rounding import rounded_up

if TYPE_CHECKING:
    from accounting.statement import Statement

_TRUST = {
    "local": "nobody: each client adds the whole noise itself",
    "aggregate": "the secure sum: the server is trusted to see nothing but sums (simulated here)",
    "central": "the server: it sees exact uploads and adds the noise",
}
_PUBLIC = {
    "record": "The number of clients and, under replace-one, the number of records of each are treated as public.",
    "client": "The number of clients is treated as public.",
}
_NOT_COVERED = (
    "Labels leave a client in a density by class only, which is then among the releases; scores computed from private "
    "labels are not covered.",
    "Choices made by looking at results on the same records (tuning) cost privacy that no ledger sees.",
    "That a client failed in a round, and how, is seen by the server.",
    "Sensitivities hold in exact arithmetic; floating-point rounding is not charged, except for discrete noise.",
)


def not_covered(unit: str) -> tuple[str, ...]:
    """What a statement for this unit does not say anything about, in whole sentences."""
    return _PUBLIC[unit], *_NOT_COVERED


def markdown(statement: Statement) -> list[str]:
    """Return the lines of the statement."""
    lines = ["# Privacy statement", "", f"**{statement.headline}**", ""]
    budget = statement.budget
    if budget is not None:
        lines.append(
            f"Budget: ε = {budget['epsilon']:g}, δ = {budget['delta']:g}, {budget['adjacency']}, per {budget['unit']}, "
            f"scope {budget['scope']}. Spent within that scope: ε = {rounded_up(statement.in_scope, 6)}."
        )
        if budget["scope"] == "landmarks":
            lines.append("That scope covers the learning of the landmarks only, which is the paper's claim (Thm 6).")
    else:
        lines.append("There was no budget.")
    if any(line.noise == "seeded" for line in statement.lines):
        lines.append("The noise was seeded: **this run is a simulation**, not a release.")
    if statement.nominal is not None:
        lines.append(
            "Noise whose scale depends on the data guarantees nothing. Had its scale been public, it would have been "
            f"worth ε = {rounded_up(statement.nominal, 6)} at δ = {statement.delta:g}."
        )
    lines += [line for remark in statement.remarks for line in ("", remark)]
    lines += ["", "## What left the clients", ""]
    lines += [
        "| release | stage | protection | clients | per client | Δ | σ | of μ² | note |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for line in statement.lines:
        sampled = f", sampled at {line.sampling_rate:g}" if line.sampling_rate is not None else ""
        lines.append(
            f"| {line.what} | {line.stage} | {line.kind}{sampled} ({line.noise}) | {line.clients} | {line.per_client} "
            f"| {_shown_range(line.sensitivity)} | {_shown_range(line.sigma)} "
            f"| {'-' if line.share is None else f'{line.share:.1%}'} | {line.note} |"
        )
    trusts = dict.fromkeys(line.trust for line in statement.lines if line.sigma is not None)
    lines += ["", "## Who is trusted", ""]
    lines += [f"- {trust}: {_TRUST[trust]}" for trust in trusts] or ["- Everybody who sees what left the clients."]
    if statement.against_a_client is not None and math.isfinite(statement.against_a_client):
        lines.append(
            "- every client, to keep its share of the noise to itself: against one of the others that sees the sums "
            f"and takes its own share off them, ε = {rounded_up(statement.against_a_client)} end to end, and more "
            "against several that work together"
        )
    lines += [
        "",
        f"## ε in scope at δ = {statement.delta:g}, by accountant",
        "",
        "| accountant | ε | |",
        "|---|---|---|",
    ]
    for name, reading in statement.accountants.items():
        note = reading.reason or ("" if reading.is_bound else "approximation, not a bound")
        lines.append(f"| {name} | {'-' if reading.epsilon is None else rounded_up(reading.epsilon, 6)} | {note} |")
    lines += ["", "## δ(ε) in scope", "", "| δ | ε |", "|---|---|"]
    lines += [f"| {delta:g} | {rounded_up(epsilon, 6)} |" for delta, epsilon in statement.curve]
    if statement.audit is not None:
        lines += ["", *statement.audit.markdown()]
    lines += ["", "## What is not covered", ""] + [f"- {sentence}" for sentence in not_covered(statement.unit)]
    if statement.facts:
        lines += ["", "## Public facts of the run", ""]
        lines += [f"- {name}: {value}" for name, value in statement.facts.items()]
    return lines


def _shown_range(values: tuple[float, float] | None) -> str:
    if values is None:
        return "-"
    low, high = (f"{value:.4g}" for value in values)
    return low if low == high else f"{low} to {high}"
