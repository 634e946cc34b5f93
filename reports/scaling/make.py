"""Time and memory of a private map against the number of records, from 10⁴ to 10⁶.

    python reports/scaling/make.py

Records of 64 features in twelve curved clusters, drawn here; 10 sites, each a process of its own with secure sums
between them; `FedTSNE(budget=Budget(1, 1e-5), trust="aggregate")` and nothing else chosen. Each finished size is kept
in `cells/`, so that an interrupted run resumes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from accounting import Budget
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.evaluation import cross_client_accuracy
from dpfedvis.numerics.neighbors import BLOCK_BYTES
from dpfedvis.protocol.published_map import MOST_TOGETHER
from dpfedvis.runs.code_version import code_version

HERE = Path(__file__).parent
SITES, FEATURES, CLUSTERS = 10, 64, 12
SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
MIB = 2**20
SCORED = 2000  # records of each site that are classified, by as many of each other site
TICK = os.sysconf("SC_CLK_TCK")
BASE = 1000  # records of the map that shows what libraries take
NOTE = """\
# Time and memory against the number of records

Made by `python reports/scaling/make.py`, code {code}. Records of 64 features in twelve curved clusters, drawn by the
code; 10 sites, each a process of its own, with secure sums between them; ε = 1, δ = 1e-5, trust *aggregate*, seeded
noise, nothing else chosen. A site lays out at most {together:,} of its records and places the others among them.
Neighbours are searched among those that are laid out, exactly: recall 1.

**Time.** Processor seconds of all processes, less those of a map of {base_records:,} records ({base_seconds:.0f} s:
interpreters, libraries, a small map). Other work on the machine changes them little (*load*: mean over five minutes;
*wall* is that of a busy machine of two cores). Exponent of time in n, fitted through the {sizes} sizes
below: **{all:.2f}**{large}.

**Memory.** Largest resident size of a site's process, less that of a site with {base} records
({base_peak:.0f} MiB: interpreter, libraries, a small map). A block is {block} MiB, that of the search of neighbours.
The bound is a site's records and three blocks; the largest need beyond the records is {most:.0f} MiB.

*cross*: 10-NN accuracy of 2,000 records of each site among 2,000 of each other site, 12 clusters.

![time and memory](scaling.png)
"""


def drawn(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return n records of curved clusters, shape (n, 64), float32, from −1.5 to 1.5, and their clusters."""
    rng = np.random.default_rng(0)
    basis, middles = rng.normal(size=(8, FEATURES)) / 3, 2.0 * rng.normal(size=(CLUSTERS, 8))
    X, y = np.empty((n, FEATURES), np.float32), rng.integers(0, CLUSTERS, n)
    for start in range(0, n, 50_000):
        part = slice(start, min(start + 50_000, n))
        inner = middles[y[part]] + rng.normal(size=(part.stop - start, 8))
        noise = 0.1 * rng.normal(size=(part.stop - start, FEATURES))
        X[part] = np.clip(np.tanh(inner @ basis) + noise, -1.5, 1.5)
    return X, y


class Watch(threading.Thread):
    """Processor seconds and largest resident size of every child of this process, as the system counts them."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seconds: dict[int, float] = {}
        self.peak: dict[int, int] = {}
        self._done = threading.Event()

    def run(self) -> None:
        """Look five times a second."""
        while not self._done.wait(0.2):
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    used = (process / "stat").read_text().rpartition(")")[2].split()
                    if int(used[1]) != os.getpid():
                        continue
                    size = [line for line in (process / "status").read_text().splitlines() if "VmHWM" in line]
                except OSError:
                    continue  # it has ended
                if size:
                    self.peak[int(process.name)] = 1024 * int(size[0].split()[1])
                    self.seconds[int(process.name)] = (int(used[11]) + int(used[12])) / TICK

    def end(self) -> None:
        """Stop looking."""
        self._done.set()
        self.join()


def measured(n: int) -> dict[str, Any]:
    """Make one map; return its times, memory and score."""
    X, y = drawn(n)
    fed = FederatedData.split(X, y, clients=SITES, seed=0, bounds=(-1.5, 1.5))
    del X
    estimator = FedTSNE(budget=Budget(1, 1e-5), trust="aggregate", noise="seeded", random_state=0)
    with tempfile.TemporaryDirectory() as folder:
        watch = Watch()
        watch.start()
        began, own = time.perf_counter(), time.process_time()
        estimator.watch(processes=folder).fit(fed)
        wall, server = time.perf_counter() - began, time.process_time() - own
        watch.end()
        places = [np.load(Path(folder) / str(site) / "placed.npz")["places"] for site in range(SITES)]
    some = [np.random.default_rng(0).permutation(len(own))[:SCORED] for own in places]
    labels = [client.y for client in fed.clients]
    score = cross_client_accuracy(
        [own[rows] for own, rows in zip(places, some, strict=True)],
        [own[rows] for own, rows in zip(labels, some, strict=True)],
    )
    return {
        "records": n,
        "bytes_a_site": fed.clients[0].X.nbytes,
        "landmarks": len(estimator.landmarks_),
        "sites_seconds": sum(watch.seconds.values()),
        "server_seconds": server,
        "wall": wall,
        "peak_a_site": max(watch.peak.values()),
        "cross": score,
        "code": str(code_version()),
        "load": os.getloadavg()[1],
    }


def exponent(cells: list[dict[str, Any]], key: str) -> float:
    """Slope of the line through logarithms, least squares."""
    return float(np.polyfit(np.log([each["records"] for each in cells]), np.log([each[key] for each in cells]), 1)[0])


def run(sizes: list[int]) -> None:
    """Run all sizes that are not there yet."""
    (HERE / "cells").mkdir(exist_ok=True)
    for n in sizes:
        path = HERE / "cells" / f"{n}.json"
        if path.exists():
            continue
        found = measured(n)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(found, indent=1) + "\n")
        temporary.replace(path)
        print(found, file=sys.stderr, flush=True)


def cells() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the smallest map, and all others by size."""
    found = sorted(
        (json.loads(path.read_text()) for path in (HERE / "cells").glob("*.json")), key=lambda c: c["records"]
    )
    base, *others = found
    for each in others:
        each["seconds"] = each["sites_seconds"] + each["server_seconds"]
        # Without interpreters and libraries, whose fixed cost would make the exponent look better.
        each["net"] = each["seconds"] - base["sites_seconds"] - base["server_seconds"]
        each["above"] = each["peak_a_site"] - base["peak_a_site"]
        each["beyond"] = each["above"] - each["bytes_a_site"]
    return base, others


def draw(found: list[dict[str, Any]]) -> None:
    """Draw time and memory against n."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    n = np.array([each["records"] for each in found])
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), dpi=110)
    seconds = np.array([each["net"] for each in found])
    left.loglog(n, seconds, "o-", c="C0", label="all sites and the server")
    left.loglog(n, seconds[0] * n / n[0], ":", c="0.5", label="linear in n")
    left.set(xlabel="records n", ylabel="processor seconds")
    right.loglog(n, [each["above"] / MIB for each in found], "o-", c="C1", label="a site's peak, less its libraries")
    right.loglog(n, [each["bytes_a_site"] / MIB for each in found], "--", c="0.5", label="its records")
    bound = [(each["bytes_a_site"] + 3 * BLOCK_BYTES) / MIB for each in found]
    right.loglog(n, bound, ":", c="0.5", label="its records and 3 blocks")
    right.set(xlabel="records n", ylabel="MiB")
    for axes in (left, right):
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(HERE / "scaling.png", metadata={"Software": None})
    plt.close(figure)


def page(base: dict[str, Any], found: list[dict[str, Any]]) -> str:
    """Return the page."""
    large = [each for each in found if each["records"] >= 100_000]
    lines = [
        NOTE.format(
            code=", ".join(sorted({each["code"] for each in [base, *found]})),
            together=MOST_TOGETHER,
            block=BLOCK_BYTES // MIB,
            base=base["records"] // SITES,
            base_peak=base["peak_a_site"] / MIB,
            base_records=base["records"],
            base_seconds=base["sites_seconds"] + base["server_seconds"],
            sizes=len(found),
            all=exponent(found, "net"),
            large=f", and {exponent(large, 'net'):.2f} from 10⁵ on" if len(large) > 1 else "",
            most=max(each["beyond"] for each in found) / MIB,
        ),
        "| records | a site's | landmarks | processor s | of which server | wall s | load | "
        "peak of a site less libraries, MiB | its records, MiB | beyond its records, blocks | cross |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for each in found:
        row = [
            f"{each['records']:,}",
            f"{each['records'] // SITES:,}",
            each["landmarks"],
            f"{each['net']:.0f}",
            f"{each['server_seconds']:.0f}",
            f"{each['wall']:.0f}",
            f"{each['load']:.1f}",
            f"{each['above'] / MIB:.0f}",
            f"{each['bytes_a_site'] / MIB:.1f}",
            f"{each['beyond'] / BLOCK_BYTES:.2f}",
            f"{each['cross']:.3f}",
        ]
        lines.append("| " + " | ".join(map(str, row)) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[BASE, *SIZES])
    run(parser.parse_args().sizes)
    base, found = cells()
    if len(found) > 1:
        draw(found)
        (HERE / "results.md").write_text(page(base, found))


if __name__ == "__main__":
    main()
