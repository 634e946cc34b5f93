"""Weak seeds: a mask that follows from 32 bits is found by trying all of them.

A server that works together with all of a site's peers but one can take every mask off the site's upload but the last.
Then it tries seeds: the right one leaves integers as small as uploads are, and any other leaves integers all over the
64 bits. A real engine made its masks so, with NumPy's Mersenne Twister from a seed of 32 bits, whatever the length of
the key that both sites had agreed on.

`first_masks` makes the first word of the masks of many seeds at once: it rules out nearly every seed. One core tries
some 3.5 million seeds a second, and so all 2³² in 20 minutes. Ours follow from 255 bits: 10⁶² years at that rate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpfedvis.numerics.exact import Integers

Words = NDArray[np.uint64]
First = Callable[[NDArray[np.uint32]], Words]
Whole = Callable[[int, int], Words]

BLOCK = 2**14  # seeds at a time: their states stay in the processor's cache
_SHIFT, _FACTOR, _TWIST = 397, 1812433253, 0x9908B0DF  # of the Mersenne Twister with 624 words of 32 bits


@dataclass(frozen=True, eq=False)
class Recovered:
    """What an attack found.

    Parameters
    ----------
    seed : int
    values : array of int64 of shape (n,)
        The site's integers.
    tried : int
        Seeds that it took.
    """

    seed: int
    values: Integers
    tried: int


def first_masks(seeds: NDArray[np.uint32]) -> Words:
    """Return the first 64 bits that a Mersenne Twister gives for each seed, as NumPy's `RandomState` seeds it.

    Parameters
    ----------
    seeds : array of uint32 of shape (m,)

    Returns
    -------
    array of uint64 of shape (m,)
    """
    word, state = seeds.astype(np.uint32), dict[int, NDArray[np.uint32]]()
    for place in range(_SHIFT + 2):
        if place:
            word = np.uint32(_FACTOR) * (word ^ (word >> np.uint32(30))) + np.uint32(place)
        if place < 3 or place >= _SHIFT:  # all that the first two outputs depend on
            state[place] = word
    high, low = (_output(state[each], state[each + 1], state[each + _SHIFT]) for each in (0, 1))
    return high.astype(np.uint64) << np.uint64(32) | low


def recover(
    seen: Integers, bound: int, seeds: range, whole: Whole, first: First = first_masks, *, sign: int = 1
) -> Recovered | None:
    """Return the integers behind one mask, or None if none of the seeds leaves integers within the bound.

    Parameters
    ----------
    seen : array of int64 of shape (n,)
        An upload that one mask is left on, modulo 2⁶⁴.
    bound : int
        Largest size of an integer of an upload, which is public.
    seeds : range
        To try.
    whole : callable
        From a seed and n to its mask, uint64 of shape (n,).
    first : callable
        From many seeds, uint32 of shape (m,), to the first word of each mask, uint64 of shape (m,).
    sign : int
        1 if the site added the mask, −1 if it took it off.
    """
    words = seen.view(np.uint64)
    for start in range(seeds.start, seeds.stop, BLOCK):
        block = np.arange(start, min(start + BLOCK, seeds.stop), dtype=np.uint32)
        for seed in block[_small(_unmasked(words[0], first(block), sign), bound)].tolist():
            values = _unmasked(words, whole(seed, len(words)), sign)
            if _small(values, bound).all():
                return Recovered(seed, values.view(np.int64), seed - seeds.start + 1)
    return None


def seconds_for_all(tried: int, seconds: float, bits: int = 32) -> float:
    """Return how long all seeds of so many bits take, from the time that some of them took."""
    return 2.0**bits * seconds / tried


def _unmasked(words: Words | np.uint64, masks: Words, sign: int) -> Words:
    return words - masks if sign > 0 else words + masks


def _small(words: Words, bound: int) -> NDArray[np.bool_]:
    """Whether words, as integers with a sign, are from −bound to bound."""
    small: NDArray[np.bool_] = words + np.uint64(bound) <= np.uint64(2 * bound)
    return small


def _output(one: NDArray[np.uint32], two: NDArray[np.uint32], far: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return a tempered output of the generator, from the three words of its state that it depends on."""
    mixed = (one & np.uint32(0x80000000)) | (two & np.uint32(0x7FFFFFFF))
    word: NDArray[np.uint32] = far ^ (mixed >> np.uint32(1)) ^ (mixed & np.uint32(1)) * np.uint32(_TWIST)
    word ^= word >> np.uint32(11)
    word ^= (word << np.uint32(7)) & np.uint32(0x9D2C5680)
    word ^= (word << np.uint32(15)) & np.uint32(0xEFC60000)
    word ^= word >> np.uint32(18)
    return word
