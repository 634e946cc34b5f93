"""The privacy statement: what a ledger allows to be said, and what it does not."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from accounting import (
    Event,
    Ledger,
    Reading,
    Unprotected,
    gaussian_epsilon,
    nominal_mu,
    tightest,
)
from accounting.accountants import distinct
from accounting.assumptions import against_a_client, at_two_sites, of_rows
from accounting.audit_summary import Audited
from accounting.page_wording import page_words
from accounting.release_lines import Line, lines_of
from accounting.risk import Risk
from accounting.risk_lines import RiskLine, risk_lines
from accounting.rounding import rounded_up
from accounting.wording import SEEDED, markdown, not_covered, words

DEFAULT_DELTA = 1e-5
VERSION = 1  # of statement.json; schemas/statement.json describes it
NAMED = 1000  # sites up to which a statement says the ε of each
_CURVE = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)


@dataclass(frozen=True)
class AllRuns:
    """What all runs with real noise on the same records cost together.

    Parameters
    ----------
    epsilon : float
        End to end, at the δ of the statement.
    runs : int
    changed : bool
        Whether the records' file has changed between them; it is taken to hold the same records.
    current : bool
        Whether this was read just now, and not when a run ended.
    risk : Risk, optional
        Of all of them together.
    """

    epsilon: float
    runs: int
    changed: bool = False
    current: bool = False
    risk: Risk | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, ready for JSON."""
        risk = None if self.risk is None else self.risk.to_dict()
        return {**vars(self), "epsilon": _number(self.epsilon), "risk": risk}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> AllRuns:
        """Inverse of `to_dict`."""
        current = bool(values.get("current", False))
        risk = None if values.get("risk") is None else Risk.from_dict(values["risk"])
        return cls(float(values["epsilon"]), int(values["runs"]), bool(values["changed"]), current, risk)


@dataclass(frozen=True)
class Statement:
    """What may be said about privacy. ``str(statement)`` is Markdown, by the template statement.md.

    Parameters
    ----------
    delta : float
    budget : dict, optional
    end_to_end : float
        ε of everything that left a client, at `delta`.
    in_scope : float
        ε of what the budget's scope covers.
    lines : tuple of Line
    accountants : dict of str to Reading
        ε in scope, by every accountant.
    curve : tuple of (float, float)
        (δ, ε) in scope.
    risks : tuple of RiskLine
        What an adversary can do at most: with everything that left, then for others and against others.
    against_a_client : float, optional
        ε end to end against another client that sees the sums and takes its own share of the noise off them, where
        clients share the noise; see `accounting.assumptions`.
    at_two_sites, of_two_rows, of_rows : float, optional
        ε end to end for a record that two sites hold, for a person with two rows, and for one with as many rows as
        the budget says, where the unit is a record.
    nominal : float, optional
        ε that unprotected, data-dependent noise would be worth if its scale had been public. Not a guarantee.
    adjacency, unit : str
    facts : dict
        Public facts of the run.
    remarks : tuple of str
        What a reader should know before the rest, in whole sentences.
    audit : Audited, optional
        What an audit of the same code and settings found, in a run of its own.
    simulation : bool
        Whether the noise was seeded, so that it can be taken off.
    one_machine : bool
        Whether one process held the records of all sites, so that trust between them was neither needed nor tested.
    all_runs : AllRuns, optional
        ε of all runs with real noise on the same records, where a ledger was kept for them.
    site_epsilons : dict of str to float
        ε end to end by site, where there are no more than `NAMED`; empty if the unit is a client, whose name tells
        that it took part.
    head : (int, str), optional
        Entries of the ledger, and the hash of its chain; None of a simulation, and of a ledger in memory.
    """

    delta: float
    budget: dict[str, Any] | None
    end_to_end: float
    in_scope: float
    lines: tuple[Line, ...]
    accountants: dict[str, Reading]
    curve: tuple[tuple[float, float], ...]
    risks: tuple[RiskLine, ...]
    against_a_client: float | None
    nominal: float | None
    adjacency: str
    unit: str
    facts: dict[str, Any]
    remarks: tuple[str, ...] = ()
    audit: Audited | None = None
    at_two_sites: float | None = None
    of_two_rows: float | None = None
    of_rows: float | None = None
    simulation: bool = False
    one_machine: bool = True
    all_runs: AllRuns | None = None
    site_epsilons: dict[str, float] = field(default_factory=dict)
    head: tuple[int, str] | None = None

    @cached_property
    def headline(self) -> str:
        """The one line that counts."""
        epsilon, joint = f"ε = {rounded_up(self.end_to_end)}", ":" if self.end_to_end == math.inf else ""
        head = f"{self.words['simulation']} end to end" if self.words["simulation"] else f"End to end, {epsilon}"
        where = f"; {self.words['one_machine']}" if self.one_machine else ""
        return f"{head}{joint} {self.words['at']}{where}."

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes ε or δ mean less than it seems to."""
        return tuple(
            self.words[key]
            for key in ("ranges", "large_delta", "unbounded", "more_runs", "changed", "unsigned")
            if self.words[key]
        )

    @property
    def risk(self) -> Risk:
        """What an adversary can do with everything that left, about one privacy unit."""
        return self.risks[0].risk

    @property
    def risk_rows(self) -> tuple[RiskLine, ...]:
        """`risks`, and that of all runs on the same records."""
        found = self.all_runs
        if found is None or found.risk is None or found.runs < 2:
            return self.risks
        return (*self.risks, RiskLine("all runs", found.runs, found.risk))

    @property
    def trusts(self) -> tuple[str, ...]:
        """Trust models of the protected releases, each once."""
        return tuple(dict.fromkeys(line.trust for line in self.lines if line.sigma is not None))

    @property
    def on_grid(self) -> bool:
        """Whether all noise with a guarantee was added to integers."""
        protected = [line for line in self.lines if line.sigma is not None]
        return bool(protected) and all(line.grid is not None for line in protected)

    @cached_property
    def words(self) -> dict[str, Any]:
        """The statement in sentences; see `words` of `accounting.wording` and `page_words`."""
        return {**words(self), **page_words(self)}

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON; infinity becomes the string "inf"."""
        return {
            "version": VERSION,
            "headline": self.headline,
            "simulation": self.simulation,
            "one_machine": self.one_machine,
            "epsilon_end_to_end": _number(self.end_to_end),
            "epsilon_in_scope": _number(self.in_scope),
            "delta": self.delta,
            "budget": self.budget,
            "adjacency": self.adjacency,
            "unit": self.unit,
            "releases": [asdict(line) for line in self.lines],
            "accountants": {
                name: {"epsilon": _number(each.epsilon), "is_bound": each.is_bound, "note": _note(each)}
                for name, each in self.accountants.items()
            },
            "curve": [[delta, _number(epsilon)] for delta, epsilon in self.curve],
            "nominal_epsilon": _number(self.nominal),
            "epsilon_against_a_client": _number(self.against_a_client),
            "epsilon_at_two_sites": self.at_two_sites,
            "epsilon_of_two_rows": self.of_two_rows,
            "epsilon_of_rows": self.of_rows,
            "all_runs": None if self.all_runs is None else self.all_runs.to_dict(),
            "best_guess": self.risk.right_guesses / 100,
            "risk": [{**line.to_dict(), **said} for line, said in zip(self.risk_rows, self.words["risk"], strict=True)],
            "trade_off": None if self.risk.mu == math.inf else [list(each) for each in self.risk.curve],
            "trusts": list(self.trusts),
            "words": self.words,
            "not_covered": not_covered(self.unit, on_grid=self.on_grid),
            "facts": self.facts,
            "remarks": list(self.remarks),
            "warnings": list(self.warnings),
            "site_epsilons": {name: _number(epsilon) for name, epsilon in self.site_epsilons.items()},
            "ledger": None if self.head is None else {"entries": self.head[0], "head": self.head[1]},
            "audit": None if self.audit is None else self.audit.to_dict(),
        }

    def with_audit(self, audit: Audited) -> Statement:
        """Return this statement with the result of an audit in it."""
        return replace(self, audit=audit)

    def to_json(self) -> str:
        """Return JSON."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)

    def __str__(self) -> str:
        return markdown(self.to_dict())


def state(
    ledger: Ledger,
    *,
    delta: float | None = None,
    facts: Mapping[str, Any] | None = None,
    remarks: Sequence[str] = (),
    simulation: bool = False,
    one_machine: bool = True,
) -> Statement:
    """Return the statement that a ledger supports.

    Parameters
    ----------
    ledger : Ledger
    delta : float, optional
        By default that of the budget, or 1e-5 without one.
    facts : mapping, optional
        Public facts of the run, to be printed with it.
    remarks : sequence of str
        What a reader should know before the rest.
    simulation : bool
        Whether the noise was to be seeded; a ledger with seeded noise is a simulation in any case.
    one_machine : bool
        Whether one process held the records of all sites.
    """
    if delta is None:
        delta = ledger.budget.delta if ledger.budget is not None else DEFAULT_DELTA
    events = list(ledger.events())
    compositions = distinct(ledger.composition(client) for client in ledger.clients)
    curve = tuple((each, max((tightest(c).epsilon(c, each) for c in compositions), default=0.0)) for each in _CURVE)
    first = events[0] if events else None
    by_row = first is not None and first.unit == "record"
    rows = None if ledger.budget is None else ledger.budget.rows_per_person
    seeded = simulation or any(event.noise == SEEDED for event in events)
    return Statement(
        delta=delta,
        budget=None if ledger.budget is None else ledger.budget.to_dict(),
        end_to_end=ledger.spent(delta, end_to_end=True),
        in_scope=ledger.spent(delta),
        lines=lines_of(events),
        accountants=ledger.compare(delta),
        curve=curve,
        risks=risk_lines(events, rows),
        against_a_client=against_a_client(events, delta),
        nominal=nominal_epsilon(events, delta),
        adjacency=first.adjacency if first else "replace-one",
        unit=first.unit if first else "record",
        facts=dict(facts or {}),
        remarks=tuple(remarks),
        at_two_sites=at_two_sites(events, delta),
        of_two_rows=of_rows(events, delta, 2) if by_row else None,
        of_rows=of_rows(events, delta, rows) if by_row and rows is not None else None,
        simulation=seeded,
        one_machine=one_machine,
        site_epsilons=_by_site(ledger, delta) if first is not None and first.unit != "client" else {},
        # It covers the time of each entry: a simulation can be repeated, and has nothing to sign.
        head=None if ledger.in_memory or seeded else ledger.head,
    )


def _by_site(ledger: Ledger, delta: float) -> dict[str, float]:
    names = ledger.clients
    if len(names) > NAMED:
        return {}
    return {name: ledger.spent(delta, client=name, end_to_end=True) for name in names}


def nominal_epsilon(events: Sequence[Event], delta: float) -> float | None:
    """Largest nominal ε over clients; None unless the data-dependent noise carries a price in every landmark round."""
    by_client: dict[str, list[Unprotected]] = {}
    for event in events:
        if isinstance(event, Unprotected) and event.stage == "landmarks":
            by_client.setdefault(event.client, []).append(event)
    worst = None
    for own in by_client.values():
        mu = nominal_mu(own)
        if mu is None:
            return None
        worst = max(worst or 0.0, gaussian_epsilon(mu, delta))
    return worst


def _note(reading: Reading) -> str:
    """Return why an accountant has no ε, or that what it has is no bound."""
    return reading.reason or ("" if reading.is_bound else "approximation, not a bound")


def _number(value: float | None) -> float | str | None:
    return "inf" if value == math.inf else value
