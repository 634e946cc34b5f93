"""Recorded runs that several attacks are tried on, and what one record adds to a gradient."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from accounting import Budget, Ledger
from attacks.shared.gradients import Contribution
from dpfedvis import FederatedData
from dpfedvis.estimators.simulation import simulated
from dpfedvis.mechanisms import GradientPerturbation
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.runs.upload_reader import Recording
from dpfedvis.runs.upload_writer import LEDGER, Recorder
from dpfedvis.server.private_map import Learner

GAMMA = 0.1
PLAIN = Contribution(Kernel.gaussian(GAMMA))

Record = Callable[[FederatedData, float, int], Recording]


@pytest.fixture
def record_private_map(tmp_path: Path) -> Record:
    """Record the learning of a private map by gradients at an ε, with so many landmarks; its map is not drawn."""

    def record(fed: FederatedData, epsilon: float, landmarks: int) -> Recording:
        chosen, budget, folder = GradientPerturbation(), Budget(epsilon, 1e-5), tmp_path / "private_map"
        learner = Learner(budget=budget, mechanism=chosen, landmarks=landmarks, rounds=5, tau_x=8.0)
        folder.mkdir()
        recorder = Recorder(folder)
        with Ledger(folder / LEDGER, budget) as ledger:
            link = simulated(fed, budget=budget, noise="seeded")
            learned = learner.run(link, ledger=ledger, witness=recorder, callbacks=(recorder.landmarks,))
        subspace = learned.subspace
        points = subspace.points(learned.feddl.landmarks)
        published = {"points": points, "centre": subspace.centre, "axes": subspace.axes}
        recorder.finish(learned.feddl, chosen, {"release": "none"}, published)
        return Recording.read(folder)

    return record
