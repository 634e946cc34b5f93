"""Sites as operating-system processes, each with its own files. Bytes travel through pipes, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from accounting.errors import InvalidParameter
from dpfedvis.errors import DpfedvisError
from dpfedvis.protocol import wire
from dpfedvis.protocol.ask import Reply, Request
from dpfedvis.protocol.messages import (
    FAILED,
    MALFORMED,
    Agree,
    Begin,
    Describe,
    Forget,
    Prepare,
    Refused,
)  # fmt: skip
from dpfedvis.server import Program, Published

_RESTARTS = 3  # of one site in one request
_LENGTH = 8  # bytes before each message


class LinkClosed(DpfedvisError):
    """A link that was closed, or never opened."""


class Processes:
    """A link to sites that are processes of this machine.

    Parameters
    ----------
    folders : mapping of str to path-like
        The folder of each site, by its name (`dpfedvis.site.folder.write_site`). This process never reads them.
    command : sequence of str, optional
        Program of a site, to which its folder is given; by default `dpfedvis.links.site_process`.

    Notes
    -----
    A process that dies is started again: it is shown the contract, its signatures and the views anew, and asked again.
    Its ledger knows what it has answered, so that it sends the same bytes.
    """

    one_process = False
    secure = True

    def __init__(self, folders: Mapping[str, str | Path], *, command: Sequence[str] | None = None) -> None:
        self._command = list(command or [sys.executable, "-m", "dpfedvis.links.site_process"])
        self._folders = {name: Path(folder) for name, folder in folders.items()}
        if not self._folders:
            raise InvalidParameter("folders", folders, "one for each site, and at least one")
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._shown: list[bytes] = []  # what a site that is started again must be shown
        for name in self._folders:
            self._start(name)

    @property
    def sites(self) -> Sequence[str]:
        """Names of the sites."""
        return list(self._folders)

    def run(self, program: Program, **watched: Any) -> Published:
        """Run a program here; what cannot be sent to another process is refused by name before anything is asked."""
        published = Program.of_bytes(program.to_bytes()).run(self, **watched)
        self.each(Forget(published.label))
        return published

    def each(self, request: Request) -> list[Reply]:
        """Ask every site, all at the same time; return their replies in order."""
        message = wire.encode(request)
        replies = list(self._exchange(dict.fromkeys(self._folders, message)).values())
        if isinstance(request, Agree | Begin | Prepare):
            # A site that is away now is shown it when it is started again.
            if not all(isinstance(each, Refused) for each in replies):
                self._shown.append(message)
        elif isinstance(request, Describe | Forget):
            self._shown.clear()
        return replies

    def some(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        """Ask some sites, all at the same time; return their replies by name."""
        return self._exchange({name: wire.encode(request) for name, request in requests.items()})

    def _exchange(self, messages: Mapping[str, bytes]) -> dict[str, Reply]:
        asked = {name: self._write(name, message) for name, message in messages.items()}
        return {name: self._reply(name, messages[name], written) for name, written in asked.items()}

    def close(self) -> None:
        """End all processes."""
        for process in self._running.values():
            if process.stdin is not None:
                process.stdin.close()
        for process in self._running.values():
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._running.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, name: str) -> None:
        # One thread of BLAS each: several sites share the cores.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._running[name] = subprocess.Popen(
            [*self._command, str(self._folders[name])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is the server's; sites end when their input does
        )

    def _write(self, name: str, message: bytes) -> bool:
        """Send a message; return whether the process took it."""
        if name not in self._running:
            raise LinkClosed(f"the link to {name} is closed")
        stream = self._running[name].stdin
        assert stream is not None
        try:
            send(stream, message)
        except OSError:
            return False
        return True

    def _reply(self, name: str, message: bytes, written: bool) -> Reply:
        """Read the reply of a site; start its process again if it died."""
        for left in reversed(range(_RESTARTS + 1)):
            data = self._read(name) if written else None
            if data is not None:
                return decoded(name, data, f"the folder given for {name}")
            self._end(name)
            self._start(name)
            # It must know the run before it can answer.
            written = all(self._write(name, each) and self._read(name) is not None for each in self._shown)
            # Not after the last restart: its reply would be taken for that to the next request.
            written = written and left > 0 and self._write(name, message)
        return Refused(name, FAILED, "the process of this site ended, again and again")

    def _read(self, name: str) -> bytes | None:
        stream = self._running[name].stdout
        assert stream is not None
        return receive(stream)

    def _end(self, name: str) -> None:
        process = self._running[name]
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):  # what was still to be written has nobody to read it
                    stream.close()


def decoded(name: str, data: bytes, place: str) -> Reply:
    """Return the reply in these bytes, from what stands at `place` for the site of this name; refuse any other."""
    try:
        reply: Reply = wire.decode(data)
    except wire.Malformed:
        other = data.startswith(b"dpfedvis ") and not data.startswith(wire.MAGIC)
        words = "speaks another version of the protocol: upgrade it" if other else "gave a reply that cannot be read"
        return Refused(name, MALFORMED, words)
    if isinstance(reply, Refused):
        return replace(reply, site=name)
    if reply.site != name:
        return Refused(name, MALFORMED, f"{place} is that of {reply.site[:80]}")
    return reply


def send(stream: IO[bytes], message: bytes) -> None:
    """Write a message with its length."""
    stream.write(len(message).to_bytes(_LENGTH, "big"))
    stream.write(message)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    """Read a message; None at the end of the stream, or if it is cut off or too long."""
    head = stream.read(_LENGTH)
    if len(head) < _LENGTH:
        return None
    length = int.from_bytes(head, "big")
    if length > wire.MOST_BYTES:
        return None
    message = stream.read(length)
    return message if len(message) == length else None
