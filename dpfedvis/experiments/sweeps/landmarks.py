"""Landmarks that are learned once and shared by all maps made from them.

A map takes minutes and so does learning; a table of maps by two layouts and two estimates needs one set of landmarks.
What is kept is the landmarks, the kernel and every event of the ledger, so that each map's own ledger still tells of
all that left the clients for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from accounting import Ledger
from accounting.events import from_json
from dpfedvis.data import FederatedData
from dpfedvis.errors import DpfedvisError
from dpfedvis.estimators.base import FederatedEstimator
from dpfedvis.estimators.clusters import FedSpectralClustering
from dpfedvis.estimators.maps import FedMap
from dpfedvis.estimators.tsne import FedTSNE
from dpfedvis.estimators.umap import FedUMAP
from dpfedvis.experiments.sweeps.cache import Arrays, as_bytes, as_text, shared
from dpfedvis.links import Link
from dpfedvis.mechanisms import BaseMechanism, Message, PreparedRecords, Update
from dpfedvis.mechanisms.base import Protection
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.kernels import Array, Kernel
from dpfedvis.numerics.optimisers import Optimiser
from dpfedvis.server import Program, Published


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

    def sensitivity(self, public: PublicParameters, records: float) -> None:
        """There is nothing to protect."""
        return None

    def message(
        self, local: PreparedRecords, Y: Array, public: PublicParameters, generator: np.random.Generator
    ) -> Message:
        """Never asked for."""
        raise DpfedvisError("given landmarks need no uploads")

    def update(self, Y: Array, average: Array, public: PublicParameters, optimiser: Optimiser) -> Update:
        """Never asked for."""
        raise DpfedvisError("given landmarks need no steps")


class _Sharing(FederatedEstimator):
    """Learns as its estimator does, unless the landmarks are there already."""

    folder: Path
    address: str

    def _carry_out(self, fed: FederatedData, program: Program) -> tuple[Published, Link]:
        kept = shared(self.folder, self.address, lambda: self._learned(fed, program))
        ledger, lines = Ledger(None, None), as_text(kept["events"]).splitlines()
        if lines:
            ledger.record(*map(from_json, lines))
        self._watched = {**self._watched, "ledger": ledger}
        given = {"start": kept["landmarks"], "gamma": Kernel(tuple(kept["gammas"].tolist()))}
        settings = replace(program.settings, mechanism=Given(), landmarks=len(kept["landmarks"]), feddl=given)
        return super()._carry_out(fed, Program(settings))

    def _learned(self, fed: FederatedData, program: Program) -> Arrays:
        published, _ = super()._carry_out(fed, Program(replace(program.settings, release="landmarks")))
        result = published.feddl
        events = "\n".join(event.to_json() for event in result.ledger.events())
        gammas = np.array(result.public.kernel.gammas)
        return {"landmarks": result.landmarks, "gammas": gammas, "events": as_bytes(events)}


class _SharingTSNE(_Sharing, FedTSNE):
    pass


class _SharingUMAP(_Sharing, FedUMAP):
    pass


class _SharingMap(_Sharing, FedMap):
    pass


class _SharingClusters(_Sharing, FedSpectralClustering):
    pass


_KINDS: dict[type[FederatedEstimator], type[_Sharing]] = {
    FedTSNE: _SharingTSNE,
    FedUMAP: _SharingUMAP,
    FedMap: _SharingMap,
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
        Hash of all that they depend on (`dpfedvis.experiments.sweeps.cells.Cell.landmark_address`).
    """
    made = _KINDS[type(estimator)](**estimator.get_params(deep=False))
    made.folder, made.address = folder, address
    return made
