"""What a statement says in sentences. Each fact about ε is worded here once; statement.md and every page quote it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from accounting.rounding import rounded_down, rounded_up

if TYPE_CHECKING:
    from accounting.statement import Statement

TRUST = {
    "local": "each client adds all the noise itself, and nobody is trusted",
    "aggregate": "the server is trusted to see only sums over clients, which share the noise",
    "central": "the server is trusted to see exact uploads and to add the noise",
}
# Against whom ε holds, and what that adversary sees. A run has the adversary of the most trust that it needs.
_SEES = {
    "central": ("against whoever sees what a trusted server publishes", "what the server publishes"),
    "aggregate": ("against a server that sees sums over clients", "the sums over clients"),
    "local": ("against whoever sees the uploads", "all uploads"),
}
_UNIT = {
    "record": ("one record was", "all other records"),
    "client": ("the records of one client were", "all records of the other clients"),
}
_PUBLIC = {
    "record": "The number of clients and, under replace-one, the number of records of each are treated as public.",
    "client": "The number of clients is treated as public.",
}
_NOT_COVERED = (
    "Labels leave a client only in a density by class, which is then listed as a release. Scores computed from private "
    "labels are not covered.",
    "Choosing settings by results on the same records (tuning) costs privacy that no ledger sees.",
    "The server sees whether and how a client failed in a round.",
    "Sensitivities hold in exact arithmetic. Errors of floating-point rounding are not charged, except with discrete "
    "noise.",
)


def words(statement: Statement) -> dict[str, Any]:
    """Return every sentence by the name of its fact; None, or an empty list, where there is nothing to say.

    Keys
    ----
    at
        What ε holds at and for: δ, unit, adjacency.
    adversary
        Against whom a finite ε holds.
    meaning
        What ε means for a guess about one record.
    budget, noise, nominal, other_client
        What the budget covers, where the noise came from, what noise without a guarantee would be worth, and ε
        against another client.
    trust
        Who is trusted to do what: a list of sentences.
    """
    return {
        "at": _at(statement),
        "adversary": _adversary(statement),
        "meaning": _meaning(statement),
        "budget": _budget(statement),
        "noise": _noise(statement),
        "nominal": _nominal(statement),
        "trust": _trust(statement),
        "other_client": _other_client(statement),
    }


def not_covered(unit: str) -> list[str]:
    """Return what a statement for this privacy unit says nothing about."""
    return [_PUBLIC[unit], *_NOT_COVERED]


def markdown(values: Mapping[str, Any]) -> str:
    """Return statement.md of a statement's dictionary."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # takes longer than a closed form

    room = Environment(
        loader=PackageLoader("accounting"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip
    room.filters["up"] = lambda value, digits=4: "-" if value is None else rounded_up(float(value), digits)
    room.filters["down"] = rounded_down
    room.filters["span"] = _span
    room.filters["cell"] = lambda value: " ".join(str(value).split()).replace("|", "\\|")
    return room.get_template("statement.md").render(values)


def _at(statement: Statement) -> str:
    if math.isinf(statement.end_to_end):
        return "something left the clients without protection"
    return f"at δ = {statement.delta:g}, for one {statement.unit}, {statement.adjacency}"


def _sees(statement: Statement) -> tuple[str, str]:
    against, seen = _SEES[next((name for name in _SEES if name in statement.trusts), "local")]
    mixed = len(statement.trusts) > 1 and "local" in statement.trusts
    more = " and uploads that carry all of their noise" if mixed else ""
    return against + more, seen + more


def _trust(statement: Statement) -> list[str]:
    if not statement.trusts:
        return ["Everybody who sees the uploads is trusted."]
    simulated = ["The secure sum is simulated."] if "aggregate" in statement.trusts else []
    return [f"Trust {name}: {TRUST[name]}." for name in statement.trusts] + simulated


def _adversary(statement: Statement) -> str | None:
    return _sees(statement)[0] if 0 < statement.end_to_end < math.inf else None


def _meaning(statement: Statement) -> str:
    if math.isinf(statement.end_to_end):
        bare = "; ".join(f"{line.what} ({line.note})" for line in statement.lines if line.kind == "unprotected")
        return f"No number bounds what these unprotected releases reveal about a record: {bare}."
    if statement.end_to_end == 0:
        return "Nothing that depends on a record left any client."
    one, others = _UNIT[statement.unit]
    change = "replaced by any other" if statement.adjacency == "replace-one" else "left out"
    return (
        f"An adversary sees {_sees(statement)[1]}, knows {others}, and guesses whether {one} {change}. "
        f"On average at most {rounded_up(100 * statement.best_guess, 3)} of 100 guesses are right; blind guessing: 50."
    )


def _budget(statement: Statement) -> str:
    budget = statement.budget
    if budget is None:
        return "There was no budget."
    given = f"Budget: ε = {budget['epsilon']:g}, δ = {budget['delta']:g}, {budget['adjacency']}, per {budget['unit']}"
    where = "" if budget["scope"] == "end-to-end" else " within that scope"
    spent = f"Spent{where}: ε = {rounded_up(statement.in_scope, 6)}."
    if budget["scope"] == "landmarks":
        return (
            f"{given}, for learning the landmarks only, which is the paper's claim (Thm 6). {spent} "
            "The budget bounds nothing that is released afterwards."
        )
    return f"{given}, for all releases together. {spent}"


def _noise(statement: Statement) -> str:
    sources = {line.noise for line in statement.lines} - {"none"}
    if "seeded" in sources:
        return "This run is a simulation, not a release: the noise was seeded."
    if sources:
        return "The noise came from the operating system and was not stored."
    return "No upload carries noise with a guarantee."  # there may be noise whose scale depends on the data


def _nominal(statement: Statement) -> str | None:
    if statement.nominal is None:
        return None
    return (
        "The scale of the noise on the landmarks depends on the data, so the noise guarantees nothing. With a public "
        f"scale it would have been worth ε = {rounded_up(statement.nominal, 6)} at δ = {statement.delta:g}."
    )


def _other_client(statement: Statement) -> str | None:
    epsilon = statement.against_a_client
    if epsilon is None or math.isinf(epsilon):
        return None
    return (
        "Clients share the noise, and each knows its own share. Against a client that subtracts its share from the "
        f"sums, ε = {rounded_up(epsilon)} end to end; against several that collude, more."
    )


def _span(values: Sequence[float] | None) -> str:
    low, high = ("-", "-") if values is None else (f"{value:.4g}" for value in values)
    return low if low == high else f"{low} to {high}"
