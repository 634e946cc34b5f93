"""Tables of settings, read from dataclasses: a mechanism, a layout or a recipe says its settings once, as fields.

The name, the type and the default of a setting are those of the field; its help is the first sentence under the
field's name in the docstring's `Parameters`; its checks are the dataclass's own.
"""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from accounting.errors import InvalidParameter
from dpfedvis.errors import DpfedvisError

_PLAIN = (bool, int, float, str, type(None))
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", type(None): "left out"}


class UnknownSetting(DpfedvisError):
    """A name that no setting has."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        near = difflib.get_close_matches(name, sorted(known), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        super().__init__(f"there is no setting {name!r}{hint}")
        self.name = name


@dataclass(frozen=True)
class Setting:
    """One setting of a table.

    Parameters
    ----------
    name : str
    hint : type
        Of its value, as far as TOML can hold it; None if only Python can.
    default : object
    help : str
    """

    name: str
    hint: Any
    default: Any
    help: str

    def checked(self, value: Any) -> Any:
        """Return the value, lists as tuples; `InvalidParameter` if it is of another type."""
        return check_type(self.name, value, self.hint)


@cache
def settings_of(kind: type, without: tuple[str, ...] = ()) -> dict[str, Setting]:
    """Return the settings of a dataclass by name.

    Parameters
    ----------
    kind : type
        A dataclass.
    without : tuple of str
        Fields that are no settings of the table.
    """
    hints, helps = get_type_hints(kind), helps_of(kind.__doc__ or "")
    found = {}
    for each in fields(kind):
        if each.name not in without:
            default = each.default if each.default_factory is MISSING else each.default_factory()
            default = None if default is MISSING else default
            found[each.name] = Setting(each.name, plain(hints[each.name]), default, helps.get(each.name, ""))
    return found


def helps_of(docstring: str) -> dict[str, str]:
    """Return the first sentence on each of the `Parameters` of a numpydoc docstring, by name."""
    part = re.search(r"\n *Parameters\n *-+\n(.*?)(?=\n *\w+\n *-+\n|\Z)", docstring, flags=re.DOTALL)
    found: dict[str, str] = {}
    for names, text in re.findall(
        r"^ {4}(\S[^:\n]*?)(?: : [^\n]*)?\n((?: {8}.*\n?|\n)*)", part[1] if part else "", re.M
    ):
        sentence = re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0].rstrip(".")
        found.update(dict.fromkeys(names.split(", "), sentence))
    return found


def plain(hint: Any) -> Any:
    """Return the part of a type that TOML can hold: a scalar, a list, a table; None if there is none."""
    if get_origin(hint) in (Union, types.UnionType):
        left = [each for each in map(plain, get_args(hint)) if each is not None]
        return Union[tuple(left)] if set(left) - {type(None)} else None  # noqa: UP007  # made at run time
    if hint in _PLAIN or get_origin(hint) is Literal:
        return hint
    if is_dataclass(hint):
        return Mapping[str, float] if all(each.type in (float, "float") for each in fields(hint)) else None
    inner = [each for each in get_args(hint) if each is not Ellipsis]
    whole = inner and all(each is Any or plain(each) is not None for each in inner)
    return hint if whole and get_origin(hint) is not type and _is_container(hint) else None


def _is_container(hint: Any) -> bool:
    origin = get_origin(hint)
    return isinstance(origin, type) and issubclass(origin, Mapping | Sequence)


def check_type(name: str, value: Any, hint: Any) -> Any:
    """Return a value of this type, lists as tuples. What TOML cannot hold is left to its dataclass."""
    if not _from_toml(value):
        return value
    if hint is None:
        if value is None:
            return None
        raise InvalidParameter(name, value, "an object, which only Python can give")
    value = _frozen(value)
    try:
        _adapter(hint).validate_python(value)
    except ValidationError:
        raise InvalidParameter(name, value, described(hint)) from None
    return float(value) if _is_float(hint) and type(value) is int else value


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint, config=ConfigDict(strict=True, arbitrary_types_allowed=True))


def _is_float(hint: Any) -> bool:
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return float in kinds and int not in kinds


def _from_toml(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_from_toml, value))
    return isinstance(value, (*_PLAIN, Mapping))


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def described(hint: Any) -> str:
    """Say in words what a value of this type is."""
    if get_origin(hint) in (Union, types.UnionType):
        parts = [described(each) for each in get_args(hint) if each is not type(None)]
        return " or ".join(dict.fromkeys(parts))
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    if hint in _WORDS:
        return _WORDS[hint]
    if issubclass(get_origin(hint) or hint, Mapping):
        inner = [each for each in get_args(hint)[1:] if each is not Any]
        return "a table" + "".join(f" of {described(each).removeprefix('a ')}s" for each in inner)
    return "a list of " + described(get_args(hint)[0]).removeprefix("a ").replace("number", "numbers")
