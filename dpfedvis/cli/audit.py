"""`dpfedvis audit`: certify a lower bound on ε by games, and compare it with the ledger's ε."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accounting.errors import InvalidParameter
from dpfedvis.cli.audit_pipeline import MECHANISM_SETTINGS, audit_run, audit_settings, write_audit
from dpfedvis.cli.common import MissingOption, add_command, print_json, progress_bar

if TYPE_CHECKING:
    from attacks.auditing import Level
    from dpfedvis.mechanisms import Mechanism

_EXAMPLE = """\
example:
  dpfedvis audit --mechanism gradient --epsilon 4 --games 200
  dpfedvis audit --level pipeline --epsilon 4 --out audits
  dpfedvis run --data digits --clients 5 --epsilon 4 --out runs/audited
  dpfedvis audit --run runs/audited --games 200

Level noise puts thousands of canaries of the stated sensitivity into the noise path of one run. It finds too little
noise, reused noise and releases that were not counted. Level records runs FedDL with one worst-case record at each of
many clients. It also finds wrong sensitivities and clipping, and noise from a fixed seed. Level pipeline fits
end-to-end private maps, whose landmarks the mechanism learns, and audits all their stages as one mechanism. The same
games are a membership attack, whose rates are compared with the most that the guarantee allows. With --out it also
writes the privacy statement of such a run, with both results. --run does the same with the settings of a finished run,
and adds the result to its statement; the run's data are not used. With trust aggregate every game is a run of its own,
about a fifth of a second.
A lower bound above the claim shows that the claim is wrong. Every level also takes the exact total off each upload and
tests what is left: is it the stated noise, in every value, fresh in every round, client and run? Are all releases in
the ledger, on their grid, with a sensitivity that no record exceeds? The exit code is 1 if chance cannot explain a
bound above the claim, a failed test, or more right guesses than the guarantee allows (false alarms: 1 in 1,000, 1 in
10,000 and 1 in 1,000). A bound below the claim shows only what this adversary could certify.
"""
_LEVELS = ("noise", "records")
_PIPELINE = "pipeline"
_DELTA, _NOISE, _CANARIES = 1e-5, "seeded", 10_000


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = add_command(
        subparsers,
        "audit",
        run,
        help="certify a lower bound on a mechanism's ε",
        description="Certify a lower bound on the ε of a mechanism, and compare it with what the ledger claims.",
        epilog=_EXAMPLE,
    )
    parser.add_argument("--run", metavar="FOLDER", dest="folder", help="audit the map of a finished run, and add the "
                        "result to its statement")  # fmt: skip
    parser.add_argument("--mechanism", help="short name, or all of them (gradient; k-means for pipeline)")
    parser.add_argument("--epsilon", type=float, help="ε of the run; needed by mechanisms that protect")
    parser.add_argument("--delta", type=float, help=f"δ of the run ({_DELTA:g})")
    parser.add_argument("--level", choices=(*_LEVELS, "both", _PIPELINE), default="both", help="which audit (both)")
    parser.add_argument("--canaries", type=int, help=f"canaries of level noise ({_CANARIES})")
    parser.add_argument("--games", type=int, default=1000, help="clients with a canary each, not for noise (1000)")
    parser.add_argument("--rounds", type=int, help="rounds S (50 for noise, 4 for the others)")
    parser.add_argument("--local-steps", type=int, help="local steps Q of variable and local-steps (1)")
    parser.add_argument("--trust", help="local, aggregate or central (local)")
    parser.add_argument("--tau-x", type=float, help="public bound on the norm of a record, for input (1)")
    parser.add_argument("--clip", type=float, help="clipping norm of clipped, as a fraction of the largest (0.5)")
    parser.add_argument("--beta", type=float, help="β of heuristic (1) and published (0)")
    parser.add_argument("--frequencies", type=int, help="frequencies of mean-embedding (1000)")
    parser.add_argument("--noise", help=f"seeded or discrete ({_NOISE})")
    parser.add_argument("--confidence", type=float, default=0.95, help="of each lower bound (0.95)")
    parser.add_argument("--seed", type=int, default=0, help="of coins and seeded noise (0)")
    parser.add_argument("--out", metavar="FOLDER", help="for page, figure and JSON of each audit")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from accounting import Budget, checks
    from attacks import audit
    from dpfedvis.mechanisms import MECHANISMS
    from dpfedvis.protocol.noise import NOISE_SOURCES
    from dpfedvis.runs.folder import make

    if arguments.folder is not None:
        checks.one_of("--level", arguments.level, (_PIPELINE, "both"))
        return audit_run(arguments, progress_bar)
    arguments.delta = _DELTA if arguments.delta is None else arguments.delta
    arguments.noise = arguments.noise or _NOISE
    if arguments.mechanism is None:
        arguments.mechanism = "k-means" if arguments.level == _PIPELINE else "gradient"
    checks.one_of("--mechanism", arguments.mechanism, ("all", *MECHANISMS))
    checks.one_of("--noise", arguments.noise, NOISE_SOURCES)
    checks.probability("--confidence", arguments.confidence)
    checks.probability("--delta", arguments.delta)
    budget = None if arguments.epsilon is None else Budget(arguments.epsilon, arguments.delta)
    names = tuple(MECHANISMS) if arguments.mechanism == "all" else (arguments.mechanism,)
    chosen = [_mechanism(arguments, name, alone=len(names) == 1) for name in names]
    if budget is None and any(each.protection != "none" for each in chosen):
        raise MissingOption("--epsilon is needed: without a budget a mechanism that protects claims nothing")
    if arguments.level == _PIPELINE:
        return audit_settings(arguments, chosen, budget, progress_bar)
    # All of them before the first runs, so that bad settings are found before any work.
    planned = [(each, name, _level(arguments, each, name)) for each in chosen for name in _levels(arguments, each)]
    folder = None if arguments.out is None else Path(arguments.out)
    if folder is not None:
        make(folder)
    results = []
    for each, name, level in planned:
        results.append(audit(each, budget, level=level))
        if folder is not None:
            write_audit(results[-1], folder, f"{each.name}-{name}")
        if not arguments.json:
            print(results[-1], flush=True)
    if arguments.json:
        print_json([result.to_dict() for result in results])
    elif folder is not None:
        print(f"pages, figures and JSON are in {folder}")
    return int(any(result.verdict == "violated" for result in results))


def _mechanism(arguments: argparse.Namespace, name: str, *, alone: bool) -> Mechanism:
    """Return a mechanism with the settings given; of all mechanisms, each takes those that it has."""
    from dataclasses import fields

    from dpfedvis.mechanisms import MECHANISMS

    kind: Any = MECHANISMS[name]
    known = {field.name for field in fields(kind)}
    given = {key: value for key in MECHANISM_SETTINGS if (value := getattr(arguments, key)) is not None}
    strange = sorted(set(given) - known)
    if strange and alone:
        option = f"--{strange[0].replace('_', '-')}"
        raise InvalidParameter(option, given[strange[0]], f"absent for {name}")
    built: Mechanism = kind(**{key: value for key, value in given.items() if key in known})
    return built


def _levels(arguments: argparse.Namespace, mechanism: Mechanism) -> tuple[str, ...]:
    """Without protection there is no noise to audit; the games with records are played all the same."""
    if arguments.level != "both":
        return (arguments.level,)
    return ("records",) if mechanism.protection == "none" else _LEVELS


def _level(arguments: argparse.Namespace, mechanism: Mechanism, name: str) -> Level:
    from attacks.auditing import NoiseAudit, RecordAudit

    common: dict[str, Any] = {
        "local_steps": arguments.local_steps if mechanism.local_steps and arguments.local_steps is not None else 1,
        "noise": arguments.noise,
        "seed": arguments.seed,
        "confidence": arguments.confidence,
        "progress": progress_bar(f"{mechanism.name}, {name}", "round"),
    }
    if arguments.rounds is not None:
        common["rounds"] = arguments.rounds
    if name == "noise":
        return NoiseAudit(canaries=_CANARIES if arguments.canaries is None else arguments.canaries, **common)
    return RecordAudit(games=arguments.games, delta=arguments.delta, **common)
