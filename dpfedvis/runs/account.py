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
from dpfedvis.runs.lifetime import LifetimeLedger, RunMark, ledger_path, opened
from dpfedvis.runs.settings import RunConfig


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
        self, path: Path, config: RunConfig, dataset: Dataset, facts: Mapping[str, Any], kept: Path
    ) -> Iterator[tuple[Ledger, LifetimeLedger | None]]:
        """Open a run's own ledger at `path`, and that of its records if there is one.

        Parameters
        ----------
        path : Path
        config : RunConfig
            With all choices made.
        dataset : Dataset
        facts : mapping
            Provenance of the run.
        kept : Path
            File beside the run that tells it from its copies; see `dpfedvis.runs.lifetime.opened`.
        """
        if self.ledger is None:
            with Ledger(path, config.budget) as ledger:
                yield ledger, None
            return
        source = str(Path(dataset.source).resolve()) if dataset.origin == "file" else dataset.name
        mark = RunMark(facts["run"], facts["started"], source, dataset.sha256, config.delta)
        with (
            opened(self.ledger, mark, config.budget, self.limit, kept) as lifetime,
            Ledger(path, config.budget, mirror=lifetime.charge) as ledger,
        ):
            # What it has from before an interruption must be in that of the records too.
            lifetime.charge(list(ledger.events()))
            yield ledger, lifetime
