"""Which ledgers a run is charged to beside its own: those of its records, which outlive it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accounting import Ledger, checks
from accounting.errors import InvalidParameter
from accounting.risk import Risk
from accounting.statement import AllRuns
from dpfedvis.data import Dataset, FederatedData
from dpfedvis.data.own_files import file_sha256
from dpfedvis.runs.settings import RunConfig
from dpfedvis.runs.traces import Released
from dpfedvis.site.ledger import SiteLedger
from dpfedvis.site.ledger_file import knows, ledger_folder, ledger_path

_WAIT = 10.0  # seconds for another run on the same records to end


def ledgers_of_run(run: str) -> list[Path]:
    """Return the ledgers in the state folder that the run of this id was charged to.

    A run's folder, which may be published, does not tell where the ledgers of its owner are.
    """
    return [path for path in sorted(ledger_folder().glob("*.sqlite")) if knows(path, run)]


def worst(found: Sequence[AllRuns]) -> AllRuns:
    """Return what all runs cost at most, over the ledgers: the largest ε; and the largest risk, perhaps of another.

    Sampled releases of one ledger can have the smaller ε at this δ, and the larger risk.
    """
    most = max(found, key=lambda each: (each.epsilon, each.runs))
    risks = [each.risk for each in found if each.risk is not None]
    whole = len(risks) == len(found)
    return replace(most, changed=any(each.changed for each in found), risk=Risk.largest(risks) if whole else None)


def _deal(config: RunConfig, dataset: Dataset) -> str:
    """What made the privacy units, clients or persons, in words."""
    if config.unit == "person":
        return "no persons" if dataset.schema is None else f"persons of column {dataset.schema.named('person')}"
    if config.partition == "groups":
        return f"groups of column {config.client_column}" if config.client_column else "groups"
    return f"partition {config.partition} among {config.clients}, seed {config.seed}"


@dataclass(frozen=True)
class Charged:
    """The ledgers of a run's records, open.

    Parameters
    ----------
    ledgers : tuple of SiteLedger
    clients : tuple of str
        The client of each, where every client has its own; empty where one ledger is that of all.
    """

    ledgers: tuple[SiteLedger, ...]
    clients: tuple[str, ...] = ()

    @property
    def for_sites(self) -> SiteLedger | dict[str, SiteLedger]:
        """The ledger of each site by its name, or that of all."""
        return dict(zip(self.clients, self.ledgers, strict=True)) if self.clients else self.ledgers[0]

    def all_runs(self, delta: float) -> AllRuns:
        """Return what all runs cost the records that they cost most, at `delta`."""
        return worst([each.all_runs(delta) for each in self.ledgers])


@dataclass(frozen=True)
class Account:
    """The ledgers of a run's records, and the lifetime budget to set in them.

    Parameters
    ----------
    ledgers : tuple of Path
        None for simulations, which spend nothing, and for built-in data, which are public. One for each file where
        several files are a client each, so that other runs may take other files; otherwise one.
    limit : float, optional
        ε of the lifetime budget.
    """

    ledgers: tuple[Path, ...] = ()
    limit: float | None = None

    def chosen(self, config: RunConfig, dataset: Dataset) -> Account:
        """Return the account with the ledgers that files of the user's have by default."""
        if self.limit is not None:
            checks.positive("lifetime_epsilon", self.limit)
        if config.noise == "seeded":
            given = (("ledger", ", ".join(map(str, self.ledgers)) or None), ("lifetime_epsilon", self.limit))
            for name, value in given:
                if value is not None:
                    raise InvalidParameter(name, str(value), "left out in a simulation, which spends nothing")
            return self
        if not self.ledgers and dataset.origin == "file":
            return replace(self, ledgers=tuple(ledger_path(path) for path in dataset.files))
        if not self.ledgers and self.limit is not None:
            raise InvalidParameter("lifetime_epsilon", self.limit, "left out for built-in data without --ledger")
        return self

    @contextmanager
    def open(
        self,
        path: Path,
        config: RunConfig,
        dataset: Dataset,
        fed: FederatedData,
        facts: Mapping[str, Any],
        released: Released,
    ) -> Iterator[tuple[Ledger, Charged | None]]:
        """Open the server's mirror at `path`, and the ledgers of the records if there are any.

        Parameters
        ----------
        path : Path
        config : RunConfig
            With all choices made.
        dataset : Dataset
        fed : FederatedData
        facts : mapping
            Provenance of the run.
        released : Released
            What a resumed run has released before: what must be there is not created.
        """
        limit = None if self.limit is None else (self.limit, config.stated_delta)
        several = len(self.ledgers) > 1
        with ExitStack() as opened:
            own: list[SiteLedger] = []
            for number, place in enumerate(self.ledgers):
                files = dataset.files[number : number + 1] if several else dataset.files
                source = ", ".join(str(file.resolve()) for file in files) or dataset.name
                ledger = SiteLedger(
                    place,
                    limit=limit,
                    source=source,
                    sha256=file_sha256(files[0]) if several else dataset.sha256,
                    deal=_deal(config, dataset),
                    wait=_WAIT,
                    create=not released.events,
                )
                own.append(opened.enter_context(ledger))
                # Here the owner reads why a run has no room; a site would tell the server no more than that.
                ledger.begin(facts["run"], "", config.budget)
            # Files and clients have the same order, whatever clients are called to the server.
            names = {client.own_name: client.name for client in fed.clients}
            clients = tuple(names[each] for each in dataset.clients) if several else ()
            mirror = opened.enter_context(Ledger(path, config.budget, create=not released.has_ledger))
            yield mirror, Charged(tuple(own), clients) if own else None
