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

import dpfedvis
from accounting.errors import AccountingError
from dpfedvis.cli import (
    attack,
    audit,
    bounds,
    calibrate,
    data,
    demo,
    federation,
    plan,
    report,
    reproduce,
    run,
    server,
    site,
    statement,
    sweep,
)
from dpfedvis.cli.common import (
    refuse_bad_outputs,
    refuse_closed_output,
    refuse_foreign_bytes,
    reopen_closed_streams,
    said,
    shown_site_log,
)
from dpfedvis.cli.settings_flags import LateParser
from dpfedvis.errors import DpfedvisError, NothingToShow
from dpfedvis.numerics.plain_text import visible
from dpfedvis.numerics.progress import quiet

_COMMANDS = (
    *(run, plan, statement, report, sweep, calibrate, bounds, attack, audit, reproduce, data, demo),
    *(federation, site, server),
)

_EPILOG = """\
examples:
  dpfedvis demo --out runs/story
  dpfedvis run --data digits --clients 10 --partition dirichlet:0.5 --map tsne --epsilon 2 --out runs/first
  dpfedvis calibrate --epsilon 1 --delta 1e-5 --mechanism gradient --rounds 50 \\
      --records 4000 --landmarks 500 --gamma 0.005
"""


class _Parser(LateParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {visible(message)} (see {self.prog} --help)\n")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = _Parser(
        prog="dpfedvis",
        description="Federated t-SNE, UMAP and clustering with a privacy guarantee that can be checked.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"%(prog)s {dpfedvis.__version__}")
    subparsers = top.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for command in _COMMANDS:
        command.add_parser(subparsers)
    return top


def unraised(what: sys.UnraisableHookArgs) -> None:
    """Report errors that cannot be raised, except from a `ZipFile` that Ctrl-C stopped while it was made.

    Its destructor complains of missing attributes, below the one sentence that tells how to resume.
    """
    if what.object is not ZipFile.__del__:
        sys.__unraisablehook__(what)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; bad input ends with one sentence on standard error and exit code 2."""
    if argv is None:  # a program of its own, and not a part of another
        sys.unraisablehook = unraised
        reopen_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters still gets its numbers
    try:
        refuse_closed_output()
        refuse_foreign_bytes(sys.argv[1:] if argv is None else argv)
        arguments = parser().parse_args(argv)
        refuse_bad_outputs(arguments)
        with shown_site_log(), quiet(getattr(arguments, "quiet", False)):
            code: int = arguments.run(arguments)
        sys.stdout.flush()
    except (AccountingError, DpfedvisError) as error:
        print(f"dpfedvis: {visible(str(error))}", file=sys.stderr)
        return 3 if isinstance(error, NothingToShow) else 2
    except BrokenPipeError:
        # The reader, such as `head`, has gone; the interpreter would complain once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"dpfedvis: {said(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stop:
        print("; ".join(["dpfedvis: interrupted", *map(str, stop.args)]), file=sys.stderr)
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
