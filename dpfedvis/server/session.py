"""A session: the server's side of a run, from the contract to averages. It sees replies, and never a record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from accounting import Event, GaussianRelease, checks
from accounting.errors import InvalidParameter
from dpfedvis.errors import DpfedvisError
from dpfedvis.mechanisms import Mechanism
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.rows import Rows
from dpfedvis.numerics.exact import Integers
from dpfedvis.numerics.files import make_folder, read_arrays, write_arrays
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.layouts import Layout
from dpfedvis.numerics.random_streams import Streams
from dpfedvis.protocol.ask import Ask, Reply, Request
from dpfedvis.protocol.contract import Contract
from dpfedvis.protocol.messages import (
    Agree,
    Begin,
    Done,
    Events,
    Perturb,
    Perturbed,
    Place,
    Prepare,
    Receipt,
    Refused,
    Send,
    SendRows,
    Sent,
    ShowEvents,
    Signed,
)  # fmt: skip
from dpfedvis.protocol.noise import add_noise, noise_cells, noise_source, variance_alone
from dpfedvis.protocol.noise_plan import RunPlan
from dpfedvis.protocol.published_map import PublishedMap
from dpfedvis.protocol.signatures import verify
from dpfedvis.protocol.uploads import BadUpload, Upload, Values, Witness, in_units
from dpfedvis.protocol.views import RAW, View, ViewName
from dpfedvis.protocol.wire import label_of
from dpfedvis.server.mirror import Mirror
from dpfedvis.server.replies import Replies
from dpfedvis.server.secure_sums import SecureSums
from dpfedvis.server.sums import PlainSums, SumIncomplete, Sums

OnFailure = Literal["fail", "continue"]
_R = TypeVar("_R", Signed, Done, Perturbed, Sent)


class SiteRefused(DpfedvisError):
    """A site did not do what it was asked, for a reason in its own public words."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(f"{refused.site} refused: {refused.words}")
        self.site, self.code, self.words = refused.site, refused.code, refused.words


class SiteFailed(DpfedvisError):
    """A site gave no valid upload, and the run cannot continue without it."""


@dataclass(frozen=True)
class Failure:
    """A site that gave no valid upload in a round, and why."""

    site: str
    round: int
    reason: str


class Average(NamedTuple):
    """A weighted average of the sites that were there, and the variance of the noise in each of its values."""

    values: Array
    variance: float


class Session:
    """The server's side of one run.

    Parameters
    ----------
    ask : Ask
    contract : Contract
    mirror : Mirror
    witness : Witness, optional
        Called with everything that the server sees.
    on_failure : {"fail", "continue"}
        What to do when a site fails under trust `local`: stop, or continue with the others' average. Under
        `aggregate` a run goes on with as many sites as the contract's threshold says; under `central` it stops.
    folder : Path, optional
        Where a trusted curator keeps its noisy sums, to send them again; and what an open secure sum needs to go on.
    """

    def __init__(
        self,
        ask: Ask,
        contract: Contract,
        mirror: Mirror,
        witness: Witness | None = None,
        on_failure: OnFailure = "fail",
        folder: Path | None = None,
    ) -> None:
        self.contract, self.mirror = contract, mirror
        self.label = label_of(contract)
        self.failures: list[Failure] = []
        self._ask, self._witness, self._folder = ask, witness, folder
        self._on_failure = checks.one_of("on_failure", on_failure, ("fail", "continue"))
        self._weights = {member.name: member.weight for member in contract.members}
        self._streams = Streams(contract.seed)
        self._replies = Replies(contract, signed=not ask.one_process)
        self._sums: Sums = SecureSums(ask, contract, self._replies, folder) if self._secure else PlainSums(ask)
        self._present: dict[str, float] = {}
        self.singles: dict[str, tuple[Mechanism, Average]] = {}  # single releases over all records, by name
        self._spare = contract.counts[contract.mechanism.what] - contract.retries  # the last round that was repeated

    @property
    def plan(self) -> RunPlan | None:
        """Noise multipliers; None if nothing is protected."""
        return self.contract.plan

    @property
    def _secure(self) -> bool:
        return self._ask.secure and self.contract.trust == "aggregate"

    def open(self) -> None:
        """Let every site sign the contract, and show all signatures to all."""
        if self.contract.trust == "central" and not self._ask.one_process:
            raise InvalidParameter("trust", "central", "local or aggregate: the uploads of real sites are not exact")
        self.mirror.refuse_above(self.contract)
        signed = self._all(Agree(self.contract, tuple(self.mirror.receipts.values())), Signed)
        message = f"contract|{self.label}".encode()
        for each, member in zip(signed, self.contract.members, strict=True):
            if each.contract != self.label or not verify(member.key, each.signature, message):
                raise SiteFailed(f"{member.name} signed another contract, or with another key")
        self._all(Begin(self.label, tuple(each.signature for each in signed)), Done)

    def prepare(self, view: View) -> None:
        """Send the public facts of a view to all sites. Under `aggregate` some may be away, and stay out until a link
        shows them the view again."""
        if isinstance(self._sums, SecureSums):
            self._sums.prepared(view)
        self._enough(Prepare(self.label, view))

    def perturb(self, mechanism: Mechanism, public: PublicParameters) -> None:
        """Let all sites perturb their records at home."""
        replies = self._all(Perturb(self.label, mechanism, public), Perturbed)
        cell = mechanism.grid(public, np.zeros((1, public.features))).step
        for each, plan in zip(replies, self.contract.site_plans(mechanism, public), strict=True):
            self._replies.check_event(each.event, plan.name, None, plan.event(cell))
            self._replies.check_receipt(each.receipt, plan.name, each.event)
        self.mirror.write([each.event for each in replies], [each.receipt for each in replies])

    def place(self, published: PublishedMap, layout: Layout, placement: object) -> None:
        """Send the published map to all sites, which place their own records."""
        self._enough(Place(self.label, published, layout, placement))

    def average(
        self,
        mechanism: Mechanism,
        public: PublicParameters,
        Y: Array | None = None,
        round: int = 0,
        view: ViewName = RAW,
    ) -> Array:
        """Ask all sites for an upload; return the weighted average.

        Parameters
        ----------
        mechanism : Mechanism
        public : PublicParameters
        Y : array of shape (n_y, m), optional
            None for a single release.
        round : int
            0 for a single release.
        view : str

        Returns
        -------
        array of the mechanism's shape
        """
        request = Send(self.label, mechanism, public, round, Y, view)
        shape = mechanism.shape(public)
        if mechanism.trust != "local" and mechanism.protection == "upload":
            return self._summed(request, shape)
        good, failures = self._sorted(self._ask.each(request), request, shape)
        self._see(good)  # first, so that the mirror has all that arrived
        for failure in failures:
            self._judge(failure)
        if not good:
            raise SiteFailed(f"round {round}: no site gave a valid upload")
        weights = np.array([self._weights[each.site] for each in good])
        total: Array = np.zeros(shape)
        for each, weight in zip(good, weights, strict=True):
            total += weight * in_units(each.values, each.event)
        total /= weights.sum()
        self._present[mechanism.what] = self._left_of(good, request) if failures else 1.0
        return total

    def once(self, mechanism: Mechanism, public: PublicParameters, view: ViewName = RAW) -> Average:
        """Make one release over all records; return the average, and what noise it has."""
        public = single_release(public)
        values = self.average(mechanism, public, view=view)
        # After the average: only now it is known who is in it.
        found = Average(values, self.planned_variance(mechanism, public) * self.present(mechanism.what) ** 2)
        self.singles[mechanism.what] = mechanism, found
        return found

    def rows(self, rows: Rows, Y: Array) -> list[Array]:
        """Return every site's rows, each of shape (n_p, width)."""
        replies = self._all(SendRows(self.label, rows, Y), Sent)
        for each, member in zip(replies, self.contract.members, strict=True):
            self._replies.check_event(each.event, member.name, None, self._replies.expected_rows(rows, Y, member.name))
            self._replies.check_receipt(each.receipt, member.name, each.event, each.values)
            records = each.values.shape[0] if isinstance(each.values, np.ndarray) and each.values.ndim else 0
            Upload(each.values, each.event).check((records, rows.width(Y)))
            if records != member.denominator:
                raise BadUpload(each.site, rows.what, None, f"has {records} rows, not {member.denominator:g}")
        self._see(replies)
        return [in_units(each.values, each.event) for each in replies]

    # The noise, from public numbers

    def check(self, mechanism: Mechanism, public: PublicParameters) -> None:
        """Raise if the noise of an upload would have too few or too many cells of its grid, before anything is spent.

        Where kernel and grid are still to be learned, one stands in for the other: a grid as it follows from a kernel.
        """
        if self.plan is None or mechanism.protection != "upload":
            return
        grid = mechanism.grid(public, np.zeros((1, public.features)))
        relative = mechanism.relative_noise(public)
        for plan in self.contract.site_plans(mechanism, public):
            noise_cells(plan.event(mechanism.cell(public, grid)), plan.shares, relative)

    def planned_variance(self, mechanism: Mechanism, public: PublicParameters) -> float:
        """Variance of the noise in each value of the average of all sites; 0 if uploads have no noise.

        If some are away, that of an average is `present` squared times as much: see `once`.
        """
        return self.contract.planned_variance(mechanism, public)

    # Replies

    def _all(self, request: Request, kind: type[_R]) -> list[_R]:
        """Ask all sites; raise `SiteRefused` unless each gives this kind of reply."""
        found: list[_R] = []
        for name, reply in zip(self._ask.sites, self._ask.each(request), strict=True):
            if isinstance(reply, Refused):
                raise SiteRefused(reply)
            if not isinstance(reply, kind) or reply.site != name:
                raise SiteFailed(f"{name} gave another reply than it was asked for")
            found.append(reply)
        return found

    def _enough(self, request: Request) -> None:
        """Ask all sites for something that only concerns each of them; under `aggregate` some may be away."""
        sharing, there = self.contract.sharing, 0
        if sharing is None or not self._secure:
            self._all(request, Done)
            return
        for name, reply in zip(self._ask.sites, self._ask.each(request), strict=True):
            if isinstance(reply, Done) and reply.site == name:
                there += 1
            else:
                words = reply.words if isinstance(reply, Refused) else "gave another reply than it was asked for"
                self.failures.append(Failure(name, 0, f"{type(request).__name__}: {words}"))
        if there < sharing.threshold:
            raise SiteFailed(
                f"{there} of {sharing.parties} sites are there, and {sharing.threshold} are needed. What was published "
                "stays; resume the run when more are there"
            )

    def _summed(self, request: Send, shape: tuple[int, ...]) -> Array:
        """Return the weighted average of the sites in a sum, in its units; repeat a sum that budget is set aside for.

        A repeated sum has a round of its own behind the planned ones, and so noise and a charge of its own.
        """
        last = self.contract.counts[self.contract.mechanism.what]
        while True:
            try:
                return self._sum(request, shape)
            except SumIncomplete as error:
                # They were charged, whatever came of it.
                self._check(error.events, error.receipts, request)
                self.mirror.write(error.events, error.receipts)
                single = request.mechanism.what != self.contract.mechanism.what
                if single or self._spare >= last or not self._enough_there():
                    raise SiteFailed(str(error)) from error
                self._spare += 1
                self.failures.append(Failure("the sum", request.round, f"repeated as round {self._spare}: {error}"))
                request = replace(request, round=self._spare)

    def catch_up(self) -> None:
        """Let the mirror have what real sites were charged for, and whose bytes never came."""
        if not self._ask.one_process:
            wrong = self.mirror.catch_up(self._ask, self._replies)
            self.failures += [Failure(name, 0, why) for name, why in wrong.items()]

    def _enough_there(self) -> bool:
        """Whether as many sites answer now as a sum needs: to repeat one without them would only cost budget."""
        replies = self._ask.each(ShowEvents(self.label, 2**62))
        return sum(isinstance(reply, Events) for reply in replies) >= (self.contract.threshold or 0)

    def _check(
        self,
        events: Sequence[Event],
        receipts: Sequence[Receipt],
        request: Send,
        masked: Sequence[Integers] | None = None,
    ) -> None:
        """Raise unless sites state the events of the contract, with receipts for them."""
        expected = {each.client: each for each in self._replies.expected(request) if isinstance(each, GaussianRelease)}
        for number, (event, receipt) in enumerate(zip(events, receipts, strict=True)):
            if event != expected.get(event.client):
                raise BadUpload(event.client, event.what, event.round, "states another event than the contract")
            self._replies.check_receipt(receipt, event.client, event, None if masked is None else masked[number])

    def _sum(self, request: Send, shape: tuple[int, ...]) -> Array:
        found = self._sums.total(request, shape)
        self._check(found.events, found.receipts, request, found.masked)
        first = found.events[0]
        Upload(found.values, first).check(shape)
        self.mirror.write(found.events, found.receipts)
        self.failures += [Failure(name, request.round, why) for name, why in found.absent.items()]
        total = self._curated(found.values, first, request)
        if self._witness is not None:
            self._witness(found.events, total)
        # Of the sites that are in it; and so is its noise.
        share = math.fsum(self._weights[event.client] for event in found.events)
        planned = [each for each in self._replies.expected(request) if isinstance(each, GaussianRelease)]
        there = {event.client for event in found.events}
        if any(each.own is not None for each in planned):
            parts = [math.fsum(variance_alone(each) for each in planned if each.client in who)
                     for who in (there, set(self._weights))]  # fmt: skip
        else:
            parts = [len(there), len(self._weights)]
        self._present[request.mechanism.what] = math.sqrt(parts[0] / parts[1]) / share
        return in_units(total, first) / share

    def present(self, what: str) -> float:
        """Noise of the last average of this name, relative to that of all sites: some may have been away."""
        return self._present.get(what, 1.0)

    def _left_of(self, good: Sequence[Sent], request: Send) -> float:
        """Noise of an average of these sites' uploads, which have their noise each, relative to that of all sites."""
        planned = [each for each in self._replies.expected(request) if isinstance(each, GaussianRelease)]
        noise = {each.client: self._weights[each.client] * each.sigma for each in planned}
        if not noise:
            return 1.0
        there = [each.site for each in good]
        share = math.fsum(self._weights[name] for name in there)
        return math.hypot(*(noise[name] for name in there)) / share / math.hypot(*noise.values())

    def _sorted(
        self, replies: Sequence[Reply], request: Send, shape: tuple[int, ...]
    ) -> tuple[list[Sent], list[Failure]]:
        """Return the uploads that are as the contract says, and the sites that gave no such."""
        good: list[Sent] = []
        failures: list[Failure] = []
        round, expected = request.round, self._replies.expected(request)
        for number, (name, reply) in enumerate(zip(self._ask.sites, replies, strict=True)):
            if not isinstance(reply, Sent):
                words = reply.words if isinstance(reply, Refused) else "gave another reply than it was asked for"
                failures.append(Failure(name, round, words))
                continue
            try:
                self._replies.check_sent(reply, name, round, expected[number])
                Upload(reply.values, reply.event).check(shape)
                good.append(reply)
            except BadUpload as error:
                failures.append(Failure(error.site, round, error.reason))
        return good, failures

    def _see(self, replies: Sequence[Sent]) -> None:
        self.mirror.write([each.event for each in replies], [each.receipt for each in replies])
        if self._witness is not None:
            for each in replies:
                self._witness([each.event], each.values)

    def _judge(self, failure: Failure) -> None:
        self.failures.append(failure)
        if self._on_failure == "fail":
            raise SiteFailed(f"{failure.site} failed in round {failure.round}: {failure.reason}")

    def _curated(self, total: Integers, event: Event, request: Send) -> Values:
        """Add a trusted server's noise to a sum of exact uploads; under the other trust models it has its noise."""
        if self.contract.trust != "central" or not isinstance(event, GaussianRelease):
            return total
        # Kept, too: new noise on the same sum after an interruption would be a second release.
        name = f"curated-{event.what.replace(' ', '-')}-{request.round:06d}.npz"
        path = None if self._folder is None else self._folder / name
        if path is not None and path.exists():
            return read_arrays(path)["values"]
        generator = self._streams.generator("noise", event.what, "curator", request.round)
        relative = request.mechanism.relative_noise(request.public)
        noisy = add_noise(noise_source(self.contract.noise, generator), total, event, relative=relative)
        if path is not None:
            make_folder(path.parent)
            write_arrays(path, {"values": noisy})
        return noisy


def single_release(public: PublicParameters) -> PublicParameters:
    """Return the parameters for one release over all records."""
    return replace(public, rounds=1, sampling_rate=None)
