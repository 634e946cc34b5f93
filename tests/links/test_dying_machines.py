"""A whole site dies around each stage of a run on NVIDIA FLARE: the others go on, and every ledger is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from accounting import Ledger
from dpfedvis.links.nvflare import RunStopped
from tests.links.federations import SHORT, Machines, processes_of

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]  # of the engine's own packages

NAMES = ("aachen", "bremen", "coburg", "dresden")
VICTIM = "dresden"
STAGES = ("Advertise", "ShareKeys", "SendMasked", "Confirm", "Unmask", "Prepare", "Place")
PLACES = ["Unmask before"]
if settings.get_current_profile_name() == "thorough":
    PLACES = [f"{stage} {when}" for stage in STAGES for when in ("before", "after")]


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Four sites and a server; the last site is started by each test."""
    found = Machines(tmp_path_factory.mktemp("federation"), NAMES)
    try:
        found.start("server", *NAMES[:-1])
        yield found
    finally:
        found.stop()
        assert processes_of(found.folder) == []


def start_changed(machines: Machines, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """Start the victim with a fault (`dying_machine/sitecustomize.py`); the others' environment stays."""
    if VICTIM in machines.running:
        machines.kill(VICTIM)
    (machines.kits[VICTIM].folder / "died").unlink(missing_ok=True)
    root = Path(__file__).parent
    with monkeypatch.context() as changed:
        changed.setenv(name, value)
        changed.setenv("PYTHONPATH", f"{root / 'dying_machine'}:{root.parents[1]}")
        machines.start(VICTIM)
    machines.wait()


@pytest.mark.parametrize("place", PLACES)
def test_a_site_that_dies_leaves_the_others_to_go_on(
    machines: Machines, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: len(machines.events(name)) for name in NAMES}
    start_changed(machines, monkeypatch, "DPFEDVIS_DIES", place)
    done = machines.run(tmp_path / "run", threshold=3, colluders=1, patience=SHORT)
    assert (machines.kits[VICTIM].folder / "died").read_text() == place
    assert done.statement.to_dict()["epsilon_end_to_end"] <= 2.0
    with Ledger.read(tmp_path / "run" / "ledger.sqlite") as mirror:
        for name in NAMES:
            own = machines.events(name)[before[name] :]
            mirrored = [(each.what, each.round) for each in mirror.events() if each.client == name]
            assert own[: len(mirrored)] == mirrored
            # A release that was charged, and whose bytes never came.
            assert len(own) - len(mirrored) <= (name == VICTIM)
            assert len(own) == len(set(own))


def test_a_site_that_dies_before_it_has_signed_stops_the_run(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_changed(machines, monkeypatch, "DPFEDVIS_DIES", "Agree before")
    before = machines.events("aachen")
    with pytest.raises(RunStopped, match=r"^dresden refused: no answer within 10 seconds"):
        machines.run(tmp_path / "run", patience=SHORT)
    assert machines.events("aachen") == before
    assert not (tmp_path / "run").exists()


def test_a_site_of_another_version_is_told_to_upgrade(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_changed(machines, monkeypatch, "DPFEDVIS_SPEAKS", "dpfedvis 0")
    with pytest.raises(RunStopped, match=r"^dresden refused: speaks another version of the protocol: upgrade it$"):
        machines.run(tmp_path / "run")
    assert not (tmp_path / "run").exists()
