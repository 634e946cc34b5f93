"""`dpfedvis audit --level pipeline`: all stages of an end-to-end map as one mechanism, and the statement with it."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accounting.audit_summary import Rate, of_guesses
from accounting.errors import InvalidParameter
from dpfedvis.cli.common import print_result

if TYPE_CHECKING:
    from accounting import Budget
    from accounting.statement import Statement
    from attacks.auditing.pipeline import PipelineAudit
    from attacks.auditing.result import AuditResult
    from attacks.membership.rates import StrongGames
    from dpfedvis.mechanisms import Mechanism
    from dpfedvis.runs.settings import RunConfig

MECHANISM_SETTINGS = ("trust", "tau_x", "clip", "beta", "frequencies")
OF_A_RUN = ("mechanism", "epsilon", "delta", "noise", "rounds", *MECHANISM_SETTINGS)  # what --run says by itself
OF_OTHERS = ("canaries", "local_steps")  # what other levels have
_GAMES = ("games", "confidence", "seed")


def audit_settings(
    arguments: argparse.Namespace, chosen: Sequence[Mechanism], budget: Budget | None, bar: Callable[[str, str], Any]
) -> int:
    """Audit the map of these settings; the result goes into the statement of a simulated run."""
    from attacks.auditing.pipeline import PipelineAudit

    _refuse(arguments, OF_OTHERS, "left out for level pipeline")
    if len(chosen) > 1:
        raise InvalidParameter("--mechanism", arguments.mechanism, "one of them for level pipeline")
    common = {name: getattr(arguments, name) for name in ("noise", *_GAMES)}
    if arguments.rounds is not None:
        common["rounds"] = arguments.rounds
    level = PipelineAudit(**common, progress=bar(f"{chosen[0].name}, pipeline", "run"))
    return _play(arguments, level, chosen[0], budget)


def audit_run(arguments: argparse.Namespace, bar: Callable[[str, str], Any]) -> int:
    """Audit the map of a finished run by its settings; the result goes into its statement."""
    from attacks.auditing.pipeline import PipelineAudit
    from dpfedvis.estimators.known_tables import PRIVATE_MAP
    from dpfedvis.runs.folder import CONFIG
    from dpfedvis.runs.settings import RunConfig
    from dpfedvis.runs.upload_reader import Recording

    _refuse(arguments, (*OF_A_RUN, *OF_OTHERS), "left out with --run, which has its own")
    recording = Recording.read(arguments.folder)
    folder = recording.folder
    config = RunConfig.from_toml(folder / CONFIG)
    if config.chosen_release != "none":
        raise InvalidParameter("release", config.chosen_release, "none in a run whose stages are audited as one")
    before = _stated(folder, config)
    level = PipelineAudit(
        **{name: getattr(arguments, name) for name in _GAMES},
        rounds=recording.public.rounds,
        noise=config.noise or "seeded",
        scale=config.tau_x is None,
        density=config.recipe.density,
        shares=config.tables.get(PRIVATE_MAP, {}).get("shares"),
        progress=bar(f"{config.mechanism}, pipeline", "run"),
    )
    return _play(arguments, level, config.made_mechanism(), config.budget, before, folder)


def write_audit(
    result: AuditResult, folder: Path, stem: str, facts: Mapping[str, Any] | None = None, further: str = ""
) -> None:
    """Write page, figure and JSON; `facts` are the JSON, by default the result's, and `further` ends the page."""
    from dpfedvis.runs.folder import write_texts

    made = facts or result.to_dict()
    numbers = json.dumps(made, indent=2, ensure_ascii=False, allow_nan=False)
    page = result.markdown(f"{stem}.svg", further).rstrip("\n") + f"\n\nMade by code {made['code']}.\n"
    write_texts(folder, {f"{stem}.svg": result.svg(), f"{stem}.json": numbers + "\n", f"{stem}.md": page})


def _refuse(arguments: argparse.Namespace, names: Sequence[str], why: str) -> None:
    for name in names:
        if getattr(arguments, name) is not None:
            raise InvalidParameter(f"--{name.replace('_', '-')}", getattr(arguments, name), why)


def _stated(folder: Path, config: RunConfig) -> Statement:
    """Return the statement of a run; raise if it could not be rewritten after the games."""
    from dpfedvis.reporting.run_facts import RunFacts
    from dpfedvis.runs.folder import CONFIG, make
    from dpfedvis.runs.statement_file import statement_of
    from dpfedvis.runs.upload_writer import RecordingError

    RunFacts.read(folder)
    make(folder)
    before = statement_of(folder)
    if config.budget is None or before.budget != config.budget.to_dict():
        raise RecordingError(f"{folder / CONFIG} has another budget than the ledger beside it")
    return before


def _play(
    arguments: argparse.Namespace,
    level: PipelineAudit,
    mechanism: Mechanism,
    budget: Budget | None,
    before: Statement | None = None,
    run: Path | None = None,
) -> int:
    from attacks.auditing.pipeline_games import for_statement
    from dpfedvis.runs.folder import make, write_texts

    out = None if arguments.out is None else Path(arguments.out)
    if out is not None:
        make(out)
    played = level.play(mechanism, budget)
    if before is not None and (missing := {line.what for line in before.lines} ^ set(played.stages)):
        raise InvalidParameter("releases of the run", sorted(missing), "those of an end-to-end map")
    result, games = played.audit(), played.membership()
    audited = for_statement(result, games, _command(arguments))
    facts = {**result.to_dict(), "membership": games.to_dict()}
    # Printed before anything is written, so that it is not lost if a file cannot be written.
    print_result(arguments, [facts], f"{result}\n{_membership(games)}")
    statement = (before or played.statement).with_audit(audited)
    told = []
    if out is not None:
        stem = f"{mechanism.name}-pipeline"
        write_audit(result, out, stem, facts, games.markdown())
        texts = {f"{stem}-statement.md": str(statement), f"{stem}-statement.json": statement.to_json()}
        write_texts(out, {name: text.rstrip("\n") + "\n" for name, text in texts.items()})
        told.append(f"page, figure, JSON and statement are in {out}")
    if run is not None:
        _state(run, statement)
        told.append(f"the audit is now in the statement of {run}, and its report.html is rewritten")
    if told and not arguments.json:
        print("\n".join(told))
    return int(result.verdict == "violated" or audited.leaks)


def _state(run: Path, statement: Statement) -> None:
    from dpfedvis.reporting.run_report import write_report
    from dpfedvis.runs.folder import writing
    from dpfedvis.runs.statement_file import write_statement

    with writing(run):
        write_statement(run, statement)
        write_report(run)


def _membership(games: StrongGames) -> str:
    outcome, right = games.outcome, games.accuracy
    share = Rate("right guesses", right.value, right.low, right.high, games.allowed)
    said = of_guesses(share, len(outcome.members) + len(outcome.others), games.excess).replace("**", "")
    return f"  membership: {said}\n  AUC {outcome.auc}, at most {outcome.limit.auc():.4g}"


def _command(arguments: argparse.Namespace) -> str:
    """Return the command that reproduces these numbers, where the noise is seeded."""
    given = {name: getattr(arguments, name) for name in ("level", *OF_A_RUN, *_GAMES)}
    if arguments.folder is not None:
        given = {"run": arguments.folder, **{name: given[name] for name in _GAMES}}
    words = [(f"--{name.replace('_', '-')}", str(value)) for name, value in given.items() if value is not None]
    return shlex.join(["dpfedvis", "audit", *(word for pair in words for word in pair)])
