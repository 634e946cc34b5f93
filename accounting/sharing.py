"""Shared noise: who adds how much of it to a sum, when sites may drop out, and when some of them work together.

Of P sites each adds noise of variance σ²/(t − c). A sum is opened only if at least t sites are in it, and c of them may
take their own noise off. So at least (t − c)·σ²/(t − c) = σ² is left, against the server and any c sites together
(Kairouz, Liu & Steinke 2021, for sums of discrete Gaussians; see `accounting.exactness.shared_deviation`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from accounting import checks
from accounting.errors import InvalidParameter

ALL_BELOW = 5  # with fewer sites none may drop out by default


@dataclass(frozen=True)
class Sharing:
    """How the noise of a sum is shared.

    Parameters
    ----------
    parties : int
        Sites P.
    threshold : int
        Fewest sites t in a sum.
    colluders : int
        Sites c that may work together, and with the server.

    Notes
    -----
    2t > P + c: the server could otherwise show two lists of survivors, each signed by t sites of which c are on both,
    and open the masks of one site under both (Bonawitz et al. 2017).
    """

    parties: int
    threshold: int
    colluders: int

    def __post_init__(self) -> None:
        checks.count("number of sites", self.parties)
        checks.whole("threshold", self.threshold, 1, self.parties)
        checks.whole("colluders", self.colluders, 0, self.parties)
        if self.colluders >= self.threshold:
            raise InvalidParameter("colluders", self.colluders, f"below the threshold, {self.threshold}")
        if not 2 * self.threshold > self.parties + self.colluders:
            least = (self.parties + self.colluders) // 2 + 1
            way = f"at least {least}, so that 2t > P + c = {self.parties} + {self.colluders}"
            most = 2 * self.threshold - self.parties - 1
            less = f"; or take at most {most} colluders" if most >= 0 else ""
            raise InvalidParameter("threshold", self.threshold, way + less)

    @classmethod
    def of(cls, parties: int, threshold: int | None = None, colluders: int | None = None) -> Sharing:
        """Return a sharing with defaults: one colluder, and from five sites on a tenth of them, but one at least, away.

        With one site there is nobody to share with.
        """
        parties = checks.count("number of sites", parties)
        away = max(1, parties // 10) if parties >= ALL_BELOW else 0
        return cls(
            parties,
            parties - away if threshold is None else threshold,
            (1 if parties > 1 else 0) if colluders is None else colluders,
        )

    @property
    def shares(self) -> int:
        """How many sites' noise makes up σ²: t − c."""
        return self.threshold - self.colluders

    @property
    def factor(self) -> float:
        """Noise of a sum of all P sites, relative to σ: √(P/(t − c))."""
        return math.sqrt(self.parties / self.shares)
