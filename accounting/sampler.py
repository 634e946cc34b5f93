"""The discrete Gaussian, drawn so that the error of every probability is known.

P(k) ∝ exp(−k²/2s²) on the integers, for s from 4 to 2⁴⁹. Magnitudes come in blocks of w = 2^b ≤ s/16 integers (w = 1
below s = 32), and there are A of them, up to REACH·s:

1. block a with probability p_a = G_a − G_{a+1}, where G_a ∝ Σ_{j≥a} exp(−(jw)²/2s²), by comparing a uniform u with the
   table of the G_a;
2. place B in the block: b random bits, exact;
3. keep k = aw + B with probability t = exp(−B(2aw + B)/2s²) ≥ .1, since p_a·t ∝ exp(−k²/2s²); else begin again;
4. a random sign; −0 begins again, so that zero is counted once.

**Error.** Relative errors of the unnormalised probabilities, in units of ι = 2⁻⁵³:

- *Table.* The G_a are computed with 60 digits. The first 13 bits of u decide, unless they are those of a G_a: then 64
  more bits do, or 1088 more in the tail, where the G_a are closer than 2⁻¹³ (about one draw in a thousand). So P(u <
  G_a) is G_a rounded down to a multiple of 2⁻⁷⁷, or of 2⁻¹¹⁰¹ in the tail, where p_a > 2⁻⁹⁵⁰. In the first case
  p_a ≥ 2⁻¹³, so that it is off by 2⁻⁷⁷/p_a ≤ 2⁻⁶⁴ at most; in the second by less.
- *Exponent.* It is y(q_a + ry) with y = B/w (exact), r = w²/2s² and q_a = 2ar rounded once each. Five roundings, of
  which four can add up, make 4ι of the exponent, which is at most 36/16 + 1/512 < 2.26: 9.1ι; 0.2ι on average.
- *exp* of NumPy is within 4 units in the last place (a test), that is 8ι.
- *Comparison* with t: none. The first 8 bits of v decide, and where they equal those of t, 64 more do, which is more
  than t has. So P(v < t) = t.

So each unnormalised probability is within 17.1ι, and the normaliser, their mean, within 8.2ι; together 25.3ι and what
is of second order: ρ < 26ι < 2⁻⁴⁸. Outside its reach the sampler draws nothing; the ideal mass there is TAIL,
and dividing by 1 − TAIL changes nothing that a double could show.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from accounting import checks
from accounting.errors import InvalidParameter
from accounting.exactness import REACH

Shape = int | tuple[int, ...]
Words = Callable[[int], NDArray[np.uint64]]
"""A source of random bits: so many independent, uniform 64-bit words."""

LEAST, MOST = 4.0, 2.0**49  # parameters that the sampler takes, in cells of the grid

_PROPOSALS = 2**14  # at a time: what fits the processor's cache
_GUIDE = 13  # leading bits of a uniform, which are looked up
_DEEP = 17  # words of further bits for uniforms in the tail
_PLACE = 42  # low bits of a word that a place may have; above them are the sign, eight bits of v, and the guide's


def check_parameter(value: float, name: str = "the noise in cells of the grid") -> float:
    """Return the parameter of a discrete Gaussian, or raise if the sampler does not take it."""
    number = checks.positive(name, value)
    if number < LEAST:
        raise InvalidParameter(name, value, "from 4 to 2⁴⁹ (take a finer grid or more noise)")
    if number > MOST:
        raise InvalidParameter(name, value, "from 4 to 2⁴⁹ (take a coarser grid or less noise)")
    return number


def largest(parameter: float) -> int:
    """Largest magnitude that can be drawn."""
    table = tabulate(check_parameter(parameter))
    return (table.blocks << table.bits) - 1


def discrete_gaussian(parameter: float, shape: Shape, words: Words) -> NDArray[np.int64]:
    """Draw from the discrete Gaussian, P(k) ∝ exp(−k²/2s²); see the module for the proof.

    Parameters
    ----------
    parameter : float
        s, from 4 to 2⁴⁹.
    shape : int or tuple of int
    words : callable
        Returns so many random 64-bit words.
    """
    table = tabulate(check_parameter(parameter))
    try:
        result = np.empty(shape, dtype=np.int64)
    except (TypeError, ValueError, MemoryError) as error:
        raise InvalidParameter("shape", shape, f"that of an array ({error})") from None
    flat = result.reshape(-1)
    filled = 0
    while filled < flat.size:
        missing = flat.size - filled
        kept = _kept(table, min(_PROPOSALS, missing + missing // 16 + 16), words)[:missing]
        flat[filled : filled + kept.size] = kept
        filled += kept.size
    return result


@dataclass(frozen=True)
class Table:
    """What the sampler looks up for one parameter.

    Parameters
    ----------
    bits, blocks : int
        b and A.
    guide : array of int64
        By the first bits of a uniform: the number of G_a, a ≥ 1, that are above all uniforms with these bits.
    split : array of bool
        By the first bits of a uniform: whether a G_a has the same, so that further bits decide.
    thresholds : array of uint64
        The 64 bits of G_{a+1} that follow the first, at place a; the last is 0.
    rare : int
        First bits below this number are those of the tail, where the G_a are close.
    deep : tuple of int
        All bits of G_a for a = A − 1 … 1, rising: first ones and `_DEEP` words.
    slope : array of float64
        q_a = 2ar.
    curve : float
        r = w²/2s².
    """

    bits: int
    blocks: int
    guide: NDArray[np.int64]
    split: NDArray[np.bool_]
    thresholds: NDArray[np.uint64]
    rare: int
    deep: tuple[int, ...]
    slope: NDArray[np.float64]
    curve: float


@lru_cache(maxsize=64)
def tabulate(parameter: float) -> Table:
    """Return the table of one parameter."""
    bits = max(0, math.frexp(parameter)[1] - 5)  # 2^bits ≤ s/16
    blocks = math.ceil(REACH * parameter / 2.0**bits)
    with localcontext() as context:
        context.prec = 60
        curve = Decimal(2**bits) ** 2 / (2 * Decimal(parameter) ** 2)
        step = (-2 * curve).exp()
        weights, weight, ratio = [], Decimal(1), (-curve).exp()  # exp(−ra²), and its ratio to the next
        for _ in range(blocks):
            weights.append(weight)
            weight, ratio = weight * ratio, ratio * step
        tails, tail = [], Decimal(0)
        for weight in reversed(weights):
            tail += weight
            tails.append(tail)
        whole = tails.pop()
        scale = Decimal(2) ** (_GUIDE + 64 * _DEEP)
        deep = tuple(int(tail / whole * scale) for tail in tails)
        slope = np.array([float(2 * a * curve) for a in range(blocks)])
    cut = [each >> 64 * (_DEEP - 1) for each in reversed(deep)]
    cells = [each >> 64 for each in cut]
    rare = 1 + max((cells[a] for a in range(blocks - 2) if cut[a] - cut[a + 1] < 2**64), default=0)
    held = np.bincount(cells, minlength=2**_GUIDE)
    return Table(
        bits=bits,
        blocks=blocks,
        guide=(blocks - 1 - np.cumsum(held)).astype(np.int64),
        split=(held > 0) | (np.arange(2**_GUIDE) < rare),
        thresholds=np.array([*(each & (2**64 - 1) for each in cut), 0], dtype=np.uint64),
        rare=rare,
        deep=deep,
        slope=slope,
        curve=float(curve),
    )


def _kept(table: Table, proposals: int, words: Words) -> NDArray[np.int64]:
    """Draw so many proposals and return those that are kept."""
    drawn = words(proposals)
    magnitude = _blocks(table, (drawn >> np.uint64(64 - _GUIDE)).view(np.int64), words)
    sign = ((drawn >> np.uint64(_PLACE)) & np.uint64(1)).view(np.int64)
    if table.bits:
        place = (drawn if table.bits <= _PLACE else words(proposals)) & np.uint64(2**table.bits - 1)
        keep = _accepted(table, magnitude, place, (drawn >> np.uint64(_PLACE + 1)) & np.uint64(2**8 - 1), words)
        magnitude <<= table.bits
        magnitude |= place.view(np.int64)
        keep &= magnitude >= sign  # not −0
    else:
        keep = magnitude >= sign
    np.negative(sign, out=sign)
    magnitude ^= sign  # with the next line: the negative where sign is −1
    magnitude -= sign
    kept: NDArray[np.int64] = magnitude[keep]
    return kept


def _blocks(table: Table, first: NDArray[np.int64], words: Words) -> NDArray[np.int64]:
    """Return the number of G_a, a ≥ 1, above each uniform with these first bits."""
    blocks: NDArray[np.int64] = table.guide[first]
    split = np.flatnonzero(table.split[first])
    if split.size:
        blocks[split] += words(split.size) < table.thresholds[blocks[split]]
        tail = split[first[split] < table.rare]
        bits = words(_DEEP * tail.size).astype(">u8").tobytes()
        for number, place in enumerate(tail.tolist()):
            further = int.from_bytes(bits[8 * _DEEP * number : 8 * _DEEP * (number + 1)], "big")
            uniform = int(first[place]) << 64 * _DEEP | further
            blocks[place] = table.blocks - 1 - bisect_right(table.deep, uniform)
    return blocks


def _accepted(
    table: Table, blocks: NDArray[np.int64], place: NDArray[np.uint64], first: NDArray[np.uint64], words: Words
) -> NDArray[np.bool_]:
    """Return True with probability t exactly, for the double t of `keeping`; `first` has the first 8 bits of v."""
    left = keeping(table, blocks, place)
    left *= 2.0**8
    left -= first
    keep: NDArray[np.bool_] = left > 0
    close = np.flatnonzero(keep & (left < 1))
    if close.size:
        keep[close] = words(close.size) < np.ldexp(left[close], 64).astype(np.uint64)
    return keep


def keeping(table: Table, blocks: NDArray[np.int64], place: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return t = exp(−y(q_a + ry)), with which a place in a block is kept."""
    exponent = place.astype(np.float64)
    exponent *= 2.0**-table.bits
    inner = exponent * table.curve
    inner += table.slope[blocks]
    exponent *= inner
    np.negative(exponent, out=exponent)
    return np.exp(exponent, out=exponent)  # contiguous: elsewhere NumPy may take another routine
