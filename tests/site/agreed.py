"""A run that sites have agreed to, without a server."""

from __future__ import annotations

from collections.abc import Sequence

from accounting import Budget
from dpfedvis.protocol.contract import Contract, Member
from dpfedvis.protocol.messages import Agree, Begin, Done, Signed
from dpfedvis.site import Policy, Site

SIMULATED = Policy(
    epsilon=None,
    delta=0.5,
    unit=None,
    noise="seeded",
    trusts=("local", "aggregate", "central"),
    threshold=1,
    unprotected=True,
    mechanisms=None,
    number_of_records="as asked",
    receipts="unsigned",
)


def sites_of(parts, policy=SIMULATED, **settings) -> list[Site]:
    """One site for each array of records."""
    return [Site(f"client-{p}", X, policy=policy, **settings) for p, X in enumerate(parts)]


def contract_of(sites: Sequence[Site], records: Sequence[int], mechanism, **settings) -> Contract:
    """A contract of these sites, whose weights follow from their numbers of records."""
    members = tuple(
        Member(site.name, float(n), n / sum(records), site.identity.public)
        for site, n in zip(sites, records, strict=True)
    )
    values = {"run": "a run", "budget": Budget(2.0, 1e-5), "rounds": 1, "noise": "seeded", "seed": 0, "features": 4}
    return Contract(mechanism=mechanism, members=members, **{**values, **settings})


def agreed(sites: Sequence[Site], contract: Contract) -> str:
    """Let all sites sign; return the contract's hash."""
    signed = [site.answer(Agree(contract)) for site in sites]
    assert all(isinstance(each, Signed) for each in signed), signed
    begin = Begin(signed[0].contract, tuple(each.signature for each in signed))
    replies = [site.answer(begin) for site in sites]
    assert all(isinstance(each, Done) for each in replies), replies
    return begin.contract
