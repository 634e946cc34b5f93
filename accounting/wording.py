"""What a statement says in sentences. Each fact about ε is worded here once; statement.md and every page quote it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from accounting.plain_text import on_one_line, without_elements, without_markup
from accounting.rounding import rounded_down, rounded_up
from accounting.sharing import Sharing
from accounting.trust_wording import adversary, trusted

if TYPE_CHECKING:
    from jinja2 import Environment

    from accounting.statement import AllRuns, Statement

STAND_IN = "records (public stand-in)"  # a public fact where the number of records is private
VECTORS = "vectors from a file"  # a public fact: features that were computed elsewhere
SEEDED = "seeded"  # the one noise source that can be taken off again
UNIT = {
    "record": ("one record was", "all other records"),
    "person": ("the records of one person were", "all records of other persons"),
    "client": ("the records of one client were", "all records of the other clients"),
}
_PUBLIC = {
    "record": "The number of clients and, under replace-one, the number of records of each are treated as public.",
    "person": "The number of clients and, under replace-one, the number of persons at each are treated as public.",
    "client": "The number of clients is treated as public.",
}
_NOT_COVERED = (
    "Labels leave a client only in a density by class, which is then listed as a release. Scores computed from private "
    "labels are not covered.",
    "Choosing settings by results on the same records (tuning) costs privacy that no ledger sees.",
    "Other releases of the same records, such as from a copy of them, add up with this one; no ledger here sees them.",
    "The server sees whether and how a client failed in a round.",
)
# Where the scale of a user's own columns comes from, as a warning.
_RANGES = {
    "public": None,
    "measured": "the ranges of the columns were measured on private data: not covered by ε",
    "of the file": "no schema says the public range of each column: a scale that was measured on private data is not "
    "covered by ε",
}
_ARITHMETIC = {
    True: "Uploads with noise are exact integers on a public grid. What rounding and the sampler add is charged.",
    False: "Sensitivities hold in exact arithmetic. Errors of floating-point rounding are charged only for releases on "
    "a grid.",
}


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
    simulation, one_machine
        The two facts that stand wherever ε does, to be joined to it; `short` has both in few words.
    budget, noise, nominal, other_client
        What the budget covers, where the noise came from, what noise without a guarantee would be worth, and ε
        against another client.
    trust, assumptions
        Who is trusted to do what, and what must hold of the records: lists of sentences.
    all_runs
        ε of all runs on the same records.
    features, dealt
        Which public features the records were mapped by, and who made the clients where one table was dealt to them.
    ranges, large_delta, unbounded, more_runs, changed, unsigned
        Warnings.
    """
    return {
        "at": _at(statement),
        "adversary": _adversary(statement),
        "simulation": _simulation(statement),
        "one_machine": _one_machine(statement),
        "short": short(simulation=seeded(statement), one_machine=statement.one_machine),
        "meaning": _meaning(statement),
        "budget": _budget(statement),
        "noise": _noise(statement),
        "nominal": _nominal(statement),
        "trust": _trust(statement),
        "other_client": _other_client(statement),
        "assumptions": _assumptions(statement),
        "all_runs": _all_runs(statement),
        "features": _features(statement),
        "dealt": _dealt(statement),
        "ranges": _RANGES.get(str(statement.facts.get("ranges"))) if statement.trusts else None,
        "large_delta": _large_delta(statement),
        "unbounded": _unbounded(statement),
        "more_runs": _more_runs(statement),
        "changed": _changed(statement),
        "unsigned": _unsigned(statement),
    }


def not_covered(unit: str, *, on_grid: bool) -> list[str]:
    """Return what a statement for this privacy unit says nothing about, and what it says of rounding."""
    return [_PUBLIC[unit], *_NOT_COVERED, _ARITHMETIC[on_grid]]


def markdown(values: Mapping[str, Any]) -> str:
    """Return statement.md of a statement's dictionary."""
    return templates(without_elements).get_template("statement.md").render(values)


def templates(finalize: Callable[[Any], Any] = on_one_line) -> Environment:
    """Return the templates of this package, with filters for numbers that must not look smaller than they are.

    Parameters
    ----------
    finalize : callable
        What is done to each value before it is printed. Names of sites, columns and files come from strangers, and
        remarks and verdict from a server: none of them may begin a line.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined  # takes longer than a closed form

    room = Environment(
        loader=PackageLoader("accounting"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, finalize=finalize,
    )  # fmt: skip
    room.filters["up"] = lambda value, digits=4: "-" if value is None else rounded_up(float(value), digits)
    room.filters["down"] = rounded_down
    room.filters["span"] = _span
    room.filters["cell"] = lambda value: " ".join(str(value).split()).replace("|", "\\|")
    room.filters["plain"] = lambda value: without_markup(str(value))
    return room


def _at(statement: Statement) -> str:
    if math.isinf(statement.end_to_end):
        return "something left the clients without protection"
    return f"at δ = {statement.delta:g}, for one {one(statement)}, {statement.adjacency}"


def one(statement: Statement) -> str:
    """The privacy unit, with what bounds it."""
    rows = (statement.budget or {}).get("rows_per_person")
    if statement.unit != "person" or rows is None:
        return statement.unit
    return f"person with at most {rows} record{'s' * (rows > 1)} taking part"


def seeded(statement: Statement) -> bool:
    """Whether noise can be taken off again."""
    return any(line.noise == SEEDED for line in statement.lines)


def _simulation(statement: Statement) -> str | None:
    if not seeded(statement):
        return None
    return f"Simulation (seeded noise); with real noise this would be ε = {rounded_up(statement.end_to_end)}"


def with_noise(statement: Statement, sentence: str) -> str:
    """Return a sentence about ε; of a simulation it holds only on a condition."""
    return f"With real noise, {sentence[0].lower()}{sentence[1:]}" if seeded(statement) else sentence


def _one_machine(statement: Statement) -> str | None:
    if not statement.one_machine:
        return None
    if math.isinf(statement.end_to_end):
        return "on one machine: whoever ran it held all records"
    return "on one machine: ε holds for what is published, not against whoever ran it"


def short(*, simulation: bool, one_machine: bool) -> str:
    """Return the two facts that stand wherever ε does, in few words; empty if neither holds."""
    facts = [("simulation (seeded noise)", simulation), ("on one machine", one_machine)]
    return ", ".join(text for text, holds in facts if holds)


def seen_by(statement: Statement) -> tuple[str, str]:
    """Return against whom ε holds, and what that adversary sees."""
    return adversary(statement.trusts, _sharings(statement))


def _trust(statement: Statement) -> list[str]:
    return trusted(statement.trusts, _sharings(statement), one_machine=statement.one_machine)


def _sharings(statement: Statement) -> list[Sharing | None]:
    """Return how the noise of sums is shared; None of those that do not say so. One run has one way."""
    return list(dict.fromkeys(each for line in statement.lines for each in line.sharings))


def _adversary(statement: Statement) -> str | None:
    return seen_by(statement)[0] if 0 < statement.end_to_end < math.inf else None


def _meaning(statement: Statement) -> str:
    if math.isinf(statement.end_to_end):
        bare = "; ".join(f"{line.what} ({line.note})" for line in statement.lines if line.kind == "unprotected")
        return f"No number bounds what these unprotected releases reveal about a record: {bare}."
    if not statement.trusts:
        return "Nothing that depends on a record left any client."
    one, others = UNIT[statement.unit]
    change = "replaced by any other" if statement.adjacency == "replace-one" else "left out"
    right = rounded_up(statement.risk.right_guesses, 3)
    most = with_noise(statement, f"On average at most {right} of 100 guesses are right; blind guessing: 50.")
    return f"An adversary sees {seen_by(statement)[1]}, knows {others}, and guesses whether {one} {change}. {most}"


def _budget(statement: Statement) -> str:
    budget = statement.budget
    if budget is None:
        return "There was no budget."
    given = f"Budget: ε = {budget['epsilon']:g}, δ = {budget['delta']:g}, {budget['adjacency']}, per {budget['unit']}"
    where = "" if budget["scope"] == "end-to-end" else " within that scope"
    epsilon = f"ε = {rounded_up(statement.in_scope, 6)}"
    spent = f"With real noise, it would spend {epsilon}{where}." if seeded(statement) else f"Spent{where}: {epsilon}."
    if budget["scope"] == "landmarks":
        return (
            f"{given}, for learning the landmarks only, which is the paper's claim (Thm 6). {spent} "
            "The budget bounds nothing that is released afterwards."
        )
    return f"{given}, for all releases together. {spent}"


def _noise(statement: Statement) -> str:
    sources = {line.noise for line in statement.lines} - {"none"}
    if SEEDED in sources:
        return "This run is a simulation, not a release: the noise was seeded, so that it can be taken off."
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
    against = with_noise(
        statement,
        f"Against a client that subtracts its share from the sums, ε = {rounded_up(epsilon)} end to end; against "
        "several that collude, more.",
    )
    return f"Clients share the noise, and each knows its own share. {against}"


def _assumptions(statement: Statement) -> list[str]:
    """Return what ε rests on, each with what it would be otherwise."""
    if math.isinf(statement.end_to_end) or not statement.trusts:
        return []
    found = []
    if statement.at_two_sites is not None:
        how = "two noises, √2·μ" if statement.trusts == ("local",) else "one sum with one noise, up to 2·μ"
        one = "person at" if statement.unit == "person" else "record at"
        two = f"For a {one} two of them, ε = {rounded_up(statement.at_two_sites)} ({how})."
        found.append(f"Sites are disjoint. {with_noise(statement, two)}")
    elif len({line.clients for line in statement.lines} - {1}):
        found.append("Sites are disjoint. For what two of them hold, ε is larger.")
    if statement.unit == "record":
        found.append(f"A record is one row. {with_noise(statement, _rows(statement))}")
    elif statement.unit == "person":
        found.append("Each person is at one site, under one name there.")
    if (bounds := statement.facts.get("bounds")) is not None:
        found.append(
            f"All features share the public range from {bounds[0]:g} to {bounds[1]:g}. Values outside may be clipped, "
            "which costs accuracy and not privacy."
        )
    units = _units(statement)
    if units is None:
        found.append(
            f"δ = {statement.delta:g} must be far below 1/n. The number n of {statement.unit}s is not known here."
        )
    elif statement.delta <= 1 / units[0]:
        number, name = units
        found.append(f"δ = {statement.delta:g} is small enough: 1/n is {1 / number:.2g}, for n = {number} {name}.")
    return found


def _rows(statement: Statement) -> str:
    """ε for a person with several rows."""
    number = (statement.budget or {}).get("rows_per_person")
    if number is None or number < 3:
        two = "larger" if statement.of_two_rows is None else f"{rounded_up(statement.of_two_rows)} (2·μ)"
        return f"For a person with two rows ε is {two}; with more, more."
    several = "larger" if statement.of_rows is None else f"{rounded_up(statement.of_rows)} ({number}·μ)"
    return f"For a person with {number} rows ε is {several}; with more, more."


def _features(statement: Statement) -> str | None:
    found = statement.facts.get("features")
    if found is None:
        return None
    if found == VECTORS:
        return (
            "Records were replaced by vectors from a file. That each was made from its own record alone, by something "
            "public, is taken on trust."
        )
    return f"Each record was mapped by itself, at home, by public features ({found}), which costs no ε."


def _dealt(statement: Statement) -> str | None:
    found = statement.facts.get("dealt")
    if found is None:
        return None
    return f"The clients are a simulation: records were dealt to them (partition {found})."


def _units(statement: Statement) -> tuple[int, str] | None:
    """Public number of privacy units, and what they are; None where there is none."""
    names = {"record": ("records", STAND_IN), "person": ("persons", STAND_IN), "client": ("clients",)}
    for name in names[statement.unit]:
        if (number := statement.facts.get(name)) is not None:
            return int(number), name
    return None


def _large_delta(statement: Statement) -> str | None:
    units = _units(statement)
    bounded = statement.end_to_end < math.inf and statement.trusts
    if not bounded or units is None or statement.delta <= 1 / units[0]:
        return None
    number, name = units
    return (
        f"δ = {statement.delta:g} is above 1/n = {1 / number:.2g}, for n = {number} {name}: to publish one of them as "
        "it is would satisfy such a δ"
    )


def _all_runs(statement: Statement) -> str | None:
    found = statement.all_runs
    if found is None:
        return None
    knows = (
        "The ledger of these records knows"
        if found.current
        else "When this run ended, the ledger of these records knew"
    )
    if found.runs == 1:
        return f"{knows} of no other run."
    known = f"ε = {rounded_up(found.epsilon)} end to end at δ = {statement.delta:g}"
    return f"{knows} of {found.runs} {_runs(found)}: all together {known}."


def _runs(found: AllRuns) -> str:
    """What the runs in a ledger of records are called; one without protection has no noise to be real."""
    return "runs" if math.isinf(found.epsilon) else "runs with real noise"


def _unbounded(statement: Statement) -> str | None:
    found = statement.all_runs
    if found is None or not (math.isinf(found.epsilon) and math.isinf(statement.end_to_end)):
        return None
    return (
        "this run released something without protection, and that counts for good: all runs on these records together "
        "have ε = ∞ from now on; a simulation, with seeded noise, would not be counted"
    )


def _changed(statement: Statement) -> str | None:
    changed = statement.all_runs is not None and statement.all_runs.changed
    return "the file has changed between runs; taken to be the same records" if changed else None


def _unsigned(statement: Statement) -> str | None:
    names = statement.facts.get("unsigned")
    if not names:
        return None
    whose = "its own ledger" if len(names) == 1 else "their own ledgers"
    return f"no signed receipt of {', '.join(names)}: {whose} may have more than is stated here"


def _more_runs(statement: Statement) -> str | None:
    found = statement.all_runs
    if found is None or found.epsilon <= statement.end_to_end:
        return None
    here, all_runs = rounded_up(statement.end_to_end), rounded_up(found.epsilon)
    return (
        f"these records were in {found.runs} {_runs(found)}: all together ε = {all_runs}, where this run has ε = {here}"
    )


def _span(values: Sequence[float] | None) -> str:
    low, high = ("-", "-") if values is None else (f"{value:.4g}" for value in values)
    return low if low == high else f"{low} to {high}"
