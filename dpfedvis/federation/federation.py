"""A federation: clients that run one mechanism, and the server's average of their uploads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from accounting import Event, GaussianRelease, checks
from dpfedvis.errors import DpfedvisError
from dpfedvis.federation.client import Client, add_noise, noise_source
from dpfedvis.federation.door import BadUpload, Door, Upload
from dpfedvis.federation.noise_plan import ClientPlan
from dpfedvis.federation.outbox import Outbox
from dpfedvis.federation.pool import BACKENDS, Failure, Pool
from dpfedvis.mechanisms import Mechanism
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.exact import Integers
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.random_streams import Streams

Policy = Literal["fail", "continue"]


class ClientFailed(DpfedvisError):
    """A client gave no valid upload, and the run cannot continue without it."""


@dataclass(frozen=True)
class ClientWorkers:
    """How the clients of a simulation share this machine. It changes no result.

    Parameters
    ----------
    count : int
        Number of workers.
    backend : {"threads", "processes"}
    """

    count: int = 1
    backend: str = "threads"

    def __post_init__(self) -> None:
        checks.count("workers", self.count)
        checks.one_of("backend", self.backend, BACKENDS)


class Federation:
    """Clients that run one mechanism, and the server's average of their uploads.

    Parameters
    ----------
    records : sequence of arrays of shape (n_p, m)
    plans : sequence of ClientPlan
    mechanism : Mechanism
    public : PublicParameters
    door : Door
    streams : Streams
    noise : str
        Name of the noise source.
    policy : {"fail", "continue"}
        What to do when a client fails: stop, or continue with the others' average. Under `aggregate` and `central`
        trust the run always stops, because the noise of the sum is shared among all clients.
    workers : ClientWorkers
    outbox : Outbox, optional
        Stores uploads, so that an interrupted run can resume.
    """

    def __init__(
        self,
        records: Sequence[Array],
        plans: Sequence[ClientPlan],
        mechanism: Mechanism,
        public: PublicParameters,
        door: Door,
        streams: Streams,
        noise: str,
        policy: Policy = "fail",
        workers: ClientWorkers | None = None,
        outbox: Outbox | None = None,
    ) -> None:
        self.failures: list[Failure] = []
        self._plans, self._mechanism, self._public = list(plans), mechanism, public
        self._door, self._streams, self._noise, self._outbox = door, streams, noise, outbox
        self._policy = checks.one_of("policy", policy, ("fail", "continue"))
        self._weights = {plan.name: plan.weight for plan in plans}
        workers = workers or ClientWorkers()
        self.clients = self._make_clients(records)
        self._pool = Pool(self.clients, workers.count, workers.backend)

    def _make_clients(self, records: Sequence[Array]) -> list[Client]:
        """Create the clients. Perturbed records are accounted for now, or read from an interrupted run."""
        at_home = self._mechanism.protection == "home"
        kept = self._outbox.find("home", 0) if self._outbox is not None and at_home else None
        perturbed: list[Integers | None] = [upload.values.astype(np.int64, copy=False) for upload in kept or []]
        clients = [
            Client(own, plan, self._mechanism, self._public, self._streams, self._noise, known)
            for own, plan, known in zip(records, self._plans, perturbed or [None] * len(self._plans), strict=True)
        ]
        if at_home:
            home = [replace(client.home, resent=kept is not None) for client in clients]
            if self._outbox is not None and kept is None:
                self._outbox.keep("home", 0, home)
            self._door.account(home)
        return clients

    def average(self, Y: Array, round: int) -> Array:
        """One round: send Y, return the weighted average of the uploads.

        Parameters
        ----------
        Y : array of shape (n_y, m)
        round : int

        Returns
        -------
        array of the mechanism's shape
        """
        shape, good = self._mechanism.shape(self._public), self._uploads(Y, round)
        if self._mechanism.trust != "local" and self._mechanism.protection == "upload":
            return self._door.release_sum(good, shape, self._curate(good[0].event, round))
        arrays = self._door.release(good, shape)
        weights = np.array([self._weights[upload.event.client] for upload in good])
        return np.average(np.stack(arrays), axis=0, weights=weights)

    def close(self) -> None:
        """Stop the workers."""
        self._pool.close()

    def _uploads(self, Y: Array, round: int) -> list[Upload]:
        """Return the valid uploads of a round; stored only if the round continues with them."""

        def make() -> list[Upload]:
            return self._usable(self._pool.uploads(Y, round), round)

        return make() if self._outbox is None else self._outbox.get_or_create(self._mechanism.what, round, make)

    def _usable(self, answers: Sequence[Upload | Failure | None], round: int) -> list[Upload]:
        shape = self._mechanism.shape(self._public)
        good: list[Upload] = []
        for answer, plan in zip(answers, self._plans, strict=True):
            if isinstance(answer, Upload):
                try:
                    answer.check(shape)
                    good.append(answer)
                except BadUpload as error:
                    self._judge(Failure(error.client, round, error.reason))
            else:
                self._judge(answer or Failure(plan.name, round, "gave no upload"))
        if not good:
            raise ClientFailed(f"round {round}: no client gave a valid upload")
        return good

    def _judge(self, failure: Failure) -> None:
        self.failures.append(failure)
        if self._policy == "fail" or self._mechanism.trust != "local":
            raise ClientFailed(f"{failure.client} failed in round {failure.round}: {failure.reason}")

    def _curate(self, event: Event, round: int) -> Callable[[Integers], Integers] | None:
        """Return the trusted server's noise for a sum of exact uploads; None under the other trust models."""
        if self._mechanism.trust != "central" or not isinstance(event, GaussianRelease):
            return None
        generator = self._streams.generator("noise", event.what, "curator", round)
        source, outbox, name = noise_source(self._noise, generator), self._outbox, f"curated {event.what}"
        relative = self._mechanism.relative_noise(self._public)

        def curate(total: Integers) -> Integers:
            # Stored too: new noise on the same sum after an interruption would be a second release.
            kept = None if outbox is None else outbox.find(name, round)
            if kept is not None:
                return kept[0].values.astype(np.int64, copy=False)
            noisy = add_noise(source, total, event, relative=relative)
            if outbox is not None:
                outbox.keep(name, round, [Upload(noisy, event)])
            return noisy

        return curate
