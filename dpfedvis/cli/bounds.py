"""`dpfedvis bounds`: the paper's error bounds, ours and the truth, on one data set."""

from __future__ import annotations

import argparse
import shlex
import sys
from typing import Any

from dpfedvis.cli.common import add_command, path, print_result
from dpfedvis.numerics import progress

_EXAMPLE = """\
examples:
  dpfedvis bounds --data digits --records 300 --landmarks 10,40 --sigma 0,0.1
  dpfedvis bounds --data mnist --records 2000 --landmarks 50,100,200,500 --sigma 0,0.01,0.1 --out bounds

With --out, the folder gets a page (Markdown), a figure (SVG, log scale) and all numbers (JSON). Nothing is protected:
everything is computed from the exact records, so the result is only for their owner.
"""


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = add_command(
        subparsers,
        "bounds",
        run,
        help="compare error bounds with the truth",
        description="Compare error bounds of the paper, as printed and repaired, and our own with the true error.",
        epilog=_EXAMPLE,
    )
    parser.add_argument(
        "--data", default="digits", help="name of a data set (see dpfedvis data list), or a file (digits)"
    )
    parser.add_argument("--records", type=int, help="take only the first so many records")
    parser.add_argument("--landmarks", type=_counts, default="20,50,100,200", help="numbers n_y (20,50,100,200)")
    parser.add_argument(
        "--sigma", type=_numbers, default="0,0.01,0.1", help="noise on landmarks and records (0,0.01,0.1)"
    )
    parser.add_argument("--gamma", type=float, help="kernel width γ (one over the median squared distance)")
    parser.add_argument("--rounds", type=int, default=50, help="rounds in which landmarks are learned (50)")
    parser.add_argument("--failure", type=float, default=0.05, help="probability with which bounds may fail (0.05)")
    parser.add_argument("--seed", type=int, default=0, help="(0)")
    parser.add_argument("--no-download", action="store_true", help="do not download from OpenML")
    parser.add_argument("--out", type=path, metavar="FOLDER", help="for page, figure and JSON")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""

    from dpfedvis.data import load
    from dpfedvis.evaluation.theory.other_theorems import other_theorems
    from dpfedvis.evaluation.theory.study import Settings, Study
    from dpfedvis.reporting import bounds
    from dpfedvis.runs.folder import make

    settings = Settings(
        landmarks=arguments.landmarks,
        sigmas=arguments.sigma,
        gamma=arguments.gamma,
        rounds=arguments.rounds,
        failure=arguments.failure,
        seed=arguments.seed,
    )
    dataset = load(arguments.data, records=arguments.records, download=not arguments.no_download)
    study = Study(dataset, settings)
    if arguments.out is not None:
        make(arguments.out)  # before the work, not after it
    with progress.bar(len(study.plan()), "case", "bounds") as bar:
        cases = study.run(lambda _: bar.update())
    rows, rest = study.rows(), other_theorems(study)
    command = command_of(arguments)
    if arguments.out is not None:
        paths = bounds.write(arguments.out, study, cases, rows, rest, command)
        print("wrote " + ", ".join(map(str, paths)), file=sys.stderr)
    page = bounds.page(study, cases, rows, rest, command).rstrip("\n")
    print_result(arguments, bounds.as_json(study, cases, rows, rest, command), page)
    return 0


def command_of(arguments: argparse.Namespace) -> str:
    """Return the command that reproduces the numbers."""
    words = ["dpfedvis", "bounds", "--data", arguments.data]
    if arguments.records is not None:
        words += ["--records", str(arguments.records)]
    words += ["--landmarks", ",".join(map(str, arguments.landmarks))]
    words += ["--sigma", ",".join(repr(sigma).removesuffix(".0") for sigma in arguments.sigma)]
    if arguments.gamma is not None:
        words += ["--gamma", repr(arguments.gamma)]
    for name, default in (("rounds", 50), ("failure", 0.05), ("seed", 0)):
        value = getattr(arguments, name)
        if value != default:
            words += [f"--{name}", str(value)]
    return shlex.join(words)


def _counts(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number or a list such as 50,100") from None


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number or a list such as 0,0.1") from None
