"""Persons with several records: how many there are, and which of their records take part."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accounting.errors import InvalidParameter
from dpfedvis.site.views import Labels


@dataclass(frozen=True, eq=False)
class Persons:
    """The persons of a site.

    Parameters
    ----------
    names : text array of shape (n,)
        Who each record is of.
    codes : int64 array of shape (n,)
        The same as numbers from 0.
    number : int
        Of persons.
    """

    names: Labels
    codes: NDArray[np.int64]
    number: int

    @classmethod
    def of(cls, site: str, names: Labels, records: int) -> Persons:
        """Return the persons of as many records."""
        if len(names) != records:
            raise InvalidParameter(f"persons of {site}", len(names), f"one for each of {records} records")
        found, codes = np.unique(names.astype(np.str_), return_inverse=True)
        return cls(names.astype(np.str_), codes.reshape(-1), len(found))

    def drawn(self, rows: int, secret: str) -> NDArray[np.int64]:
        """Draw at most so many records of each person; return their numbers, sorted.

        Which of a person's records are drawn depends on the secret and on that person's own records alone. So to
        exchange one person changes nothing for the others.
        """
        if not len(self.codes):
            return np.empty(0, dtype=np.int64)
        order = np.argsort(self.codes, kind="stable")
        starts = np.searchsorted(self.codes[order], np.arange(self.number))
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.arange(len(order)) - starts[self.codes[order]]
        ranked = np.lexsort((_marks(self.names, places, secret), self.codes))
        kept = np.arange(len(ranked)) - starts[self.codes[ranked]] < rows
        return np.sort(ranked[kept])


def _marks(names: Labels, places: NDArray[np.int64], secret: str) -> NDArray[np.uint64]:
    """Return a random number for each record, from the secret, its person and its place among that person's records.

    A sum of letters times random numbers, then mixed (the last steps of SplitMix64). A longer name of another person
    pads the others with zeros, which add nothing.
    """
    letters = np.ascontiguousarray(names).view(np.uint32).reshape(len(names), -1)
    generator = np.random.default_rng(int.from_bytes(hashlib.sha256(secret.encode()).digest(), "big"))
    # One number after the other: the first ones must not depend on how many there are.
    factors = [generator.integers(2**64, dtype=np.uint64) for _ in range(letters.shape[1] + 1)]
    mixed = (places.astype(np.uint64) + np.uint64(1)) * factors[0]
    for column, factor in enumerate(factors[1:]):
        mixed += letters[:, column].astype(np.uint64) * factor
    for shift, times in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(times)
    return mixed
