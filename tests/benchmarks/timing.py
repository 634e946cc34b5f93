"""Random records, and the best times of calls taken in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np


def points(records: int, landmarks: int = 500, features: int = 784) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((records, features), np.float32), rng.random((landmarks, features), np.float32)


def best_times(calls: Sequence[Callable[[], object]], rounds: int = 20, repeats: int = 4) -> list[float]:
    """Return the best time of each call, the calls taken in turns.

    The pause lets the idle threads of one BLAS go to sleep before another one starts.
    """
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for index, call in enumerate(calls):
            time.sleep(0.05)
            call()
            for _ in range(repeats):
                start = time.perf_counter()
                call()
                best[index] = min(best[index], time.perf_counter() - start)
    return best
