"""Processes that are to be killed, and the kinds of run that they are killed in."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

SMALL = ["--data", "digits", "--records", "60", "--clients", "3", "--landmarks", "8", "--rounds", "3"]
SMALL += ["--perplexity", "5", "--jobs", "1", "--no-yardsticks"]
NOISY = ["--epsilon", "2", "--release", "noisy", "--mechanism", "gradient"]
# Few anchors, placed simply: clients place their records at home, after all that can be interrupted.
DENSITY = ["--epsilon", "2", "--density", "--anchors", "40", "--placement", "weights", "--anyway"]
KINDS = {
    "exact": [],
    "noisy": NOISY,
    "noisy, discrete": [*NOISY, "--noise", "discrete", "--gamma", "histogram"],
    "noisy, aggregate": [*NOISY, "--trust", "aggregate", "--noise", "discrete"],
    "input": ["--epsilon", "2", "--mechanism", "input", "--noise", "discrete"],
    "clusters": ["--epsilon", "2", "--map", "clusters", "--clusters", "3", "--release", "noisy", "--noise", "discrete"],
    "density": [*DENSITY, "--mechanism", "gradient"],
    "density, central": [*DENSITY, "--trust", "central", "--noise", "discrete"],
    "density, discrete": [*DENSITY, "--noise", "discrete"],
    "umap": [*DENSITY, "--map", "umap", "--noise", "discrete"],
}
# UMAP takes long to start, and what is released does not depend on it.
ALIKE = {"umap": "density, discrete"}

# One process that has everything loaded forks those that are to be killed: each is a process of its own, and starts at
# once. It sends itself the signal before or after its n-th write, so that the moment is known.
NURSERY = """
import contextlib, json, os, sys
import accounting, dp_accounting.pld, dp_accounting.rdp, dpfedvis.reporting.run_report, openTSNE, tqdm
import matplotlib.backends.backend_agg, scipy.optimize, sklearn.cluster, sklearn.datasets, sklearn.manifold
from dpfedvis.cli import main as cli
from dpfedvis.reporting import run_report
from dpfedvis.runs import execute, provenance, results, resume, statement_file, upload_writer
from dpfedvis.server import checkpoint, session
from dpfedvis.server.mirror import Mirror
from dpfedvis.site import SiteLedger, outbox

with contextlib.suppress(ImportError):
    import opacus.accountants


texts = (upload_writer, execute, results, run_report, provenance, statement_file, resume)
WRITES = {
    "outbox": [(outbox, "write_arrays")],
    "site ledger": [(SiteLedger, "write")],
    "mirror": [(Mirror, "write")],
    "curator": [(session, "write_arrays")],
    "recorder": [(upload_writer.Recorder, "_append")],
    "checkpoint": [(checkpoint, "write_arrays")],
    "results": [(each, "write_arrays") for each in (upload_writer, results)],
    "texts": [(each, "write_text") for each in texts],
}


def sabotage(at, kind, after, number):
    count = 0

    def wrapped(call):
        def run(*given, **named):
            nonlocal count
            count += 1
            mine = count == at
            if mine and not after:
                os.kill(os.getpid(), number)
            result = call(*given, **named)
            if mine and after:
                os.kill(os.getpid(), number)
            return result

        return run

    kinds = WRITES if kind is None else [kind]
    for place, name in (write for each in kinds for write in WRITES[each]):
        setattr(place, name, wrapped(getattr(place, name)))


for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if child == 0:
        sys.stdin.close()
        for number, path in ((1, os.devnull), (2, order["errors"])):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        if order["at"] is not None:
            sabotage(order["at"], order["kind"], order["after"], order["signal"])
        os._exit(cli.main(order["arguments"]))
    print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])), flush=True)
"""


class Nursery:
    """Runs the command line in processes of their own."""

    def __init__(self, folder: Path) -> None:
        self._errors = folder / "errors.txt"
        self._process = subprocess.Popen(
            [sys.executable, "-c", NURSERY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(
        self,
        *arguments: str,
        at: int | None = None,
        kind: str | None = None,
        after: bool = False,
        number: int = signal.SIGKILL,
    ) -> tuple[int, str]:
        """Return the exit code, or minus the signal, and what was said on standard error.

        The signal comes before or after write `at`, counted among those of one kind, or among all.
        """
        order = {"arguments": ["run", *arguments], "at": at, "kind": kind, "after": after, "signal": int(number)}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**order, "errors": str(self._errors)}) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline()), self._errors.read_text()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()
