"""The sites of a run as the server knows them: public facts, from their own descriptions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from accounting import Budget
from accounting.errors import InvalidParameter
from dpfedvis.protocol.ask import Ask
from dpfedvis.protocol.contract import Member
from dpfedvis.protocol.messages import Describe, Description, Refused
from dpfedvis.server.session import SiteFailed, SiteRefused


@dataclass(frozen=True)
class Members:
    """Public facts of all sites.

    Parameters
    ----------
    sites : tuple of Description
    """

    sites: tuple[Description, ...]

    @classmethod
    def asked(cls, ask: Ask, budget: Budget | None) -> Members:
        """Ask all sites to describe themselves; where the number of records is private, it is not told."""
        hidden = budget is not None and budget.hides_records
        rows = budget.rows if budget is not None and budget.unit == "person" else None
        found: list[Description] = []
        for name, reply in zip(ask.sites, ask.each(Describe(hidden, rows)), strict=True):
            if isinstance(reply, Refused):
                raise SiteRefused(reply)
            if not isinstance(reply, Description) or reply.site != name:
                raise SiteFailed(f"{name} gave another reply than it was asked for")
            found.append(reply)
        features = sorted({each.features for each in found})
        if len(features) > 1:
            raise SiteFailed(f"sites have different numbers of features: {features}")
        for each in found:
            if each.preparation != found[0].preparation:
                raise SiteFailed(f"{each.site} has prepared its records by another schema or other features")
        # Only what is smaller than the budget changes the noise, and so the contract.
        limits = [
            None if budget is None or each.epsilon is None or each.epsilon >= budget.epsilon else each.epsilon
            for each in found
        ]
        return cls(tuple(replace(each, epsilon=limit) for each, limit in zip(found, limits, strict=True)))

    @property
    def count(self) -> int:
        """P."""
        return len(self.sites)

    @property
    def features(self) -> int:
        """m."""
        return self.sites[0].features

    @property
    def preparation(self) -> str:
        """How records became numbers."""
        return self.sites[0].preparation

    @property
    def dtype(self) -> str:
        """Type of the records."""
        return self.sites[0].dtype

    @property
    def size(self) -> int | tuple[int | None, ...]:
        """What is public of the numbers of records: each of them, or how many sites there are."""
        records = tuple(each.records for each in self.sites)
        return self.count if None in records else records

    def denominators(self, budget: Budget | None, public_records: int | None) -> list[float]:
        """Public denominators of the sites' means, before sampling."""
        if budget is None or budget.adjacency == "replace-one":
            # Where the unit is a whole site, its mean is over its own records, and nothing is divided by their number.
            return [float(1 if each.records is None else each.records) for each in self.sites]
        if public_records is None:
            raise InvalidParameter("public_records", None, "given under add-remove, where every n_p is private")
        return [float(public_records)] * self.count

    def weights(self, denominators: Sequence[float], *, equal: bool) -> list[float]:
        """ω_p, summing to 1: by denominators, or equal."""
        if equal:
            return [1 / self.count] * self.count
        return [each / sum(denominators) for each in denominators]

    def agreed(self, denominators: Sequence[float], weights: Sequence[float]) -> tuple[Member, ...]:
        """Return the members of a contract."""
        return tuple(
            Member(each.site, denominator, weight, each.key, each.epsilon)
            for each, denominator, weight in zip(self.sites, denominators, weights, strict=True)
        )
