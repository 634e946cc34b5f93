"""A flag for every setting of a run, made from the model of the settings."""

from __future__ import annotations

import argparse
import difflib
import re
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin

from accounting.errors import AccountingError
from dpfedvis.errors import DpfedvisError

_TITLES = {
    "data": "data",
    "map": "map",
    "privacy": "privacy",
    "output": "output",
    "tsne": "map tsne",
    "umap": "map umap",
    "clusters": "map clusters",
    "private_map": "private map (release none)",
    "feddl": "learning of landmarks",
    "mechanism": "mechanisms",
}
# What messages call by another name than its flag, and flags of a run that are no settings.
_OTHER_NAMES = {
    "budget": "--epsilon",
    "unit of the budget": "--unit",
    "n_landmarks": "--landmarks",
    "n_clusters": "--clusters",
    "n_jobs": "--jobs",
    "random_state": "--seed",
    "evaluate and yardsticks": "--evaluate and --yardsticks",
}
_PHRASES = {
    r"\bBudget\(\.\.\., ([^()]*)\)": r"\1",
    r"\bMechanism '([\w-]+)'": r"--mechanism \1",
    r"\bleave the budget out\b": "leave --epsilon out",
}
_NO_SETTINGS = ("views", "ledger", "lifetime_epsilon")
_SEVERAL = ("data",)  # flags that take several values
_OPEN = argparse.SUPPRESS  # a flag that is not given must not override the file


class _Once(argparse._StoreAction):
    """A flag with one value. Given twice, the last would win without a word."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        if option_string is not None and self.dest in parser.given:
            way = f": write {option_string} A B" if self.nargs == "+" else ""
            parser.error(f"{option_string} is given twice{way}")
        parser.given.add(self.dest)
        super().__call__(parser, namespace, values, option_string)


class LateParser(argparse.ArgumentParser):
    """A parser that gets its flags when they are needed: reading the settings takes a second to import.

    A flag that takes one value must not be given twice.
    """

    late: Callable[[argparse.ArgumentParser], None] | None = None

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.given: set[str] = set()
        for name in (None, "store"):
            self.register("action", name, _Once)

    def _fill(self) -> None:
        late, self.late = self.late, None
        if late is not None:
            late(self)

    def parse_known_args(self, *given: Any, **named: Any) -> Any:
        """Add the flags, and parse."""
        self._fill()
        self.given.clear()
        found, unknown = super().parse_known_args(*given, **named)
        for flag in unknown if self._subparsers is None else ():
            if flag.startswith("--"):
                # Without the dashes, which all of them share.
                known = {each.lstrip("-"): each for each in self._option_string_actions}
                near = difflib.get_close_matches(flag.partition("=")[0].lstrip("-"), known, n=1)
                self.error(f"there is no {flag}" + (f"; did you mean {known[near[0]]}?" if near else ""))
        return found, unknown

    def format_help(self) -> str:
        """Add the flags, and describe them."""
        self._fill()
        return super().format_help()


@contextmanager
def spelled_as_flags() -> Iterator[None]:
    """Let errors name settings as flags: what is raised below is spelled as Python has it."""
    try:
        yield
    except (AccountingError, DpfedvisError) as error:
        error.args = (as_flags(str(error)),)
        raise


def as_flags(message: str) -> str:
    """Return a message with its settings as flags: ``--release noisy`` for ``release='noisy'``."""
    from dpfedvis.runs.settings import bare_defaults

    known = {name: flag_of(name) for name in (*bare_defaults(), *_NO_SETTINGS)} | _OTHER_NAMES
    for python, flag in _PHRASES.items():
        message = re.sub(python, flag, message)
    message = re.sub(
        r"\b(\w+)=\'([\w-]+)\'",
        lambda found: f"{known[found[1]]} {found[2]}" if found[1] in known else found[0],
        message,
    )
    name, must, rest = message.partition(" must be ")
    return f"{known.get(name, name)}{must}{rest}"


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every setting of a run, in groups."""
    from dpfedvis.estimators.known_tables import known_tables
    from dpfedvis.estimators.settings import about
    from dpfedvis.mechanisms import MECHANISMS
    from dpfedvis.runs.settings import RunConfig

    groups: dict[str, Any] = {}
    seen: dict[str, argparse.Action] = {}

    def add(group: str, name: str, hint: Any, help: str, default: Any) -> None:
        if group not in groups:
            groups[group] = parser.add_argument_group(_TITLES.get(group, group))
        shown = _shown(default)
        text = (_lowered(help) + (f" ({shown})" if shown else "")).replace("%", "%%")
        if name in seen:
            # Two tables have it: it is that of the chosen map or mechanism.
            seen[name].help = f"{seen[name].help}; {text}"
            return
        seen[name] = _add(groups[group], name, hint, text)

    order = ("data", "map", "privacy", "output")
    names = [name for name in RunConfig.model_fields if name != "tables"]
    for name in sorted(names, key=lambda each: order.index(about(RunConfig, each).group)):
        field = RunConfig.model_fields[name]
        default = None if field.is_required() else field.default
        add(about(RunConfig, name).group, name, field.annotation, field.description or "", default)
    owners = Counter(name for settings in known_tables().values() for name in settings)
    shared = {name for name, number in owners.items() if number > 1}
    for table, settings in known_tables().items():
        group = "mechanism" if table in MECHANISMS else table
        for setting in settings.values():
            if setting.hint is None or parse_as(setting.hint) is None:
                continue
            of = f"{table}: " if table in MECHANISMS or setting.name in shared else ""
            add(group, setting.name, setting.hint, of + _lowered(setting.help), setting.default)


def _add(group: Any, name: str, hint: Any, help: str) -> argparse.Action:
    flag = flag_of(name)
    kinds = _members(hint)
    action: argparse.Action
    if name in _SEVERAL:
        action = group.add_argument(flag, nargs="+", metavar="NAME", default=_OPEN, help=help)
    elif kinds == [bool]:
        action = group.add_argument(flag, action=argparse.BooleanOptionalAction, default=_OPEN, help=help)
    elif any(get_args(kind) == (float, float) for kind in kinds):
        action = group.add_argument(flag, type=float, nargs=2, metavar=("LOW", "HIGH"), default=_OPEN, help=help)
    else:
        action = group.add_argument(
            flag, dest=name, type=parse_as(hint) or str, metavar=_metavar(kinds), default=_OPEN, help=help
        )
    return action


def flag_of(name: str) -> str:
    """Return the flag of a setting."""
    return "--schema" if name == "schema_file" else f"--{name.replace('_', '-')}"


def parse_as(hint: Any) -> Callable[[str], Any] | None:
    """Return what reads a value of this type from a flag; None if no flag can hold it."""
    from dpfedvis.estimators.tables import described

    kinds = _members(hint)
    readers: list[Callable[[str], Any]] = []
    for kind in kinds:
        if kind in (int, float):
            readers.append(kind)
        elif isinstance(get_origin(kind), type) and issubclass(get_origin(kind), Mapping):
            if get_args(kind)[1] is not float:
                return None
            readers.append(_pairs)
        elif get_origin(kind) not in (None, Literal):
            readers.append(_listed(get_args(kind)[0]))
    texts = any(kind is str or get_origin(kind) is Literal for kind in kinds) or hint is Any
    if bool in kinds:
        return str

    def read(text: str) -> Any:
        for reader in readers:
            try:
                return reader(text)
            except ValueError:
                continue
        if texts:
            return text  # the settings judge it
        raise argparse.ArgumentTypeError(f"must be {described(hint)}, as {_metavar(kinds)}, but is {text!r}")

    return read


def _members(hint: Any) -> list[Any]:
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    # Whole numbers first, so that they stay whole; lists after numbers.
    kinds = [each for each in members if each is not type(None)]
    return sorted(kinds, key=lambda kind: (kind is not int, kind is not float))


def _listed(kind: Any) -> Callable[[str], tuple[Any, ...]]:
    return lambda text: tuple(kind(part.strip()) for part in text.split(","))


def _pairs(text: str) -> dict[str, float]:
    pairs = [part.split("=") for part in text.split(",")]
    if any(len(pair) != 2 for pair in pairs) or len({pair[0].strip() for pair in pairs}) < len(pairs):
        raise ValueError
    return {name.strip(): float(value) for name, value in pairs}


def _metavar(kinds: list[Any]) -> str:
    names = {int: "N", float: "NUMBER", str: "NAME"}
    for kind in kinds:
        if kind in names:
            return names[kind]
        if get_origin(kind) is Literal:
            return "NAME"
        if isinstance(get_origin(kind), type) and issubclass(get_origin(kind), Mapping):
            return "NAME=NUMBER,..."
        if get_args(kind):
            return f"{_metavar([get_args(kind)[0]])},..."
    return "NAME"


def _shown(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return ""
    if is_dataclass(value):
        return ",".join(f"{each.name}={_shown(getattr(value, each.name))}" for each in fields(value))
    if isinstance(value, tuple):
        return ",".join(map(_shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _lowered(text: str) -> str:
    """Begin in lower case, unless with a name such as Poisson's or a formula."""
    return text if text[:7] == "Poisson" or not text[1:2].islower() else text[:1].lower() + text[1:]
