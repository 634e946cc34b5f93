"""Membership inference: was this record among those behind a release?"""

from attacks.membership.rates import Game, Membership, membership

__all__ = ["Game", "Membership", "membership"]
