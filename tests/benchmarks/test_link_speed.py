"""The private map through both links, as a ratio within one run."""

from __future__ import annotations

import time

import pytest

from accounting import Budget
from dpfedvis import FederatedData, FedTSNE
from tests.benchmarks.test_map_speed import images

pytestmark = pytest.mark.benchmarks

RECORDS, SITES = 10_000, 4


def test_sites_as_processes_take_little_longer_than_in_one(tmp_path):
    """Starting them is part of it: each process imports numpy and scipy and reads its records."""
    fed = FederatedData.split(images(RECORDS), clients=SITES, seed=0, bounds=(0.0, 1.0))
    schedule = {"early_exaggeration_iter": 60, "n_iter": 120}
    best = dict.fromkeys(("in one process", "processes"), float("inf"))
    landmarks = []
    for repeat in range(3):
        for name in best:
            private = FedTSNE(budget=Budget(3.0, 1e-5), trust="aggregate", random_state=0, n_jobs=2, tsne=schedule)
            if name == "processes":
                private.watch(processes=tmp_path / str(repeat))
            began = time.perf_counter()
            private.fit(fed)
            best[name] = min(best[name], time.perf_counter() - began)
            landmarks.append(private.landmarks_.tobytes())
    one, several = best.values()
    print(f"{SITES} sites: in one process {one:.1f} s, as processes {several:.1f} s, ratio {several / one:.2f}")
    assert len(set(landmarks)) == 1
    assert several / one <= 1.5
