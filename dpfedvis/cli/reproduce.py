"""`dpfedvis reproduce`: the paper's tables and figures, with its numbers beside ours."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfedvis.cli.common import add_command, path, print_result
from dpfedvis.cli.sweep import add_workers, workers_of

if TYPE_CHECKING:
    from dpfedvis.experiments.paper.experiments import Experiment
    from dpfedvis.experiments.paper.recipes import Shrink
    from dpfedvis.experiments.sweeps.store import SweepStore

_NAMES = (*(f"table{number}" for number in range(1, 6)), "figure-convergence", "figure-ny", "figure-beta")
_EXAMPLE = """\
examples:
  dpfedvis reproduce --list
  dpfedvis reproduce figure-ny --data digits --records 200 --rounds 5 --seeds 1 --maps tsne --store try.sqlite --out try
  dpfedvis reproduce table1 table2 --seeds 2 --store paper.sqlite
  dpfedvis reproduce table5 --seeds 5 --store paper.sqlite

The second takes seconds; the paper's own scale takes hours. Cells in the store are not rerun, so that an interrupted
command resumes, and more seeds add to those in the store. --only-report writes the pages from the store. The folder
gets a page and a CSV for each name, index.md, and what-reproduces.md: what agrees with the paper and what does not.
"""


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = add_command(
        subparsers,
        "reproduce",
        run,
        help="the paper's tables and figures, with its numbers beside ours",
        description="Run the paper's experiments into a sweep's store, and set its numbers beside ours.",
        epilog=_EXAMPLE,
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help=", ".join(_NAMES))
    parser.add_argument("--list", action="store_true", help="list tables and figures, with their numbers of cells")
    parser.add_argument("--records", type=int, help="at most so many records (the paper's: 40000, or 10000 for table5)")
    parser.add_argument(
        "--rounds", type=int, help="at most so many rounds (the paper's: 500; for table5 5000, or 1000 with noise)"
    )
    parser.add_argument("--seeds", type=int, default=2, help="number of seeds (2; the paper repeats 10 times)")
    parser.add_argument("--maps", default="tsne,umap", help="layouts to make (tsne,umap)")
    parser.add_argument(
        "--estimates", default="nystrom,gram", help="of distances; figures take the first (nystrom,gram)"
    )
    parser.add_argument("--data", help="another data set instead of the paper's, for trials")
    parser.add_argument(
        "--store", metavar="FILE.sqlite", type=path, default=Path("paper.sqlite"), help="of the cells (paper.sqlite)"
    )
    parser.add_argument("--out", metavar="FOLDER", type=path, default=Path("paper"), help="for the pages (paper)")
    parser.add_argument("--retry", action="store_true", help="rerun cells that failed or were refused")
    parser.add_argument("--only-report", action="store_true", help="write the pages from the store, and run nothing")
    add_workers(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from accounting.errors import InvalidParameter
    from dpfedvis.experiments.paper.experiments import EXPERIMENTS
    from dpfedvis.experiments.paper.pages import held_in, write_index
    from dpfedvis.experiments.paper.recipes import Shrink
    from dpfedvis.experiments.sweeps.execution import addressed, sweep
    from dpfedvis.experiments.sweeps.store import StoreUnusable, SweepStore
    from dpfedvis.runs.folder import make

    shrink = Shrink(
        records=arguments.records,
        rounds=arguments.rounds,
        seeds=arguments.seeds,
        maps=tuple(arguments.maps.split(",")),
        estimates=tuple(arguments.estimates.split(",")),
        data=arguments.data,
    )
    if arguments.list:
        return _list(list(EXPERIMENTS.values()), shrink, arguments)
    if not arguments.names or set(arguments.names) - set(EXPERIMENTS):
        raise InvalidParameter("what to reproduce", " ".join(arguments.names), "some of " + ", ".join(EXPERIMENTS))
    chosen = [EXPERIMENTS[name] for name in dict.fromkeys(arguments.names)]
    workers = workers_of(arguments)
    # Checked before the store is created: data that cannot be loaded must not leave an empty one.
    addressed([cell for experiment in chosen for cell in experiment.cells(shrink)])
    # And before hours of work: no store, a folder that cannot be written to, or numbers in it that cannot be read.
    if arguments.only_report or arguments.store.exists():
        SweepStore(arguments.store).close()
    existed = arguments.out.exists()
    make(arguments.out)
    held_in(arguments.out, without=arguments.names)
    summary = []
    try:
        opened = SweepStore(arguments.store, create=not arguments.only_report)
    except StoreUnusable:
        if not existed:
            arguments.out.rmdir()
        raise
    with opened as store:
        for experiment in chosen:
            missing: list[str] = []
            if not arguments.only_report:
                cells = experiment.cells(shrink)
                missing = sweep(cells, store, workers, retry=arguments.retry, title=experiment.name).why
            summary.append({**_write(experiment, shrink, store, arguments), "missing": missing})
    write_index(arguments.out)
    print_result(arguments, summary, "\n".join(map(_said, summary)))
    return 0


def _write(experiment: Experiment, shrink: Shrink, store: SweepStore, arguments: argparse.Namespace) -> dict[str, Any]:
    from dpfedvis.experiments.paper.comparisons import lines, verdicts
    from dpfedvis.experiments.paper.pages import write_experiment
    from dpfedvis.experiments.sweeps.execution import addressed
    from dpfedvis.experiments.sweeps.summary import latest_version

    wanted = addressed(experiment.cells(shrink))
    rows = {row.address: row for row in store.rows() if row.address in wanted}
    version = latest_version(rows.values())
    found = lines(experiment, shrink, rows, version)
    command = command_of(experiment.name, arguments)
    paths = write_experiment(experiment, shrink, found, arguments.out, command, version)
    settings = {line.entry for line in found}
    return {
        "name": experiment.name,
        "settings": len(settings),
        "settings_run": len({line.entry for line in found if line.ours is not None}),
        "verdicts": [str(each) for each in verdicts(found)],
        "files": [str(path) for path in paths],
    }


def _said(summary: dict[str, Any]) -> str:
    head = f"{summary['name']}: {summary['settings_run']} of {summary['settings']} settings run; {summary['files'][0]}"
    return "\n".join([head, *summary["verdicts"], *summary["missing"]])


def command_of(name: str, arguments: argparse.Namespace) -> str:
    """Return the command that reproduces the page."""
    words = ["dpfedvis", "reproduce", name]
    for flag in ("data", "records", "rounds"):
        if (value := getattr(arguments, flag)) is not None:
            words += [f"--{flag}", str(value)]
    words += ["--seeds", str(arguments.seeds)]
    for flag, default in (("maps", "tsne,umap"), ("estimates", "nystrom,gram")):
        if (value := getattr(arguments, flag)) != default:
            words += [f"--{flag}", value]
    return shlex.join([*words, "--store", str(arguments.store), "--out", str(arguments.out)])


def _list(experiments: list[Experiment], shrink: Shrink, arguments: argparse.Namespace) -> int:
    rows = [{"name": each.name, "title": each.title, "cells": len(each.cells(shrink))} for each in experiments]
    lines = [f"{'name':<20} {'cells':>5}  with {shrink.seeds} seeds each"]
    lines += [f"{row['name']:<20} {row['cells']:>5}  {row['title']}" for row in rows]
    print_result(arguments, rows, "\n".join(lines))
    return 0
