"""The figure of what an adversary can do, and the pages that quote the statement: statement.html and the NIST page."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accounting.risk import trade_off
from accounting.rounding import rounded_up
from dpfedvis.reporting.drawing import plain
from dpfedvis.reporting.rendering import render_html, render_markdown
from dpfedvis.runs.results import BY_GROUP, SIMULATION

STATEMENT_PAGE = "statement.html"
_ACCENT, _SOFT, _WARN = "#0072B2", "#8a949d", "#D55E00"
_SHARES = ("kept", "among_own", "among_own_before")
_DASHES = ("--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))


def draw_trade_off(statement: Mapping[str, Any]) -> Any | None:
    """Return a figure of the trade-off curves, with the points that an audit found; None without a guarantee.

    Parameters
    ----------
    statement : mapping
        As in statement.json.
    """
    from matplotlib.figure import Figure

    if not statement["trade_off"] or not statement["releases"]:
        return None
    figure = Figure(figsize=(5.2, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    first, *others = statement["risk"]
    alphas, rates = zip(*statement["trade_off"], strict=True)
    axes.loglog(alphas, rates, color=_ACCENT, lw=1.8, label=plain(f"{first['of']}, at most"))
    dashes = iter(_DASHES)
    for line in others:
        if line["mu"] not in (None, "inf"):
            style = {"color": _ACCENT, "ls": next(dashes, ":"), "lw": 1, "alpha": 0.8}
            axes.loglog(alphas, [rate for _, rate in trade_off(line["mu"], alphas)], label=plain(_name(line)), **style)
    axes.loglog(alphas, alphas, color=_SOFT, lw=1, label="blind guessing")
    for number, rate in enumerate(_found(statement)):
        spread = [[max(rate["found"] - rate["low"], 0.0)], [max(rate["high"] - rate["found"], 0.0)]]
        label = "found by the audit (95 %)" if number == 0 else None
        axes.errorbar([rate["at"]], [rate["found"]], yerr=spread, fmt="o", ms=4, color=_WARN, capsize=2, label=label)
    axes.set(xlabel="false alarms", ylabel="records found", xlim=(min(alphas), 1.0), ylim=(min(alphas), 1.05))
    axes.legend(frameon=False, fontsize=7, loc="lower right")
    figure.supxlabel(plain(statement["words"]["short"]), fontsize=7, color=_SOFT, x=0.99, ha="right")
    return figure


def statement_page(statement: Mapping[str, Any], drawn: str | None) -> str:
    """Return statement.html.

    Parameters
    ----------
    statement : mapping
        As in statement.json.
    drawn : str, optional
        The figure as SVG.
    """
    return render_html(
        "statement.html",
        statement=statement,
        curve=_curve(statement),
        drawn=drawn,
        alarms=[f"found at {100 * fpr:g} % false alarms" for fpr, _ in statement["risk"][0]["true_positive_rates"]],
        accountants=[
            [name, _epsilon(each["epsilon"]), each["note"]] for name, each in statement["accountants"].items()
        ],
    )


def nist_page(statement: Mapping[str, Any], folder: Path | None, *, html: bool) -> str:
    """Return the page that answers the questions of NIST SP 800-226, one by one, as HTML or Markdown.

    Parameters
    ----------
    statement : mapping
        As in statement.json.
    folder : Path, optional
        Of the run; of a simulation, it says whose records are placed worse.
    html : bool
    """
    groups = {} if folder is None else _by_group(folder, statement)
    render = render_html if html else render_markdown
    return render("nist.page", statement=statement, curve=_curve(statement), groups=groups)


def _name(line: Mapping[str, Any]) -> str:
    """Name of a curve: for whom, or against whom."""
    own = {"server alone": "the server alone", "another client": "another client"}
    return f"against {own[line['key']]}" if line["key"] in own else str(line["of"])


def _found(statement: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Rates of true positives that an audit found, at the false positives that it counted."""
    audit = statement["audit"]
    rates = [] if audit is None else audit["membership"]
    return [each for each in rates if each["at"] is not None and each["at"] > 0 and each["found"] > 0]


def _by_group(folder: Path, statement: Mapping[str, Any]) -> dict[str, list[list[Any]]]:
    """Rows of how records are placed by class and by site; in a simulation alone."""
    path = folder / SIMULATION / BY_GROUP
    if not statement["simulation"] or not path.exists():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: [[each["group"], *(f"{each[key]:.3f}" for key in _SHARES)] for each in rows]
        for name, rows in found.items()
        if rows
    }


def _curve(statement: Mapping[str, Any]) -> list[list[str]]:
    return [[f"{delta:g}", _epsilon(epsilon)] for delta, epsilon in statement["curve"]]


def _epsilon(value: float | str | None) -> str:
    return rounded_up(math.nan if value is None else float(value))
