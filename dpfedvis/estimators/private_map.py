"""What estimators share that publish a map of protected landmarks, in which clients place their own records at home."""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np

from accounting.errors import InvalidParameter
from dpfedvis.data import FederatedData
from dpfedvis.estimators.base import FederatedEstimator
from dpfedvis.estimators.refusals import refuse_classes
from dpfedvis.estimators.settings import EstimatorSettings
from dpfedvis.links import InProcess
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
        published, link = self._carry_out(fed, program)
        assert published.map is not None
        self.published_map_, self.density_ = published.map, published.density
        if isinstance(link, InProcess):  # otherwise the places of records are with their sites alone
            self.embedding_ = self._ordered(np.concatenate([site.placed(published.label) for site in link.members]))
            if published.map.centres is not None:
                found = [site.clusters(published.label) for site in link.members]
                self.labels_ = self._ordered(np.concatenate(found))
        return self

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
