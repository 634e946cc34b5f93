"""Which ledger a run is charged to beside its own: that of its records, which outlives it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accounting import Ledger, checks
from accounting.errors import InvalidParameter
from dpfedvis.data import Dataset
from dpfedvis.runs.settings import RunConfig
from dpfedvis.runs.traces import Released
from dpfedvis.site.ledger import SiteLedger
from dpfedvis.site.ledger_file import knows, ledger_folder, ledger_path

_WAIT = 10.0  # seconds for another run on the same records to end


def ledger_of_run(run: str) -> Path | None:
    """Return the ledger in the state folder that the run of this id was charged to; None if it is not there.

    A run's folder, which may be published, does not tell where the ledgers of its owner are.
    """
    return next((path for path in sorted(ledger_folder().glob("*.sqlite")) if knows(path, run)), None)


def _deal(config: RunConfig) -> str:
    """What made the clients, in words."""
    if config.partition == "groups":
        return f"groups of column {config.client_column}" if config.client_column else "groups"
    return f"partition {config.partition} among {config.clients}, seed {config.seed}"


@dataclass(frozen=True)
class Account:
    """The ledger of a run's records, and the lifetime budget to set in it.

    Parameters
    ----------
    ledger : Path, optional
        None if there is none: for simulations, which spend nothing, and for built-in data, which are public.
    limit : float, optional
        ε of the lifetime budget.
    """

    ledger: Path | None = None
    limit: float | None = None

    def chosen(self, config: RunConfig, dataset: Dataset) -> Account:
        """Return the account with the ledger that a file of the user's has by default."""
        if self.limit is not None:
            checks.positive("lifetime_epsilon", self.limit)
        if config.noise == "seeded":
            for name, value in (("ledger", self.ledger), ("lifetime_epsilon", self.limit)):
                if value is not None:
                    raise InvalidParameter(name, str(value), "left out in a simulation, which spends nothing")
            return self
        if self.ledger is None and dataset.origin == "file":
            return replace(self, ledger=ledger_path(Path(dataset.source)))
        if self.ledger is None and self.limit is not None:
            raise InvalidParameter("lifetime_epsilon", self.limit, "left out for built-in data without --ledger")
        return self

    @contextmanager
    def open(
        self, path: Path, config: RunConfig, dataset: Dataset, facts: Mapping[str, Any], released: Released
    ) -> Iterator[tuple[Ledger, SiteLedger | None]]:
        """Open the server's mirror at `path`, and the ledger of the records if there is one.

        Parameters
        ----------
        path : Path
        config : RunConfig
            With all choices made.
        dataset : Dataset
        facts : mapping
            Provenance of the run.
        released : Released
            What a resumed run has released before: what must be there is not created.
        """
        if self.ledger is None:
            with Ledger(path, config.budget, create=not released.has_ledger) as mirror:
                yield mirror, None
            return
        source = str(Path(dataset.source).resolve()) if dataset.origin == "file" else dataset.name
        limit = None if self.limit is None else (self.limit, config.delta)
        create = not released.events
        opened = SiteLedger(
            self.ledger,
            limit=limit,
            source=source,
            sha256=dataset.sha256,
            deal=_deal(config),
            wait=_WAIT,
            create=create,
        )
        with opened as own:
            # Here the owner reads why a run has no room; a site would tell the server no more than that.
            own.begin(facts["run"], "", config.budget)
            with Ledger(path, config.budget, create=not released.has_ledger) as mirror:
                yield mirror, own
