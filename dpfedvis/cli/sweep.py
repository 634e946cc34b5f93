"""`dpfedvis sweep`: many runs into one store, and what they say about privacy and utility."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfedvis.cli.common import add_command, path, print_json, print_result
from dpfedvis.numerics.progress import bar

if TYPE_CHECKING:
    from dpfedvis.experiments.sweeps.execution import Workers
    from dpfedvis.experiments.sweeps.store import CellRow
    from dpfedvis.runs.code_version import CodeVersion

_GRID = """\
seeds = 2
data = "digits"
records = 200
clients = 4
landmarks = 20
rounds = 5
perplexity = 10
baselines = ["chance", "data-free", "central"]

[[grid]]
mechanism = ["k-means", "gradient"]
trust = "aggregate"
epsilon = [2, 20, "inf"]

[[grid]]
mechanism = "mean-embedding"
scope = "landmarks"
epsilon = [2, 20]
"""
_EXAMPLE = f"""\
examples:
  dpfedvis sweep example > grid.toml
  dpfedvis sweep run grid.toml --store sweep.sqlite --jobs 2
  dpfedvis sweep list sweep.sqlite
  dpfedvis sweep report sweep.sqlite --out privacy-utility

the grid of `dpfedvis sweep example`, which takes less than a minute:

{_GRID}
Lists are axes, and every combination is a cell; keys above the first [[grid]] hold for all. Every setting of
`dpfedvis run` is a key (as in config.toml); bounds, gamma and classes are lists themselves, so that an axis of
them is a list of lists. epsilon may be "inf", a run without a budget, or 0, the data-free baseline. seeds is a
number or a list. baselines are what scores are held against, once a seed: what chance gets, the private map by the
default recipe at ε = 0.001 (data-free: one for all mechanisms, trusts and ε of a grid), and a map of all records in one
place (central).
"""
_RUN = """\
examples:
  dpfedvis sweep example > grid.toml
  dpfedvis sweep run grid.toml --store sweep.sqlite --jobs 2
  dpfedvis sweep run grid.toml --store sweep.sqlite --backend dask

--backend dask or ray starts a cluster on this machine; with --scheduler tcp://HOST:8786 (Dask) or HOST:6379 (Ray) it
uses a running one, whose workers must see the same folder.
A cell has one row, under a hash of its settings and its data. Cells in the store are not rerun, so that an interrupted
sweep resumes, and a larger grid runs only its new cells. Refused and failed cells become rows with the reason; --retry
reruns them. Each row names the version of the code that made it. The folder *.cache beside the store keeps neighbours
and landmarks that cells share; it may be deleted.
"""
_LIST = """\
example:
  dpfedvis sweep list sweep.sqlite

A star marks rows made by another version of the code.
"""
_REPORT = """\
example:
  dpfedvis sweep report sweep.sqlite --out privacy-utility

The folder gets report.html (one file, opens offline), report.md, points.csv, and the curves as SVG.
"""


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = subparsers.add_parser(
        "sweep",
        help="run a grid of settings, and report what privacy costs",
        description="Run a grid of settings into one store; report privacy–utility curves from it.",
        epilog=_EXAMPLE,
        formatter_class=raw,
    )
    commands = parser.add_subparsers(metavar="run|list|report|example", required=True)
    run = add_command(commands, "run", run_grid, help="run the cells that the store does not have yet", epilog=_RUN)
    run.add_argument("grid", metavar="GRID.toml", type=path)
    run.add_argument("--store", required=True, metavar="FILE.sqlite", type=path, help="created if missing")
    run.add_argument("--retry", action="store_true", help="rerun cells that failed or were refused")
    run.add_argument("--dry-run", action="store_true", help="count the cells, and run none")
    add_workers(run)
    listing = add_command(commands, "list", list_rows, help="list the rows of a store", epilog=_LIST)
    report = add_command(commands, "report", report_on, help="draw curves and tables", epilog=_REPORT)
    report.add_argument("--out", required=True, metavar="FOLDER", type=path, help="for page, tables and curves")
    for command in (listing, report):
        command.add_argument("store", metavar="FILE.sqlite", type=path)
    example = commands.add_parser(
        "example",
        help="print a grid to start from",
        epilog="example:\n  dpfedvis sweep example > grid.toml",
        formatter_class=raw,
    )
    example.set_defaults(run=print_example)


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add the flags for workers."""
    parser.add_argument("--jobs", type=int, help="cells at a time (the cores of this machine)")
    parser.add_argument("--backend", default="loky", help="loky, threading, dask or ray (loky)")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a running Dask or Ray cluster (one on this machine)")
    parser.add_argument("--threads", type=int, default=1, help="of linear algebra and t-SNE in each worker (1)")


def workers_of(arguments: argparse.Namespace) -> Workers:
    """Return the workers; raise if their cluster does not answer."""
    from dpfedvis.experiments.sweeps.clusters import refuse_missing
    from dpfedvis.experiments.sweeps.execution import Workers, default_jobs

    jobs = default_jobs() if arguments.jobs is None else arguments.jobs
    workers = Workers(jobs, arguments.backend, arguments.scheduler, arguments.threads)
    refuse_missing(workers.backend, workers.scheduler)
    return workers


def run_grid(arguments: argparse.Namespace) -> int:
    """Run a grid."""
    from dpfedvis.experiments.sweeps.execution import addressed, sweep
    from dpfedvis.experiments.sweeps.grid import Grid
    from dpfedvis.experiments.sweeps.store import SweepStore

    grid, workers = Grid.from_toml(arguments.grid), workers_of(arguments)
    # Checked before the store is created: data that cannot be loaded must not leave an empty one.
    wanted = addressed(grid.cells)
    if arguments.dry_run:
        known = _known(arguments.store)
        summary = {"cells": len(wanted), "known": len(known & set(wanted))}
        print_result(arguments, summary, f"{summary['cells']} cells, {summary['known']} in the store")
        return 0
    with SweepStore(arguments.store, create=True) as store:
        done = sweep(grid.cells, store, workers, retry=arguments.retry)
    if arguments.json:
        counted: dict[str, Any] = {"cells": done.cells, "known": done.known, "known_without_scores": done.unscored}
        counted |= {str(status): count for status, count in done.statuses.items()}
        print_json({**counted, "reasons": done.reasons} if done.reasons else counted)
    else:
        following = f"next: {shlex.join(['dpfedvis', 'sweep', 'report', str(arguments.store)])} --out FOLDER"
        print("\n".join([f"{done}; {arguments.store}", *done.why, following]))
    return 0


def _known(path: Path) -> set[str]:
    from dpfedvis.experiments.sweeps.store import SweepStore

    if not path.exists():
        return set()
    with SweepStore(path) as store:
        return set(store.statuses())


def list_rows(arguments: argparse.Namespace) -> int:
    """List a store."""
    from dpfedvis.experiments.sweeps.store import SweepStore
    from dpfedvis.runs.code_version import code_version

    with SweepStore(arguments.store) as store:
        rows = store.rows()
    current = code_version()
    if arguments.json:
        print_json([{**row.to_dict(), "other_code": row.version != current} for row in rows])
        return 0
    lines = [f"{'address':<10} {'status':<8} {'kind':<9} {'ε':>8} {'seconds':>8}  settings"]
    lines += [_line(row, current) for row in rows]
    print("\n".join(lines))
    return 0


def _line(row: CellRow, current: CodeVersion) -> str:
    from accounting.rounding import rounded_up

    epsilon = row.epsilon_end_to_end
    shown = "-" if epsilon is None else rounded_up(epsilon)
    settings = ", ".join(f"{name} {value}" for name, value in row.settings.items())
    star = " " if row.version == current else "*"
    reason = f" | {row.error}" if row.error else ""
    return (
        f"{row.address[:8]}{star:<2} {row.status:<8} {row.kind:<9} {shown:>8} {row.seconds:>8.1f}  {settings}{reason}"
    )


def report_on(arguments: argparse.Namespace) -> int:
    """Write the report."""
    from dpfedvis.experiments.sweeps.report import write_report
    from dpfedvis.experiments.sweeps.store import SweepStore

    with SweepStore(arguments.store) as store:
        rows = store.rows()
    command = shlex.join(["dpfedvis", "sweep", "report", str(arguments.store), "--out", str(arguments.out)])
    with bar(1, "page", "report"):
        paths = write_report(rows, arguments.out, command)
    print_result(arguments, [str(path) for path in paths], f"wrote {', '.join(map(str, paths))}\nopen {paths[0]}")
    return 0


def print_example(arguments: argparse.Namespace) -> int:
    """Print a grid that can be run."""
    print(_GRID, end="")
    return 0
