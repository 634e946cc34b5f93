"""Sites made from federated data, with the policy that an estimator's own arguments ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from accounting import Budget
from accounting.errors import InvalidParameter
from accounting.events import TRUSTS
from dpfedvis.data import ClientRecords, FederatedData
from dpfedvis.data.features import compared_by
from dpfedvis.links import InProcess, Processes
from dpfedvis.site import Identity, Policy, Site, SiteLedger
from dpfedvis.site.folder import KEY, holds, is_site, write_site


def simulated(
    fed: FederatedData,
    *,
    budget: Budget | None,
    noise: str,
    ledger: SiteLedger | Mapping[str, SiteLedger] | None = None,
    folder: Path | None = None,
    compare: Any = None,
    jobs: int = 1,
) -> InProcess:
    """Return a link to one site for each client.

    Parameters
    ----------
    fed : FederatedData
    budget : Budget, optional
        Of the run that the sites are made for; without one they release what is asked.
    noise : {"seeded", "discrete"}
    ledger : SiteLedger or mapping of str to SiteLedger, optional
        One ledger for all sites: that of the table which they were made from; or one for each, by its name. By default
        each has its own, in memory, or in `folder`.
    folder : Path, optional
        Where sites keep what outlives an interruption, each in a folder of its own.
    compare : optional
        Public features by which a site compares its own records; see `dpfedvis.data.features.compared_by`.
    jobs : int
        Sites that work at the same time.
    """
    policy = policy_for(budget, noise)
    members: list[Site] = []
    with ExitStack() as opened:
        for number, (client, facts) in enumerate(_facts(fed, compare)):
            own = None if folder is None else folder / str(number)
            given = ledger[client.name] if isinstance(ledger, Mapping) else ledger
            members.append(
                Site(
                    client.name,
                    client.X,
                    **facts,
                    policy=policy,
                    ledger=opened.enter_context(_ledger(own)) if given is None else given,
                    identity=_identity(own),
                    folder=own,
                )
            )
        opened.pop_all()  # from here on they are the link's
    owned = [] if ledger is not None else [site.ledger for site in members]
    return InProcess(members, jobs=jobs, owned=owned)


def started(fed: FederatedData, *, budget: Budget | None, noise: str, folder: Path, compare: Any = None) -> Processes:
    """Return a link to one process for each client, whose files are made in `folder`; as `simulated` otherwise."""
    return Processes(write_sites(fed, folder, policy_for(budget, noise, receipts="signed"), compare))


def write_sites(fed: FederatedData, folder: Path, policy: Policy, compare: Any = None) -> dict[str, Path]:
    """Make the folder of one site for each client, where there is none; each knows the keys of all. Return them."""
    folders = {client.name: folder / str(number) for number, client in enumerate(fed.clients)}
    own = replace(policy, members={name: _identity(each).public for name, each in folders.items()})
    for client, facts in _facts(fed, compare):
        place, known = folders[client.name], {"name": client.name, "records": client.X, "policy": own, **facts}
        if not is_site(place):
            write_site(place, **known)
        elif not holds(place, **known):
            raise InvalidParameter(
                "processes", str(folder), f"a new folder: {place} is a site with other records or another policy"
            )
    return folders


def _facts(fed: FederatedData, compare: Any) -> Iterator[tuple[ClientRecords, dict[str, Any]]]:
    """Each client, with what else its site has besides records and policy."""
    compared = compared_by(fed, compare)
    for number, client in enumerate(fed.clients):
        yield (
            client,
            {
                "labels": fed.labels_of(client),
                "persons": client.persons,
                "compared": None if compared is None else compared[number],
                "preparation": fed.preparation,
            },
        )


def policy_for(budget: Budget | None, noise: str, receipts: str = "unsigned") -> Policy:
    """Return the policy of sites that an estimator makes: they do what its own arguments ask for.

    In one process they sign the contract alone; where bytes travel, every receipt.
    """
    return Policy(
        epsilon=None,
        delta=1 - 2.0**-53,
        unit=None,
        noise=noise,
        trusts=TRUSTS,
        threshold=1,
        colluders=2**31,
        least_colluders=0,
        unprotected=budget is None or budget.scope != "end-to-end",
        rounds=2**31,
        mechanisms=None,
        number_of_records="as asked",
        receipts=receipts,
    )


def _ledger(folder: Path | None) -> SiteLedger:
    return SiteLedger(None if folder is None else folder / "ledger.sqlite")


def _identity(folder: Path | None) -> Identity:
    """Return the key pair that a folder holds, made now if it has none."""
    return Identity() if folder is None else Identity.kept(folder / KEY)
