"""Reconstruction: records from the rows that were released of them."""

from attacks.reconstruction.rows import (
    BadRows,
    reconstruct_from_coordinates,
    reconstruct_from_distances,
    reconstruct_from_kernel,
)

__all__ = ["BadRows", "reconstruct_from_coordinates", "reconstruct_from_distances", "reconstruct_from_kernel"]
