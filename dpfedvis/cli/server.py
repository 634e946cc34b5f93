"""`dpfedvis server`: the server of a federation. It holds no records."""

from __future__ import annotations

import argparse
import signal
import socket
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
    from dpfedvis.links.kits import Kit, require_engine

    require_engine()
    from dpfedvis.links.machines import Machine, refuse_running

    kit = Kit.read(arguments.kit, "server")
    told = {"server": kit.server, "port": kit.port, "federation": kit.federation, "sites": list(kit.sites)}
    refuse_running(kit)
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            free.bind(("", kit.port))
        except OSError as error:
            raise UnusableArgument(f"port {kit.port} cannot be used: {error.strerror}") from None
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    with Machine(kit) as machine:
        print_result(arguments, told, f"server of {kit.federation}, port {kit.port}; waits for {', '.join(kit.sites)}")
        try:
            while machine.alive:
                time.sleep(0.5)
        except KeyboardInterrupt:
            print("server: stopped", file=sys.stderr)
            return 0
    raise UnusableArgument(f"the engine of the server ended by itself; {machine.log} says why")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
