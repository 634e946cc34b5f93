"""`dpfedvis calibrate --mechanism private-map`: the noise of all stages of the recipe, from public numbers."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

from accounting.errors import InvalidParameter
from accounting.rounding import rounded_up
from dpfedvis.cli.common import MissingOption

if TYPE_CHECKING:
    from accounting import Budget
    from accounting.risk import Goal
    from dpfedvis.protocol.contract import Contract
    from dpfedvis.server.private_map import Learner

MAP = "private-map"
_NEEDED = ("records", "features", "clients")
_NOT_OF_A_MAP = ("sampling_rate", "gamma", "clip", "step_size", "tau_y", "upsilon")


def map_result(arguments: argparse.Namespace, goal: Goal | None) -> dict[str, Any]:
    """Return every stage of a private map with its share of the budget and its noise.

    Parameters
    ----------
    arguments : argparse.Namespace
    goal : Goal, optional
        Risk to calibrate to; without one, the ε of the arguments.
    """
    from accounting import ACCOUNTANTS, Budget, calibrate_to_risk, compare
    from accounting.risk import Risk

    missing = [f"--{name}" for name in _NEEDED if getattr(arguments, name) is None]
    if missing:
        raise MissingOption(f"{MAP} needs {' and '.join(missing)}")
    for name in _NOT_OF_A_MAP:
        if (value := getattr(arguments, name)) is not None:
            raise InvalidParameter(f"--{name.replace('_', '-')}", value, f"left out for {MAP}")
    adjacency, delta = arguments.adjacency, arguments.delta
    if goal is None:
        budget = Budget(arguments.epsilon, delta, adjacency)
    else:
        planned = [each.planned for each in _plan(arguments, Budget(1.0, delta, adjacency))[1].releases]
        budget = calibrate_to_risk(goal, delta, planned, adjacency=adjacency).budget
    contract, plan = _plan(arguments, budget)
    sharing, composition = contract.sharing, plan.composition
    readings = compare([composition], delta, [name for name in ACCOUNTANTS if name in arguments.accountants])
    return {
        "mechanism": MAP,
        "landmarks_by": contract.mechanism.name,
        "adjacency": adjacency,
        "trust": contract.trust,
        "clients": len(contract.members),
        "records": arguments.records,
        "features": contract.features,
        "stages": _stages(arguments, contract, budget),
        "sharing": None
        if sharing is None
        else {"threshold": sharing.threshold, "colluders": sharing.colluders, "factor": sharing.factor},
        "mu": composition.total_mu,
        "epsilon": budget.epsilon,
        "delta": delta,
        "risk": Risk.of([composition]).to_dict(),
        "accountant": plan.accountant.name,
        "accountants": {
            name: {
                "epsilon": each.epsilon if each.epsilon is not None and math.isfinite(each.epsilon) else None,
                "is_bound": each.is_bound,
                "reason": each.reason,
            }
            for name, each in readings.items()
        },
    }


def map_table(result: dict[str, Any]) -> str:
    """Return the result as a table."""
    lines = [
        f"private map, landmarks by {result['landmarks_by']}, {result['clients']} clients of {result['records']:g} "
        f"records each with {result['features']} features, trust {result['trust']}, {result['adjacency']}, "
        f"budget ε = {rounded_up(result['epsilon'])}, δ = {result['delta']:g}",
        "",
        f"  {'release':<18} {'of μ²':>7} {'uploads':>8} {'σ/Δ':>10} {'Δ':>11} {'σ':>11}  (of what the server sees)",
        "  " + "-" * 70,
    ]
    for stage in result["stages"]:
        numbers = ["-" if stage[name] is None else f"{stage[name]:.4g}" for name in ("sensitivity", "sigma")]
        lines.append(
            f"  {stage['what']:<18} {100 * stage['share']:>6.1f}% {stage['count']:>8} "
            f"{stage['noise_multiplier']:>10.4g} {numbers[0]:>11} {numbers[1]:>11}"
        )
    lines += ["", "  μ".ljust(24) + rounded_up(result["mu"], 6), *risk_lines(result["risk"])]
    if (shared := result["sharing"]) is not None:
        lines.append(
            f"  at least t = {shared['threshold']} in a sum, c = {shared['colluders']} may collude: a sum of all has "
            f"√(P/(t − c)) = {shared['factor']:.4g} times this noise"
        )
    lines += ["", f"  {'accountant':<12} {'ε of this σ':>12}", "  " + "-" * 26]
    for name, opinion in result["accountants"].items():
        shown = "-" if opinion["epsilon"] is None else rounded_up(opinion["epsilon"], 6)
        note = opinion["reason"] or ("" if opinion["is_bound"] else "approximation, not a bound")
        lines.append(f"  {name:<12} {shown:>12}   {note}".rstrip())
    return "\n".join(lines)


def risk_lines(risk: dict[str, Any]) -> list[str]:
    """Return what a guess about one record can come to, for a table."""
    rates = ", ".join(f"{rounded_up(100 * tpr, 3)} % at {100 * fpr:g} %" for fpr, tpr in risk["true_positive_rates"])
    return [
        "  right guesses".ljust(24) + f"at most {rounded_up(risk['right_guesses_of_100'], 3)} of 100; blind: 50",
        "  attack advantage".ljust(24) + f"at most {rounded_up(risk['advantage'], 3)}",
        "  true positives".ljust(24) + f"at most {rates} false ones",
    ]


def _plan(arguments: argparse.Namespace, budget: Budget) -> tuple[Contract, Any]:
    contract = _learner(arguments, budget)[1]
    assert contract.plan is not None
    return contract, contract.plan.multipliers


def _learner(arguments: argparse.Namespace, budget: Budget) -> tuple[Learner, Contract]:
    """Return the server's side and the contract that its sites would sign, from public numbers alone."""
    from accounting import checks
    from dpfedvis.mechanisms import KMeans
    from dpfedvis.protocol.messages import Description
    from dpfedvis.server.members import Members
    from dpfedvis.server.recipe import Recipe

    records = checks.count("--records", arguments.records)
    clients = checks.count("--clients", arguments.clients)
    features = checks.count("--features", arguments.features)
    mechanism = KMeans(trust=arguments.trust or "local")
    shared = mechanism.trust == "aggregate"
    for name in ("threshold", "colluders"):
        if not shared and getattr(arguments, name) is not None:
            raise InvalidParameter(f"--{name}", getattr(arguments, name), "left out without --trust aggregate")
    learner = Recipe().learner(
        budget=budget,
        mechanism=mechanism,
        landmarks=arguments.landmarks,
        rounds=mechanism.sweeps if arguments.rounds is None else arguments.rounds,
        tau_x=math.sqrt(features) if arguments.tau_x is None else arguments.tau_x,  # values from 0 to 1, as in plan
        image=None,
        noise="discrete",
        seed=0,
        further={"public_records": records} if budget.adjacency == "add-remove" else {},
        threshold=arguments.threshold,
        colluders=arguments.colluders,
        retries=0,
    )
    told = None if budget.hides_records else records
    sites = tuple(Description(f"site {number}", "", told, features, "float32", False, "") for number in range(clients))
    return learner, learner.contract(Members(sites), "planned")


def _stages(arguments: argparse.Namespace, contract: Contract, budget: Budget) -> list[dict[str, Any]]:
    """Return what is known of each release before the first: Δ and σ of the average that the server sees."""
    from dataclasses import replace

    from dpfedvis.mechanisms.releases import SINGLE_RELEASES

    learner, _ = _learner(arguments, budget)
    assert contract.plan is not None
    found = []
    for release in contract.plan.multipliers.releases:
        what = release.planned.what
        single = SINGLE_RELEASES.get(what)
        mechanism = contract.mechanism if single is None else single(trust=contract.trust)  # type: ignore[call-arg]  # all have it
        public = replace(learner.public_for(contract.features), landmarks=2)
        plan = contract.site_plans(mechanism, public)[0]
        found.append(
            {
                "what": what,
                "stage": release.planned.stage,
                "share": release.planned.share,
                "count": release.planned.count,
                "noise_multiplier": release.sigma,
                "sensitivity": plan.sensitivity,
                "sigma": math.sqrt(contract.planned_variance(mechanism, public)),
            }
        )
    return found
