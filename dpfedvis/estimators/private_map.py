"""What estimators share that publish a map of protected landmarks, in which clients place their own records at home."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from accounting.errors import InvalidParameter
from dpfedvis.data import FederatedData
from dpfedvis.errors import NoSignalWarning
from dpfedvis.estimators.base import FederatedEstimator
from dpfedvis.estimators.planning import members_of, of_numbers
from dpfedvis.estimators.refusals import refuse_classes
from dpfedvis.estimators.settings import EstimatorSettings, delta_for
from dpfedvis.links import InProcess
from dpfedvis.server import Program
from dpfedvis.server.forecast import Forecast, forecast
from dpfedvis.site.placement import Placement, placement

AT_SITES = "the places and clusters of records stay at the sites, each in the file placed.npz of its folder; use fit"


class PrivateMapEstimator(FederatedEstimator):
    """An estimator that publishes a private map with ``release="none"``."""

    def _fit_private(self, fed: FederatedData, **further: Any) -> Self:
        """Learn and publish the landmarks' map; each client then places its own records.

        Parameters
        ----------
        fed : FederatedData
        further
            Of `dpfedvis.server.ProgramSettings`.
        """
        settings = self.settings_
        if settings.budget is None:
            raise InvalidParameter("budget", None, "given for release='none'")
        refuse_classes(settings.recipe.classes, fed)
        program = self._program(fed, recipe=settings.recipe, layout=settings.layout, **further)
        outlook = self._foreseen(fed, program) if self._warns else None
        published, link = self._carry_out(fed, program)
        assert published.map is not None
        assert published.verdict is not None
        self.verdict_ = published.verdict
        if self._warns and outlook is None and self.verdict_.signal == "no":
            warnings.warn(self.verdict_.sentence, NoSignalWarning, stacklevel=3)
        self.published_map_, self.density_ = published.map, published.density
        if isinstance(link, InProcess):  # otherwise the places of records are with their sites alone
            self.embedding_ = self._ordered(np.concatenate([site.placed(published.label) for site in link.members]))
            if published.map.centres is not None:
                found = [site.clusters(published.label) for site in link.members]
                self.labels_ = self._ordered(np.concatenate(found))
        return self

    def _foreseen(self, fed: FederatedData, program: Program) -> str | None:
        """Warn before anything is spent where no data of this size can be seen; return what was said."""
        if fed.origin == "federation":
            return None  # how many records there are is known to the sites and their server
        found = forecast(program, members_of(fed, self.settings_.budget), ways=False)
        if found.signal != "no":
            return None
        warnings.warn(found.sentence, NoSignalWarning, stacklevel=4)
        return found.sentence

    def plan(
        self,
        X: Any = None,
        *,
        records: int | Sequence[int] | None = None,
        sites: int | None = None,
        features: int | None = None,
        groups: Any = None,
    ) -> Forecast:
        """Say from public numbers alone what a map with these settings can show; nothing is released or spent.

        Parameters
        ----------
        X : FederatedData, or array or data frame, optional
            Data, of which only public numbers are used; or else the numbers themselves:
        records : int or sequence of int, optional
            Number of records, of all sites together or of each.
        sites : int, optional
            Number of sites (10).
        features : int, optional
            Number of features of a record.
        groups : array-like of shape (n,), optional
            The site of each row, as in `fit`.
        """
        numbers: list[int] | None = None
        if X is None:
            if records is None or features is None:
                raise InvalidParameter("records and features", (records, features), "given, or data")
            X, numbers = of_numbers(records, sites, features)
        planned = clone(self)
        if numbers is not None:
            # The stand-ins are fewer than the records, whose number δ is chosen by.
            settings = planned.settings()
            if settings.epsilon is not None and settings.delta is None and settings.budget is not None:
                planned.set_params(budget=replace(settings.budget, delta=delta_for(sum(numbers))), epsilon=None)
        fed = planned._resolve(X, None, groups)
        if planned.settings_.release != "none" or planned.settings_.budget is None:
            raise InvalidParameter("release", planned.settings_.release, "none, with a budget, for a forecast")
        own = planned.settings_
        program = planned._program(fed, recipe=own.recipe, layout=own.layout)
        return forecast(program, members_of(fed, own.budget, numbers))

    @staticmethod
    def _threads(settings: EstimatorSettings) -> int:
        """More threads than cores gain nothing, and very many crash openTSNE."""
        return min(settings.jobs, os.cpu_count() or 1) if settings.layout.threads else 1

    @property
    def _site_jobs(self) -> int:
        """Placement at home has a site's records in one thread."""
        return self._threads(self.settings_) if self.settings_.release == "none" else 1

    @property
    def at_home(self) -> Placement:
        """How a client places its own records in a published map."""
        settings = self.settings_ if hasattr(self, "settings_") else self.settings()
        return placement(settings.recipe.placement, settings.layout)
