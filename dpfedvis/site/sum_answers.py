"""What a site answers in a secure sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from accounting import GaussianRelease
from dpfedvis.protocol import wire
from dpfedvis.protocol.messages import MALFORMED, NOT_PLANNED
from dpfedvis.protocol.sum_messages import (
    Advertise,
    Advertised,
    Confirm,
    Confirmed,
    Masked,
    SendMasked,
    Shared,
    ShareKeys,
    SumReply,
    Unmask,
    Unmasked,
)
from dpfedvis.protocol.uploads import Upload
from dpfedvis.site.policy import Refusal
from dpfedvis.site.signed_run import SignedRun


def advertise(run: SignedRun, request: Advertise) -> Advertised:
    """Return signed keys."""
    return Advertised(run.site, run.secure_sums.advertise(request.labels))


def share_keys(run: SignedRun, request: ShareKeys) -> Shared:
    """Return encrypted shares of this site's secrets."""
    return Shared(run.site, run.secure_sums.share(request.adverts))


def send_masked(run: SignedRun, request: SendMasked) -> Masked:
    """Return an upload behind masks, or the one that was given before."""
    sums = run.secure_sums
    planned = run.computation.planned(request.send)
    if not isinstance(planned, GaussianRelease):
        raise Refusal(NOT_PLANNED, "only protected uploads are added up")
    event, shares = run.account.find(planned.what, planned.round), dict(request.shares)
    asked = hash_of(wire.asked_for, request.send, run.computation.view_hashes.get(request.send.view, ""))
    # Before anything is computed: what is in the outbox after a crash answers this, and nothing else.
    sums.bind(request.label, planned.what, request.send.round, shares, asked, released=event is not None)
    masked = sums.answered(request.label)
    if masked is None or event is None:
        upload = run.once(planned, lambda: run.computation.upload(request.send))
        masked, event = sums.masked(request.label, np.asarray(upload.values), shares, asked), upload.event
    # Alone it has only a share of its noise: what is sent again is the masked one.
    run.anchors.keep()  # first: the outbox has been an anchor, too
    run.outbox.drop(planned.what)
    return Masked(run.site, masked, event, run.receipt(Upload(masked, event)), asked)


def confirm(run: SignedRun, request: Confirm) -> Confirmed:
    """Return the signature of a list of survivors."""
    return Confirmed(run.site, run.secure_sums.confirm(request.label, request.survivors))


def unmask(run: SignedRun, request: Unmask) -> Unmasked:
    """Return the shares that open a sum."""
    return Unmasked(run.site, run.secure_sums.unmask(request.label, dict(request.signatures)))


SUM_ANSWERS: Mapping[type[Any], Callable[[SignedRun, Any], SumReply]] = {
    Advertise: advertise,
    ShareKeys: share_keys,
    SendMasked: send_masked,
    Confirm: confirm,
    Unmask: unmask,
}


def hash_of(hashes: Callable[..., str], *facts: Any) -> str:
    """Return a hash, or refuse what has none."""
    try:
        return hashes(*facts)
    except wire.NotPortable:
        raise Refusal(MALFORMED, "the request has no bytes of its own") from None
