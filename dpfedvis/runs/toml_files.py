"""TOML: files read with errors that name them, and values written."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from dpfedvis.errors import DpfedvisError


class UnreadableConfig(DpfedvisError):
    """A file that is not there, or not TOML."""


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the keys and values of a TOML file."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableConfig(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UnreadableConfig(f"{path} is not TOML: {error}") from error


def toml(value: Any) -> str:
    """Return a value as TOML has it."""
    if isinstance(value, tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, float):
        return repr(value)
    # JSON's escapes are TOML's, but for one character that TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
