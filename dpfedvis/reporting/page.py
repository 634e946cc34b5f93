"""report.html: one file about one run, that opens anywhere and asks nobody for anything.

It is made from the run's folder alone, so that it can be made again. What lies past the door is in a section of its
own, for simulations only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from accounting.rounding import rounded_up
from dpfedvis.reporting import page_figures, page_words
from dpfedvis.reporting.html_parts import (
    Content,
    Html,
    Page,
    details,
    element,
    link,
    paragraphs,
    section,
    shown,
    table,
    together,
)
from dpfedvis.reporting.run_facts import RunFacts, number
from dpfedvis.runs.results import SIMULATION

REPORT = "report.html"
_ROUGHLY = "approximation, not a bound"
_SOURCES = ("started", "commit", "seed", "python", "machine")


def report(facts: RunFacts) -> str:
    """Return the page."""
    page = Page(facts.title)
    parts = [
        ("words", "In plain words", _words(facts)),
        ("map", "Map", _map(page, facts)),
        ("budget", "Budget", _budget(page, facts)),
        ("releases", "What left the clients", _releases(facts)),
        ("convergence", "Convergence", _convergence(page, facts)),
        ("certificate", "Certificate", _certificate(facts)),
        ("simulation", "Simulation", _simulation(page, facts)),
        ("statement", "Statement", _statement(facts)),
        ("settings", "Settings and origin", _settings(facts)),
    ]
    footer = paragraphs(
        "Made by dpfedvis from the run's folder. The page is complete in itself: it loads nothing and sends nothing."
    )
    return page.document(_header(facts), [(key, name, part) for key, name, part in parts if part is not None], footer)


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


def _header(facts: RunFacts) -> Html:
    words = facts.statement["words"]
    against = f", {words['adversary']}" if words["adversary"] else ""
    meaning = f"end to end{':' if math.isinf(facts.epsilon) else ','} {words['at']}{against}"
    return together(
        element("p", "dpfedvis run", class_="kicker"),
        element("h1", facts.title),
        headline(facts.epsilon, facts.delta, meaning),
    )


def _words(facts: RunFacts) -> Html:
    cards = [Html(f"<div>{element('dt', name).text}{element('dd', value).text}</div>")
             for name, value in page_words.run_facts(facts).items()]  # fmt: skip
    words = facts.statement["words"]
    nominal = facts.statement["nominal_epsilon"]
    sentences: list[Content] = [
        page_words.what_was_made(facts),
        page_words.what_was_released(facts),
        words["meaning"],
        words["budget"],
        element("span", words["nominal"], data_nominal_epsilon=repr(nominal)) if words["nominal"] else None,
        *words["trust"],
        words["other_client"],
        *(str(each).replace("**", "") for each in facts.statement["remarks"]),
        words["noise"],
    ]
    return section(
        "words",
        "In plain words",
        paragraphs(*(each for each in sentences if each is not None)),
        element("dl", *cards, class_="facts"),
    )


def _map(page: Page, facts: RunFacts) -> Html:
    cloud = facts.cloud
    count = f"{len(cloud.places):,} {cloud.noun}s".replace(",", " ")
    if facts.density is not None:
        shown_at = "the density of all clients' records, with noise, over the anchors"
        spec = page_figures.density(facts.density, cloud.places)
        caption = (
            f"{count} stand for the landmarks. Colours: noisy share of all records in a cell, smoothed; noise alone "
            f"makes about {shown(spec['noise'], 2)} %. All of it is public."
        )
    elif cloud.noun == "anchor":
        shown_at = "the anchors, which stand for the landmarks"
        spec = page_figures.points(cloud)
        caption = (
            f"{count}, which stand for the protected landmarks. Records are not shown: each client places its own at "
            "home. A density of records can be released with --density."
        )
    else:
        shown_at = "all records"
        spec = page_figures.points(cloud)
        caption = f"{count}, as the server places them. It knows whose record each is, and no label."
    figure = page.figure("map", spec, label=f"Interactive map of {shown_at}: {count}.", caption=caption, tall=True)
    return section("map", "Map: what the server has", figure)


def _budget(page: Page, facts: RunFacts) -> Html:
    budget = facts.statement["budget"]
    limit = None if budget is None else float(budget["epsilon"])
    steps = page_figures.spent(facts.steps, limit)
    rows: list[list[Content]] = [
        [each.label, each.stage, rounded_up(each.in_scope), rounded_up(each.end_to_end)] for each in facts.steps
    ]
    spent: list[Content] = [element("h3", "Spent, release by release")]
    if steps is None:
        first = next((each.label for each in facts.steps if math.isinf(each.end_to_end)), "the first release")
        spent.append(paragraphs(f"There is nothing to draw: ε is ∞ from “{first}” on."))
    else:
        caption = "ε so far, of the client that has spent most. Clients hold different records, so nothing adds up."
        label = (
            f"Line: ε so far rises to {rounded_up(facts.in_scope)} in scope and {rounded_up(facts.epsilon)} end to end."
        )
        spent.append(page.figure("spent", steps, label=label, caption=caption))
    spent.append(details("All steps as a table", table(
        f"ε after each release, at δ = {shown(facts.delta)}", ["release", "stage", "in scope", "end to end"], rows
    )))  # fmt: skip
    return section(
        "budget",
        "Budget",
        together(*spent),
        element("div", _accountants(page, facts), _curve(page, facts), class_="side"),
    )


def _accountants(page: Page, facts: RunFacts) -> Html:
    readings: dict[str, dict[str, Any]] = facts.statement["accountants"]
    parts: list[Content] = [element("h3", "ε by accountant")]
    spec = page_figures.accountants(readings)
    rows: list[list[Content]] = [
        [
            name,
            rounded_up(number(each["epsilon"])),
            each["reason"] or ("" if each["is_bound"] else "approximation, not a bound"),
        ]
        for name, each in readings.items()
    ]
    body = table(f"ε in scope at δ = {shown(facts.delta)}, by accountant", ["accountant", "ε", "note"], rows)
    if spec is None:
        parts.append(paragraphs("No accountant has a finite ε for what was released."))
    else:
        approximate = any(not each["is_bound"] and each["epsilon"] is not None for each in readings.values())
        caption = "The same releases, read in different ways." + (f" * {_ROUGHLY}." if approximate else "")
        parts.append(page.figure("accountants", spec, label="Bars: ε by accountant; see the table.", caption=caption))
    return element("div", *parts, details("As a table, with reasons", body))


def _curve(page: Page, facts: RunFacts) -> Html:
    parts: list[Content] = [element("h3", "δ as a function of ε")]
    spec = page_figures.privacy(facts.curve, (facts.in_scope, facts.delta))
    if spec is None:
        parts.append(paragraphs("There is none: what was released in scope is not protected."))
        return element("div", *parts)
    caption = "One and the same protection; (ε, δ) is a point that one chooses on this line. In scope."
    parts.append(page.figure("curve", spec, label="Line: δ falls as ε rises; see the table.", caption=caption))
    rows: list[list[Content]] = [
        [shown(delta, 2), rounded_up(number(epsilon))] for delta, epsilon in facts.statement["curve"]
    ]
    return element("div", *parts, details("As a table", table("ε in scope at several δ", ["δ", "ε"], rows)))


def releases_table(facts: RunFacts) -> Html:
    """Return everything that passed the door."""
    rows: list[list[Content]] = []
    for line in facts.statement["releases"]:
        sampled = f", sampled at {shown(line['sampling_rate'])}" if line["sampling_rate"] is not None else ""
        rows.append([
            line["what"], line["stage"], f"{line['kind']}{sampled}", line["noise"], str(line["clients"]),
            str(line["per_client"]), _range(line["sensitivity"]), _range(line["sigma"]),
            "–" if line["share"] is None else f"{line['share']:.1%}", line["note"],
        ])  # fmt: skip
    head = ["release", "stage", "protection", "noise", "clients", "per client", "Δ", "σ", "of μ²", "note"]
    return table("Everything that passed the door, as the ledger has it", head, rows)


def _releases(facts: RunFacts) -> Html:
    return section(
        "releases",
        "What left the clients",
        releases_table(facts),
        element("h3", "What is not covered"),
        element("ul", *(element("li", each) for each in facts.statement["not_covered"])),
    )


def _convergence(page: Page, facts: RunFacts) -> Html:
    trace = facts.trace
    if len(trace) < 2:
        text = "The landmarks were learned in a single round, so that there is no course to draw."
        return section("convergence", "Convergence", paragraphs(text))
    moved = page_figures.rounds(trace, 1, "step, Frobenius", log=bool((trace[:, 1] > 0).all()))
    label = f"Line: the step is {shown(trace[0, 1])} in the first round and {shown(trace[-1, 1])} in the last."
    figures = [page.figure("step", moved, label=label, caption="How far each round moved the landmarks.")]
    if not math.isnan(trace[-1, 2]):
        change = page_figures.rounds(trace, 2, "F(Y) − F(start), estimate", log=False)
        figures.append(page.figure(
            "change", change, label=f"Line: the estimated change of the objective is {shown(trace[-1, 2])} at the end.",
            caption="Change of the objective, estimated from what passed the door; noise makes it rough.",
        ))  # fmt: skip
    rows: list[list[Content]] = [[str(int(row[0])), float(row[1]), float(row[2])] for row in trace]
    numbers = details("All rounds as a table", table("Rounds", ["round", "step", "change"], rows))
    return section("convergence", "Convergence", element("div", *figures, class_="side"), numbers)


def _certificate(facts: RunFacts) -> Html | None:
    found = facts.certificate
    if found is None:
        return None
    whose = "the noisy records" if found.perturbed else "the records"
    text = (
        f"The server can prove from the {found.rows} alone how far its Nyström estimate K̂ is from the kernel matrix K "
        f"of {whose}: ‖K − K̂‖ ≤ tr(K − K̂), in the spectral and in the Frobenius norm. Without any computation, "
        "‖K‖ ≤ n holds."
    )
    rows: list[list[Content]] = [
        ["certificate, tr(K − K̂)", found.bound],
        ["trivial bound, n", found.trivial],
        ["certificate by record", found.bound / found.trivial],
    ]
    return section("certificate", "Certificate", paragraphs(text), table("Error of the kernel estimate", [], rows))


def _simulation(page: Page, facts: RunFacts) -> Html | None:
    if facts.simulation is None:
        return None
    cloud, scores = facts.simulation.cloud, facts.simulation.scores
    count = f"{len(cloud.places):,} records".replace(",", " ")
    by = " and ".join(cloud.groupings)
    figure = page.figure(
        "places", page_figures.points(cloud), label=f"Interactive map of {count}, coloured by {by}.",
        caption=f"All {count} of all clients, coloured by {by}. Click a group to hide it.", tall=True,
    )  # fmt: skip
    rows: list[list[Content]] = [[page_words.score_name(key), float(value)] for key, value in scores.items()]
    return section(
        "simulation",
        "Simulation: in a real federation nobody sees this",
        paragraphs(
            "Labels never leave a client, and with release none the places of records do not either. Because this run "
            "was a simulation on one machine, both are at hand to judge the map. Nothing in this box is protected, "
            "and no ε covers it."
        ),
        figure,
        table("Scores, from records and labels", ["score", "value"], rows) if rows else None,
        kind="past-the-door",
    )


def _statement(facts: RunFacts) -> Html:
    audit = facts.statement.get("audit")
    verdict = [] if audit is None else [paragraphs(*(each.replace("**", "") for each in audit["words"].values()))]
    files = paragraphs(Html(f"It stands in {link('statement.md', 'statement.md').text}, and for machines in "
                            f"{link('statement.json', 'statement.json').text}."))  # fmt: skip
    full = details("The statement in full", element("pre", facts.words))
    return section("statement", "Privacy statement", paragraphs(facts.statement["headline"]), *verdict, files, full)


def _settings(facts: RunFacts) -> Html:
    origin = facts.provenance
    rows: list[list[Content]] = [[name, _text(origin.get(name))] for name in _SOURCES]
    rows += [[name, str(found)] for name, found in origin.get("packages", {}).items()]
    again = "dpfedvis run --config config.toml --out again"
    note = (
        "Since all randomness is seeded, that gives the same run."
        if facts.config.noise == "seeded"
        else "Its noise will be other noise, and it spends another budget."
    )
    figures = f"Figures for papers, PNG and SVG, are in figures/{_more(facts)}."
    return section(
        "settings",
        "Settings and origin",
        paragraphs(Html(f"In this folder, <code>{again}</code> runs it again. {note}"), figures),
        details("All settings (config.toml)", element("pre", facts.toml)),
        details("Versions", table("What made it", [], rows)),
        paragraphs("No hash of the data is on this page: it would confirm a guess of the whole file."),
    )


def _more(facts: RunFacts) -> str:
    return "" if facts.simulation is None else f" and {SIMULATION}/figures/"


def _range(values: Sequence[float] | None) -> str:
    if values is None:
        return "–"
    low, high = (shown(each) for each in values)
    return low if low == high else f"{low} to {high}"


def _text(value: object) -> str:
    return "–" if value is None else str(value)
