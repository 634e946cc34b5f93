"""What the commands share: where they may print and write, JSON, and progress bars."""

from __future__ import annotations

import argparse
import json
import logging
import os
import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.plain_text import visible
from dpfedvis.numerics.progress import bar

_OUTPUTS = ("out", "owner_out", "store", "views")
_LONGEST = 200  # bytes of a name; file systems allow 255, and files beside it take the name and a suffix
_SHOWN = 60  # characters of a name in a message


class UnusableArgument(DpfedvisError):
    """An argument that cannot be used, whatever the command."""


class MissingOption(DpfedvisError):
    """An option that the chosen mechanism needs."""


class OutputClosed(DpfedvisError):
    """Standard output is closed before the command has begun."""


def add_command(subparsers: Any, name: str, run: Callable[..., int], **texts: str) -> argparse.ArgumentParser:
    """Add a command with `--json`, `--quiet` and an epilog that is printed as it stands."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name, formatter_class=argparse.RawDescriptionHelpFormatter, **texts
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_quiet(parser)
    parser.set_defaults(run=run)
    return parser


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add `--quiet`, which `main` heeds."""
    parser.add_argument("--quiet", action="store_true", default=False, help="show no progress")


class _SiteLog(logging.Handler):
    """Prints what sites of this process log, one line each."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line, with the error that it is of and without a traceback."""
        error = record.exc_info[1] if record.exc_info else None
        why = "" if error is None else f" ({error or type(error).__name__})"
        print("dpfedvis:", visible(" ".join(f"{record.getMessage()}{why}".split())), file=sys.stderr)


@contextmanager
def shown_site_log() -> Iterator[None]:
    """Show what sites log: to a server they say less, but here the user is the owner of their records."""
    logger, handler = logging.getLogger("dpfedvis.site"), _SiteLog()
    logger.addHandler(handler)
    before, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


def reopen_closed_streams() -> None:
    """Point closed standard streams to /dev/null.

    Otherwise the next file that is opened, such as a ledger, would get the number of standard output or error.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        if number == 2:
            sys.stderr = open(number, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # stays open
    os.close(number)


def refuse_closed_output() -> None:
    """Raise if standard output is closed, before any work is done."""
    if sys.stdout is None:
        raise OutputClosed("standard output is closed; nothing was done")
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):  # a stream of a caller's own
        return
    poll = select.poll()
    poll.register(number, select.POLLOUT)
    if any(state & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, state in poll.poll(0)):
        raise OutputClosed("standard output is closed; nothing was done")


def refuse_foreign_bytes(words: Sequence[str]) -> None:
    """Raise if an argument is not UTF-8, as every file that names it is."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UnusableArgument(f"{shortened(word)} is not UTF-8; rename it") from None


def refuse_bad_outputs(arguments: argparse.Namespace) -> None:
    """Raise if an output is the root folder, has no name, or a name that is too long."""
    for name in _OUTPUTS:
        given = getattr(arguments, name, None)
        if given is None:
            continue
        place, flag = Path(given), f"--{name.replace('_', '-')}" if name != "store" else "the store"
        if not str(given).strip():
            raise UnusableArgument(f"{flag} is empty; give it a name")
        if place.resolve() == Path(place.anchor or "/"):
            raise UnusableArgument(f"{flag} {place} is the root folder; choose another")
        if longest := max((part for part in place.parts if len(os.fsencode(part)) > _LONGEST), default=""):
            raise UnusableArgument(
                f"{flag} {shortened(longest)} is longer than {_LONGEST} bytes; choose a shorter name"
            )


def path(text: str) -> Path:
    """Parse a path; `Path("")` would be the current folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError("is empty; give it a name")
    return Path(text)


def said(error: OSError) -> str:
    """Return an error of the file system in one sentence."""
    reason = error.strerror or type(error).__name__
    return reason if error.filename is None else f"{shortened(os.fsdecode(error.filename))}: {reason}"


def shortened(name: str) -> str:
    """Return a name as a message shows it: printable, and not too long."""
    plain = name.encode(errors="backslashreplace").decode()
    return plain if len(plain) <= _SHOWN else f"{plain[:_SHOWN]}…"


def printable(value: Any) -> str:
    """Return what came from another machine as a terminal may show it: no control characters, on one line."""
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in str(value))


def print_json(value: Any) -> None:
    """Print JSON for machines, without NaN or infinity."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False), flush=True)


def print_result(arguments: argparse.Namespace, value: Any, text: str) -> None:
    """Print the value as JSON with `--json`, else the text."""
    if arguments.json:
        print_json(value)
    else:
        print(visible(text), flush=True)


def progress_bar(title: str, unit: str) -> Callable[[int, int], None]:
    """Return a progress bar to call with (done, total); silent where standard error is no terminal."""
    bars: list[Any] = []  # made at the first call, as several may wait for their turn

    def show(done: int, total: int) -> None:
        if not bars:
            bars.append(bar(total, unit, title))
        bars[0].update(done - bars[0].n)
        if done == total:
            bars[0].close()

    return show
