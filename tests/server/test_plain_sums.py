"""Sums inside one process: exact, of all sites, or not formed."""

from __future__ import annotations

import numpy as np
import pytest

from accounting import GaussianRelease
from dpfedvis.mechanisms import GradientPerturbation
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.protocol.messages import FAILED, Done, Receipt, Refused, Send, Sent
from dpfedvis.server.sums import PlainSums, SumIncomplete

REQUEST = Send(
    "a contract", GradientPerturbation(trust="aggregate"), PublicParameters(Kernel((0.5,)), 3, 2, 1, 1, 0.5), 1
)


class Replies:
    """A link whose sites have answered already."""

    one_process, secure = True, False

    def __init__(self, *replies):
        self.replies, self.sites = replies, [f"client-{p}" for p in range(len(replies))]

    def each(self, request):
        return list(self.replies)

    def some(self, requests):
        raise AssertionError("a plain sum asks all sites")


def sent(p, values):
    event = GaussianRelease(
        what="gradient", client=f"client-{p}", round=1, sensitivity=0.1, sigma=1.0, grid=2.0**-10, values=6,
        noise="seeded", trust="aggregate",
    )  # fmt: skip
    return Sent(f"client-{p}", values, event, Receipt(f"client-{p}", "a contract", 1, "a hash"))


def total(*replies):
    return PlainSums(Replies(*replies)).total(REQUEST, (3, 2))


def test_a_sum_is_exact_and_has_every_event():
    """Beyond 2⁵³, where a sum of floats would lose the last bit."""
    replies = [sent(p, np.full((3, 2), 2**60 + p, np.int64)) for p in range(3)]
    found = total(*replies)
    np.testing.assert_array_equal(found.values, np.full((3, 2), 3 * 2**60 + 3, np.int64), strict=True)
    assert found.events == tuple(each.event for each in replies)
    assert found.receipts == tuple(each.receipt for each in replies)
    assert not found.absent


BAD = {
    "floats": np.zeros((3, 2)),
    "shape": np.zeros((2, 2), np.int64),
    "flat": np.zeros(6, np.int64),
    "unsigned": np.zeros((3, 2), np.uint64),
    "too large": np.full((3, 2), 2**62, np.int64),
    "list": [[1, 2]] * 3,
    "nothing": None,
}


@pytest.mark.parametrize("kind", BAD)
def test_a_sum_with_a_bad_upload_is_not_formed(kind):
    good = np.ones((3, 2), np.int64)
    with pytest.raises(SumIncomplete, match="client-1 failed in round 1: gave"):
        total(sent(0, good), sent(1, BAD[kind]), sent(2, good))


@pytest.mark.parametrize(
    "reply",
    [Refused("client-1", FAILED, "this site could not do it"), Done("client-1"), sent(0, np.ones((3, 2), np.int64))],
)
def test_a_sum_without_a_site_is_not_formed(reply):
    with pytest.raises(SumIncomplete, match="client-1 failed"):
        total(sent(0, np.ones((3, 2), np.int64)), reply)
