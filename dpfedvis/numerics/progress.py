"""Progress of long work, on standard error: silent where that is no terminal, or where the user wants quiet."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_QUIET = "DPFEDVIS_QUIET"  # in the environment, so that processes which are started are quiet, too


def hidden() -> bool:
    """Whether progress is not shown."""
    return bool(os.environ.get(_QUIET)) or not sys.stderr.isatty()


def bar(total: int | None, unit: str, title: str | None = None, **settings: Any) -> Any:
    """Return a progress bar of `tqdm`: how much is done, and how long the rest will take. It leaves no trace."""
    from tqdm import tqdm

    return tqdm(total=total, unit=unit, desc=title, disable=hidden(), leave=False, **settings)


@contextmanager
def quiet(wanted: bool) -> Iterator[None]:
    """Hide all progress while the block runs, if that is wanted."""
    before = os.environ.get(_QUIET)
    if wanted:
        os.environ[_QUIET] = "1"
    try:
        yield
    finally:
        if wanted and before is None:
            del os.environ[_QUIET]
