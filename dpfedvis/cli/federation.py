"""`dpfedvis federation`: kits for real sites, and a trial of all of it on this machine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from dpfedvis.cli.common import add_command, path, print_result
from dpfedvis.numerics.progress import hidden

_EXAMPLE = """\
examples:
  dpfedvis federation demo --out runs/federation
  dpfedvis federation init federation.toml --out kits

federation.toml:
  name = "hospitals"
  server = "fl.example.org"          # the sites and the admin dial it
  port = 8002
  sites = ["aachen", "bremen", "coburg"]
  schema = "schema.toml"             # public, the same at all sites; see dpfedvis data schema
  [policy]                           # what each kit begins with; see policy.toml in a kit
  epsilon = 1.0
  lifetime_epsilon = 4.0

init makes a folder for each machine: hand each to its owner over a channel that you trust, and delete your copy.
authority/ has the key behind all certificates: keep it offline. Then: dpfedvis server start, dpfedvis site check and
start, and dpfedvis run --link nvflare --kit kits/admin.
"""


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "federation",
        help="make kits for real sites, or try a federation on this machine",
        description="Make the kits of a federation, or try one on this machine.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    init = add_command(actions, "init", _init, help="make certificates, keys and kits",
                       description="Make certificates, keys and a kit for each machine.", epilog=_EXAMPLE)  # fmt: skip
    init.add_argument("file", type=path, metavar="FEDERATION.toml", help="who takes part; see above")
    init.add_argument("--out", type=path, required=True, metavar="FOLDER", help="folder for the kits; new or empty")
    demo = add_command(actions, "demo", _demo, help="try it: a server and five hospitals on this machine",
                       description="Run a federation on this machine: real processes, certificates and secure sums. "
                       "One hospital is killed in the middle and comes back.",
                       epilog="example:\n  dpfedvis federation demo --out runs/federation\n")  # fmt: skip
    demo.add_argument("--out", type=path, required=True, metavar="FOLDER", help="folder for all of it; new or empty")
    demo.add_argument("--patients", type=int, default=400, metavar="N", help="of a hospital, on average (400)")
    demo.add_argument("--epsilon", type=float, default=2.0, metavar="NUMBER", help="ε of the run (2)")


def _init(arguments: argparse.Namespace) -> int:
    from dpfedvis.links.kits import Federation, require_engine
    from dpfedvis.links.provisioning import fingerprint, provision

    require_engine()
    federation = Federation.read(arguments.file)
    schema = None if federation.schema is None else arguments.file.parent / federation.schema
    kits = provision(federation, arguments.out, schema=schema)
    told: dict[str, Any] = {name: str(folder) for name, folder in kits.items()}
    members = _members(kits["admin"])
    lines = [f"{name:12} {folder}" for name, folder in told.items()]
    lines += ["fingerprints, to be compared by telephone:"]
    lines += [f"  {name:12} {fingerprint(key)}" for name, key in members.items()]
    lines += [f"next: dpfedvis server start {kits['server']}; at each site READ-ME-FIRST.md in its kit"]
    print_result(arguments, {"kits": told, "members": members}, "\n".join(lines))
    return 0


def _members(kit: Path) -> dict[str, str]:
    from dpfedvis.links.kits import Kit

    return dict(Kit.read(kit).members)


def _demo(arguments: argparse.Namespace) -> int:
    from dpfedvis.links.kits import require_engine

    require_engine()
    from dpfedvis.experiments.federation_demo import FederationDemo

    def tell(words: str) -> None:
        if not arguments.json and not hidden():
            print(words, file=sys.stderr, flush=True)

    demo = FederationDemo(arguments.out, patients=arguments.patients, epsilon=arguments.epsilon, tell=tell)
    found = demo.run()
    lines = [found["headline"], f"receipts {found['receipts']}", f"open {found['report']}"]
    print_result(arguments, found, "\n".join(lines))
    return 0
