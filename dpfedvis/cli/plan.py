"""`dpfedvis plan`: what a private map could show, from public numbers alone, before anything is spent."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from dpfedvis.cli.common import MissingOption, add_quiet, print_result
from dpfedvis.cli.settings_flags import add_settings, spelled_as_flags
from dpfedvis.numerics.progress import bar

if TYPE_CHECKING:
    from dpfedvis.server.forecast import Forecast

_EXAMPLE = """\
examples:
  dpfedvis plan --records 569 --clients 4 --columns 30 --epsilon 2
  dpfedvis plan --records 40000 --clients 10 --columns 784 --epsilon 1 --trust aggregate --threshold 8 --colluders 2
  dpfedvis plan --data hospitals/*.csv --schema hospitals/schema.toml --epsilon 2

It takes the settings of "dpfedvis run". Without --data, the records of all clients together, the clients, and the
numbers that a record has (--columns) are enough; they are taken to be from 0 to 1, in equal parts at the clients.
Nothing is released, and of data only public numbers are used.

"no" holds for any data of this size: "dpfedvis run" then stops before it spends, with exit code 3, unless --anyway is
given. The other forecasts are for usual data, most of whose variance is in directions that have 3 % of it or more. The
ways out are single changes, each by itself, with which usual data would be seen.
"""


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = subparsers.add_parser(
        "plan",
        help="say what a private map can show, before anything is spent",
        description="Say from public numbers alone how much noise each stage of a private map gets, and what it can "
        "show.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--columns", type=int, metavar="N", help="without --data, numbers that a record has")
    parser.add_argument("--config", metavar="FILE.toml", help="settings by name; flags win over them")
    parser.add_argument("--json", action="store_true", default=False, help="print JSON")
    add_quiet(parser)
    parser.late = add_settings
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    with spelled_as_flags(), bar(1, "forecast", "plan"):
        found = _forecast(arguments)
    print_result(arguments, found.to_dict(), _page(found))
    return 0


def _forecast(arguments: argparse.Namespace) -> Forecast:
    from dpfedvis.cli.run import config_of
    from dpfedvis.estimators.private_map import PrivateMapEstimator
    from dpfedvis.runs.settings import read_toml

    file = getattr(arguments, "config", None)
    numbers = not hasattr(arguments, "data") and "data" not in ({} if file is None else read_toml(file))
    if numbers:
        columns, records = (getattr(arguments, name, None) for name in ("columns", "records"))
        if columns is None or records is None:
            raise MissingOption("plan needs --data, or --records and --columns")
        arguments.data = "numbers"  # of no data set: it is not loaded
    config = config_of(arguments, {})
    if config.epsilon is None:
        raise MissingOption("plan needs --epsilon: without a budget there is no noise")
    if numbers:
        estimator = config.estimator()
        assert isinstance(estimator, PrivateMapEstimator)
        return estimator.plan(records=config.records, sites=config.clients, features=columns)
    fed = config.federated()
    estimator = config.resolved(fed).estimator()
    assert isinstance(estimator, PrivateMapEstimator)
    return estimator.plan(fed)


def _page(found: Forecast) -> str:
    lines = [found.sentence, "", f"  {'stage':<16} {'uploads':>7} {'of μ²':>7} {'σ/Δ':>9} {'noise':>11}"]
    for each in found.stages:
        numbers = f"{each.uploads:>7} {100 * each.share:>6.1f}% {each.noise_multiplier:>9.4g} {each.noise:>11.4g}"
        lines.append(f"  {each.what:<16} {numbers} {each.unit}")
    lines += [
        "",
        f"  {found.landmarks} landmarks"
        + (
            ""
            if found.count_noise is None
            else f", each with a share of the records known to ± {found.count_noise:.2g}"
        ),
    ]
    if found.ways:
        lines += ["", "Each of these would be enough for usual data: " + "; ".join(way.sentence for way in found.ways)]
    return "\n".join(lines)
