"""`dpfedvis server`: the server of a federation. It holds no records."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from typing import Any

from dpfedvis.cli.common import UnusableArgument, add_command, path, print_result

_EXAMPLE = """\
examples:
  dpfedvis server start kits/server

The server listens on one port, for the sites and the admin of its federation alone. It keeps runs in its kit, and runs
until Ctrl-C; a run that is interrupted can be resumed.
"""


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "server",
        help="be the server of a federation",
        description="Run the server of a federation.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    start = add_command(actions, "start", _start, help="run the server, until Ctrl-C", description="Run the server.",
                        epilog=_EXAMPLE)  # fmt: skip
    start.add_argument("kit", type=path, metavar="KIT", help="folder of the server's kit")


def _start(arguments: argparse.Namespace) -> int:
    from dpfedvis.links.kits import Kit
    from dpfedvis.links.machines import Machine

    kit = Kit.read(arguments.kit, "server")
    told = {"server": kit.server, "port": kit.port, "federation": kit.federation, "sites": list(kit.sites)}
    print_result(arguments, told, f"server of {kit.federation}, port {kit.port}; waits for {', '.join(kit.sites)}")
    signal.signal(signal.SIGTERM, _interrupt)
    with Machine(kit) as machine:
        try:
            while machine.alive:
                time.sleep(0.5)
        except KeyboardInterrupt:
            print("server: stopped", file=sys.stderr)
            return 0
    raise UnusableArgument(f"the engine of the server ended by itself; {machine.log} says why")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
