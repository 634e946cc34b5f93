"""`dpfedvis report`: make the page about a run again, from its folder."""

from __future__ import annotations

import argparse
import json
from typing import Any

_EXAMPLE = """\
example:
  dpfedvis run --data digits --clients 5 --epsilon 4 --out runs/fourth
  dpfedvis report --run runs/fourth

dpfedvis run leaves report.html by itself; this makes it again, with figures/, from what is in the folder. What lies
past the door is shown for simulations only (see dpfedvis run --help).
"""


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "report",
        help="make the page about a run again",
        description="Make report.html and figures/ of a finished run again, from its folder alone.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--run", required=True, metavar="FOLDER", dest="folder", help="what dpfedvis run left")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from dpfedvis.reporting.run_report import write_report
    from dpfedvis.runs.folder import FolderUnusable

    try:
        path = write_report(arguments.folder)
    except OSError as error:
        raise FolderUnusable(f"{arguments.folder} cannot be written to: {error.strerror}") from error
    print(json.dumps({"report": str(path)}) if arguments.json else f"wrote {path}")
    return 0
