"""`dpfedvis attack`: what an honest-but-curious server can find out from a recorded run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfedvis.cli.common import add_command, print_json
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.progress import bar

if TYPE_CHECKING:
    from attacks.membership.conclusion import Conclusion
    from attacks.shared.registry import Result, Truth
    from dpfedvis.runs.upload_reader import Recording

_EXAMPLE = """\
example:
  dpfedvis run --data digits --records 300 --sample random --landmarks 100 --mechanism none --out runs/exact
  dpfedvis attack --run runs/exact --kind reconstruction

An attack reads only the run's folder: uploads, ledger, landmarks, map. The records are loaded by config.toml only to
score it. Its pictures show records, so they are written beside the run's folder, not into it. Membership and exposure
need records of the same file that took no part: run with --records N --sample random. On a private run all attacks end
with what an adversary could try, what came of it, and one sentence for who must sign.
"""


class OtherData(DpfedvisError):
    """The data have changed since the run."""


class NotForAll(DpfedvisError):
    """A file for data owners would be written to a public folder."""


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = add_command(
        subparsers,
        "attack",
        run,
        help="try to get records back from a recorded run",
        description="Attack a recorded run as an honest-but-curious server would, and score what comes out.",
        epilog=_EXAMPLE,
    )
    parser.add_argument("--run", required=True, metavar="FOLDER", dest="folder", help="folder of a finished run")
    parser.add_argument("--kind", default="all", help="reconstruction, inversion, membership, exposure or all (all)")
    parser.add_argument("--out", metavar="FOLDER", help="for pages and pictures (FOLDER-attacks)")
    parser.add_argument("--owner-out", metavar="FOLDER", help="for one file a client with its most exposed "
                        "records, for that client only")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="seed of the attacks (0)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from accounting import checks
    from attacks.shared.registry import KINDS, NothingToAttack, kind
    from dpfedvis.numerics.random_streams import Streams
    from dpfedvis.runs.upload_reader import Recording

    checks.one_of("--kind", arguments.kind, ("all", *KINDS))
    streams = Streams(checks.at_least("--seed", arguments.seed, 0))
    recording = Recording.read(arguments.folder)
    truth = truth_of(recording.folder)
    out = Path(arguments.out) if arguments.out else recording.folder.with_name(recording.folder.name + "-attacks")
    owners = None if arguments.owner_out is None else apart(Path(arguments.owner_out), recording.folder, out)
    report: dict[str, Any] = {}
    results: dict[str, Result] = {}
    chosen = tuple(KINDS) if arguments.kind == "all" else (arguments.kind,)
    with bar(len(chosen), "attack") as played:
        for name in chosen:
            played.set_description(name)
            try:
                results[name] = kind(name)(recording, truth, streams.generator("attack", name))
                report[name] = json.loads(results[name].to_json())
            except NothingToAttack as reason:
                if arguments.kind != "all":
                    raise
                report[name] = {"skipped": str(reason)}
            played.update()
    ended = _ended(recording, results, report) if arguments.kind == "all" else None
    if ended is not None:
        report["conclusion"] = ended.to_dict()
    # Written last, so that a damaged recording leaves no half of a report.
    for name, result in results.items():
        write(result, name, out)
        if not arguments.json:
            print(result.markdown())
    if owners is not None:
        write_owners(recording, truth, owners)
    if arguments.json:
        print_json(report)
        return 0
    for name, each in report.items():
        if "skipped" in each:
            print(f"{name}: {each['skipped']}")
    if ended is not None:
        print(ended.markdown())
    if results:
        print(f"pages, pictures and JSON are in {out}")
    if owners is not None:
        print(f"a file for each client, for that client only, is in {owners}")
    return 0


def _ended(recording: Recording, results: Mapping[str, Result], report: Mapping[str, Any]) -> Conclusion | None:
    """Return what all attacks come to, on a run with an end-to-end guarantee."""
    from attacks.membership.conclusion import conclusion
    from attacks.membership.report import DELTA, MembershipReport
    from dpfedvis.runs.statement_file import NUMBERS, current_statement

    played = results.get("membership")
    games = played.games if isinstance(played, MembershipReport) else ()
    skipped = {name: each["skipped"] for name, each in report.items() if "skipped" in each}
    rows = report.get("reconstruction", {})
    finished = (recording.folder / NUMBERS).exists()
    all_runs = current_statement(recording.folder).all_runs if finished else None
    return conclusion(recording, games, skipped, DELTA, recognised=rows.get("recognised"), all_runs=all_runs)


def truth_of(folder: Path) -> Truth:
    """Load the records of a run, for scoring; raise if the data have changed."""

    import numpy as np

    from attacks.shared.registry import Truth
    from dpfedvis.runs.execute import CONFIG, PROVENANCE
    from dpfedvis.runs.settings import RunConfig
    from dpfedvis.runs.upload_reader import RecordingError

    config = RunConfig.from_toml(folder / CONFIG)
    try:
        expected = json.loads((folder / PROVENANCE).read_text(encoding="utf-8"))["data"].get("sha256")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordingError(f"{folder / PROVENANCE} cannot be read ({error})") from error
    # Missing values in records that took no part did not stop the run.
    whole = config.updated(records=None, missing="public-value").dataset()
    # A run with real noise stores no hash, so that its data cannot be checked.
    if expected is not None and whole.sha256 != expected:
        raise OtherData(
            f"{config.data_name} has changed since the run: its hash is {whole.sha256[:16]}…, not {expected[:16]}…"
        )
    fed = config.federated()
    fresh = np.delete(whole.X, config.taken(len(whole.X)), axis=0).astype(fed.clients[0].X.dtype)
    fresh = fresh[np.isfinite(fresh).all(axis=1)]
    if fed.features is not None and len(fresh):
        fresh = np.asarray(fed.features(fresh), dtype=fresh.dtype)
    return Truth(fed, fresh if len(fresh) else None, whole.image_shape, exchangeable=config.sample == "random")


def write(result: Result, name: str, out: Path) -> None:
    """Write page, picture and JSON of one attack."""
    from dpfedvis.numerics.files import write_text
    from dpfedvis.runs.folder import writing

    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        result.figure(out / f"{name}.png")
        write_text(out / f"{name}.json", result.to_json() + "\n")
        write_text(out / f"{name}.md", result.markdown())


def apart(folder: Path, *public: Path) -> Path:
    """Return the folder for owners; raise if it lies in a public one."""
    place = folder.resolve()
    for each in public:
        if place == each.resolve() or each.resolve() in place.parents:
            raise NotForAll(f"--owner-out {folder} lies in {each}, which others read; choose another folder")
    return folder


def write_owners(recording: Recording, truth: Truth, folder: Path) -> None:
    """Write a file for each client with its most exposed records."""
    from attacks.exposure.report import owner_views
    from dpfedvis.numerics.files import write_text
    from dpfedvis.runs.folder import writing

    with writing(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for number, view in enumerate(owner_views(recording, truth)):
            # Not every client name is a file name; the number keeps two names apart.
            plain = "".join(letter if letter.isalnum() or letter in "-." else "_" for letter in view.client)
            write_text(folder / f"{number}-{plain}.json", view.to_json() + "\n")
