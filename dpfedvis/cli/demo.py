"""`dpfedvis demo`: maps with and without privacy, attacks on them, and one page about all of it."""

from __future__ import annotations

import argparse
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from dpfedvis.cli.common import add_command, print_result
from dpfedvis.numerics import progress

if TYPE_CHECKING:
    from dpfedvis.experiments.demo import Attacked, Story
    from dpfedvis.runs.settings import RunConfig

INDEX = "index.html"
Made = TypeVar("Made")
ATTACKED = ("exact", "plus", "noisy", "private-high")
_EXAMPLE = """\
example:
  dpfedvis demo --out runs/story

It runs t-SNE of collected records, Fed-tSNE, the paper's Fed-tSNE+ and private maps at three budgets, and attacks them;
and a private map of CSV files of five made-up hospitals, with each hospital's own view.
The folder gets one page, index.html, and a folder for each run. About a minute on two cores.
"""


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = add_command(
        subparsers,
        "demo",
        run,
        help="make maps with and without privacy, attack them, and show all on one page",
        description="Make maps of digits with and without privacy, attack them, and show all of it on one page.",
        epilog=_EXAMPLE,
    )
    parser.add_argument("--out", required=True, metavar="FOLDER", help="new or empty")
    parser.add_argument("--records", type=int, help="take only so many records (all 1797)")
    parser.add_argument("--clients", type=int, default=10, help="number of clients (10)")
    parser.add_argument("--epsilons", type=_three, default="1,3,10", help="three budgets, of the private maps (1,3,10)")
    parser.add_argument("--seed", type=int, default=0, help="(0)")
    parser.add_argument("--jobs", type=int, default=1, help="threads of t-SNE (1)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from dpfedvis.experiments.demo import PRIVATE, page, plan
    from dpfedvis.numerics.files import write_text
    from dpfedvis.runs.folder import CONFIG, refuse_taken, writing

    out, started = Path(arguments.out), time.perf_counter()
    refuse_taken(out)
    configs = plan(arguments.records, arguments.clients, arguments.epsilons, arguments.seed, arguments.jobs)
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        # Renamed when it is finished, so that there is never half a demo.
        folder = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        story = tell(configs, folder, command_of(arguments))
        write_text(folder / INDEX, page(story))
        # The folder gets its name now, and the settings of this run are paths below it.
        config = folder / "hospitals" / CONFIG
        write_text(config, config.read_text(encoding="utf-8").replace(str(folder), str(out)))
        folder.chmod(0o755)
        if out.is_dir():
            out.rmdir()
        folder.replace(out)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    seconds = time.perf_counter() - started
    index = out / INDEX
    lines = [f"{name}: {out / key}" for key, name in story.names.items()]
    middle = story.runs[PRIVATE[1]]
    if middle.simulation is not None:
        lines.append(f"{story.names[PRIVATE[1]]}, {middle.simulation.sentence}")
    lines.append(f"made in {seconds:.0f} s; open {index} in a browser")
    print_result(arguments, summary(story, index, seconds), "\n".join(lines))
    return 0


def tell(configs: dict[str, RunConfig], folder: Path, command: str) -> Story:
    """Make all runs in `folder`, attack them, and return what the page shows."""
    from dpfedvis.experiments.demo import PRIVATE, Story, central, hospital_run, show_beside, without_data
    from dpfedvis.reporting.run_facts import RunFacts
    from dpfedvis.reporting.run_report import show
    from dpfedvis.runs.execute import execute

    common = next(iter(configs.values()))
    with progress.bar(3 + len(configs) + len(ATTACKED), "part") as bar:

        def step(name: str, make: Callable[..., Made], *given: Any) -> Made:
            bar.set_description(name)
            made = make(*given)
            bar.update()
            return made

        collected, scores = step("central t-SNE", central, common)
        free = step("no data", without_data, configs[PRIVATE[0]])
        yardsticks = {"no data": free, "central": scores}
        beside = partial(show_beside, yardsticks)
        for key, config in configs.items():
            step(key, partial(execute, show=beside), config, folder / key)
        files = hospital_run(folder / "hospital-files", common.seed, common.jobs)
        views = folder / "hospital-views"
        step("hospitals", partial(execute, show=show, views=views), files, folder / "hospitals")
        attacks = [step(f"attack on {key}", attacked, folder, key, common.seed) for key in ATTACKED]
    facts = {key: RunFacts.read(folder / key) for key in configs}
    own = RunFacts.read(folder / "hospitals")
    return Story(collected, yardsticks, facts, PRIVATE, attacks, command, own)


def attacked(folder: Path, key: str, seed: int) -> Attacked:
    """Attack the rows of a run. The pictures show records, so they are beside the run, not in it."""
    from attacks.shared.registry import NothingToAttack, kind
    from dpfedvis.cli.attack import truth_of, write
    from dpfedvis.experiments.demo import Attacked
    from dpfedvis.numerics.random_streams import Streams
    from dpfedvis.runs.upload_reader import Recording

    recording = Recording.read(folder / key)
    try:
        result = kind("reconstruction")(recording, truth_of(recording.folder), Streams(seed).generator("attack", key))
    except NothingToAttack as reason:
        return Attacked(key, refused=str(reason))
    out = folder / f"{key}-attacks"
    write(result, "reconstruction", out)
    return Attacked(key, (out / "reconstruction.png").read_bytes(), dict(result.summary))


def summary(story: Story, page: Path, seconds: float) -> dict[str, Any]:
    """Return the main facts, ready for JSON."""
    return {
        "page": str(page),
        "epsilon_end_to_end": {key: facts.statement["epsilon_end_to_end"] for key, facts in story.runs.items()},
        "nominal_epsilon_of_plus": story.runs["plus"].statement["nominal_epsilon"],
        "relative_error_of_attacks": {
            found.run: found.numbers["relative error"] for found in story.attacks if found.picture is not None
        },
        "seconds": round(seconds, 3),
    }


def command_of(arguments: argparse.Namespace) -> str:
    """Return the command that reproduces the page."""
    words = ["dpfedvis", "demo", "--out", str(arguments.out)]
    if arguments.records is not None:
        words += ["--records", str(arguments.records)]
    for name, default in (("clients", 10), ("seed", 0)):
        if getattr(arguments, name) != default:
            words += [f"--{name}", str(getattr(arguments, name))]
    if tuple(arguments.epsilons) != (1.0, 3.0, 10.0):
        words += ["--epsilons", ",".join(f"{each:g}" for each in arguments.epsilons)]
    return shlex.join(words)


def _three(text: str) -> tuple[float, float, float]:
    try:
        low, middle, high = sorted(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not three numbers, such as 1,3,10") from None
    if low == middle or middle == high:
        raise argparse.ArgumentTypeError(f"{text!r} has the same budget twice; give three, such as 1,3,10")
    return low, middle, high
