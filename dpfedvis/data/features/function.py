"""A Python function of the user's as a public feature."""

import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.checks import positive
from dpfedvis.data.checks import check_bounds
from dpfedvis.data.errors import InvalidData


@dataclass(frozen=True)
class Function:
    """A callable that maps records, shape (n, m), to shape (n, m'), each by itself.

    Parameters
    ----------
    call : callable
        May have attributes `bounds`, the public range (low, high) of its values, and `norm`, a public bound on the norm
        of a row.

    Attributes
    ----------
    name : str
        The qualified name of the callable.
    digest : str
        SHA-256 of what Python knows of the callable. It covers module and name, bytecode, constants and names in it,
        default arguments, and the values that it closes over, that a `functools.partial` adds, or that an object has
        as attributes. Of these values, numbers, text, tuples and NumPy arrays count by their content, and all others
        by the name of their type. It does not cover global variables, other functions that are called, files, or
        versions of libraries. Another version of Python compiles to other bytecode, and so gives another digest.
    """

    call: Callable[[NDArray[Any]], ArrayLike]
    name: str = field(init=False)
    digest: str = field(init=False)
    bounds: tuple[float, float] | None = field(init=False)
    norm: float | None = field(init=False)

    def __post_init__(self) -> None:
        if not callable(self.call):
            raise InvalidData(f"a feature must be a function of records, got a {type(self.call).__name__}")
        norm = getattr(self.call, "norm", None)
        # Now and not later: what a function closes over may change.
        facts = {
            "name": _qualified(self.call),
            "digest": _hashed(tuple(_parts(self.call))).hex(),
            "bounds": check_bounds(getattr(self.call, "bounds", None)),
            "norm": None if norm is None else positive("norm of the feature", norm),
        }
        for name, value in facts.items():
            object.__setattr__(self, name, value)

    def __call__(self, X: NDArray[Any]) -> ArrayLike:
        """Map records, shape (n, m), to shape (n, m')."""
        return self.call(X)


def _qualified(call: object) -> str:
    if isinstance(call, functools.partial):
        return f"partial of {_qualified(call.func)}"
    # A NumPy function has a __name__ only, and an object with a __call__ neither.
    name = getattr(call, "__qualname__", None) or getattr(call, "__name__", None) or type(call).__qualname__
    return str(name)


def _parts(call: object) -> Iterator[object]:
    """Yield what a callable is made of."""
    if isinstance(call, functools.partial):
        yield from _parts(call.func)
        yield call.args, tuple(sorted(call.keywords.items()))
    elif isinstance(call, MethodType):
        yield from _parts(call.__func__)
        yield _attributes(call.__self__)
    elif isinstance(call, FunctionType):
        yield call.__module__, call.__qualname__, call.__code__
        yield call.__defaults__, tuple(sorted((call.__kwdefaults__ or {}).items()))
        yield tuple(_content(cell) for cell in call.__closure__ or ())
    else:
        yield getattr(call, "__module__", None), _qualified(call)
        method: object = type(call).__call__
        if isinstance(method, FunctionType):
            yield from _parts(method)
            yield _attributes(call)


def _attributes(owner: object) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(getattr(owner, "__dict__", {}).items(), key=lambda pair: pair[0]))


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # a name that has no value yet
        return None


def _hashed(value: object) -> bytes:
    """Return the SHA-256 of a value's type and, where it is known how, of its content; never of an address."""
    pieces = [type(value).__qualname__.encode()]
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic):
        pieces.append(repr(value).encode())
    elif isinstance(value, np.ndarray) and value.dtype.kind in "biufcSU":
        pieces += [repr((value.dtype.str, value.shape)).encode(), np.ascontiguousarray(value).tobytes()]
    elif isinstance(value, tuple):
        pieces += map(_hashed, value)
    elif isinstance(value, frozenset):  # a constant; its order differs from process to process
        pieces += sorted(map(_hashed, value))
    elif isinstance(value, CodeType):
        names = (value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars)
        pieces += [value.co_code, repr(names).encode(), _hashed(value.co_consts)]
    # Lengths go first, so that pieces cannot be cut in two ways.
    return hashlib.sha256(b"".join(len(piece).to_bytes(8, "big") + piece for piece in pieces)).digest()
