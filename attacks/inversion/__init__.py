"""Gradient inversion: the records of a small client from its gradients."""

from attacks.inversion.solver import Inversion, Prior, invert_gradient

__all__ = ["Inversion", "Prior", "invert_gradient"]
