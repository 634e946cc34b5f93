"""The pool: runs clients one after another, in threads or in processes, with the same result."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.federation.client import Client
from dpfedvis.federation.door import BadUpload, Upload
from dpfedvis.numerics.kernels import Array

BACKENDS = ("threads", "processes")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Failure:
    """A client that gave no valid upload in a round, and why."""

    client: str
    round: int
    reason: str


class Pool:
    """Runs all clients of a round.

    Parameters
    ----------
    clients : sequence of Client
    workers : int
        Number of clients that run at the same time. With one, BLAS can use all cores.
    backend : {"threads", "processes"}
        With processes, each worker receives the clients once, at its start; later only Y and uploads are sent.
    """

    def __init__(self, clients: Sequence[Client], workers: int = 1, backend: str = "threads") -> None:
        self._clients = list(clients)
        workers = min(checks.count("workers", workers), len(self._clients))
        checks.one_of("backend", backend, BACKENDS)
        self._executor: Executor | None = None
        self._remote = workers > 1 and backend == "processes"
        if self._remote:
            self._executor = ProcessPoolExecutor(
                workers, multiprocessing.get_context("spawn"), initializer=_adopt, initargs=(self._clients,)
            )
        elif workers > 1:
            self._executor = ThreadPoolExecutor(workers)

    def uploads(self, Y: Array, round: int) -> list[Upload | Failure]:
        """Compute the upload of every client; a `Failure` for each client that fails."""
        if self._executor is None:
            return [_upload(client, Y, round) for client in self._clients]
        if self._remote:
            jobs = [self._executor.submit(_remote_upload, i, Y, round) for i in range(len(self._clients))]
        else:
            jobs = [self._executor.submit(_upload, client, Y, round) for client in self._clients]
        return [_result(job, client.plan.name, round) for job, client in zip(jobs, self._clients, strict=True)]

    def close(self) -> None:
        """Stop the workers."""
        if self._executor is not None:
            self._executor.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _upload(client: Client, Y: Array, round: int) -> Upload | Failure:
    try:
        return client.upload(Y, round)
    except BadUpload as error:
        return Failure(client.plan.name, round, error.reason)
    except InvalidParameter:
        raise  # wrong settings of the run, not a client's failure
    except Exception as error:
        # Any other error is a failure of this client, handled by the run's policy. The server learns only the type of
        # the error, since its message may quote a record; the rest goes to the client's own log.
        _log.warning("%s failed in round %d", client.plan.name, round, exc_info=True)
        return Failure(client.plan.name, round, f"raised {type(error).__name__}")


def _result(job: Future[Upload | Failure], client: str, round: int) -> Upload | Failure:
    try:
        return job.result()
    except BrokenExecutor:
        return Failure(
            client, round, "its worker process died (a script that uses processes needs `if __name__ == '__main__':`)"
        )


_adopted: list[Client] = []


def _adopt(clients: list[Client]) -> None:
    _adopted[:] = clients


def _remote_upload(index: int, Y: Array, round: int) -> Upload | Failure:
    return _upload(_adopted[index], Y, round)
