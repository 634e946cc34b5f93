"""A server's part that asks sites for what is not in the protocol, as an adversary would; and a part of no site."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

from nvflare.collab import collab

from dpfedvis.protocol import wire
from dpfedvis.protocol.messages import Refused

_REQUESTS: list[Any] = [
    b"",
    b"rubbish",
    pickle.dumps({"records": 1}),
    "text",
    7,
    None,
    {"records": []},
    b"dpfedvis 0\n",
]
ASKED = len(_REQUESTS)


class Rogue:
    """No part of a site."""


class RogueServer:
    """Asks each site for everything that is no request, and writes down what comes back."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    @collab.main  # type: ignore[untyped-decorator]
    def main(self) -> None:
        """Ask."""
        replies: dict[str, list[str]] = {proxy.name: [] for proxy in collab.clients}
        for request in _REQUESTS:
            for name, said in replies.items():
                found = dict(collab.get_clients([name])(timeout=120).answer(request))
                said.append(_words(found.get(name)))
        (Path(self.folder) / "replies.json").write_text(json.dumps(replies))


def _words(data: Any) -> str:
    if not isinstance(data, bytes):
        return "refused by the engine"
    reply = wire.decode(data)
    return reply.words if isinstance(reply, Refused) else f"answered with a {type(reply).__name__}"
