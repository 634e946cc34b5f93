"""The policy of a site: what it will ever do, whatever a server asks. A file in TOML that its owner writes."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import tomli_w

from accounting import checks
from accounting.budget import UNITS, Unit
from accounting.errors import InvalidParameter
from accounting.events import TRUSTS
from dpfedvis.protocol.contract import Contract
from dpfedvis.protocol.messages import NOT_AGREED, POLICY
from dpfedvis.protocol.noise import NOISE_SOURCES

_ANY = "any"  # in a file: no limit


class Refusal(Exception):
    """Why a site does not do what it was asked: a code, and words that are public."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code, self.words = code, words


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a site agrees to. The defaults are strict: real noise, nothing without protection, ε at most 1.

    In a file "any" stands for None.

    Parameters
    ----------
    epsilon, delta : float
        Largest budget of one run; epsilon None sets no limit.
    unit : {"record", "client"}, optional
        Privacy unit that a budget must have; None accepts both.
    noise : {"discrete", "seeded"}
        Source of the noise. Seeded noise is for simulations.
    trusts : tuple of str
        Trust models that the site takes part in.
    threshold : int
        Fewest sites whose sum may be seen.
    colluders : int
        Most sites that the noise need not hold against, since they may work together.
    members : mapping of str to str
        Public keys of the other sites, by name. Under ``aggregate`` every member must be in it.
    releases : tuple of str, optional
        Names of the releases that the site makes; None for all.
    unprotected : bool
        Whether anything may leave without noise.
    rounds : int
        Most rounds of one run.
    lifetime_epsilon, lifetime_delta : float, optional
        Budget of all runs together.
    receipts : {"signed", "unsigned"}
        Whether each receipt is signed; in a simulation a site signs once a run.
    """

    epsilon: float | None = 1.0
    delta: float = 1e-5
    unit: Unit | None = "record"
    noise: str = "discrete"
    trusts: tuple[str, ...] = ("local", "aggregate")
    threshold: int = 2
    colluders: int = 0
    members: Mapping[str, str] = field(default_factory=dict)
    releases: tuple[str, ...] | None = None
    unprotected: bool = False
    rounds: int = 1000
    lifetime_epsilon: float | None = None
    lifetime_delta: float = 1e-5
    receipts: str = "signed"

    def __post_init__(self) -> None:
        for name in ("epsilon", "lifetime_epsilon"):
            if getattr(self, name) is not None:
                checks.positive(name, getattr(self, name))
        for name in ("delta", "lifetime_delta"):
            checks.probability(name, getattr(self, name))
        if self.unit is not None:
            checks.one_of("unit", self.unit, UNITS)
        checks.one_of("noise", self.noise, NOISE_SOURCES)
        for trust in self.trusts:
            checks.one_of("trust", trust, TRUSTS)
        checks.count("threshold", self.threshold)
        checks.at_least("colluders", self.colluders, 0)
        checks.count("rounds", self.rounds)
        checks.one_of("receipts", self.receipts, ("signed", "unsigned"))
        if not isinstance(self.unprotected, bool):
            raise InvalidParameter("unprotected", self.unprotected, "true or false")

    @classmethod
    def read(cls, path: str | Path) -> Policy:
        """Read a policy from a TOML file."""
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise InvalidParameter("policy", str(path), f"a readable TOML file ({error})") from None
        return cls.of(values)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Policy:
        """Return the policy with these settings."""
        known = [each.name for each in fields(cls)]
        for name in values:
            checks.one_of("setting of a policy", name, known)
        own: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else None if value == _ANY else value
            for name, value in values.items()
        }
        return cls(**own)

    def to_toml(self) -> str:
        """Return the policy as a TOML file has it, every setting written out."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return tomli_w.dumps(
            {
                name: _ANY if value is None else list(value) if isinstance(value, tuple) else value
                for name, value in values.items()
            }
        )

    def check(self, contract: Contract) -> None:
        """Raise `Refusal` unless the contract is one that this site agrees to."""
        budget = contract.budget
        if contract.noise != self.noise:
            raise Refusal(POLICY, f"the contract asks for {contract.noise} noise; this site adds {self.noise} noise")
        if contract.trust not in self.trusts:
            raise Refusal(POLICY, f"this site does not take part under trust {contract.trust}")
        if contract.rounds > self.rounds:
            raise Refusal(POLICY, f"{contract.rounds} rounds are more than {self.rounds}")
        if contract.colluders > self.colluders:
            raise Refusal(POLICY, f"the contract admits {contract.colluders} colluders, this site {self.colluders}")
        if not self.unprotected and (budget is None or contract.unprotected or budget.scope != "end-to-end"):
            what = ", ".join(contract.unprotected) or "something"
            raise Refusal(POLICY, f"{what} would leave this site without protection")
        if self.releases is not None and (more := sorted(set(contract.counts) - set(self.releases))):
            raise Refusal(POLICY, f"this site does not release {', '.join(more)}")
        if budget is not None:
            if self.epsilon is not None and budget.epsilon > self.epsilon:
                raise Refusal(POLICY, f"a budget of epsilon {budget.epsilon:g} is above {self.epsilon:g}")
            if budget.delta > self.delta:
                raise Refusal(POLICY, f"a budget of delta {budget.delta:g} is above {self.delta:g}")
            if self.unit is not None and budget.unit != self.unit:
                raise Refusal(POLICY, f"the privacy unit is {budget.unit}, not {self.unit}")
        self._check_members(contract)

    def _check_members(self, contract: Contract) -> None:
        for member in contract.members:
            if self.members and self.members.get(member.name) != member.key:
                raise Refusal(NOT_AGREED, f"{member.name} is not a known member, or has another key")
        if contract.trust == "aggregate" and self.receipts == "signed":
            if not self.members:
                raise Refusal(NOT_AGREED, "the keys of the members are not known here, which a sum needs")
            least = contract.threshold or len(contract.members)
            if least < self.threshold:
                raise Refusal(POLICY, f"sums of {least} sites are below {self.threshold}")
