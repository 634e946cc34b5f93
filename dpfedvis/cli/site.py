"""`dpfedvis site`: what the owner of a real site does with its kit."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from dpfedvis.cli.common import UnusableArgument, add_command, path, print_json, print_result, printable

if TYPE_CHECKING:
    from dpfedvis.links.kits import Kit

_EXAMPLE = """\
examples:
  dpfedvis site check kits/aachen
  dpfedvis site start kits/aachen
  dpfedvis site ledger kits/aachen --json
  dpfedvis site approve kits/aachen
  dpfedvis site place kits/aachen new.csv --out new

KIT is the folder that the site got from "dpfedvis federation init". start runs until Ctrl-C; it dials out and opens no
port. Nothing leaves before it is in the site's own ledger. After a map was published, views/ in the kit's folder
dpfedvis/ has the places of the site's own records; nothing of it is sent.
"""
_LEAST_LABEL = 12


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "site",
        help="be a site of a federation",
        description="Check, start and look at a real site.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    texts = {
        "check": ("look at data, policy, keys, clock and connection", _check, ""),
        "start": ("take part, until Ctrl-C", _start, ""),
        "ledger": ("what left, when, to whom, and what is left of the budget", _ledger, " --json"),
        "approve": ("approve the contract that waits", _approve, ""),
        "place": ("put new records on the published map at home; nothing is sent", _place, " new.csv --out new"),
        "clear": ("go on after a failure, or with a ledger that was restored from a copy", _clear, ""),
    }
    for name, (words, run, more) in texts.items():
        example = f"example:\n  dpfedvis site {name} kits/aachen{more}\n"
        action = add_command(
            actions, name, run, help=words, description=f"{words[0].upper()}{words[1:]}.", epilog=example
        )
        action.add_argument("kit", type=path, metavar="KIT", help="folder of the site's kit")
        if name == "approve":
            action.add_argument("--yes", metavar="LABEL", help="do not ask: approve the contract of this label, or of "
                                "its first 12 letters or more")  # fmt: skip
        if name == "place":
            action.add_argument("file", type=path, metavar="FILE", help="table with the columns of the schema")
            action.add_argument("--out", type=path, required=True, metavar="FOLDER", help="where to write the view")
        if name == "clear":
            action.add_argument("--restored", action="store_true", help="say that the ledger was restored from a copy")


def _kit(arguments: argparse.Namespace) -> Kit:
    from dpfedvis.links.kits import Kit

    return Kit.read(arguments.kit, "site")


def _check(arguments: argparse.Namespace) -> int:
    from dpfedvis.links.site_checks import check_site

    found = []
    for check in check_site(_kit(arguments)):
        found.append(check)
        if not arguments.json:
            print(f"{'✓' if check.passed else '✗'} {check.name:11} {check.words}", flush=True)
    passed = all(each.passed for each in found)
    if arguments.json:
        print_json({"passed": passed, "checks": [vars(each) for each in found]})
    return 0 if passed else 2


def _start(arguments: argparse.Namespace) -> int:
    from dpfedvis.links.kits import require_engine

    require_engine()
    from dpfedvis.links.machines import Machine, refuse_running
    from dpfedvis.links.site_checks import check_site
    from dpfedvis.reporting.site_views import write_site_view
    from dpfedvis.site.approval import WAITING
    from dpfedvis.site.own_table import OwnTable
    from dpfedvis.site.site import PLACES

    kit = _kit(arguments)
    os.umask(0o077)
    refuse_running(kit)
    for check in check_site(kit):
        if check.passed:
            continue
        if check.name != "connection":
            raise UnusableArgument(f"{check.name}: {check.words} (dpfedvis site check {kit.folder})")
        print(f"{kit.name}: {check.words}; it goes on trying", file=sys.stderr, flush=True)
    dataset = OwnTable.read(kit.home).prepare(kit.name)
    told = {"site": kit.name, "records": len(dataset.X), "server": f"{kit.server}:{kit.port}"}
    print_result(
        arguments, told, f"{kit.name}: {len(dataset.X)} records; dials {kit.server}:{kit.port}. Ctrl-C stops it"
    )
    places = kit.home / PLACES
    seen = places.stat().st_mtime_ns if places.exists() else 0
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    waits = kit.home / WAITING
    asked = False
    with Machine(kit) as machine:
        try:
            while machine.alive:
                time.sleep(0.5)
                if waits.exists() and not asked:
                    words = f"a run waits for your approval: dpfedvis site approve {kit.folder}"
                    print(words, file=sys.stderr, flush=True)
                asked = waits.exists()
                if places.exists() and places.stat().st_mtime_ns != seen:
                    seen = places.stat().st_mtime_ns
                    files = write_site_view(kit.home, kit.name)
                    print(f"{kit.name}: a map was published; own records: {files[-1]}", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            print(f"{kit.name}: stopped", file=sys.stderr)
            return 0
    raise UnusableArgument(f"the engine of {kit.name} ended by itself; {machine.log} says why")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _ledger(arguments: argparse.Namespace) -> int:
    from dpfedvis.site.folder import LEDGER, POLICY
    from dpfedvis.site.ledger_report import report_of
    from dpfedvis.site.policy import Policy

    kit = _kit(arguments)
    report = report_of(kit.home / LEDGER, Policy.read(kit.home / POLICY))
    lines = [f"{'when':25}  {'run':12}  {'what':24}  {'round':>5}  {'integers':>8}  to"]
    for each in report.left:
        number = "" if each.round is None else each.round
        run, what = printable(each.run)[:12], printable(each.what)
        lines.append(f"{each.time:25}  {run:12}  {what:24}  {number:>5}  {each.values or '?':>8}  {each.to}")
    limit = report.lifetime_epsilon
    left = "no limit is set" if limit is None else f"of {limit:g} that the policy allows"
    spent = f"ε {report.epsilon:.4g} together at δ {report.delta:g}"
    lines.append(f"{len(report.left)} releases in {report.runs} runs; {spent}, {left}")
    print_result(arguments, {"site": kit.name, **report.to_dict()}, "\n".join(lines))
    return 0


def _approve(arguments: argparse.Namespace) -> int:
    from dpfedvis.site.approval import approve, waiting

    kit = _kit(arguments)
    contract = waiting(kit.home)
    if not arguments.json:
        for name, value in contract.items():
            shown = value
            if isinstance(value, dict):
                shown = ", ".join(f"{what} ({count} times)" for what, count in value.items())
            elif isinstance(value, list):
                shown = ", ".join(map(str, value)) or "nothing"
            print(f"{name:12} {'–' if shown is None else printable(shown)}")
    if arguments.yes is not None:
        if len(arguments.yes) < _LEAST_LABEL or not contract["label"].startswith(arguments.yes):
            raise UnusableArgument(
                f"another contract waits, or --yes has fewer than {_LEAST_LABEL} letters of its label"
            )
    else:
        if not sys.stdin.isatty():
            raise UnusableArgument("there is no terminal to ask; read the contract above, and give --yes LABEL")
        if input("approve this run? [y/N] ").strip().lower() not in ("y", "yes"):
            print("not approved")
            return 1
    approve(kit.home, contract["label"])
    print_result(arguments, {"approved": contract}, f"approved: run {printable(contract['run'])}")
    return 0


def _place(arguments: argparse.Namespace) -> int:
    from dpfedvis.reporting.site_views import published, write_own_view
    from dpfedvis.site.own_table import OwnTable
    from dpfedvis.site.placement import place

    kit = _kit(arguments)
    table, request = OwnTable.read(kit.home), published(kit.home)
    fed = table.federated(table.load(arguments.file))
    os.umask(0o077)
    places = place(request, fed.clients[0].X)
    files = write_own_view(arguments.out, kit.name, table, arguments.file, places, request)
    told = {"records": len(places), "files": [str(each) for each in files]}
    print_result(arguments, told, f"{len(places)} records on the published map, at home: {files[-1]}")
    return 0


def _clear(arguments: argparse.Namespace) -> int:
    from dpfedvis.site import accept_restored, clear_failure
    from dpfedvis.site.folder import is_site

    kit = _kit(arguments)
    if not is_site(kit.home):
        raise UnusableArgument(f"nothing to clear: {kit.name} was never started")
    (accept_restored if arguments.restored else clear_failure)(kit.home)
    done = "takes its ledger as it is" if arguments.restored else "goes on after its failure"
    print_result(arguments, {"site": kit.name, "restored": arguments.restored}, f"{kit.name} {done}")
    return 0
