"""One page that tells the whole story, from collected data to a map that is private end to end.

Every number on it comes from the runs that it is given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from accounting.rounding import rounded_up
from dpfedvis.evaluation.metrics import METRICS
from dpfedvis.evaluation.theory.bound import NORMS, Norm
from dpfedvis.evaluation.theory.study import Case, Study
from dpfedvis.reporting import page_figures
from dpfedvis.reporting.bounds import COLUMNS, pick, size, verdicts
from dpfedvis.reporting.html_parts import (
    Content,
    Html,
    Page,
    details,
    element,
    image,
    link,
    paragraphs,
    section,
    shown,
    table,
    together,
)
from dpfedvis.reporting.page import REPORT, headline, releases_table
from dpfedvis.reporting.palette import looks
from dpfedvis.reporting.run_facts import Cloud, RunFacts, number

_SCORES = ("ca_10", "npa_10", "nmi", "mmd_common")
_KINDS = ("learned", "noisy landmarks")


@dataclass(frozen=True, eq=False)
class Attacked:
    """What came of an attack on one run.

    Parameters
    ----------
    run : str
        Key of the run.
    picture : bytes, optional
        PNG of originals above reconstructions.
    numbers : mapping of str to float
    refused : str
        Why there was nothing to attack, if there was not.
    """

    run: str
    picture: bytes | None = None
    numbers: Mapping[str, float | None] = field(default_factory=dict)
    refused: str = ""


@dataclass(frozen=True, eq=False)
class Story:
    """Everything on the page.

    Parameters
    ----------
    central : Cloud
        t-SNE of the collected records.
    central_scores : mapping of str to float
    runs : mapping of str to RunFacts
        ``exact``, ``plus``, ``noisy``, and private ones in the order in which to show them.
    private : sequence of str
        Keys of the private ones.
    attacks : sequence of Attacked
    study : Study
    cases : sequence of Case
    command : str
        What made it.
    """

    central: Cloud
    central_scores: Mapping[str, float]
    runs: Mapping[str, RunFacts]
    private: Sequence[str]
    attacks: Sequence[Attacked]
    study: Study
    cases: Sequence[Case]
    command: str

    @property
    def names(self) -> dict[str, str]:
        """Names of the runs for people."""
        private = {key: f"private end to end, ε = {rounded_up(self.runs[key].epsilon)}" for key in self.private}
        rows = f"noisy rows, ε = {rounded_up(self.runs['noisy'].epsilon)}"
        return {"exact": "Fed-tSNE, exact distances", "plus": "Fed-tSNE+, the paper's noise", **private, "noisy": rows}


def demo_page(story: Story) -> str:
    """Return the page."""
    page = Page("dpfedvis: the whole story")
    last = story.runs[story.private[-1]]
    header = together(
        element("p", f"dpfedvis demo: {last.config.data}, {last.config.clients} clients", class_="kicker"),
        element("h1", "One map of records that nobody collected"),
        *(
            headline(facts.epsilon, facts.delta, f"end to end, at δ = {shown(facts.delta)}: {name}, {_against(facts)}")
            for facts, name in zip(
                (story.runs[key] for key in story.private), ("a private map", "the same with less noise"), strict=True
            )
        ),
    )
    parts = [
        ("glance", "At a glance", _glance(story)),
        ("maps", "Maps", _maps(page, story)),
        ("plus", "What “+” is worth", _plus(story)),
        ("attack", "The attack", _attack(story)),
        ("public", "What everybody sees", _public(page, story)),
        ("ledger", "Ledger and statement", _ledger(page, story)),
        ("bounds", "Certificate and bounds", _bounds(story)),
        ("again", "Go on", _again(story)),
    ]
    footer = paragraphs("Made by dpfedvis from runs made just before. The page loads nothing and sends nothing.")
    return page.document(header, parts, footer)


def _against(facts: RunFacts) -> str:
    return str(facts.statement["words"]["adversary"])


def _glance(story: Story) -> Html:
    words = (
        "Records sit at clients and may not be collected. The clients learn landmarks together; from the records' "
        "distances to them the server draws a map. This page follows one data set from the map of collected records to "
        "maps that keep a promise to everyone in them. ε is that promise: the smaller, the less anyone can tell of one "
        "record; ∞ is none."
    )
    rows: list[list[Content]] = [["central t-SNE, records collected", math.inf, *_scores(story.central_scores), "–"]]
    for key, name in story.names.items():
        facts = story.runs[key]
        scores = {} if facts.simulation is None else facts.simulation.scores
        more = element("a", "report", href=f"{key}/{REPORT}", data_run=key, data_run_epsilon=repr(facts.epsilon))
        rows.append([name, facts.epsilon, *_scores(scores), more])
    head = ["map", "ε end to end", *(METRICS[key].name for key in _SCORES), "all about it"]
    note = (
        "CA: accuracy of a 10-NN classifier in the map. NPA: share of true neighbours kept. NMI: of k-means with the "
        "classes. MMD: between records and landmarks, at one kernel for all, lower is better. All need records and "
        "labels, so they exist in simulations only, such as this."
    )
    finite = {name: story.runs[key] for key, name in story.names.items() if math.isfinite(story.runs[key].epsilon)}
    against = "; ".join(f"{name}, {_against(facts)}" for name, facts in finite.items())
    trust = f"Whom ε is against: {against}."
    return section("glance", "At a glance", paragraphs(words), table("All maps", head, rows), paragraphs(trust, note))


def _scores(scores: Mapping[str, float]) -> list[Content]:
    return [f"{scores[key]:.3f}" if key in scores else "–" for key in _SCORES]


def _maps(page: Page, story: Story) -> Html:
    clouds: dict[str, tuple[str, str, Cloud]] = {
        "central": (
            "Central t-SNE",
            "All records on one machine: what one would like to see, and may not.",
            story.central,
        )
    }
    captions = {
        "exact": "The paper's Fed-tSNE. Records stay, but their exact distances leave: ε = ∞.",
        "plus": "The paper's Fed-tSNE+: noise on the landmarks, exact distances as before: ε = ∞.",
        "noisy": "Every record leaves as a noisy row. The noise has to hide each single one, so there is much of it.",
    }
    for key, name in story.names.items():
        facts = story.runs[key]
        if facts.simulation is not None:
            text = captions.get(key, "Only protected landmarks leave; each client places its own records at home.")
            clouds[key] = (name, text, facts.simulation.cloud)
    figures = []
    for key, (name, text, cloud) in clouds.items():
        spec = {**page_figures.points(cloud, webgl=False), "compact": True}
        label = f"Map, {name}: {len(cloud.places)} records, coloured by class."
        heading = element("h3", name)
        figures.append(element("div", heading, page.figure(f"map-{key}", spec, label=label, caption=text, tall=True)))
    words = (
        "All records, coloured by class. Labels never leave a client: only a simulation can draw this. With a private "
        "map, each client sees its own points among the anchors, and nobody sees all."
    )
    return section("maps", "Simulation: the same records, side by side", paragraphs(words), _legend(story.central),
                   element("div", *figures, class_="gallery"), kind="past-the-door")  # fmt: skip


def _legend(cloud: Cloud) -> Html | None:
    if "class" not in cloud.groupings:
        return None
    names = cloud.groupings["class"].names
    items = [
        element("li", element("span", look.glyph, class_="mark", aria_hidden="true",
                              style=f"--light:{look.light};--dark:{look.dark}"), f" {name}")
        for name, look in zip(names, looks(len(names)), strict=True)
    ]  # fmt: skip
    return element("ul", *items, class_="key", aria_label="Colours of classes")


def _plus(story: Story) -> Html:
    facts = story.runs["plus"]
    nominal = number(facts.statement["nominal_epsilon"])
    beta = shown(facts.config.beta)
    return section(
        "plus",
        "What the paper's “+” is worth",
        paragraphs(
            f"The paper adds noise of β = {beta} times the gradient's own standard deviation, and reports β. That "
            "scale is made from the data, so it proves nothing. Had it been public, the noise would have been worth:"
        ),
        element(
            "p",
            element("span", f"ε = {rounded_up(nominal)}", class_="value"),
            element("span", f"nominal, for the landmarks alone, at δ = {shown(facts.delta)}", class_="meaning"),
            class_="headline infinite",
            data_nominal_epsilon=repr(nominal),
        ),
        paragraphs(
            "And end to end ε = ∞: after the landmarks, the exact distances of every record are uploaded, and they are "
            "the record, as the next section shows."
        ),
        paragraphs(Html(f"More in {link(f'plus/{REPORT}', 'its report').text}.")),
    )


def _attack(story: Story) -> Html:
    parts: list[Content] = [
        paragraphs(
            "An honest-but-curious server takes each uploaded row and the landmarks, and solves for the record: linear "
            "algebra, no training. Originals above, which only a simulation can show; reconstructions below."
        )
    ]
    for found in story.attacks:
        name = story.names[found.run]
        parts.append(element("h3", name[0].upper() + name[1:]))
        if found.picture is None:
            parts.append(paragraphs(f"There is nothing to attack: {found.refused}."))
            continue
        error, blind = found.numbers["relative error"], found.numbers["error without rows"]
        recognised = found.numbers["recognised"]
        text = (
            f"Relative error {shown(error, 3)}; without any row it is {shown(blind, 3)}. The nearest true record is "
            f"the right one for {shown(None if recognised is None else 100 * recognised, 3)} % of the records."
        )
        picture = image(found.picture, f"Ten digits above their reconstructions from {name}. {text}")
        figure = element("figure", picture, element("figcaption", text), data_attack=found.run,
                         data_relative_error=repr(error), data_recognised=repr(recognised))  # fmt: skip
        parts.append(figure)
    return section("attack", "The attack: distances are the data", *parts, kind="past-the-door")


def _public(page: Page, story: Story) -> Html:
    key = next((each for each in reversed(story.private) if story.runs[each].density is not None), story.private[-1])
    facts = story.runs[key]
    if facts.density is None:
        return section("public", "What everybody sees", paragraphs("No density was released."))
    spec = page_figures.density(facts.density, facts.cloud.places)
    caption = (
        f"Noisy share of all records in each cell, smoothed, over the anchors that stand for the landmarks. It is "
        f"inside the same ε = {rounded_up(facts.epsilon)}, and may be published."
    )
    label = "Interactive heat map: density of all records over the anchors, for all and for each class."
    return section(
        "public", "What everybody sees", page.figure("public", spec, label=label, caption=caption, tall=True)
    )


def _ledger(page: Page, story: Story) -> Html:
    key = story.private[-1]
    facts = story.runs[key]
    spec = page_figures.spent(facts.steps, facts.config.epsilon)
    words = (
        "Nothing leaves a client but through one door, which writes it to the ledger first and refuses what would "
        f"break the budget. This is the ledger of “{story.names[key]}”."
    )
    label = f"Line: ε so far rises to {rounded_up(facts.in_scope)} over {len(facts.steps)} releases."
    figure = None if spec is None else page.figure("spent", spec, label=label, caption="ε after each release.")
    statement = details("The privacy statement in full", element("pre", facts.words))
    sentences = [words, facts.statement["words"]["meaning"], facts.statement["words"]["other_client"]]
    told = paragraphs(*(each for each in sentences if each is not None))
    return section("ledger", "Ledger and statement", told, figure, releases_table(facts), statement)


def _bounds(story: Story) -> Html:
    certificate = story.runs["exact"].certificate
    parts: list[Content] = []
    if certificate is not None:
        parts.append(paragraphs(
            "From the uploads of the exact run alone, the server can prove ‖K − K̂‖ ≤ "
            f"{rounded_up(certificate.bound)} for its kernel estimate, where ‖K‖ ≤ n = {certificate.trivial:.0f} holds "
            "anyway."
        ))  # fmt: skip
    study = story.study
    parts.append(paragraphs(
        f"Bounds beside the truth, on {len(study.X)} records of the same data: the certificate and the bound by the "
        "MMD are ours, the others are the paper's, repaired and as printed."
    ))  # fmt: skip
    for norm in NORMS:
        rows: list[list[Content]] = []
        for case in story.cases:
            if case.kind in _KINDS:
                bounds = [_bound(case, column, norm) for column in COLUMNS]
                trivial = pick(case, "certificate", norm).trivial
                noise = f", σ = {shown(case.sigma)}" if case.sigma else ""
                rows.append([f"{case.kind}{noise}", str(case.landmarks), size(case.truth, norm), *bounds, trivial])
        head = ["landmarks are", "n_y", "truth", *COLUMNS, "trivial"]
        parts.append(table(f"‖K̂ − K‖, {norm} norm; † below the truth, so false here", head, rows))
    parts.append(details("Which bounds say something",
                         element("ul", *(element("li", each) for each in verdicts(story.cases)))))  # fmt: skip
    return section("bounds", "Certificate and bounds", *parts)


def _bound(case: Case, column: str, norm: Norm) -> str:
    bound = pick(case, column, norm)
    if bound.value is None or not math.isfinite(bound.value):
        return "no statement"
    false = " †" if bound.below(size(case.truth, norm)) else ""
    return f"{'≥ ' if bound.is_floor else ''}{shown(bound.value)}{false}"


def _again(story: Story) -> Html:
    items = [element("li", link(f"{key}/{REPORT}", name)) for key, name in story.names.items()]
    return section(
        "again",
        "Go on",
        paragraphs("Each run has a report of its own, with settings, ledger, statement and figures for papers:"),
        element("ul", *items),
        paragraphs(Html(f"This page was made by <code>{element('span', story.command).text}</code>.")),
    )
