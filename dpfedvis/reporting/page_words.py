"""What a page says of a run in plain words, from its statement and settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from accounting.rounding import rounded_up
from dpfedvis.reporting.html_parts import Content, Html, escape, shown
from dpfedvis.reporting.run_facts import RunFacts, is_simulation, number

TRUSTED = {
    "local": "each client adds the whole noise itself, and nobody has to be trusted",
    "aggregate": "the server is trusted to see nothing but sums over clients",
    "central": "the server is trusted to see exact uploads and to add the noise",
}
# What those see whom ε is against, under each trust; the first that a run needs holds for all of it.
_SEEN = {
    "central": "what the server publishes",
    "aggregate": "the sums over clients",
    "local": "all that left the clients",
}
_AGAINST = {
    "central": "against whoever sees what a trusted server publishes",
    "aggregate": "against a server that sees sums over clients",
    "local": "against whoever sees the uploads",
}
SCORE_NAMES = {
    "ca": "class accuracy of {k}-NN in the map (CA)",
    "ca_cross": "class accuracy of {k}-NN among other clients' records",
    "npa": "neighbours kept among {k} (NPA)",
    "nmi": "NMI of k-means in the map",
    "ari": "ARI of k-means in the map",
    "silhouette": "silhouette of the k-means labels",
    "trustworthiness": "trustworthiness",
    "continuity": "continuity",
    "mmd": "MMD between records and landmarks (lower is better)",
    "mmd_common": "MMD, at one kernel for all runs on the same records",
    "certificate": "Nyström certificate by record (lower is better)",
    "certificate_common": "Nyström certificate by record, at one kernel for all runs",
}


def what_was_made(facts: RunFacts) -> str:
    """The run in one sentence."""
    config = facts.config
    made = {"tsne": "a t-SNE map", "umap": "a UMAP map", "clusters": f"{config.clusters} clusters"}[config.map]
    stated = facts.statement["facts"]
    landmarks = f" {stated['landmarks']}" if "landmarks" in stated else ""
    return (
        f"{config.clients} clients, whose records stay with them, learned{landmarks} landmarks together "
        f"(mechanism {config.mechanism}), and from them came {made}."
    )


def what_epsilon_means(facts: RunFacts) -> Content:
    """The headline in words."""
    if math.isinf(facts.epsilon):
        open_ = [line for line in facts.statement["releases"] if line["kind"] == "unprotected"]
        named = "; ".join(f"<strong>{escape(line['what'])}</strong> ({escape(line['note'])})" for line in open_)
        return Html(
            f"ε is infinite, because something left the clients without protection: {named}. "
            "No number bounds what can be learned of a record from it."
        )
    if facts.epsilon == 0:
        return "Nothing that depends on a record left any client."
    known, asked = {
        "record": ("all records but one", "that one was"),
        "client": ("all records but those of one client", "those were"),
    }[facts.statement["unit"]]
    change = "replaced by any other" if facts.adjacency == "replace-one" else "taken away"
    seen = f"{_SEEN[_least(facts.statement)]}{_more(facts.statement)}"
    return (
        f"Whoever sees {seen}, and knows {known}, can tell whether {asked} {change} in "
        f"at most {rounded_up(100 * facts.guess, 3)} of 100 even guesses (50 is blind guessing)."
    )


def whom_it_is_against(statement: Mapping[str, Any]) -> str:
    """The adversary of a finite ε, in a few words."""
    return f"{_AGAINST[_least(statement)]}{_more(statement)}"


def what_a_client_can_do(statement: Mapping[str, Any]) -> str | None:
    """What ε is against another client, where clients share the noise."""
    epsilon = number(statement.get("epsilon_against_a_client"))
    if not math.isfinite(epsilon):
        return None
    return (
        "Clients share the noise, and each knows its own share. Against one that takes it off the sums, "
        f"ε = {rounded_up(epsilon)}; against several that work together it is more."
    )


def what_was_released(facts: RunFacts) -> str:
    """What happened with the records themselves."""
    if facts.config.release == "none":
        return (
            "Nothing was released of single records. The server published a map of protected landmarks, and each "
            "client places its own records in it at home."
        )
    if facts.config.release == "noisy":
        return "Each record left as a row of numbers with noise, inside the budget."
    return "Each record left as a row of exact distances or kernel values to the landmarks."


def what_the_budget_covers(facts: RunFacts) -> str | None:
    """The budget, where it says less than one might think."""
    budget = facts.statement["budget"]
    if budget is None:
        return "There was no budget."
    text = f"The budget was ε = {shown(budget['epsilon'])} at δ = {shown(budget['delta'])}"
    if budget["scope"] == "landmarks":
        return (
            f"{text} for the learning of the landmarks only, which is the paper's claim (Thm 6); within that scope "
            f"ε = {rounded_up(facts.in_scope)} was spent. End to end it says nothing."
        )
    return f"{text}, for all releases together."


def what_noise_is_worth(facts: RunFacts) -> Content:
    """The price of noise that guarantees nothing."""
    nominal = number(facts.statement["nominal_epsilon"])
    if math.isnan(nominal):
        return None
    worth = f'<strong data-nominal-epsilon="{nominal!r}">ε = {rounded_up(nominal)}</strong>'
    return Html(
        "The noise on the landmarks has a scale that depends on the data, so it guarantees nothing. Had the scale been "
        f"public, it would have been worth {worth} at δ = {shown(facts.delta)}."
    )


def whether_simulated(facts: RunFacts) -> str:
    """What kind of run it was."""
    if is_simulation(facts.config, facts.statement):
        return "All clients ran on one machine with seeded randomness: this is a simulation, not a release."
    return "The noise came from the operating system and was kept nowhere."


def score_name(key: str) -> str:
    """Return the name of a score for people; a new one stands as it is."""
    head, _, tail = key.rpartition("_")
    if tail.isdigit() and head in SCORE_NAMES:
        return SCORE_NAMES[head].format(k=tail)
    return SCORE_NAMES.get(key, key)


def run_facts(facts: RunFacts) -> dict[str, str]:
    """Public facts, by name."""
    config, stated = facts.config, facts.statement["facts"]
    trusts = _trusts(facts.statement)
    return {
        "clients": str(config.clients),
        "landmarks": str(stated.get("landmarks", "–")),
        "mechanism": str(config.mechanism),
        "rounds": str(len(facts.trace)),
        "release of records": str(config.release),
        "trusted": ", ".join(trusts) or "whoever sees the uploads",
        "source of noise": config.noise if trusts or stated.get("mechanism") != "none" else "no noise",
        "seed": str(config.seed),
    }


def trusted(statement: Mapping[str, Any]) -> list[str]:
    """Sentences on who is trusted, from the lines of a statement."""
    return [f"Trust {name}: {TRUSTED[name]}." for name in _trusts(statement)]


def _trusts(statement: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(line["trust"] for line in statement["releases"] if line["sigma"] is not None))


def _least(statement: Mapping[str, Any]) -> str:
    """The trust model that asks for most trust among those of a run."""
    found = _trusts(statement)
    return next((name for name in _SEEN if name in found), "local")


def _more(statement: Mapping[str, Any]) -> str:
    """What is seen besides, where some releases need less trust than others."""
    found = _trusts(statement)
    return " and what left with all its noise" if len(found) > 1 and "local" in found else ""


def what_was_audited(audit: Mapping[str, Any]) -> str:
    """What an audit and a membership attack on the same code found."""
    guesses = audit["membership"][0]
    return (
        f"An audit of the same code found: {audit['verdict']}. A membership attack by the same {audit['games']} games "
        f"guessed {guesses['found']:.1%} of them right, where the guarantee allows {guesses['allowed']:.1%}."
    )
