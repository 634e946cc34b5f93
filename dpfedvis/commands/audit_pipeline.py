"""`dpfedvis audit --level pipeline`: all stages of an end-to-end map as one mechanism, and the statement with it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accounting.errors import InvalidParameter
from dpfedvis.commands.audit_output import as_text, make_folder, write_audit, write_texts

if TYPE_CHECKING:
    from accounting import Budget
    from attacks.auditing.pipeline import PipelineAudit
    from attacks.membership_games import StrongGames
    from dpfedvis.mechanisms import Mechanism
    from dpfedvis.reporting.statement import Statement

MECHANISM_SETTINGS = ("trust", "tau_x", "clip", "beta", "frequencies")
OF_A_RUN = ("mechanism", "epsilon", "delta", "noise", "rounds", *MECHANISM_SETTINGS)  # what --run says by itself
_GAMES = ("games", "confidence", "seed")


def audit_settings(
    arguments: argparse.Namespace, chosen: Sequence[Mechanism], budget: Budget | None, bar: Callable[[str, str], Any]
) -> int:
    """Audit the map that these settings make; the statement of a simulated run carries the result."""
    from attacks.auditing.pipeline import PipelineAudit

    if len(chosen) > 1:
        raise InvalidParameter("--mechanism", arguments.mechanism, "one of them for level pipeline")
    common = {name: getattr(arguments, name) for name in ("noise", *_GAMES)}
    if arguments.rounds is not None:
        common["rounds"] = arguments.rounds
    level = PipelineAudit(**common, progress=bar(f"{chosen[0].name}, pipeline", "run"))
    return _play(arguments, level, chosen[0], budget)


def audit_run(arguments: argparse.Namespace, bar: Callable[[str, str], Any]) -> int:
    """Audit the map of a finished run by its settings; its own statement carries the result."""
    from attacks.auditing.pipeline import PipelineAudit
    from dpfedvis.config import RunConfig
    from dpfedvis.recording import Recording
    from dpfedvis.run_folder import CONFIG

    for name in OF_A_RUN:
        if getattr(arguments, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise InvalidParameter(option, getattr(arguments, name), "left out with --run, which has its own")
    folder = Recording.read(arguments.folder).folder
    config = RunConfig.from_toml(folder / CONFIG)
    if config.chosen_release != "none":
        raise InvalidParameter("release", config.chosen_release, "none in a run whose stages are audited as one")
    level = PipelineAudit(
        **{name: getattr(arguments, name) for name in _GAMES},
        rounds=config.rounds,
        noise=config.noise,
        scale=config.tau_x is None,
        density=config.density,
        shares=config.shares,
        progress=bar(f"{config.mechanism}, pipeline", "run"),
    )
    return _play(arguments, level, config.made_mechanism(), config.budget, folder)


def _play(
    arguments: argparse.Namespace,
    level: PipelineAudit,
    mechanism: Mechanism,
    budget: Budget | None,
    run: Path | None = None,
) -> int:
    from attacks.auditing.played import for_statement
    from dpfedvis.stated import statement_of

    out = None if arguments.out is None else make_folder(arguments.out)
    before = None if run is None else statement_of(run)
    played = level.play(mechanism, budget)
    result, games = played.audit(), played.membership()
    facts = {**result.to_dict(), "membership": games.to_dict()}
    statement = (before or played.statement).with_audit(for_statement(result, games, _command(arguments)))
    if out is not None:
        stem = f"{mechanism.name}-pipeline"
        write_audit(result, out, stem, facts, games.markdown())
        write_texts(out, {f"{stem}-statement.md": str(statement), f"{stem}-statement.json": statement.to_json()})
    if run is not None:
        _state(run, statement)
    if arguments.json:
        print(json.dumps([facts], indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print(f"{as_text(result)}\n{_membership(games)}")
        if out is not None:
            print(f"page, picture, JSON and the statement are in {out}")
        if run is not None:
            print(f"the statement of {run} carries the audit now, and its report.html was made again")
    return int(result.verdict == "violated")


def _state(run: Path, statement: Statement) -> None:
    from dpfedvis.leave import leave_report
    from dpfedvis.run_folder import FolderUnusable
    from dpfedvis.stated import write_statement

    try:
        write_statement(run, statement)
        leave_report(run)
    except OSError as error:
        raise FolderUnusable(f"{run} cannot be written to: {error.strerror}") from error


def _membership(games: StrongGames) -> str:
    outcome = games.outcome
    return (
        f"  membership: {games.accuracy.value:.1%} guessed right, at most {games.allowed:.1%} allowed "
        f"(p = {games.excess:.2g}); AUC {outcome.auc}, at most {outcome.limit.auc():.4g}"
    )


def _command(arguments: argparse.Namespace) -> str:
    """Return the command that gives the same numbers again, where the noise is seeded."""
    names = ("level", *OF_A_RUN[:5], *_GAMES, *MECHANISM_SETTINGS)
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    if arguments.folder is not None:
        given = {"run": arguments.folder, **{name: getattr(arguments, name) for name in _GAMES}}
    return " ".join(["dpfedvis audit", *(f"--{name.replace('_', '-')} {value}" for name, value in given.items())])
