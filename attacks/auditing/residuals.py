"""Residuals: what is left of an upload after its exact total. In code that keeps its word, the stated noise.

The auditor tossed the coins and knows every record, so that nothing of an upload is unknown but its noise.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting import GaussianRelease
from accounting.events import Trust
from accounting.noise import parameter
from attacks.auditing.evidence import Predictor, Seen
from dpfedvis.numerics.exact import Floats, Integers

Key = tuple[str, int]  # name of the upload and round


@dataclass(frozen=True, eq=False)
class Residual:
    """The noise of one upload, in cells of its grid.

    Parameters
    ----------
    unit : str
        Who drew it: a client, or a run where only sums are seen.
    key : (str, int)
        Name of the upload, and round.
    cells : array of shape (d,), int64
    total : array of shape (d,)
        What the noise was added to.
    parameter : array of shape (d,) or (1,)
        s of each value, as stated.
    """

    unit: str
    key: Key
    cells: Integers
    total: Floats
    parameter: Floats

    @cached_property
    def white(self) -> Floats:
        """In units of the stated noise: independent, of variance 1."""
        whitened: Floats = self.cells / self.parameter
        return whitened


def residual(seen: Seen, predict: Predictor, coins: Mapping[str, bool], unit: str | None = None) -> Residual | None:
    """Return the noise of one upload; None if it is not protected, or not predicted."""
    event, pairs = seen.events[0], [(event, predict(event)) for event in seen.events]
    if not isinstance(event, GaussianRelease) or event.grid is None:
        return None
    total, relative = np.zeros(seen.integers.size), None
    for one, pair in pairs:
        if pair is None:
            return None
        total += np.rint(np.ravel(pair.inside if coins.get(one.client, True) else pair.outside) / event.grid)
        relative = pair.relative
    stated: Floats = np.ones(1) if relative is None else np.ravel(relative).astype(np.float64)
    # What several parties add has the parameter of one: a sum of P parts has √P times that of a part.
    parties = len(seen.events) if event.trust == "aggregate" else 1
    shares = parties if event.threshold is None else event.threshold - (event.colluders or 0)
    own = parameter(event.sigma, event.grid, parties=shares, least=float(stated.min()))
    stated = stated * (own * math.sqrt(parties))
    cells = np.rint(np.ravel(seen.integers) - total).astype(np.int64)
    return Residual(unit or event.client, (event.what, event.round or 0), cells, total, stated)


def claimed_noise(trust: Trust, clients: int) -> dict[str, Any]:
    """Settings of a sum whose noise is just what its ε rests on: all clients are in it, and none takes its own off.

    An audit plays against that noise. With fewer shares than clients a sum of all of them has more.
    """
    return {"threshold": clients, "colluders": 0} if trust == "aggregate" else {}


def by_key(noises: Iterable[Residual]) -> dict[Key, list[Residual]]:
    """Group by upload and round."""
    grouped: defaultdict[Key, list[Residual]] = defaultdict(list)
    for each in noises:
        grouped[each.key].append(each)
    return dict(grouped)


def stacked(noises: Iterable[Residual]) -> list[NDArray[np.float64]]:
    """Return whitened residuals, one array of shape (n, d) for each length d: runs may differ in their dimensions."""
    by_length: defaultdict[int, list[Floats]] = defaultdict(list)
    for each in noises:
        by_length[each.cells.size].append(each.white)
    return [np.stack(group) for group in by_length.values()]
