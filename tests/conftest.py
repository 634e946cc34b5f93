"""Environment, options and hypothesis profiles of the whole suite."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Before NumPy is imported, here or in a process that a test starts: two workers share two cores, and BLAS threads that
# wait for work would take them from each other.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# Many tests start a new interpreter, which without bytecode compiles some three thousand modules. Where it may not be
# written beside the code, it is kept in a folder of its own.
if sys.dont_write_bytecode:
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Fixtures that several folders share.
pytest_plugins = ["tests.fixtures"]

# Derandomised, so that two runs of one commit agree; `thorough` is the long run.
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("normal", max_examples=60, derandomize=True, **_COMMON)
settings.register_profile("thorough", max_examples=2000, derandomize=False, **_COMMON)
settings.load_profile("normal")


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keep ledgers that outlive runs in a folder of the session: no test writes to the user's home."""
    folder = tmp_path_factory.mktemp("state")
    os.environ["XDG_STATE_HOME"] = str(folder)
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--benchmarks", action="store_true", help="run the speed and memory ratios too")
    parser.addoption("--full-size", action="store_true", help="with --benchmarks, those of many minutes too")


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts background jobs deaf to Ctrl-C, and so would be the processes that tests interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "benchmarks: ratios measured within one run; see `make bench`")
    config.addinivalue_line("markers", "engine: real machines on NVIDIA FLARE; leave out with -m 'not engine'")
    config.addinivalue_line("markers", "full_size: a benchmark of many minutes; needs --full-size")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    asked = {"benchmarks": config.getoption("--benchmarks"), "full_size": config.getoption("--full-size")}
    missing = [name for name, given in asked.items() if not given]
    dropped = [item for item in items if any(item.get_closest_marker(name) for name in missing)]
    if dropped:
        chosen = [item for item in items if item not in dropped]
        config.hook.pytest_deselected(items=dropped)
        items[:] = chosen
