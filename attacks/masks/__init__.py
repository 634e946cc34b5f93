"""Attacks on the masks of a secure sum: whoever can guess what a mask was made of reads the values behind it.

They win against masks from a short seed, written in the tests, and find nothing behind ours.
"""

from attacks.masks.weak_seed import Recovered, first_masks, recover, seconds_for_all

__all__ = ["Recovered", "first_masks", "recover", "seconds_for_all"]
