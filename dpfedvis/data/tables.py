"""What every reader of files returns, and how it finds columns by their names."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dpfedvis.data.errors import UnknownColumn, UnreadableFile


@dataclass(frozen=True, eq=False)
class RawTable:
    """Content of a file: X of shape (n, ...) and, of shape (n,), raw labels and groups; names of the m features."""

    X: NDArray[Any]
    labels: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    class_names: tuple[str, ...] | None = None
    features: tuple[str, ...] = ()


def columns_of(path: Path, names: Sequence[str], special: list[str | None]) -> tuple[list[int], list[int]]:
    """Return positions of the feature columns and of the special ones."""
    wanted = [name for name in special if name is not None]
    for name in wanted:
        if name not in names:
            raise UnknownColumn(f"{path.name} has no column {name!r}; it has {some(names)}")
    if len(set(wanted)) < len(wanted):
        raise UnknownColumn(f"label and client column of {path.name} are both {wanted[0]!r}")
    features = [i for i, name in enumerate(names) if name not in wanted]
    if not features:
        raise UnreadableFile(f"{path.name} has no feature columns")
    return features, [names.index(name) for name in wanted]


def some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
