"""A link that loses what some sites are asked, or spoils what they answer; and runs over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from accounting import Budget
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.estimators.simulation import simulated
from dpfedvis.links import InProcess
from dpfedvis.mechanisms import GradientPerturbation
from dpfedvis.protocol.messages import FAILED, Refused
from dpfedvis.protocol.sum_messages import Advertise, Confirm, SendMasked, ShareKeys, Unmask
from dpfedvis.server import Program, ProgramSettings

BUDGET = Budget(4.0, 1e-5)
STAGES = {"advertise": Advertise, "share": ShareKeys, "masked": SendMasked, "confirm": Confirm, "unmask": Unmask}


def data(clients: int = 5) -> FederatedData:
    rng = np.random.default_rng(0)
    sizes = [40, 30, 50, 20, 60, 35][:clients]
    return FederatedData([rng.normal(size=(size, 5)) for size in sizes], bounds=(-3, 3))


def program(mechanism=None, **changes) -> Program:
    chosen = mechanism or GradientPerturbation(trust="aggregate")
    common = {"budget": BUDGET, "landmarks": 6, "rounds": 3, "feddl": {"bounds": (-3, 3)}}
    return Program(ProgramSettings(mechanism=chosen, **{**common, **changes}))


def private_program(fed: FederatedData) -> Program:
    private = {"placement": "weights", "density": True}
    model = FedTSNE(epsilon=20.0, trust="aggregate", n_landmarks=20, n_jobs=1, private_map=private)
    model._resolve(fed)
    return model._program(fed, recipe=model.settings_.recipe, layout=model.settings_.layout)


class Leaky(InProcess):
    """A link that loses what some sites are asked: `away` says whether a site is away for a request."""

    def __init__(self, members, away: Callable[[str, object], bool]) -> None:
        super().__init__(members, secure=True)
        self.away = away

    def some(self, requests: Mapping[str, object]):
        return {name: self._lost(name, request) or super(Leaky, self).some({name: request})[name]
                for name, request in requests.items()}  # fmt: skip

    def each(self, request):
        return [self._lost(site.name, request) or self._answer(site, request) for site in self.members]

    def _lost(self, name, request):
        return Refused(name, FAILED, "is away") if self.away(name, request) else None


def leaky(fed: FederatedData, away) -> Leaky:
    return Leaky(simulated(fed, budget=BUDGET, noise="seeded").members, away)


def plain(fed: FederatedData, made: Program):
    return simulated(fed, budget=BUDGET, noise="seeded").run(made)


def events(found) -> list[str]:
    return [event.to_json() for event in found.feddl.ledger.events()]


class Spoiling(Leaky):
    """A link over which some replies come spoiled, as a site that lies would give them."""

    def __init__(self, members, spoil: Callable[[str, object, object], object]) -> None:
        super().__init__(members, lambda name, request: False)
        self._spoil = spoil

    def some(self, requests: Mapping[str, object]):
        replies = super().some(requests)
        return {name: self._spoil(name, requests[name], reply) for name, reply in replies.items()}
