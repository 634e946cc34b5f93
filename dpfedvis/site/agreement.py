"""What a site says of its records, and what it checks before it signs a contract."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from accounting import checks
from accounting.budget import MOST_ROWS
from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.contract import Contract, derived
from dpfedvis.protocol.messages import BUDGET, NOT_AGREED, POLICY, Describe, Description, Receipt, Signed
from dpfedvis.protocol.signatures import Identity, verify
from dpfedvis.protocol.wire import label_of
from dpfedvis.site.anchors import Anchors
from dpfedvis.site.approval import check_approved
from dpfedvis.site.computation import Computation
from dpfedvis.site.ledger import SiteLedger
from dpfedvis.site.outbox import OUTBOX, Outbox
from dpfedvis.site.persons import Persons
from dpfedvis.site.policy import Policy, Refusal
from dpfedvis.site.signed_run import SignedRun
from dpfedvis.site.sums import STATE, SiteSums, forget

_LABEL = re.compile(r"[0-9a-f]{64}")


class Agreement:
    """How a site comes to terms with the others.

    Parameters
    ----------
    name, records, preparation, policy, ledger, identity, folder
        As in `Site`.
    has_labels : bool
    persons : Persons or None
    anchors : Anchors
    """

    def __init__(
        self,
        name: str,
        records: Array,
        *,
        has_labels: bool,
        persons: Persons | None,
        preparation: str,
        policy: Policy,
        ledger: SiteLedger,
        identity: Identity,
        anchors: Anchors,
        folder: Path | None,
    ) -> None:
        self._name, self._records, self._has_labels = name, records, has_labels
        self._persons, self._preparation = persons, preparation
        self._policy, self._ledger, self._identity = policy, ledger, identity
        self._anchors, self._folder = anchors, folder

    def describe(self, request: Describe) -> Description:
        """Return what is public of this site."""
        n, m = self._records.shape
        hidden = request.hides_records or self._policy.number_of_records == "secret"
        rows, unit = request.rows_per_person, self._policy.unit
        # Of records and persons one number is public, as the policy says.
        if not hidden and unit is not None and (rows is not None) != (unit == "person"):
            raise Refusal(POLICY, f"the privacy unit of this site is a {unit}")
        if rows is not None:
            checks.whole("rows_per_person", rows, 1, MOST_ROWS)
            n = self._known_persons.number * rows
        return Description(
            self._name,
            self._identity.public,
            None if hidden else n,
            m,
            str(self._records.dtype),
            self._has_labels,
            self._preparation,
            epsilon=self._policy.epsilon,
        )

    def check_receipts(self, receipts: tuple[Receipt, ...]) -> None:
        """Refuse to go on with a ledger that lacks what this site has signed."""
        for receipt in receipts:
            # Unsigned ones are those of a simulation, whose sites trust their server.
            unsigned = self._policy.receipts == "unsigned"
            mine = unsigned or verify(self._identity.public, receipt.signature, receipt.signed)
            if receipt.site == self._name and mine:
                self._anchors.expect(receipt.sequence, receipt.head)
        self._anchors.check()

    def open(self, contract: Contract) -> SignedRun:
        """Return a run under a contract, or refuse the contract."""
        self._check(contract)
        label = label_of(contract)
        if self._policy.approve == "each run":
            check_approved(self._folder, contract, label)
        account = self._ledger.begin(contract.run, self._name, contract.budget_of(self._name), label)
        self._anchors.keep()
        outbox = self._outbox(label)
        computation = Computation(contract, self._name, self._records, self._taking_part(contract))
        signs = self._identity if self._policy.receipts == "signed" else None
        run = SignedRun(self._name, contract, account, outbox, computation, self._anchors, signs)
        if contract.trust == "aggregate":
            path = None if self._folder is None else self._folder / STATE / label
            run.sums = SiteSums(contract, label, self._name, self._identity, path)
        return run

    def forget(self, label: str) -> None:
        """Delete what is kept of a run until it is over: uploads, and secrets of its sums."""
        # The text comes from a server, and is in a path.
        if self._folder is not None and isinstance(label, str) and _LABEL.fullmatch(label):
            self._anchors.collect()  # first: the outbox has been an anchor, too
            self._anchors.keep()
            self._outbox(label).clear()
            forget(self._folder / STATE / label)

    def _outbox(self, label: str) -> Outbox:
        folder = None if self._folder is None else self._folder / OUTBOX / label
        return Outbox(self._identity.secret, label, folder)

    def signed(self, label: str) -> Signed:
        """Return this site's signature of a contract."""
        return Signed(self._name, label, self._identity.sign(_text(label)))

    def _check(self, contract: Contract) -> None:
        """Refuse a contract that is not for this site, or that its policy or budgets do not allow."""
        own = next((member for member in contract.members if member.name == self._name), None)
        if own is None or own.key != self._identity.public:
            raise Refusal(NOT_AGREED, "this site is not a member, or its key is another")
        self._policy.check(contract, self._name)
        if contract.features != self._records.shape[1]:
            raise Refusal(NOT_AGREED, f"the contract is for {contract.features} features")
        if contract.preparation != self._preparation:
            raise Refusal(NOT_AGREED, "the contract is for another schema or other features")
        budget, number = contract.budget_of(self._name), len(self._records)
        if budget is not None and budget.unit == "person":
            number = self._known_persons.number * budget.rows
        if (budget is None or not budget.hides_records) and own.denominator != number:
            raise Refusal(NOT_AGREED, "the contract has another number of records for this site")
        if contract.derived != derived(contract.seed):
            raise Refusal(NOT_AGREED, "this site draws other numbers from the public seed: versions differ")
        plan = contract.plan
        if plan is None:
            if contract.budget is not None and not contract.unprotected:
                raise Refusal(NOT_AGREED, "the contract has a budget and nothing to spend it on")
        elif budget is None or contract.epsilon_of(self._name) > budget.epsilon:
            raise Refusal(BUDGET, "all releases together exceed the budget of the contract")

    def _taking_part(self, contract: Contract) -> NDArray[np.int64] | None:
        """Return which records take part, where a person may have only so many; None for all."""
        budget = contract.budget
        if budget is None or budget.unit != "person":
            return None
        # A simulation can be repeated; with real noise nobody else can tell which records were drawn.
        seeded = f"{contract.seed}|{self._name}"
        secret = seeded if contract.noise == "seeded" else f"{self._identity.secret.hex()}|{label_of(contract)}"
        return self._known_persons.drawn(budget.rows, secret)

    @property
    def _known_persons(self) -> Persons:
        if self._persons is None:
            raise Refusal(NOT_AGREED, "the records of this site have no persons, who are the privacy unit")
        return self._persons


def check_signed(contract: Contract, signatures: Sequence[str]) -> None:
    """Refuse a contract that not every member has signed; signatures are in the order of members."""
    members, text = contract.members, _text(label_of(contract))
    if len(signatures) != len(members) or not all(
        verify(member.key, signature, text) for member, signature in zip(members, signatures, strict=True)
    ):
        raise Refusal(NOT_AGREED, "not every member has signed this contract")


def _text(label: str) -> bytes:
    return f"contract|{label}".encode()
