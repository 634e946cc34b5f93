"""Messages as bytes: a line of JSON, then the bytes of its arrays. No pickle; only known classes are made.

    "dpfedvis 1\n"  length of the header, 8 bytes  header (JSON)  arrays, one after the other

In the header an object is {"!": its class, field: value, …}, an array {"!": "array", dtype, shape}; arrays follow in
the order in which they stand there. A class checks its fields when it is made, so that what is read is valid.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from accounting import Budget, Event
from accounting.errors import InvalidParameter
from accounting.events import from_dict
from dpfedvis.errors import DpfedvisError
from dpfedvis.mechanisms import MECHANISMS, find_mechanism
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.releases import SINGLE_RELEASES
from dpfedvis.mechanisms.rows import DistanceRows, GramRows, KernelRows
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.layouts import LAYOUTS
from dpfedvis.protocol import messages, secure_sum, sum_messages
from dpfedvis.protocol.contract import VERSION, Contract, Member
from dpfedvis.protocol.density import DensityGrid
from dpfedvis.protocol.noise_plan import Extra
from dpfedvis.protocol.published_map import PublishedMap
from dpfedvis.protocol.subspace import Subspace
from dpfedvis.protocol.views import DensityView, SubspaceView

MAGIC = f"dpfedvis {VERSION}\n".encode()
MOST_HEADER = 4 * 2**20  # bytes of JSON: a contract of some 20,000 sites, read in seconds
MOST_BYTES = 2**33  # of a whole message
_TYPES = ("<f4", "<f8", "<i8")
_CLASSES: dict[str, type[Any]] = {
    each.__name__: each
    for each in (
        Budget, Contract, DensityGrid, DensityView, DistanceRows, Extra, GramRows, Grid, Kernel, KernelRows, Member,
        PublicParameters, PublishedMap, Subspace, SubspaceView,
        messages.Agree, messages.Begin, messages.Describe, messages.Description, messages.Done, messages.Events,
        messages.Forget, messages.Perturb, messages.Perturbed, messages.Place, messages.Prepare, messages.Receipt,
        messages.Refused, messages.Send, messages.SendRows, messages.Sent, messages.ShowEvents, messages.Signed,
        secure_sum.Advert, secure_sum.Opened, secure_sum.Shares,
        sum_messages.Advertise, sum_messages.Advertised, sum_messages.Confirm, sum_messages.Confirmed,
        sum_messages.Masked, sum_messages.SendMasked, sum_messages.Shared, sum_messages.ShareKeys,
        sum_messages.Unmask, sum_messages.Unmasked,
    )
}  # fmt: skip
Admits = Callable[[str], bool]
_Names = Callable[[Any], str]  # of the class of a part
_EVENT, _ARRAY, _MECHANISM, _SINGLE, _LAYOUT = "event", "array", "mechanism", "release", "layout"


def register(*kinds: type[Any]) -> None:
    """Let these dataclasses, which check their own fields, be parts of messages; each has a name of its own."""
    for each in kinds:
        if _CLASSES.setdefault(each.__name__, each) is not each:
            raise InvalidParameter("name of a part of messages", each.__name__, "one that no other has")


class NotPortable(DpfedvisError):
    """Something that cannot be sent to another process."""


class Malformed(DpfedvisError):
    """Bytes that are no message."""


def encode(message: Any) -> bytes:
    """Return a message as bytes; raise `NotPortable`, with its name, for what has no such form."""
    return _bytes(message, _name)


def _bytes(message: Any, name: _Names) -> bytes:
    arrays: list[np.ndarray] = []
    header = json.dumps(_plain(message, arrays, name), separators=(",", ":"), allow_nan=False).encode()
    return b"".join([MAGIC, len(header).to_bytes(8, "big"), header, *(each.tobytes() for each in arrays)])


def decode(data: bytes, *, admits: Admits = lambda mechanism: True, most_header: int = MOST_HEADER) -> Any:
    """Return the message of these bytes, or raise `Malformed`, in words that are not the sender's.

    Parameters
    ----------
    data : bytes
    admits : callable
        Whether a mechanism of this name may be loaded, and so its package be imported.
    most_header : int
    """
    start = len(MAGIC) + 8
    if len(data) > MOST_BYTES:
        raise Malformed("the message is too large")
    if not data.startswith(MAGIC) or len(data) < start:
        raise Malformed("the message is of another protocol or version")
    length = int.from_bytes(data[len(MAGIC) : start], "big")
    if length > min(most_header, len(data) - start):
        raise Malformed("the header is too large, or cut off")
    try:
        header = json.loads(data[start : start + length], parse_constant=_refuse, parse_float=_finite)
        reader = _Arrays(memoryview(data)[start + length :])
        message = _made(header, reader, admits)
        reader.check_end()
    except Malformed:
        raise
    except Exception:
        # Whatever is wrong with it: its text may be the sender's.
        raise Malformed("the message is not valid") from None
    return message


def digest(message: Any) -> str:
    """Return the hash of a message's bytes."""
    return hashlib.sha256(encode(message)).hexdigest()


def asked_for(send: messages.Send, view: str) -> str:
    """Return the hash of what an upload answers: the request, and the hash of the view that it is computed from.

    It is that of the bytes, or `NotPortable` is raised: a text that leaves out some of an array would be that of two
    requests.
    """
    return hashlib.sha256(f"{digest(send)}|{view}".encode()).hexdigest()


def label_of(contract: Contract) -> str:
    """Return the hash of a contract, which stands in every request and receipt.

    A contract with a class of the caller's own, for sites of one process, has bytes with the full name of that class;
    what is no dataclass counts by its text there.
    """
    kept: str | None = contract.__dict__.get("_label")
    if kept is None:
        try:
            kept = digest(contract)
        except NotPortable:
            kept = hashlib.sha256(_bytes(contract, _full_name)).hexdigest()
        contract.__dict__["_label"] = kept
    return kept


def _plain(value: Any, arrays: list[np.ndarray], name: _Names) -> Any:
    """Return a value as JSON has it; arrays are put aside."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        number = float(value)
        return number if math.isfinite(number) else _not_portable(number)
    if isinstance(value, np.ndarray):
        return _array(value, arrays)
    if isinstance(value, Event):
        return {"!": _EVENT, **value.to_dict()}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) and not key.startswith("!") for key in value):
            _not_portable(value)
        return {key: _plain(each, arrays, name) for key, each in sorted(value.items())}
    if isinstance(value, tuple | list):
        return [_plain(each, arrays, name) for each in value]
    if is_dataclass(value) and not isinstance(value, type):
        names = sorted(each.name for each in fields(value) if each.init)
        return {"!": name(value)} | {each: _plain(getattr(value, each), arrays, name) for each in names}
    return {"!": name(value), "text": repr(value)}


def _name(value: Any) -> str:
    kind = type(value)
    if _CLASSES.get(kind.__name__) is kind:
        return kind.__name__
    name, what = getattr(kind, "name", None), getattr(kind, "what", None)
    if isinstance(name, str) and MECHANISMS.get(name) is kind:
        return f"{_MECHANISM} {name}"
    if isinstance(what, str) and SINGLE_RELEASES.get(what) is kind:
        return f"{_SINGLE} {what}"
    if isinstance(name, str) and LAYOUTS.get(name) is kind:
        return f"{_LAYOUT} {name}"
    return str(_not_portable(value))


def _full_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _not_portable(value: Any) -> Any:
    name = getattr(value, "name", None) or repr(value)[:80]
    raise NotPortable(
        f"{type(value).__name__} {name} cannot be sent to another process; use InProcess, or register it here and "
        "install it at the sites (entry point dpfedvis.mechanisms)"
    )


def _array(value: np.ndarray, arrays: list[np.ndarray]) -> dict[str, Any]:
    block = np.ascontiguousarray(value)
    block = block.astype(block.dtype.newbyteorder("<"), copy=False)
    if block.dtype.str not in _TYPES:
        _not_portable(f"array of {value.dtype}")
    arrays.append(block)
    return {"!": _ARRAY, "dtype": block.dtype.str, "shape": list(value.shape)}


class _Arrays:
    """Reads arrays one after the other."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._place = data, 0

    def next(self, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        if dtype not in _TYPES or not all(isinstance(size, int) and 0 <= size < 2**40 for size in shape):
            raise Malformed("an array is of another type or shape")
        size = math.prod(shape) * np.dtype(dtype).itemsize
        end = self._place + size
        if end > len(self._data):
            raise Malformed("an array is cut off")
        found = np.frombuffer(self._data[self._place : end], dtype=dtype).reshape(shape).astype(dtype[1:])
        self._place = end
        return found

    def check_end(self) -> None:
        if self._place != len(self._data):
            raise Malformed("there are bytes after the message")


def _made(value: Any, arrays: _Arrays, admits: Admits) -> Any:
    """Inverse of `_plain`; JSON's lists become tuples."""
    if isinstance(value, list):
        return tuple(_made(each, arrays, admits) for each in value)
    if not isinstance(value, dict):
        return value
    kind = value.pop("!", None)
    if kind == _ARRAY:
        return arrays.next(value["dtype"], tuple(value["shape"]))
    if kind == _EVENT:
        return from_dict(value)
    if any(key.startswith("!") for key in value):
        raise Malformed("a name is not allowed")  # it could be read, and not be written again
    own = {key: _made(each, arrays, admits) for key, each in value.items()}
    return own if kind is None else _class(kind, admits)(**own)


def _class(kind: str, admits: Admits) -> type[Any]:
    if kind in _CLASSES:
        return _CLASSES[kind]
    family, _, name = kind.partition(" ")
    if family == _MECHANISM:
        if not admits(name):
            raise Malformed("its mechanism is not on this site's list")
        try:
            return find_mechanism(name)
        except InvalidParameter:
            raise Malformed("its mechanism is not installed here (entry point dpfedvis.mechanisms)") from None
    if family == _SINGLE:
        return SINGLE_RELEASES[name]
    if family == _LAYOUT:
        return LAYOUTS[name]
    raise Malformed("a part of the message is of an unknown kind")


def _refuse(constant: str) -> float:
    raise Malformed("a number is not finite")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)
