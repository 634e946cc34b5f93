"""Attacks on bits: what rounding gives away, whatever the noise is worth over the reals.

Each makes neighbouring data sets, or reads one upload, for a path that sums or adds noise in floating point. Against
sums of integers with integer noise they find nothing; the tests play each against both.
"""

from attacks.bits.neighbours import (
    Neighbours,
    beside_a_landmark,
    moved,
    new_label,
    over_a_power_of_two,
    tied,
)
from attacks.bits.reachability import guess, reachable
from attacks.bits.seeds import take_off

__all__ = [
    "Neighbours",
    "beside_a_landmark",
    "guess",
    "moved",
    "new_label",
    "over_a_power_of_two",
    "reachable",
    "take_off",
    "tied",
]
