"""What the tests of the data room share."""

import os
import socket
from pathlib import Path

import numpy as np
import pytest

from dpfedvis.data import Dataset


def as_dataset(X, y=None, groups=None, missing="client-mean", feature_range=None):
    names = () if y is None else tuple(str(c) for c in range(int(np.max(y)) + 1))
    return Dataset("test", X, y, names, groups, feature_range, None, "memory", "0", missing)


@pytest.fixture
def table():
    rng = np.random.default_rng(7)
    return rng.normal(size=(60, 5)), np.repeat(np.arange(6), 10)


@pytest.fixture
def real_data() -> Path:
    """Return the folder of real data files, or skip."""
    folder = os.environ.get("DPFEDVIS_DATA")
    if not folder:
        pytest.skip("DPFEDVIS_DATA is not set: no real data files to read")
    return Path(folder)


@pytest.fixture
def empty_machine(tmp_path, monkeypatch) -> Path:
    """Have no data folder and an empty cache; return the cache folder."""
    monkeypatch.delenv("DPFEDVIS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dpfedvis"


@pytest.fixture
def dead_network(monkeypatch) -> None:
    """Send all requests to a port where nobody listens, so they fail at once and for real."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
    for name in ("no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
