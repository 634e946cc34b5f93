"""Landmarks that are learned once and shared by all maps made from them.

A map takes minutes and so does learning; a table of maps by two layouts and two estimates needs one set of landmarks.
What is kept is the landmarks, the kernel and every event of the ledger, so that each map's own ledger still tells of
all that left the clients for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from accounting import Ledger
from accounting.events import from_json
from dpfedvis.clustering import FedSpectralClustering
from dpfedvis.data import FederatedData
from dpfedvis.errors import DpfedvisError
from dpfedvis.estimators import FederatedEstimator
from dpfedvis.feddl import FedDL, FedDLResult
from dpfedvis.kernels import Array, Kernel
from dpfedvis.maps import FedTSNE, FedUMAP
from dpfedvis.mechanisms import BaseMechanism, Local, Message, Step
from dpfedvis.mechanisms.base import Protection
from dpfedvis.optimisers import Optimiser
from dpfedvis.rows import Rows
from dpfedvis.setting import Setting
from dpfedvis.sweeps.cache import Arrays, as_bytes, as_text, shared


@dataclass(frozen=True)
class Given(BaseMechanism):
    """Landmarks that are there already: nothing is uploaded, and they stay where they start."""

    name: ClassVar[str] = "given"
    what: ClassVar[str] = "nothing"
    protection: ClassVar[Protection] = "none"
    why: ClassVar[str] = "nothing is uploaded"

    def uploads(self, rounds: int) -> int:
        """None at all."""
        return 0

    def sensitivity(self, setting: Setting, records: float) -> None:
        """There is nothing to protect."""
        return None

    def message(self, local: Local, Y: Array, setting: Setting, generator: np.random.Generator) -> Message:
        """Never asked for."""
        raise DpfedvisError("given landmarks need no uploads")

    def update(self, Y: Array, average: Array, setting: Setting, optimiser: Optimiser) -> Step:
        """Never asked for."""
        raise DpfedvisError("given landmarks need no steps")


class _Sharing(FederatedEstimator):
    """Learns as its estimator does, unless the landmarks are there already."""

    folder: Path
    address: str

    def _learn(self, fed: FederatedData, rows: Rows) -> FedDLResult:
        def make() -> Arrays:
            learned = super(_Sharing, self)._learn(fed, rows)
            events = "\n".join(event.to_json() for event in learned.ledger.events())
            gammas = np.array(learned.setting.kernel.gammas)
            return {"landmarks": learned.landmarks, "gammas": gammas, "events": as_bytes(events)}

        kept = shared(self.folder, self.address, make)
        ledger, lines = Ledger(None, None), as_text(kept["events"]).splitlines()
        if lines:
            ledger.record(*map(from_json, lines))
        result = FedDL(
            landmarks=len(kept["landmarks"]),
            mechanism=Given(),
            start=kept["landmarks"],
            bandwidth=Kernel(tuple(kept["gammas"].tolist())),
            seed=self.random_state,
        ).run(fed, ledger=ledger)
        self._keep(fed, result)
        return result


class _SharingTSNE(_Sharing, FedTSNE):
    pass


class _SharingUMAP(_Sharing, FedUMAP):
    pass


class _SharingClusters(_Sharing, FedSpectralClustering):
    pass


_KINDS: dict[type[FederatedEstimator], type[_Sharing]] = {
    FedTSNE: _SharingTSNE,
    FedUMAP: _SharingUMAP,
    FedSpectralClustering: _SharingClusters,
}


def sharing(estimator: FederatedEstimator, folder: Path, address: str) -> FederatedEstimator:
    """Return the estimator with the same settings, made to share its landmarks.

    Parameters
    ----------
    estimator : FedTSNE, FedUMAP or FedSpectralClustering
        Without a budget.
    folder : Path
        Where landmarks are kept.
    address : str
        Hash of all that they depend on (`dpfedvis.sweeps.cells.Cell.landmark_address`).
    """
    made = _KINDS[type(estimator)](**estimator.get_params(deep=False))
    made.folder, made.address = folder, address
    return made
