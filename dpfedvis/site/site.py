"""A site: records, and the only way in or out, `Site.answer`.

It computes sensitivity, σ, grid and its share of the noise by itself from the contract, writes its ledger before a
reply exists, and answers each release and round once; asked again, it sends the very same bytes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import BudgetExceeded, CannotAccount, UnprotectedReleaseError, checks
from accounting.errors import InvalidParameter, LedgerError
from dpfedvis.errors import DpfedvisError
from dpfedvis.numerics.files import FileDamaged, write_arrays, write_bytes
from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol import wire
from dpfedvis.protocol.ask import Reply, Request
from dpfedvis.protocol.messages import (
    BUDGET,
    FAILED,
    MALFORMED,
    NOT_AGREED,
    NOT_PLANNED,
    POLICY,
    STORAGE,
    Agree,
    Begin,
    Describe,
    Done,
    Events,
    Forget,
    Perturb,
    Perturbed,
    Place,
    Prepare,
    Refused,
    Send,
    SendRows,
    Sent,
    ShowEvents,
    Signed,
)  # fmt: skip
from dpfedvis.protocol.secure_sum import SecureSumError
from dpfedvis.protocol.signatures import Identity
from dpfedvis.protocol.sum_messages import SumRequest, unreadable
from dpfedvis.protocol.uploads import Upload
from dpfedvis.protocol.views import DensityView
from dpfedvis.protocol.wire import label_of
from dpfedvis.site.agreement import Agreement, check_signed
from dpfedvis.site.anchors import Anchors
from dpfedvis.site.ledger import LifetimeExceeded, OtherContract, SiteLedger
from dpfedvis.site.persons import Persons
from dpfedvis.site.placement import place
from dpfedvis.site.policy import Policy, Refusal
from dpfedvis.site.signed_run import SignedRun
from dpfedvis.site.sum_answers import SUM_ANSWERS, hash_of
from dpfedvis.site.views import Labels, check_map, check_view, checked_records, view_of

_log = logging.getLogger(__name__)
PLACES, PUBLISHED = "placed.npz", "published_map.bin"
_OTHER = "this run has released under another contract"


class Site:
    """A holder of records that trusts no server.

    Parameters
    ----------
    name : str
    records : array of shape (n, m)
    labels : array of shape (n,), optional
        Names of classes.
    persons : array of shape (n,), optional
        Who each record is of; needed where the privacy unit is a person.
    compared : array of shape (n, any), optional
        What the site's own records are compared by when they are placed at home; by default the records.
    preparation : str
        How records became numbers: hashes of schema and public features. A contract must say the same.
    policy : Policy, optional
        By default the strict one.
    ledger : SiteLedger, optional
        By default one in memory.
    identity : Identity, optional
        By default a new key pair.
    folder : Path, optional
        Where uploads are kept until they are no longer needed, and the places of records; by default in memory.
    """

    def __init__(
        self,
        name: str,
        records: Array,
        *,
        labels: Labels | None = None,
        persons: Labels | None = None,
        compared: Array | None = None,
        preparation: str = "",
        policy: Policy | None = None,
        ledger: SiteLedger | None = None,
        identity: Identity | None = None,
        folder: Path | None = None,
    ) -> None:
        self.name, self.policy = checks.text("name of a site", name), policy or Policy()
        self.ledger = SiteLedger() if ledger is None else ledger
        for what, value, kind in (("policy", self.policy, Policy), ("ledger", self.ledger, SiteLedger)):
            if not isinstance(value, kind):
                raise InvalidParameter(what, value, f"a {kind.__name__}")
        if self.policy.lifetime_epsilon is not None:
            self.ledger.limit_to(self.policy.lifetime_epsilon, self.policy.lifetime_delta)
        self.identity = identity or Identity()
        self._records, self._labels, self._folder = checked_records(name, records, labels), labels, folder
        known = None if persons is None else Persons.of(name, persons, len(records))
        self._compared = None if compared is None else checked_records(name, compared)
        self._runs: dict[str, SignedRun] = {}
        self._anchors = Anchors(self.ledger, folder)
        self._agreement = Agreement(
            name,
            self._records,
            has_labels=labels is not None,
            persons=known,
            preparation=preparation,
            policy=self.policy,
            ledger=self.ledger,
            identity=self.identity,
            anchors=self._anchors,
            folder=folder,
        )
        self._one_at_a_time = threading.Lock()
        self._handlers: dict[type[Any], Callable[[Any], Reply]] = {
            Describe: self._agreement.describe,
            Agree: self._agree,
            Begin: self._begin,
            Prepare: self._prepare,
            Perturb: self._perturb,
            Send: self._send,
            SendRows: self._send_rows,
            Place: self._place,
            ShowEvents: self._show_events,
            Forget: self._forget,
            **dict.fromkeys(SUM_ANSWERS, self._answer_sum),
        }

    def answer(self, request: Request | bytes) -> Any:
        """Return the reply to a request: bytes to bytes, an object to an object.

        It never raises: what goes wrong is a `Refused` with a code and public words. The text of an exception may quote
        a record, so that it stays in this site's log.
        """
        if isinstance(request, bytes):
            try:
                reply = self.answer(wire.decode(request, admits=self.policy.admits))
            except wire.Malformed as malformed:
                # In words of this project, and never in those of the sender.
                reply = Refused(self.name, MALFORMED, f"the request cannot be read: {malformed}")
            except Exception:
                reply = Refused(self.name, MALFORMED, "the request cannot be read")
            try:
                return wire.encode(reply)
            except wire.NotPortable:
                return wire.encode(Refused(self.name, FAILED, "the reply of this site cannot be sent"))
        # Two threads that ask for one round at once must not both be answered with new noise.
        with self._one_at_a_time:
            return self._answer(request)

    def _answer(self, request: Request) -> Reply:
        handler = self._handlers.get(type(request))
        if handler is None:
            return Refused(self.name, MALFORMED, "the request is of no known kind")
        try:
            return handler(request)
        except Refusal as refusal:
            return Refused(self.name, refusal.code, refusal.words)
        except SecureSumError as error:
            # In words of the protocol, which knows no values.
            words = unreadable(error.sender) if error.sender else f"the secure sum: {error}"
            return Refused(self.name, NOT_PLANNED, words)
        except OtherContract:
            return Refused(self.name, NOT_AGREED, _OTHER)
        except (BudgetExceeded, LifetimeExceeded, UnprotectedReleaseError, CannotAccount):
            _log.warning("%s refused a release", self.name, exc_info=True)
            return Refused(self.name, BUDGET, "a budget of this site has no room for it")
        except (LedgerError, FileDamaged, OSError):
            _log.warning("%s cannot use its files", self.name, exc_info=True)
            return Refused(self.name, STORAGE, "the files of this site cannot be read or written; nothing was released")
        except Exception:
            _log.warning("%s failed", self.name, exc_info=True)
            return Refused(self.name, FAILED, "this site could not do it; its own log says why")

    # For the owner of the records, and for simulations

    def placed(self, contract: str) -> Array:
        """Return where the records are on the published map, shape (n, 2)."""
        found = self._open(contract).placed
        if found is None:
            raise DpfedvisError(f"{self.name} has not placed its records")
        return found

    def clusters(self, contract: str) -> NDArray[np.int64]:
        """Return the cluster of each record on the published map, shape (n,)."""
        found = self._open(contract).clusters
        if found is None:
            raise DpfedvisError(f"{self.name} has no clusters of its records")
        return found

    def perturbed(self, contract: str) -> Upload:
        """Return the records as they were perturbed at home, with the event of it."""
        return self._open(contract).computation.home

    def accept_restored(self) -> None:
        """Tell the site that its ledger was restored from a copy, and that what the copy lacks was accounted for."""
        self._anchors.accept()

    def clear_failure(self) -> None:
        """Tell the site that its owner has seen why it failed."""
        self._anchors.clear_failure()

    # Agreement

    def _agree(self, request: Agree) -> Signed:
        label = label_of(request.contract)
        self._agreement.check_receipts(request.receipts)
        if label not in self._runs:
            self._runs[label] = self._agreement.open(request.contract)
        return self._agreement.signed(label)

    def _begin(self, request: Begin) -> Done:
        run = self._signed(request.contract)
        check_signed(run.contract, request.signatures)
        # A run has one contract: another one ends here, unless something was released under it.
        for label, other in list(self._runs.items()):
            if other is not run and other.contract.run == run.contract.run:
                if other.account.events():
                    raise Refusal(NOT_AGREED, _OTHER)
                del self._runs[label]
                self._agreement.forget(label)
        run.begun = True
        return Done(self.name)

    def _signed(self, contract: str) -> SignedRun:
        if contract not in self._runs:
            raise Refusal(NOT_AGREED, "there is no such contract at this site")
        return self._runs[contract]

    def _open(self, contract: str) -> SignedRun:
        run = self._signed(contract)
        if not run.begun:
            raise Refusal(NOT_AGREED, "not every member has signed this contract")
        return run

    # Releases

    def _prepare(self, request: Prepare) -> Done:
        run = self._open(request.contract)
        view = request.view
        hashed = hash_of(wire.digest, view)  # first: no view without the hash of it
        check_view(view, self._records.shape[1], self._labels)
        taking_part = run.computation.taking_part
        labels = self._labels if taking_part is None or self._labels is None else self._labels[taking_part]
        found = run.with_records(lambda: view_of(view, run.computation.records, labels))
        run.computation.views[view.name], run.computation.view_hashes[view.name] = found, hashed
        if isinstance(view, DensityView):
            run.computation.cells = view.layers * view.grid.cells**2
        return Done(self.name)

    def _perturb(self, request: Perturb) -> Perturbed:
        run = self._open(request.contract)
        planned = run.computation.planned_perturbation(request)
        upload = run.once(planned, lambda: run.computation.perturbed(request))
        run.computation.keep_home(upload)
        return Perturbed(self.name, upload.event, run.receipt(upload))

    def _send(self, request: Send) -> Sent:
        run = self._open(request.contract)
        # Alone, an upload has only a share of its noise.
        if run.contract.trust == "aggregate" and self.policy.receipts == "signed":
            raise Refusal(POLICY, "under trust aggregate this site sends only masked uploads")
        planned = run.computation.planned(request)
        return self._sent(run, run.once(planned, lambda: run.computation.upload(request)))

    def _answer_sum(self, request: SumRequest) -> Reply:
        return SUM_ANSWERS[type(request)](self._open(request.contract), request)

    def _send_rows(self, request: SendRows) -> Sent:
        run = self._open(request.contract)
        planned = run.computation.planned_rows(request)
        return self._sent(run, run.once(planned, lambda: run.computation.rows(request)))

    def _sent(self, run: SignedRun, upload: Upload) -> Sent:
        return Sent(self.name, upload.values, upload.event, run.receipt(upload))

    # At home, and after a run

    def _place(self, request: Place) -> Done:
        """Place the records; what comes back depends on public facts alone, also where placing fails."""
        run = self._open(request.contract)
        check_map(request.published, self._records.shape[1])
        if run.map not in (None, request.published.digest):
            raise Refusal(NOT_PLANNED, "another map was published in this run")
        run.map = request.published.digest
        try:
            run.placed = place(request, self._records, self._compared) if len(self._records) else np.empty((0, 2))
            if (published := request.published).centres is not None:
                run.clusters = published.clusters_at(run.placed)
            if self._folder is not None:
                # With it, new records can be placed later.
                write_bytes(self._folder / PUBLISHED, wire.encode(request))
                found = {} if run.clusters is None else {"clusters": run.clusters}
                write_arrays(self._folder / PLACES, {"places": run.placed, **found})
        except Exception:
            _log.warning("%s could not place its records", self.name, exc_info=True)
        return Done(self.name)

    def _show_events(self, request: ShowEvents) -> Events:
        run = self._signed(request.contract)
        events = run.account.events()[max(request.after, 0) :]
        return Events(self.name, tuple(events), run.receipt() if events else None)

    def _forget(self, request: Forget) -> Done:
        """Forget a run, also one that was not opened since this site was started."""
        self._runs.pop(request.contract, None)
        self._agreement.forget(request.contract)
        return Done(self.name)
