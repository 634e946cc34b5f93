"""Small federations, fast maps, and the replay that shows what a private map is made of."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from accounting import Budget
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.links import InProcess
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.protocol.messages import Send
from dpfedvis.server.session import Session
from dpfedvis.server.sums import PlainSums
from tests.makers import groups

FAST = {"anchors": 24, "placement": "weights"}
BRIEF = {"early_exaggeration_iter": 20, "n_iter": 40}


def private_map(budget=None, **options) -> FedTSNE:
    """Return a map that is private end to end and takes a fraction of a second."""
    private_map = {**FAST, **options.pop("private_map", {})}
    given = {
        "n_landmarks": 20,
        "rounds": 3,
        "n_jobs": 1,
        "tsne": BRIEF,
        "budget": budget or Budget(1.0, 1e-5),
        "private_map": private_map,
    }
    return FedTSNE(**{**given, **options})


@dataclass
class Seen:
    """What the server saw, in order."""

    events: list = field(default_factory=list)
    values: list = field(default_factory=list)

    def __call__(self, events, values):
        self.events.append(tuple(events))
        self.values.append(np.array(values))


def everything(estimator: FedTSNE) -> dict:
    """All that the server has, or anybody but the clients."""
    published, density = estimator.published_map_, estimator.density_
    public = {
        "centre": published.subspace.centre,
        "axes": published.subspace.axes,
        "variances": published.subspace.variances,
        "landmarks": estimator.landmarks_,
        "anchors": published.anchors,
        "places": published.places,
        "seed": np.array(published.seed),
        "verdict": np.frombuffer(json.dumps(estimator.verdict_.to_dict()).encode(), dtype=np.uint8),
        "kernel": np.array(estimator.feddl_.public.kernel.gammas),
        "start": estimator.feddl_.start,
        "trace": np.array([(each.number, each.step) for each in estimator.feddl_.trace]),
    }
    if density is not None:
        public |= {"shares": density.shares, "grid": np.array([density.grid.half, density.grid.cells, density.noise])}
    return public


def check_replay(estimator: FedTSNE, fed: FederatedData, other: FederatedData) -> None:
    """Run on `fed`; then on `other`, with what the server saw the first time in place of what it would see now.

    Whatever the server's side takes from anywhere else than the uploads takes it from other data the second time, so
    that all it has, to the last bit, and all that stands in the ledger and the statement, must come out the same.
    """
    seen = Seen()
    first = estimator.watch(witness=seen).fit(fed)
    public, facts = everything(first), (first._facts(), first._remarks)
    ledger = [event.to_json() for event in first.ledger_.events()]
    kept = iter(seen.values)
    each, total, curated = InProcess.each, PlainSums.total, Session._curated

    def earlier(values):
        """What was seen the first time; the server must ask for the same shape again."""
        shape, found = values.shape, next(kept)
        assert found.shape == shape, f"the shape {shape} that the server asks for was not made from the uploads alone"
        return found

    def replay(self, request):
        replies = each(self, request)
        if not isinstance(request, Send):
            return replies
        return [replace(reply, values=earlier(reply.values)) for reply in replies]

    def replay_sum(self, request, shape):
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(InProcess, "each", each)
            found = total(self, request, shape)
        return found if request.mechanism.trust == "central" else replace(found, values=earlier(found.values))

    def replay_curated(self, total, event, request):
        noisy = curated(self, total, event, request)
        return earlier(noisy) if request.mechanism.trust == "central" else noisy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InProcess, "each", replay)
        patch.setattr(PlainSums, "total", replay_sum)
        patch.setattr(Session, "_curated", replay_curated)
        second = estimator.watch().fit(other)
    assert next(kept, None) is None, "fewer uploads the second time"
    again = everything(second)
    assert public.keys() == again.keys()
    for name, values in public.items():
        assert values.dtype == again[name].dtype
        assert np.array_equal(values, again[name]), f"{name} was not made from the uploads alone"
    assert ledger == [event.to_json() for event in second.ledger_.events()], "the ledger depends on the records"
    assert facts == (second._facts(), second._remarks), "the statement depends on the records"


@pytest.fixture
def fed():
    return groups()


@pytest.fixture
def federation_of():
    return groups


@pytest.fixture
def map_of():
    return private_map


@pytest.fixture
def watching():
    return Seen


@pytest.fixture
def replay():
    return check_replay


@pytest.fixture
def setting_of():
    def public(features, landmarks=1, adjacency="replace-one", gamma=1.0):
        return PublicParameters(Kernel((gamma,)), landmarks, features, 1, 1, 1.0, adjacency=adjacency)

    return public
