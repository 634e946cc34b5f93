"""`dpfedvis run`: data in, landmarks, map, ledger and privacy statement out, all in one folder."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpfedvis.runs.execute import Run
    from dpfedvis.runs.settings import RunConfig

_EXAMPLE = """\
examples:
  dpfedvis run --data digits --clients 10 --partition dirichlet:0.5 --map tsne --epsilon 2 --out runs/first
  dpfedvis run --data digits --clients 3 --epsilon 4 --density --classes 0,1,2,3,4,5,6,7,8,9 --out runs/density
  dpfedvis run --data digits --clients 3 --epsilon 4 --shares subspace=0.3 --components 12 --out runs/shares
  dpfedvis run --config runs/first/config.toml --seed 1 --out runs/second

The folder holds config.toml (every setting), landmarks.npz, embedding.npz and .csv, map.png, ledger.sqlite,
statement.md and .json, uploads/ (what passed the door) and provenance.json; with --density also density.npz and
density.png. With release none the map is that of the published anchors. No record gets into the folder. report.html
is a page about all of it, and figures/ has its figures as SVG. A run with seeded noise is a simulation, and
leaves scores and the place and label of every record in simulation/, which nobody would see in a real federation;
--no-evaluate leaves that out, and so does real noise.

A run that was interrupted after its first release, by Ctrl-C (exit code 130) or a crash, goes on with
"dpfedvis run --out FOLDER --resume". It keeps its settings, which need not be given again, and needs the same data.
What was released is sent again, the same bytes, and nothing is spent twice. Until the run is finished,
FOLDER.unfinished holds what its clients keep at home for that: uploads that nobody has seen yet, and records as input
perturbation left them. It is not for publishing, and is deleted at the end. A finished run does not go on (exit 2).
"""


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
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where to leave the run; new or empty")
    parser.add_argument("--resume", action="store_true", default=False, help="go on with the unfinished run in --out; "
                        "settings that are given must be its own")  # fmt: skip
    parser.add_argument("--config", metavar="FILE.toml", help="settings by name; flags win over them")
    parser.add_argument("--views", metavar="FOLDER", help="draw each client's private view of a private map there; not "
                        "in the run's folder, for views show records")  # fmt: skip
    parser.add_argument("--json", action="store_true", default=False, help="print a summary as JSON")
    add_settings(parser)
    parser.set_defaults(run=run)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every setting of a run."""
    data = parser.add_argument_group("data")
    data.add_argument("--data", help="name of a data set (see dpfedvis data list), or a file")
    data.add_argument("--records", type=int, help="take so many records only")
    data.add_argument("--sample", help="which records to take: first, or random by the seed (first)")
    data.add_argument("--label-column", help="label column (key, in an NPZ file) of a file")
    data.add_argument("--client-column", help="client column (key, in an NPZ file) of a file")
    data.add_argument("--missing", help="missing values: refuse, client-mean or public-value (refuse)")
    data.add_argument("--clients", type=int, help="number of clients P (10, or that of the groups)")
    data.add_argument("--partition", help="iid, by-class, classes:K, dirichlet:ALPHA or groups (iid)")
    data.add_argument("--bounds", type=float, nargs=2, metavar=("LOW", "HIGH"), help="public range of every feature")
    made = parser.add_argument_group("map")
    made.add_argument("--map", help="tsne, umap or clusters (tsne)")
    made.add_argument("--landmarks", type=int, help="landmarks n_y (500; with release none what noise allows)")
    made.add_argument("--rounds", type=int, help="rounds S at most (50; k-means takes 12)")
    made.add_argument("--local-steps", type=int, help="local steps Q of variable and local-steps (1)")
    made.add_argument("--distances", help="gram, or the paper's nystrom (gram)")
    made.add_argument("--rank", type=int, help="rank k of the Nyström estimate")
    made.add_argument("--ridge", type=float, help="ridge λ of the Nyström estimate")
    made.add_argument("--gamma", type=gamma, help="kernel width γ, several as 0.01,0.02, or where to take it from: "
                      "public, histogram, moments or median")  # fmt: skip
    made.add_argument("--optimiser", help="plain, momentum or adam (plain)")
    made.add_argument("--step-size", type=float, help="step size η (one over the smoothness constant)")
    made.add_argument("--weights", help="weights of clients: records or equal (records)")
    made.add_argument("--mmd", help="unbiased or biased estimator of the MMD (unbiased)")
    made.add_argument("--start", help="where landmarks start: uniform, normal or mean")
    made.add_argument("--perplexity", type=float, help="of t-SNE (30)")
    made.add_argument("--neighbours", type=int, help="of UMAP (15)")
    made.add_argument("--clusters", type=int, help="number of clusters (10)")
    made.add_argument("--affinity", help="of clusters: neighbors, or the paper's kernel (neighbors)")
    made.add_argument("--affinity-gamma", type=float, help="width γ of the kernel affinity (that of the landmarks)")
    made.add_argument("--components", type=int, help="with release none, dimensions of the subspace at most (16)")
    made.add_argument("--placement", help="with release none, how clients place their records at home: anchored, "
                      "diffused, weights or transform (anchored)")  # fmt: skip
    made.add_argument("--jobs", type=int, help="threads of t-SNE (2)")
    made.add_argument("--seed", type=int, help="(0)")
    privacy = parser.add_argument_group("privacy")
    privacy.add_argument("--epsilon", type=float, help="ε of the whole run; none by default, and then no guarantee")
    privacy.add_argument("--delta", type=float, help="δ of the whole run (1e-5)")
    privacy.add_argument("--adjacency", help="replace-one or add-remove (replace-one)")
    privacy.add_argument("--unit", help="whom ε is for: one record, or one client with all its records (record)")
    privacy.add_argument("--scope", help="end-to-end, or landmarks for the paper's narrower claim (end-to-end)")
    privacy.add_argument("--mechanism", help="how landmarks are learned (none without a budget; k-means with release "
                         "none, else mean-embedding)")  # fmt: skip
    privacy.add_argument("--trust", help="local, aggregate or central (local)")
    privacy.add_argument("--release", help="what is released of each record: exact, noisy or none")
    privacy.add_argument("--density", action="store_true", default=argparse.SUPPRESS, help="with release none, also "
                         "count the records on a grid over the map, with noise: a picture for everyone")  # fmt: skip
    privacy.add_argument("--classes", type=classes, help="public labels, as 0,1,2, to count each class by itself")
    privacy.add_argument("--shares", type=shares, metavar="STAGE=SHARE,...", help="with release none, shares of the "
                         "budget, as subspace=0.2,density=0.1; other stages: scale, moments; landmarks get the "
                         "rest")  # fmt: skip
    privacy.add_argument("--release-share", type=float, help="share of the budget for noisy rows (0.5)")
    privacy.add_argument("--tau-x", type=float, help="public bound on the norm of a record (from public bounds)")
    privacy.add_argument("--noise", help="seeded (a simulation), system or discrete (seeded)")
    privacy.add_argument("--beta", type=float, help="β of heuristic and published")
    privacy.add_argument("--clip", type=float, help="clipping norm of clipped, as a fraction of the largest")
    privacy.add_argument("--frequencies", type=int, help="frequencies of mean-embedding")
    privacy.add_argument("--batch", type=int, help="batch of published")
    privacy.add_argument("--sampling-rate", type=float, help="Poisson sampling rate q of records")
    privacy.add_argument("--public-records", type=int, help="public stand-in for n_p under add-remove")
    privacy.add_argument("--recorded-rounds", type=int, help="record uploads of the first so many rounds only")
    parser.add_argument("--no-evaluate", dest="evaluate", action="store_false", default=argparse.SUPPRESS, help="in a "
                        "simulation, do not write scores, labels and places of records")  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from pathlib import Path

    from dpfedvis.federation.callbacks import ProgressBar, StageBars
    from dpfedvis.mechanisms import mechanism
    from dpfedvis.reporting.run_report import show
    from dpfedvis.runs.execute import execute
    from dpfedvis.runs.resume import stored_settings

    given = config_of(arguments, stored_settings(Path(arguments.out)) if arguments.resume else {})
    bar, stages = ProgressBar(mechanism(given.chosen_mechanism).uploads(given.rounds)), StageBars()
    views = getattr(arguments, "views", None)
    try:
        done = execute(given, arguments.out, (bar,), views=views, progress=stages, show=show, resume=arguments.resume)
    finally:
        bar.close()
        stages.close()
    for warning in done.warnings:
        print(f"dpfedvis: warning: {warning}", file=sys.stderr)
    summary = {**done.summary(), "chosen": chosen(given, done.config)}
    print(json.dumps(summary, indent=2) if arguments.json else _page(done, summary))
    return 0


def config_of(arguments: argparse.Namespace, stored: Mapping[str, Any]) -> RunConfig:
    """Return the settings of the flags, over those of the file, if any, over those of the run to go on with."""
    from dpfedvis.runs.settings import RunConfig
    from dpfedvis.runs.toml_files import read_toml

    others = ("out", "views", "config", "json", "run", "resume")
    values = {key: value for key, value in vars(arguments).items() if key not in others}
    file = getattr(arguments, "config", None)
    return RunConfig.from_mapping({**stored, **({} if file is None else read_toml(file)), **values})


def chosen(given: RunConfig, settled: RunConfig) -> dict[str, Any]:
    """Return the settings that were left open, and what was taken for them."""
    from dataclasses import fields

    return {
        field.name: getattr(settled, field.name)
        for field in fields(given)
        if getattr(given, field.name) is None and getattr(settled, field.name) is not None
    }


def gamma(text: str) -> float | list[float] | str:
    """Parse a width, several, or the name of a source; the settings judge the name."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        return text
    return numbers if len(numbers) > 1 else numbers[0]


def classes(text: str) -> list[int]:
    """Parse labels."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be labels such as 0,1,2, got {text!r}") from error


def shares(text: str) -> dict[str, float]:
    """Parse shares of stages; the settings judge names and numbers."""
    try:
        pairs = [part.split("=") for part in text.split(",")]
        given = {stage.strip(): float(share) for stage, share in pairs}
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be shares such as subspace=0.3,density=0.1, got {text!r}") from error
    if len(given) < len(pairs):
        raise argparse.ArgumentTypeError(f"must name each stage once, got {text!r}")
    return given


def _page(done: Run, summary: dict[str, Any]) -> str:
    choices = ", ".join(f"{name} = {value}" for name, value in summary["chosen"].items())
    lines = [
        f"{done.config.map} of {done.config.data}, mechanism {done.config.mechanism}, release {done.config.release}",
        summary["headline"],
    ]
    if choices:
        lines.append(f"chosen, since not given: {choices}")
    lines.append(f"{done.folder}: {', '.join(summary['files'])}")
    return "\n".join(lines)
