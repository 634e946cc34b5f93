"""Shamir's secret sharing: any t shares of a secret give it back, and fewer tell nothing of it.

A secret is an integer below the prime 2²⁵⁵ − 19. Its shares are the values, at 1, 2, …, of a random polynomial of
degree t − 1 whose value at 0 is the secret. Shares are not authenticated: a wrong one gives a wrong secret, so whoever
combines them must hold the result against something. Arithmetic is that of Python's integers, not in constant time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from accounting import checks

PRIME = 2**255 - 19

Entropy = Callable[[int], bytes]


def draw(entropy: Entropy) -> int:
    """Return a uniform integer below the prime; `entropy` gives so many random bytes."""
    while True:
        drawn = int.from_bytes(entropy(32), "big") % 2**255
        if drawn < PRIME:  # all but 19 of 2²⁵⁵ are: rejecting keeps the rest uniform
            return drawn


def split(secret: int, threshold: int, count: int, entropy: Entropy) -> list[int]:
    """Return `count` shares, of which any `threshold` give the secret back; the first is the value at 1."""
    checks.whole("threshold", threshold, 1, count)
    # The value itself stays out of any message.
    checks.whole("whether the secret is below the prime", int(0 <= secret < PRIME), 1, 1)
    coefficients = [secret, *(draw(entropy) for _ in range(threshold - 1))]
    shares = []
    for place in range(1, count + 1):
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * place + coefficient) % PRIME
        shares.append(value)
    return shares


def combine(shares: Mapping[int, int]) -> int:
    """Return the secret of these shares, by their places: the value at 0 of the polynomial through them (Lagrange)."""
    secret = 0
    for place, share in shares.items():
        others = [other for other in shares if other != place]
        below = math.prod(other - place for other in others)
        secret += share * math.prod(others) * pow(below, -1, PRIME)
    return secret % PRIME
