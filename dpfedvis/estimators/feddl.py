"""FedDL: Algorithm 1 alone, on simulated sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from accounting import Ledger
from accounting.errors import InvalidParameter
from dpfedvis.data import FederatedData
from dpfedvis.estimators.refusals import refuse_data
from dpfedvis.estimators.simulation import simulated
from dpfedvis.protocol.uploads import Witness
from dpfedvis.server import feddl as server
from dpfedvis.server.feddl import Callback, FedDLResult


@dataclass(frozen=True, kw_only=True, eq=False)
class FedDL(server.FedDL):
    __doc__ = (server.FedDL.__doc__ or "").replace("`learn` runs it", "`run` runs it")

    def run(
        self,
        fed: FederatedData,
        *,
        ledger: Ledger | None = None,
        callbacks: Sequence[Callback] = (),
        checkpoint: str | Path | None = None,
        witness: Witness | None = None,
        jobs: int = 1,
    ) -> FedDLResult:
        """Learn the landmarks of federated data.

        Parameters
        ----------
        fed : FederatedData
        ledger : Ledger, optional
            Where to mirror the sites' ledgers; by default one in memory, or in the folder of the checkpoint. With a
            checkpoint it must be a file, and that of this run alone.
        callbacks : sequence of callables
            Called with (Round, Y) after each round; one that returns True ends the run. After an interruption they may
            see the last round again.
        checkpoint : path-like, optional
            Folder to keep what the server and the sites need to go on after an interruption. A run that finds its own
            goes on from there, and spends nothing twice.
        witness : Witness, optional
            Sees what the server sees.
        jobs : int
            Sites that work at the same time. It changes no result.
        """
        if not isinstance(fed, FederatedData):
            raise InvalidParameter("data", type(fed).__name__, "FederatedData (see FederatedData.split)")
        refuse_data(fed, self.budget, self.noise)
        config = self if self.bounds is not None or fed.bounds is None else replace(self, bounds=fed.bounds)
        folder = None if checkpoint is None else Path(checkpoint)
        own = None if folder is None else folder / "sites"
        link = simulated(fed, budget=self.budget, noise=self.noise, folder=own, jobs=jobs)
        try:
            result, _ = config.learn(link, ledger=ledger, callbacks=callbacks, checkpoint=folder, witness=witness)
        finally:
            link.close()
        return result
