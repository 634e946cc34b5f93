"""A run whose sites and server are killed at any moment, again and again: run as a program.

    python killing.py FOLDER KILLS SEED TRUST

Sites and the server are forks of this process, so that starting one costs milliseconds. Each sets an alarm that ends it
at once, as kill −9 would: SIGALRM has no handler, so that no line of Python and no `finally` is run. Runs follow each
other until there were enough kills. At the end of each: the same landmarks as without kills; every release is in the
ledger of its site once, and in the server's mirror once.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from accounting.events import Trust
from dpfedvis import FederatedData
from dpfedvis.links import Processes, site_process
from dpfedvis.mechanisms import GradientPerturbation
from dpfedvis.server import Program
from dpfedvis.site import SiteLedger
from tests.links.test_processes import BUDGET, data, events, folders, in_one_process, program

_RESTARTS = 2  # in a row that may die, of the three that a link makes


class Fork:
    """A child process with pipes, as `subprocess.Popen` has them."""

    def __init__(self, work: Callable[[], object], alarm: float) -> None:
        (theirs_in, ours_in), (ours_out, theirs_out) = os.pipe(), os.pipe()
        for end in (ours_in, ours_out):
            os.set_inheritable(end, False)
        self.pid = os.fork()
        if self.pid == 0:
            os.dup2(theirs_in, 0)
            os.dup2(theirs_out, 1)
            os.closerange(3, 256)  # the pipes of other sites too
            code = 1
            try:
                signal.setitimer(signal.ITIMER_REAL, alarm)
                work()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(theirs_in)
        os.close(theirs_out)
        self.stdin, self.stdout = os.fdopen(ours_in, "wb"), os.fdopen(ours_out, "rb")

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        if self.pid:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            self.pid = 0
        return self._status


class Mortal(Processes):
    """Sites that die after a random time, counted in a file."""

    def __init__(self, sites: dict[str, Path], rng: np.random.Generator, kills: Path) -> None:
        self._rng, self._kills, self._row = rng, kills, dict.fromkeys(sites, 0)
        super().__init__(sites)

    def _start(self, name: str) -> None:
        self._row[name] += 1
        alarm = float(self._rng.uniform(0.002, 0.06)) if self._row[name] <= _RESTARTS else 0.0
        folder = self._folders[name]
        self._running[name] = Fork(lambda: _site(folder), alarm)  # type: ignore[assignment]

    def _reply(self, name: str, message: bytes, written: bool) -> Any:
        reply = super()._reply(name, message, written)
        self._row[name] = 0
        return reply

    def _end(self, name: str) -> None:
        count(self._kills)
        super()._end(name)


def _site(folder: Path) -> None:
    sys.stdin = os.fdopen(0, "r")
    site_process.main(folder)


def count(path: Path) -> None:
    """One byte a kill."""
    with path.open("ab", buffering=0) as stream:
        stream.write(b"x")


def server(folder: Path, sites: dict[str, Path], seed: int, made: Program) -> None:
    with Mortal(sites, np.random.default_rng(seed), folder / "kills") as link:
        found = link.run(made, checkpoint=folder / "server")
        np.save(folder / "landmarks.npy", found.landmarks)
        (folder / "run").write_text(found.contract.run)
        (folder / "mirror").write_text("\n".join(sorted(events(found.feddl.ledger))))


def one_run(folder: Path, fed: FederatedData, made: Program, expected: Any, rng: np.random.Generator) -> None:
    folder.mkdir()
    sites = folders(folder, fed)
    while True:
        seed, alarm = int(rng.integers(2**31)), float(rng.uniform(0.02, 0.6))
        running = Fork(lambda seed=seed: server(folder, sites, seed, made), alarm)  # type: ignore[misc]
        if (status := running.wait()) == 0:
            break
        assert status == -signal.SIGALRM, f"the server ended with {status}: see {folder}"
        count(folder / "kills")
    assert np.array_equal(np.load(folder / "landmarks.npy"), expected.landmarks)
    stated = sorted(events(expected.feddl.ledger))
    assert (folder / "mirror").read_text().split("\n") == stated
    for client in fed.clients:
        with SiteLedger.read(sites[client.name] / "ledger.sqlite") as own:
            mine = [each.to_json() for each in own.events((folder / "run").read_text(), client.name)]
        assert sorted(mine) == [each for each in stated if f'"{client.name}"' in each]


def main(folder: Path, kills: int, seed: int, trust: Trust) -> None:
    rng, done, number = np.random.default_rng(seed), 0, 0
    # Three sites, all of whom are needed: a sum that lacks one waits for it.
    fed, made = data(3 if trust == "aggregate" else 2), program(GradientPerturbation(trust=trust), rounds=6)
    expected = in_one_process(fed, made)
    while done < kills:
        one_run(folder / str(number), fed, made, expected, rng)
        seen = folder / str(number) / "kills"
        done, number = done + (seen.stat().st_size if seen.exists() else 0), number + 1
    print(f"{done} kills in {number} runs at budget ε = {BUDGET.epsilon:g}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])  # type: ignore[arg-type]  # as the test says
