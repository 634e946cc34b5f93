"""`dpfedvis calibrate`: a budget or a risk in, calibrated noise out, with every accountant's opinion beside it."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

from accounting import (
    ACCOUNTANTS,
    AccountingError,
    Budget,
    CalibratedRelease,
    CannotAccount,
    Composition,
    InvalidParameter,
    PlannedRelease,
    calibrate,
    calibrate_to_risk,
    checks,
    sensitivity,
)
from accounting.budget import ADJACENCIES
from accounting.events import TRUSTS
from accounting.risk import Goal, Risk
from accounting.rounding import rounded_up
from accounting.sharing import Sharing
from dpfedvis.cli.calibrate_map import MAP, map_result, map_table, risk_lines
from dpfedvis.cli.common import MissingOption, add_command, print_result
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.progress import bar

_EXAMPLE = """\
example:
  dpfedvis calibrate --epsilon 1 --delta 1e-5 --mechanism gradient --rounds 50 \\
      --records 4000 --landmarks 500 --gamma 0.005

Add --tau-x, --tau-y and --upsilon to see the sensitivity of the paper's Thm 6 beside the tight one. Add --clients to
see what each adds where they share the noise of a sum (trust aggregate), and what drop-outs and colluders cost:

  dpfedvis calibrate --epsilon 1 --delta 1e-5 --mechanism mean-embedding --records 40000 --clients 10 --colluders 2

Instead of ε a risk can be given: how much more often an attack is right on a record than on its neighbour, or how often
it may find a record at a rate of false alarms. ε is then what this risk is at δ:

  dpfedvis calibrate --advantage 0.1 --delta 1e-5 --mechanism k-means --records 4000
  dpfedvis calibrate --tpr 0.02 --fpr 0.01 --delta 1e-5 --mechanism mean-embedding --records 4000

All stages of a private map at once, from public numbers, with the shares of the recipe:

  dpfedvis calibrate --epsilon 1 --delta 1e-5 --mechanism private-map --records 4000 --features 784 --clients 10 \\
      --trust aggregate
"""

Arguments = argparse.Namespace


def _gradient(a: Arguments, bound: str) -> float:
    return sensitivity.gradient(**_common(a, "gamma", "records", "landmarks"), **_bound(a, bound))


def _variable(a: Arguments, bound: str) -> float:
    if a.adjacency != "replace-one" or a.sampling_rate is not None:
        # Its smoothness constant is for a mean over all records.
        raise InvalidParameter("--adjacency", a.adjacency, "replace-one, without --sampling-rate, for variable")
    values = _common(a, "gamma", "records", "landmarks")
    step = a.step_size
    if step is None:
        # One over the smoothness constant that the sensitivity is computed with, once that is known to make sense.
        _gradient(a, bound)
        step = values["landmarks"] * len(a.gamma) / (12 * sum(a.gamma))
    return sensitivity.variable(**values, step_size=step, local_steps=a.local_steps, **_bound(a, bound))


_ONE_SHOT: dict[str, Callable[[Arguments], float]] = {
    "input": lambda a: sensitivity.input(**_common(a, "tau_x")),
    "k-means": lambda a: sensitivity.cluster_sums(**_common(a, "records")),
    "mean-embedding": lambda a: sensitivity.mean_embedding(**_common(a, "records")),
    "second-moment": lambda a: sensitivity.second_moment(**_common(a, "clip")),
    "gram-rows": lambda a: sensitivity.gram_rows(**_common(a, "tau_x")),
    "distance-rows": lambda a: sensitivity.distance_rows(**_common(a, "tau_x", "landmarks")),
    "kernel-rows": lambda a: sensitivity.kernel_rows(**_common(a, "gamma", "landmarks"), tau_x=a.tau_x),
    "histogram": lambda a: sensitivity.histogram(**_common(a)),
}
_UPLOADS = {"k-means": 12}  # sweeps of its defaults
_PER_ROUND: dict[str, Callable[[Arguments], float]] = {
    "gradient": lambda a: _gradient(a, a.bound),
    "variable": lambda a: _variable(a, a.bound),
    "clipped": lambda a: sensitivity.clipped_gradient(**_common(a, "gamma", "records", "landmarks", "clip")),
}
MECHANISMS = {**_PER_ROUND, **_ONE_SHOT}


def add_parser(subparsers: Any) -> None:
    """Register the command."""
    parser = add_command(
        subparsers,
        "calibrate",
        run,
        help="set a budget or a risk, receive calibrated noise",
        description="Find the noise with which a mechanism uses up a budget, or has a risk, and compare accountants.",
        epilog=_EXAMPLE,
    )
    parser.add_argument("--epsilon", type=float, help="ε of the whole run; or a risk instead:")
    parser.add_argument("--advantage", type=float, help="largest advantage of an attack, from 0 to 1")
    parser.add_argument("--tpr", type=float, help="largest rate of true positives of an attack, at --fpr")
    parser.add_argument("--fpr", type=float, help="rate of false positives")
    parser.add_argument("--delta", type=float, required=True, help="δ of the whole run, such as 1e-5")
    parser.add_argument("--mechanism", choices=(*MECHANISMS, MAP), default="gradient",
                        help="what is released; private-map is all stages of the recipe (gradient)")  # fmt: skip
    parser.add_argument("--rounds", type=int, help="releases S (50 for gradient, variable and clipped, 12 for k-means, "
                        "else 1)")  # fmt: skip
    parser.add_argument("--records", type=float, help="records n_p of the client; the denominator is q·n_p if sampled")
    parser.add_argument("--landmarks", type=int, help="landmarks n_y")
    parser.add_argument("--gamma", type=_floats, help="kernel width γ; several, as 0.01,0.02, for their mean kernel")
    parser.add_argument("--bound", choices=("tight", "theorem"), default="tight", help="sensitivity to use (tight)")
    parser.add_argument("--tau-x", type=float, help="public bound on the norm of a record")
    parser.add_argument("--tau-y", type=float, help="public bound on the spectral norm of the landmarks")
    parser.add_argument("--upsilon", type=float, help="public bound on the distance of a record to a landmark")
    parser.add_argument("--clip", type=float, help="clipping norm C of clipped and second-moment")
    parser.add_argument("--local-steps", type=int, default=1, help="local steps Q of variable (1)")
    parser.add_argument("--step-size", type=float, help="step size η of variable (one over the smoothness constant)")
    parser.add_argument("--sampling-rate", type=float, help="Poisson sampling rate q of the records in each round")
    parser.add_argument("--adjacency", choices=ADJACENCIES, help="replace-one, or add-remove if sampled")
    parser.add_argument("--features", type=int, help="features m, of private-map")
    parser.add_argument("--trust", choices=TRUSTS, help="trust of private-map (local)")
    parser.add_argument("--clients", type=int, help="clients that share the noise of a sum over all their records; "
                        "of private-map, all clients")  # fmt: skip
    fewest = "fewest of them in a sum (all, or from five on all but a tenth, at least one)"
    parser.add_argument("--threshold", type=int, help=fewest)
    parser.add_argument("--colluders", type=int, help="of them, how many may work together with the server (1)")
    parser.add_argument("--accountants", type=_names, default=list(ACCOUNTANTS), help="which to ask, as gdp,pld (all)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    try:
        result = _result(arguments)
    except (AccountingError, DpfedvisError):
        raise
    except (ArithmeticError, ValueError) as error:
        raise CannotAccount(f"these numbers are too large or too small to compute with ({error})") from error
    print_result(arguments, result, map_table(result) if result["mechanism"] == MAP else _table(result))
    return 0


def _result(arguments: argparse.Namespace) -> dict[str, Any]:
    _settle_adjacency(arguments)
    goal = _goal(arguments)
    if arguments.mechanism == MAP:
        return map_result(arguments, goal)
    _refuse_map_options(arguments)
    rounds = arguments.rounds
    if rounds is None:
        rounds = 50 if arguments.mechanism in _PER_ROUND else _UPLOADS.get(arguments.mechanism, 1)
    count = checks.count("--rounds", rounds)
    planned = PlannedRelease(
        arguments.mechanism, MECHANISMS[arguments.mechanism](arguments), count, sampling_rate=arguments.sampling_rate
    )
    if goal is None:
        plan = calibrate(Budget(arguments.epsilon, arguments.delta, adjacency=arguments.adjacency), planned)
    else:
        plan = calibrate_to_risk(goal, arguments.delta, planned, adjacency=arguments.adjacency)
    budget, release = plan.budget, plan.releases[0]
    return {
        "mechanism": arguments.mechanism,
        "adjacency": budget.adjacency,
        "rounds": count,
        "sampling_rate": arguments.sampling_rate,
        "sensitivity": planned.sensitivity,
        "sensitivities": _sensitivities(arguments, planned.sensitivity),
        "sigma": release.sigma,
        "noise_multiplier": release.noise_multiplier,
        # Under sampling no single μ describes the release.
        "mu": release.mu if arguments.sampling_rate is None else None,
        "sharing": _sharing(arguments, release.sigma),
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "risk": Risk.of([plan.composition]).to_dict(),
        "accountant": plan.accountant.name,
        "accountants": _opinions(arguments.accountants, plan.composition, release),
    }


def _goal(arguments: argparse.Namespace) -> Goal | None:
    """Return the risk to calibrate to; None where there is an ε. One of the two is given."""
    given = (arguments.advantage, arguments.tpr, arguments.fpr)
    if given == (None, None, None):
        if arguments.epsilon is None:
            raise MissingOption("calibrate needs --epsilon, --advantage, or --tpr with --fpr")
        return None
    if arguments.epsilon is not None:
        raise InvalidParameter("--epsilon", arguments.epsilon, "left out where a risk is given")
    return Goal(*given)


def _refuse_map_options(arguments: argparse.Namespace) -> None:
    for name in ("features", "trust"):
        if (value := getattr(arguments, name)) is not None:
            raise InvalidParameter(f"--{name}", value, f"left out for {arguments.mechanism}, which is no {MAP}")


def _sharing(arguments: argparse.Namespace, sigma: float) -> dict[str, Any] | None:
    """Return what each client adds where clients share the noise."""
    if arguments.clients is None:
        for name in ("threshold", "colluders"):
            if (value := getattr(arguments, name)) is not None:
                raise InvalidParameter(f"--{name}", value, "left out without --clients")
        return None
    sharing = Sharing.of(arguments.clients, arguments.threshold, arguments.colluders)
    return {
        "clients": sharing.parties,
        "threshold": sharing.threshold,
        "colluders": sharing.colluders,
        "sigma_of_each": sigma / math.sqrt(sharing.shares),
        "sigma_of_the_sum": sigma * sharing.factor,
        "factor": sharing.factor,
    }


def _settle_adjacency(arguments: argparse.Namespace) -> None:
    """Choose the default adjacency and, under sampling, the public denominator q·n."""
    if arguments.adjacency is None:
        arguments.adjacency = "replace-one" if arguments.sampling_rate is None else "add-remove"
    if arguments.sampling_rate is not None and arguments.mechanism in _ONE_SHOT:
        raise InvalidParameter("--sampling-rate", arguments.sampling_rate, f"absent for {arguments.mechanism}")
    if arguments.sampling_rate is not None and arguments.records is not None:
        arguments.records *= checks.rate("--sampling-rate", arguments.sampling_rate)


def _common(arguments: argparse.Namespace, *names: str) -> dict[str, Any]:
    values = {name: getattr(arguments, name) for name in names}
    missing = [f"--{name.replace('_', '-')}" for name, value in values.items() if value is None]
    if missing:
        raise MissingOption(f"{arguments.mechanism} needs {' and '.join(missing)}")
    return {**values, "adjacency": arguments.adjacency}


def _bound(arguments: argparse.Namespace, bound: str) -> dict[str, Any]:
    constants = {name: getattr(arguments, name) for name in ("tau_x", "tau_y", "upsilon")}
    missing = [f"--{name.replace('_', '-')}" for name, value in constants.items() if value is None]
    if bound == "theorem" and missing:
        raise MissingOption(f"--bound theorem needs {' and '.join(missing)}, public bounds")
    return {"bound": bound, **constants}


def _sensitivities(arguments: argparse.Namespace, used: float) -> dict[str, float]:
    """Return the sensitivity by every bound for which the inputs are there."""
    by_bound = {"gradient": _gradient, "variable": _variable}.get(arguments.mechanism)
    if by_bound is None:
        return {"tight": used}
    values = {"tight": by_bound(arguments, "tight")}
    if None not in (arguments.tau_x, arguments.tau_y, arguments.upsilon):
        values["theorem"] = by_bound(arguments, "theorem")
    return values


def _opinions(names: list[str], composition: Composition, release: CalibratedRelease) -> dict[str, dict[str, Any]]:
    budget = release.budget
    opinions: dict[str, dict[str, Any]] = {}
    with bar(len(names), "accountant") as asked:
        for name in names:
            accountant = ACCOUNTANTS[name]
            asked.set_description(name)
            opinion: dict[str, Any] = {"epsilon": None, "sigma": None, "is_bound": accountant.is_bound}
            try:
                # JSON has no infinity: an accountant whose ε overflows is one that cannot say.
                epsilon = accountant.epsilon(composition, budget.delta)
                opinion["epsilon"] = epsilon if math.isfinite(epsilon) else None
                opinion["sigma"] = release.sigma * accountant.sigma_factor(composition, budget.epsilon, budget.delta)
            except CannotAccount as error:
                opinion["reason"] = str(error)
            except (ArithmeticError, ValueError) as error:
                opinion["reason"] = f"{name} failed ({error})"
            opinions[name] = opinion
            asked.update()
    return opinions


def _table(result: dict[str, Any]) -> str:
    sampled = f", sampling rate {result['sampling_rate']:g}" if result["sampling_rate"] else ""
    rounds = f"{result['rounds']} round" + ("s" if result["rounds"] != 1 else "")
    lines = [
        f"{result['mechanism']}, {rounds}, {result['adjacency']}{sampled}, budget ε = {rounded_up(result['epsilon'])}, "
        f"δ = {result['delta']:g}",
        "",
    ]
    for bound, value in result["sensitivities"].items():
        ratio = value / result["sensitivities"]["tight"]
        lines.append(f"  Δ ({bound})".ljust(24) + f"{value:.6g}" + (f"   {ratio:.4g} × tight" if ratio != 1 else ""))
    lines += [
        # Rounded up: noise copied from here must not be too little.
        "  σ".ljust(24) + f"{result['sigma'] * (1 + 5e-6):.6g}",
        "  noise multiplier σ/Δ".ljust(24) + f"{result['noise_multiplier']:.6g}",
    ]
    if result["mu"] is not None:
        lines.append("  μ".ljust(24) + rounded_up(result["mu"], 6))
    lines += risk_lines(result["risk"])
    if (shared := result["sharing"]) is not None:
        lines += [
            "",
            f"  {shared['clients']} clients share the noise; at least t = {shared['threshold']} in a sum, c = "
            f"{shared['colluders']} may collude",
            "  σ of each".ljust(24) + f"{shared['sigma_of_each'] * (1 + 5e-6):.6g}",
            "  σ of a sum of all".ljust(24)
            + f"{shared['sigma_of_the_sum']:.6g}   √(P/(t − c)) = {shared['factor']:.4g} × σ",
        ]
    lines += ["", f"  {'accountant':<12} {'ε of this σ':>12} {'σ it asks for':>14}", "  " + "-" * 42]
    for name, opinion in result["accountants"].items():
        epsilon, sigma = opinion["epsilon"], opinion["sigma"]
        note = opinion.get("reason") or ("" if opinion["is_bound"] else "approximation, not a bound")
        shown_epsilon = "-" if epsilon is None else rounded_up(epsilon, 6)
        shown_sigma = "-" if sigma is None else f"{sigma:.6g}"
        lines.append(f"  {name:<12} {shown_epsilon:>12} {shown_sigma:>14}   {note}".rstrip())
    return "\n".join(lines)


def _floats(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number or a list such as 0.01,0.02") from None


def _names(text: str) -> list[str]:
    names = [part.strip() for part in text.split(",")]
    unknown = [name for name in names if name not in ACCOUNTANTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not one of {', '.join(ACCOUNTANTS)}")
    return names
