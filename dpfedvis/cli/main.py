"""The command line: `dpfedvis COMMAND`. Each command lives in its own module under `dpfedvis.cli`.

Command modules import their heavy parts when they run, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn
from zipfile import ZipFile

from accounting.errors import AccountingError
from dpfedvis.cli import attack, audit, bounds, calibrate, data, demo, report, reproduce, run, sweep
from dpfedvis.errors import DpfedvisError

_COMMANDS = (run, report, sweep, calibrate, bounds, attack, audit, reproduce, data, demo)

_EPILOG = """\
examples:
  dpfedvis demo --out runs/story
  dpfedvis run --data digits --clients 10 --partition dirichlet:0.5 --map tsne --epsilon 2 --out runs/first
  dpfedvis calibrate --epsilon 1 --delta 1e-5 --mechanism gradient --rounds 50 \\
      --records 4000 --landmarks 500 --gamma 0.005
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = _Parser(
        prog="dpfedvis",
        description="Federated t-SNE, UMAP and clustering with a privacy guarantee that can be checked.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    subparsers = top.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for command in _COMMANDS:
        command.add_parser(subparsers)
    return top


def unraised(what: sys.UnraisableHookArgs) -> None:
    """Report what went wrong where nothing can be raised, unless it is an archive that Ctrl-C stopped in its making.

    Python's `ZipFile` then complains of its missing attributes as it is thrown away, below the one sentence that tells
    how to go on.
    """
    if what.object is not ZipFile.__del__:
        sys.__unraisablehook__(what)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; bad input ends with one sentence on standard error and exit code 2."""
    if argv is None:  # a program of its own, and not a part of another
        sys.unraisablehook = unraised
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters still gets its numbers
    arguments = parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except (AccountingError, DpfedvisError) as error:
        print(f"dpfedvis: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader, such as `head`, has gone; the interpreter would complain once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as stop:
        print("; ".join(["dpfedvis: interrupted", *map(str, stop.args)]), file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
