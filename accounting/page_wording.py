"""The first page of a statement, in sentences: for who must decide and sign, without formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from accounting.events import Unprotected
from accounting.rounding import rounded_up
from accounting.wording import UNIT, one, seeded, seen_by, with_noise

if TYPE_CHECKING:
    from accounting.release_lines import Line
    from accounting.risk_lines import RiskLine
    from accounting.statement import Statement

# Facts that the first page says in its own words.
SAID = ("columns", "data", "heads", "started", "unsigned", "verdict")
_MOST_COLUMNS = 40  # named on one page
# Earlier runs may have trusted others, or allowed other sites to collude: this statement does not know them.
_EVERY_RUN = "only those against whom every one of these runs holds"


def page_words(statement: Statement) -> dict[str, Any]:
    """Return the sentences of the first page by name; None, or an empty list, where there is nothing to say.

    Keys
    ----
    guarantee
        What the guarantee means, in one sentence.
    risk
        Of each of `Statement.risk_rows`: for whom it is, and against whom.
    computed, holders, left
        What was computed for whom and when, from which columns; who holds what; what left each site: lists.
    sites
        Of each site that spent another ε than others: its name and ε, in sentences.
    no_audit
        What to say where no audit is attached.
    signatures
        Who signs: name, entries and head of a ledger.
    said
        Names of the facts that these sentences have already.
    simulation_of_risk
        That the risks are those with real noise, where the noise was seeded.
    """
    return {
        "guarantee": _guarantee(statement),
        "risk": [_whom(line, statement) for line in statement.risk_rows],
        "simulation_of_risk": _of_risk(statement),
        "computed": _computed(statement),
        "holders": _holders(statement),
        "left": [_left(line) for line in statement.lines],
        "sites": _sites(statement),
        "no_audit": _no_audit(statement),
        "signatures": _signatures(statement),
        "said": list(SAID),
    }


def _guarantee(statement: Statement) -> str:
    if not statement.lines:
        return "Nothing left any client."
    if math.isinf(statement.end_to_end):
        bare = list(dict.fromkeys(line.what for line in statement.lines if line.kind == Unprotected.kind))
        what = f"{', '.join(bare)} left without protection" if bare else "the noise is too little for any"
        return f"There is no guarantee: {what}, and no number bounds what that reveals about a {statement.unit}."
    which, others = UNIT[statement.unit]
    change = "replaced by any other" if statement.adjacency == "replace-one" else "left out"
    right = rounded_up(statement.risk.right_guesses, 3)
    return with_noise(
        statement,
        f"Whoever sees {seen_by(statement)[1]}, and knows {others}, guesses right in at most {right} of 100 cases "
        f"whether {which} {change}; blind guessing is right in half of them.",
    )


def _of_risk(statement: Statement) -> str | None:
    if not seeded(statement):
        return None
    return "These are the risks with real noise. The noise was seeded: whoever knows the seed can take it off."


def _whom(line: RiskLine, statement: Statement) -> dict[str, str]:
    """Return for whom a risk is, and against whom."""
    claim = seen_by(statement)[0].removeprefix("against ")
    unit = f"one {one(statement)}"
    of = {
        "rows": f"a person with {line.number} rows",
        "two sites": f"a {'person' if statement.unit == 'person' else 'record'} at two sites",
        "all runs": f"{unit}, all {line.number} runs on these records together",
    }
    against = {"server alone": "the server alone", "another client": "another client"}
    if "runs" not in statement.facts:  # a statement of several runs knows the trust of each
        against["all runs"] = _EVERY_RUN
    return {"of": of.get(line.key, unit), "against": against.get(line.key, claim)}


def _computed(statement: Statement) -> list[str]:
    facts, found = statement.facts, []
    if "runs" in facts:
        found.append(f"{facts['runs']} runs on {facts.get('data') or 'these records'}.")
    elif "estimator" in facts:
        names = facts.get("names")
        whom = f"{facts.get('clients', 'the')} clients" + (f": {', '.join(names)}" if names else "")
        of = f" of {facts['data']}" if facts.get("data") else ""
        what = f"{facts.get('landmarks')} landmarks" if facts.get("landmarks") else "landmarks"
        found.append(f"{facts['estimator']}{of}, from {what} that were learned (mechanism {facts.get('mechanism')}).")
        found.append(f"For and with {whom}.")
    if facts.get("started"):
        found.append(f"Begun {facts['started']}.")
    columns = facts.get("columns")
    if isinstance(columns, int):
        found.append(f"From {columns} columns of numbers, without a schema.")
    elif columns:
        more = f" and {len(columns) - _MOST_COLUMNS} more" if len(columns) > _MOST_COLUMNS else ""
        found.append(f"From the columns {', '.join(columns[:_MOST_COLUMNS])}{more}.")
    return found


def _holders(statement: Statement) -> list[str]:
    if not statement.lines:
        return []
    whole = statement.facts.get("release") == "none"
    if statement.one_machine:
        records = "One process held the records of all clients, and whoever ran it could read them."
    else:
        records = "Each site holds its own records and its ledger; they never left it."
    places = "Where each record lies on the map, its site alone knows." if whole else None
    server = "The server holds what is listed below, what follows from it, and a copy of the ledgers."
    return [each for each in (records, places, server) if each]


def _left(line: Line) -> str:
    times = "once" if line.per_client == 1 else f"{line.per_client} times"
    clients = "one client" if line.clients == 1 else f"each of {line.clients} clients"
    if line.kind == Unprotected.kind:
        how = "without protection"
    elif line.sigma is None:
        how = "computed from what had left with noise"
    else:
        seen = {"aggregate": ", seen only as a sum over clients", "central": ", by a server that is trusted with it"}
        how = f"with noise{seen.get(line.trust, '')}"
    return f"{line.what}: {times} from {clients}, {how}"


def _sites(statement: Statement) -> list[str]:
    """Say what each site spent, where they differ: a site may take part with less."""
    spent = statement.site_epsilons
    if len(set(spent.values())) < 2:
        return []
    return [f"{name}: ε = {rounded_up(epsilon)}" for name, epsilon in sorted(spent.items())]


def _no_audit(statement: Statement) -> str | None:
    if not statement.trusts or math.isinf(statement.end_to_end) or "runs" in statement.facts:
        return None
    return "No audit of these settings is attached. dpfedvis audit --run FOLDER makes one and adds it."


def _signatures(statement: Statement) -> list[dict[str, Any]]:
    heads: dict[str, Sequence[Any]] = statement.facts.get("heads") or {}
    found = [{"name": name, "entries": int(place), "head": str(head)} for name, (place, head) in heads.items()]
    if statement.head is not None:
        entries, head = statement.head
        found.append({"name": "server (mirror)" if heads else "ledger of this run", "entries": entries, "head": head})
    return found
