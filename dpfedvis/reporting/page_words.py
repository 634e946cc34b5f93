"""What a page says of a run in plain words, from its statement and settings."""

from __future__ import annotations

from dpfedvis.evaluation.metrics import METRICS
from dpfedvis.reporting.run_facts import RunFacts


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


def score_name(key: str) -> str:
    """Return the full name of a score; the key itself for a metric that this version does not know."""
    return METRICS[key].title if key in METRICS else key


def run_facts(facts: RunFacts) -> dict[str, str]:
    """Public facts, by name."""
    config, stated = facts.config, facts.statement["facts"]
    trusts = facts.statement["trusts"]
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
