"""`dpfedvis run`: data in, landmarks, map, ledger and privacy statement out, all in one folder."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpfedvis.cli.common import add_quiet
from dpfedvis.cli.settings_flags import add_settings, spelled_as_flags
from dpfedvis.errors import NothingToShow
from dpfedvis.numerics.plain_text import visible
from dpfedvis.numerics.progress import hidden

if TYPE_CHECKING:
    from dpfedvis.reporting.run_facts import Simulation
    from dpfedvis.runs.execute import Run
    from dpfedvis.runs.settings import RunConfig
    from dpfedvis.server.forecast import Forecast

_EXAMPLE = """\
examples:
  dpfedvis run --data digits --clients 10 --partition dirichlet:0.5 --map tsne --epsilon 2 --out runs/first
  dpfedvis run --data digits --clients 3 --epsilon 4 --density --classes 0,1,2,3,7 --no-yardsticks --out runs/density
  dpfedvis run --data digits --epsilon 4 --shares subspace=0.3 --components 12 --no-yardsticks --out runs/shares
  dpfedvis run --config runs/first/config.toml --seed 1 --no-yardsticks --out runs/second

  dpfedvis run --data digits --epsilon 4 --mechanism k-means --sweeps 8 --perplexity 20 --no-yardsticks --out runs/third
  dpfedvis run --data hospitals/*.csv --schema hospitals/schema.toml --epsilon 2 --views views --out runs/hospitals
  dpfedvis run --data all.csv --schema schema.toml --epsilon 2 --unit person --rows-per-person 3 --out runs/persons

In a TOML file a setting of a mechanism or a map may stand in a table of its name: [k-means] sweeps = 8.

The folder holds config.toml (every setting), landmarks.npz, embedding.npz and .csv, map.png, ledger.sqlite,
statement.md and .json, uploads/ (what was released), provenance.json, report.html (a page about the run) and figures/;
with --density also density.npz and density.png. With release none the map is that of the published anchors;
verdict.json says what of it is signal, and regions.csv what each region is, in the units of the schema, with noise of
one standard deviation (sd). The folder holds no record. A run with seeded noise is a simulation: the noise can be taken
off. For built-in data it also writes scores and the place and label of every record to simulation/, which nobody has in
a real federation; --no-evaluate leaves that out, and so does real noise. Scores stand beside those of chance, of a map
without data (ε = 0.001; beside a private map by the same recipe, else by the default one) and of a central one (all
records in one place). The last two take about as long as the run itself; beyond 2000 records they are made only with
--yardsticks, and never with --no-yardsticks. --yardsticks needs --evaluate.

A run that could show nothing but noise, whatever the data are, stops before it spends, with exit code 3; --anyway goes
on, and "dpfedvis plan" says what would be enough. A run that is resumed is never stopped.

Each file is a client, named by the file; in a single file, each value of the client column. Only --clients or
--partition deals the records to others, which is a simulation. A schema (see dpfedvis data schema) says what each
column is, with public ranges; without one all columns must be numbers, taken as they are, and --bounds LOW HIGH is one
public range for all of them. --views writes what each client sees of its own records, with their ids.

A file of your own gets real noise, unless you ask for --noise seeded, and simulation/ only with --noise seeded
--evaluate. Its classes are those that you name, in your words (--classes benign,malignant); all other labels count as
"other". Its runs with real noise add up in a ledger of these records, by the file's path, in the folder
$XDG_STATE_HOME/dpfedvis/ledgers (else ~/.local/state/dpfedvis/ledgers): each run says its own ε and that of all of
them. --lifetime-epsilon keeps all runs on these records within a budget. "dpfedvis statement" prints what a run, or
such a ledger, comes to.

Resume a run that was interrupted after its first release, by Ctrl-C (exit code 130) or a crash, with
"dpfedvis run --out FOLDER --resume". It needs the same data and keeps its settings; only those that draw may change
(jobs, perplexity, neighbours, clusters and the like). What was released is sent again, the same bytes, and nothing is
spent twice. Until the run is finished, FOLDER.unfinished holds what its clients keep at home: uploads that are not
released yet, and records as input perturbation left them. Do not publish it; it is deleted at the end.
"""


_NO_SETTINGS = (
    "quiet",
    "out",
    "views",
    "config",
    "json",
    "run",
    "resume",
    "replace",
    "anyway",
    "ledger",
    "lifetime_epsilon",
    "columns",
)


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "run",
        help="learn landmarks, draw a map, and account for it",
        description="Learn landmarks from records at clients, draw a map or find clusters, account for all of it.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,  # a flag that is not given must not override the file
    )
    parser.add_argument("--out", required=True, metavar="FOLDER", help="folder of the run; new or empty")
    parser.add_argument("--resume", action="store_true", default=False, help="resume the unfinished run in --out; "
                        "only settings that draw may change")  # fmt: skip
    parser.add_argument("--anyway", action="store_true", default=False, help="go on where no data of this size can be "
                        "seen (else the run stops before it spends, with exit code 3; see dpfedvis plan)")  # fmt: skip
    parser.add_argument("--replace", action="store_true", default=False, help="set a run that is in --out aside, and "
                        "its views: to FOLDER.before; what it released stays in the ledger of its records")  # fmt: skip
    parser.add_argument("--config", metavar="FILE.toml", help="settings by name; flags win over them")
    parser.add_argument("--views", metavar="FOLDER", help="write each client's private view there (CSV with ids, PNG, "
                        "HTML); not in the run's folder, for views show records")  # fmt: skip
    parser.add_argument("--ledger", metavar="FILE", help="ledger for all runs with real noise on these records "
                        "(for a file of yours, one in the state folder)")  # fmt: skip
    parser.add_argument("--lifetime-epsilon", metavar="NUMBER", type=float, help="ε that all runs on these records may "
                        "spend together; it stays with their ledger")  # fmt: skip
    parser.add_argument("--json", action="store_true", default=False, help="print a summary as JSON")
    add_quiet(parser)
    parser.late = add_settings
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    with spelled_as_flags():
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from dpfedvis.reporting.run_facts import simulation_in
    from dpfedvis.reporting.run_report import show
    from dpfedvis.runs.execute import execute
    from dpfedvis.runs.resume import stored_settings
    from dpfedvis.server.callbacks import ProgressBar, StageBars

    given = config_of(arguments, stored_settings(Path(arguments.out)) if arguments.resume else {})
    bar, stages = ProgressBar(given.uploads), StageBars()
    views = getattr(arguments, "views", None)
    try:
        done = execute(
            given,
            arguments.out,
            (bar,),
            views=views,
            progress=stages,
            show=show,
            resume=arguments.resume,
            changed=None if hasattr(arguments, "config") else flagged(arguments),
            ledger=getattr(arguments, "ledger", None),
            lifetime_epsilon=getattr(arguments, "lifetime_epsilon", None),
            tell=_tell,
            foresee=None if arguments.anyway else _foresee,
            replace_old=arguments.replace,
        )
    finally:
        bar.close()
        stages.close()
    for warning in done.warnings:
        print(f"dpfedvis: warning: {visible(warning)}", file=sys.stderr)
    simulation = simulation_in(done.folder) if done.config.evaluate else None
    known = {} if simulation is None else {"scores": simulation.scores, "yardsticks": simulation.yardsticks}
    summary = {**done.summary(), **known, "chosen": chosen(given, done.config)}
    print(json.dumps(summary, indent=2) if arguments.json else _page(done, summary, simulation))
    return 0


def _foresee(found: Forecast) -> None:
    """Stop before anything is spent where no data can be seen; warn on a terminal where they hardly can."""
    ways = " or ".join(way.sentence for way in found.ways)
    instead = f" Enough would be {ways}." if ways else ""
    if found.signal == "no":
        raise NothingToShow(f"{found.sentence}{instead} Nothing was spent; --anyway goes on")
    if found.signal == "unlikely" and not hidden():
        print(f"dpfedvis: warning: {found.sentence}{instead}", file=sys.stderr)


def _tell(notes: Sequence[str]) -> None:
    """Print what was found in the data: on this terminal only, since it tells of the records."""
    for note in notes:
        print(f"dpfedvis: at home: {note}", file=sys.stderr)


def flagged(arguments: argparse.Namespace) -> list[str]:
    """Return the names of the settings that were given as flags."""
    return [name for name in vars(arguments) if name not in _NO_SETTINGS]


def config_of(arguments: argparse.Namespace, stored: Mapping[str, Any]) -> RunConfig:
    """Return the settings: flags win over the file, and the file over those of the run to resume."""
    from accounting.errors import InvalidParameter
    from dpfedvis.runs.settings import NO_SCORES, RunConfig, merged, read_toml

    values = {name: getattr(arguments, name) for name in flagged(arguments)}
    file = getattr(arguments, "config", None)
    found = RunConfig.from_mapping(merged(merged(stored, {} if file is None else read_toml(file)), values))
    if values.get("yardsticks") and found.evaluate is False:
        raise InvalidParameter("yardsticks", True, NO_SCORES)
    return found


def chosen(given: RunConfig, resolved: RunConfig) -> dict[str, Any]:
    """Return the settings that were left open, and what was taken for them."""
    before = given.fields_set_to()
    own = {
        name: value for name, value in resolved.fields_set_to().items() if before[name] is None and value is not None
    }
    bounds = resolved.feddl.get("bounds")
    return own | ({} if bounds is None or "bounds" in given.feddl else {"bounds": bounds})


def _page(done: Run, summary: dict[str, Any], simulation: Simulation | None) -> str:
    choices = ", ".join(f"{name} = {value}" for name, value in summary["chosen"].items())
    config = done.config
    lines = [
        done.estimator.verdict_.sentence,
        f"{config.map} of {config.data_name}, mechanism {config.mechanism}, release {config.release}",
        summary["headline"],
    ]
    if simulation is not None and simulation.sentence:
        lines.append(simulation.sentence)
    if choices:
        lines.append(f"chosen, since not given: {choices}")
    if done.statement.words["all_runs"]:
        lines.append(done.statement.words["all_runs"])
    lines.append(f"{done.folder}: {', '.join(summary['files'])}")
    views = ""
    if done.views is not None:
        views = f"; what each client sees of its own records, for that one alone: {done.views}"
    lines.append(f"open {done.folder / 'report.html'}{views}")
    return "\n".join(lines)
