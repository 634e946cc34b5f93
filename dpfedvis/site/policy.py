"""The policy of a site: what it will ever do, whatever a server asks. A file in TOML that its owner writes."""

from __future__ import annotations

import re
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
from dpfedvis.mechanisms import BUILT_IN
from dpfedvis.mechanisms.rows import ROW_RELEASES
from dpfedvis.protocol.contract import Contract
from dpfedvis.protocol.messages import NOT_AGREED, POLICY
from dpfedvis.protocol.noise import NOISE_SOURCES

APPROVALS = ("never", "each run")
_ANY = "any"  # in a file: no limit
_OPEN = ("epsilon", "unit", "mechanisms", "releases", "lifetime_epsilon")  # settings that may be None


class Refusal(Exception):
    """Why a site does not do what it was asked: a code, and words that are public."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(words)
        self.code, self.words = code, words


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a site agrees to. The defaults are strict: real noise, nothing without protection, ε at most 1 in one run.

    Over all runs there is no limit unless `lifetime_epsilon` sets one. In a file "any" stands for None.

    Parameters
    ----------
    epsilon, delta : float
        Largest budget of one run; epsilon None sets no limit. In a run of a larger ε the site takes part with its own,
        and adds more noise.
    unit : {"record", "client"}, optional
        Privacy unit that a budget must have; None accepts both.
    noise : {"discrete", "seeded"}
        Source of the noise. Seeded noise is for simulations.
    trusts : tuple of str
        Trust models that the site takes part in.
    threshold : int
        Fewest sites whose sum may be seen.
    colluders, least_colluders : int
        Most and fewest sites that a contract may take to work together with the server. With fewer than one, another
        site that sees a sum could take its own noise off it.
    members : mapping of str to str
        Public keys of the other sites, by name, in hexadecimal digits (`Identity.public`). If there are any, no other
        site may be a member. Under ``aggregate`` they are needed.
    mechanisms : tuple of str, optional
        Mechanisms of other packages that the site runs, by name; None for all. Those of dpfedvis need no mention.
    releases : tuple of str, optional
        Names of the releases that the site makes, as the ledger has them; None for all.
    number_of_records : {"public", "secret", "as asked"}
        Whether the site tells how many records it has. If it does, it signs no contract that hides the number
        (add-remove, unit client), and otherwise only such. As asked is for simulations.
    unprotected : bool
        Whether anything may leave without noise.
    rounds : int
        Most rounds of one run.
    lifetime_epsilon, lifetime_delta : float, optional
        Budget of all runs together.
    approve : {"never", "each run"}
        Whether a contract waits for the owner of the records (`dpfedvis.site.approval`).
    receipts : {"signed", "unsigned"}
        Whether each receipt is signed. Unsigned is for simulations: a site then signs once a run, and sums need no
        members and no threshold.
    """

    epsilon: float | None = 1.0
    delta: float = 1e-5
    unit: Unit | None = "record"
    noise: str = "discrete"
    trusts: tuple[str, ...] = ("local", "aggregate")
    threshold: int = 2
    colluders: int = 10
    least_colluders: int = 1
    members: Mapping[str, str] = field(default_factory=dict)
    mechanisms: tuple[str, ...] | None = ()
    releases: tuple[str, ...] | None = None
    number_of_records: str = "public"
    unprotected: bool = False
    rounds: int = 1000
    lifetime_epsilon: float | None = None
    lifetime_delta: float = 1e-5
    approve: str = "never"
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
        for name in ("trusts", "mechanisms", "releases"):
            _check_names(name, getattr(self, name))
        for trust in self.trusts:
            checks.one_of("trusts", trust, TRUSTS)
        if not self.trusts:
            raise InvalidParameter("trusts", self.trusts, f"some of {', '.join(TRUSTS)}")
        checks.one_of("number_of_records", self.number_of_records, ("public", "secret", "as asked"))
        _check_members(self.members)
        checks.count("threshold", self.threshold)
        checks.at_least("least_colluders", self.least_colluders, 0)
        checks.at_least("colluders", self.colluders, self.least_colluders)
        checks.count("rounds", self.rounds)
        checks.one_of("approve", self.approve, APPROVALS)
        checks.one_of("receipts", self.receipts, ("signed", "unsigned"))
        if not isinstance(self.unprotected, bool):
            raise InvalidParameter("unprotected", self.unprotected, "true or false")
        if self.lifetime_epsilon is not None and self.epsilon is not None and self.lifetime_epsilon < self.epsilon:
            raise InvalidParameter("lifetime_epsilon", self.lifetime_epsilon, f"at least epsilon = {self.epsilon:g}")

    @classmethod
    def read(cls, path: str | Path) -> Policy:
        """Read a policy from a TOML file."""
        try:
            values = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise InvalidParameter("policy", str(path), f"a readable TOML file ({error})") from None
        try:
            return cls.of(values)
        except InvalidParameter as error:
            raise InvalidParameter(f"{path}: {error.name}", error.value, error.expected) from None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Policy:
        """Return the policy with these settings."""
        known = [each.name for each in fields(cls)]
        for name in values:
            checks.one_of("setting of a policy", name, known)
        own: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else None if value == _ANY and name in _OPEN else value
            for name, value in values.items()
        }
        return cls(**own)

    def admits(self, mechanism: str) -> bool:
        """Whether a mechanism of this name may be loaded here, when bytes name it."""
        return mechanism in BUILT_IN or self.mechanisms is None or mechanism in self.mechanisms

    def to_toml(self) -> str:
        """Return the policy as a TOML file has it, every setting written out."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return tomli_w.dumps(
            {
                name: _ANY if value is None else list(value) if isinstance(value, tuple) else value
                for name, value in values.items()
            }
        )

    def check(self, contract: Contract, site: str) -> None:
        """Raise `Refusal` unless the contract is one that the site of this name agrees to.

        A run may have a larger ε than the site allows, if the contract gives the site an ε of its own that is not: its
        noise follows from that.
        """
        budget = contract.budget_of(site) if site in contract.places else contract.budget
        self._check_mechanism(contract)
        if contract.noise != self.noise:
            raise Refusal(POLICY, f"the contract asks for {contract.noise} noise; this site adds {self.noise} noise")
        if contract.trust not in self.trusts:
            raise Refusal(POLICY, f"this site does not take part under trust {contract.trust}")
        if contract.rounds > self.rounds:
            raise Refusal(POLICY, f"{contract.rounds} rounds are more than {self.rounds}")
        if not self.unprotected and (budget is None or contract.unprotected or budget.scope != "end-to-end"):
            what = ", ".join(contract.unprotected) or "something"
            raise Refusal(POLICY, f"{what} would leave this site without protection")
        if self.releases is not None and (more := sorted(_released(contract) - set(self.releases))):
            raise Refusal(POLICY, f"this site does not release {', '.join(more)}")
        hides = budget is not None and budget.hides_records
        if self.number_of_records == ("public" if hides else "secret"):
            words = "which this site tells" if hides else "which this site keeps secret"
            raise Refusal(POLICY, f"the contract {'hides' if hides else 'tells'} the number of records, {words}")
        if budget is not None:
            if self.epsilon is not None and budget.epsilon > self.epsilon:
                raise Refusal(POLICY, f"a budget of epsilon {budget.epsilon:g} is above {self.epsilon:g}")
            if budget.delta > self.delta:
                raise Refusal(POLICY, f"a budget of delta {budget.delta:g} is above {self.delta:g}")
            if self.unit is not None and budget.unit != self.unit:
                raise Refusal(POLICY, f"the privacy unit is {budget.unit}, not {self.unit}")
        self._check_members(contract, site)

    def _check_mechanism(self, contract: Contract) -> None:
        kind, name = type(contract.mechanism), str(contract.mechanism.name)
        if BUILT_IN.get(name) is not kind and self.mechanisms is not None and name not in self.mechanisms:
            raise Refusal(POLICY, f"the mechanism {name[:80]} is not on this site's list")

    def _check_members(self, contract: Contract, site: str) -> None:
        for member in contract.members:
            if self.members and member.name != site and self.members.get(member.name) != member.key:
                raise Refusal(NOT_AGREED, f"{member.name[:80]} is not a known member, or has another key")
        if contract.trust == "aggregate" and self.receipts == "signed":
            if not self.members:
                raise Refusal(NOT_AGREED, "the keys of the members are not known here, which a sum needs")
            least, colluders = contract.threshold or 0, contract.colluders or 0
            if least < self.threshold:
                raise Refusal(POLICY, f"sums of {least} sites are below {self.threshold}")
            if not self.least_colluders <= colluders <= self.colluders:
                words = f"the contract is made for {colluders} colluders"
                raise Refusal(POLICY, f"{words}, this site for {self.least_colluders} to {self.colluders}")


def _released(contract: Contract) -> set[str]:
    """Names of all that may leave under a contract. Records that were perturbed at home may leave as any rows."""
    rows = ROW_RELEASES if contract.mechanism.protection == "home" else frozenset[str]()
    return set(contract.counts) | rows


def _check_names(name: str, value: object) -> None:
    if value is not None and not (isinstance(value, tuple) and all(isinstance(each, str) and each for each in value)):
        raise InvalidParameter(name, value, "a list of names")


def _check_members(members: object) -> None:
    if not isinstance(members, Mapping):
        raise InvalidParameter("members", members, "a table of names and keys")
    for name, key in members.items():
        if not isinstance(key, str) or not re.fullmatch("[0-9a-f]{64}", key):
            raise InvalidParameter(f"key of {name}", key, "a public key: 64 hexadecimal digits")
