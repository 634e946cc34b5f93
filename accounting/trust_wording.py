"""What a statement says of trust: against whom ε holds, and how sums over sites and their noise are shared."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.sharing import Sharing

TRUST = {
    "local": "each client adds all the noise itself, and nobody is trusted",
    "aggregate": "only sums over clients are seen, which share the noise",
    "central": "the server is trusted to see exact uploads and to add the noise",
}
# Against whom ε holds, and what that adversary sees. A run has the adversary of the most trust that it needs.
_SEES = {
    "central": ("against whoever sees what a trusted server publishes", "what the server publishes"),
    "aggregate": ("against a server that sees sums over clients{}", "the sums over clients{}"),
    "local": ("against whoever sees the uploads", "all uploads"),
}
Ways = Sequence[Sharing | None]  # how the noise of sums is shared; None of those that do not say so


def adversary(trusts: Sequence[str], ways: Ways) -> tuple[str, str]:
    """Return against whom ε holds, and what that adversary sees."""
    against, seen = _SEES[next((name for name in _SEES if name in trusts), "local")]
    colluders = _fewest_colluders(ways)
    together = f" and any {colluders} of them together" if colluders else ""
    against = against.format(together if colluders != 1 else " and any one of them")
    known = " and what one of them knows" if colluders == 1 else f" and what {colluders} of them know"
    seen = seen.format(known if colluders else "")
    mixed = len(trusts) > 1 and "local" in trusts
    more = " and uploads that carry all of their noise" if mixed else ""
    return against + more, seen + more


def trusted(trusts: Sequence[str], ways: Ways, *, one_machine: bool) -> list[str]:
    """Return who is trusted to do what."""
    if not trusts:
        return ["Everybody who sees the uploads is trusted."]
    sentences = [f"Trust {name}: {TRUST[name]}." for name in trusts]
    if one_machine:
        sentences.append(
            "One process held the records of all sites, so that trust between them was neither needed nor tested."
        )
    if "aggregate" in trusts:
        sentences += _of_sums(ways, one_machine=one_machine)
    return sentences


def _fewest_colluders(ways: Ways) -> int:
    """Return how many sites may work together in every sum: ε, of all of them, holds against so many."""
    return min((0 if each is None else each.colluders for each in ways), default=0)


def _of_sums(ways: Ways, *, one_machine: bool) -> list[str]:
    """What is said of sums: how they were formed, who may drop out or collude, and what that costs."""
    if one_machine:
        formed = "Sums were formed in the clear, on one machine."
    else:
        formed = (
            "Sums were formed by a secure sum among the sites (Bonawitz et al. 2017): the server sees masked uploads. "
            "It does not hide who took part, and does not bound what a site adds."
        )
    dropping = [] if list(ways) == [None] else ["That a site drops out must not depend on one record."]
    together = [f"ε, of all of them, holds {_against(_fewest_colluders(ways))}."] if len(ways) > 1 else []
    said = [_shared_by(each, clear=one_machine, alone=len(ways) == 1) for each in ways]
    return [formed, *said, *together, *dropping]


def _against(colluders: int) -> str:
    if not colluders:
        return "against the server alone: a site that works with it takes its own noise off"
    sites = "any one site" if colluders == 1 else f"any {colluders} sites"
    return f"against the server and {sites} together with it"


def _shared_by(sharing: Sharing | None, *, clear: bool, alone: bool) -> str:
    """What one way to share noise means; `alone`, it is that of all sums."""
    holds = "ε holds" if alone else "Its noise is enough"
    if sharing is None:
        return f"A sum of all sites has the noise that ε needs. {holds} {_against(0)}."
    P, t = sharing.parties, sharing.threshold
    where = "Between processes, a" if clear else "A"
    opened = f"{where} sum is opened only if at least {t} of {P} sites are in it."
    price = f"For that, a sum of all {P} has {sharing.factor:.3g} times the noise that ε needs."
    return " ".join([opened, f"{holds} {_against(sharing.colluders)}.", *([price] if sharing.factor > 1 else [])])
