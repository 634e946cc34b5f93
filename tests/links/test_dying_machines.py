"""A whole site dies around each stage of a run on NVIDIA FLARE: the others go on, and every ledger is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from accounting import Ledger
from dpfedvis.links.nvflare import RunStopped
from tests.links.federations import Machines, processes_of

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


def start_dying(machines: Machines, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the victim so that it dies at this place; the others' environment stays."""
    if VICTIM in machines.running:
        machines.kill(VICTIM)
    (machines.kits[VICTIM].folder / "died").unlink(missing_ok=True)
    root = Path(__file__).parent
    with monkeypatch.context() as changed:
        changed.setenv("DPFEDVIS_DIES", place)
        changed.setenv("PYTHONPATH", f"{root / 'dying_machine'}:{root.parents[1]}")
        machines.start(VICTIM)
    machines.wait()


@pytest.mark.parametrize("place", PLACES)
def test_a_site_that_dies_leaves_the_others_to_go_on(
    machines: Machines, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {name: len(machines.events(name)) for name in NAMES}
    start_dying(machines, place, monkeypatch)
    done = machines.run(tmp_path / "run", threshold=3, colluders=1)
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
    start_dying(machines, "Agree before", monkeypatch)
    before = machines.events("aachen")
    with pytest.raises(RunStopped, match=r"^dresden refused: no answer within 4 seconds"):
        machines.run(tmp_path / "run")
    assert machines.events("aachen") == before
    assert not (tmp_path / "run").exists()
