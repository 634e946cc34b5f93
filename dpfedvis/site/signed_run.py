"""A run that a site has signed: each release is made once, in the ledger before it leaves, and re-sent as it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from accounting import Event
from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol.contract import Contract
from dpfedvis.protocol.messages import ANSWERED, FAILED, NOT_PLANNED, Receipt, digest_of_events
from dpfedvis.protocol.signatures import Identity
from dpfedvis.protocol.uploads import Upload, digest_of
from dpfedvis.protocol.wire import label_of
from dpfedvis.site.anchors import Anchors
from dpfedvis.site.computation import Computation
from dpfedvis.site.outbox import Outbox
from dpfedvis.site.policy import Refusal
from dpfedvis.site.run_account import RunAccount
from dpfedvis.site.sums import SiteSums

_T = TypeVar("_T")


@dataclass(eq=False)
class SignedRun:
    """A run at one site.

    Parameters
    ----------
    site : str
    contract : Contract
    account : RunAccount
    outbox : Outbox
    computation : Computation
    anchors : Anchors
    identity : Identity, optional
        Signs receipts; None in a simulation.
    begun : bool
        Whether all members have signed.
    map : str, optional
        Hash of the map that was published.
    placed : array of shape (n, 2), optional
    clusters : array of shape (n,), optional
        Of the records, where the map has clusters.
    sums : SiteSums, optional
        Its part in secure sums, under trust `aggregate`.
    """

    site: str
    contract: Contract
    account: RunAccount
    outbox: Outbox
    computation: Computation
    anchors: Anchors
    identity: Identity | None
    begun: bool = False
    map: str | None = None
    placed: Array | None = field(default=None, repr=False)
    clusters: NDArray[np.int64] | None = field(default=None, repr=False)
    sums: SiteSums | None = field(default=None, repr=False)

    @property
    def secure_sums(self) -> SiteSums:
        """Its part in secure sums; refuse where the contract has none."""
        if self.sums is None:
            raise Refusal(NOT_PLANNED, "the contract has no sums over sites")
        return self.sums

    def once(self, planned: Event, make: Callable[[], Upload]) -> Upload:
        """Make a release, or find the bytes of the one that was made: the ledger has it before it is returned.

        Parameters
        ----------
        planned : Event
            As it follows from public facts alone.
        make : callable
        """
        with self.account.lock:
            return self._found(planned) or self._made(planned, make)

    def _found(self, planned: Event) -> Upload | None:
        """Return the upload that was released before; None if it was not."""
        known = self.account.find(planned.what, planned.round)
        if known is None:
            return None
        kept = self.outbox.find(planned.what, planned.round or 0)
        if kept is None or kept.event.to_json() != known.to_json():
            raise Refusal(ANSWERED, f"{planned.what} was released already, and the bytes to send again are not kept")
        return kept

    def _made(self, planned: Event, make: Callable[[], Upload]) -> Upload:
        # Before records are looked at: whether there is room must not depend on them.
        self.account.check(planned)
        # What was made before an interruption is sent, and not made again.
        upload = self.outbox.find(planned.what, planned.round or 0)
        if upload is None:
            upload = self.with_records(make, planned)
            self.outbox.keep(planned.what, planned.round or 0, upload, self.account.head)
        self.account.record(upload.event)
        return upload

    def with_records(self, compute: Callable[[], _T], planned: Event | None = None) -> _T:
        """Compute something from records. A failure may depend on them: a server sees one, and then nothing more.

        At a real site it also counts as the release, and the site keeps in its folder that it failed.
        """
        if self.anchors.failed:
            words = "this site has failed, and waits for its owner to look at its log (dpfedvis.site.clear_failure)"
            raise Refusal(FAILED, words)
        try:
            return compute()
        except Refusal:
            raise
        except Exception:
            real = self.identity is not None
            self.anchors.fail(keep=real)
            if real and planned is not None:
                self.account.record(planned)
            raise

    def receipt(self, upload: Upload | None = None) -> Receipt:
        """Return the receipt for an upload, or for all events of the run so far."""
        sequence, head = self.account.head or (0, "")
        label = label_of(self.contract)
        if self.identity is None:
            return Receipt(self.site, label, sequence, head)
        values = digest_of_events(self.account.events()) if upload is None else digest_of(upload.values)
        receipt = Receipt(self.site, label, sequence, head, values)
        return replace(receipt, signature=self.identity.sign(receipt.signed))
