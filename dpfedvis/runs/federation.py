"""A run between real sites: what is known of it here, where there are no records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfedvis.data import Dataset, Schema
from dpfedvis.links import NVFlare
from dpfedvis.links.kits import Kit, require_engine
from dpfedvis.site.own_table import SCHEMA

if TYPE_CHECKING:
    from dpfedvis.runs.settings import RunConfig


def facts_of(kit: str) -> dict[str, Any]:
    """Return settings of a run that follow from the kit of a federation's admin."""
    require_engine()
    found = Kit.read(kit, "admin")
    # What sites send is at the server, and not here.
    facts = {"data": f"federation {found.federation}", "kit": str(found.folder), "recorded_rounds": 0}
    return facts if found.features is None else {**facts, "features": found.features}


def dataset_of(kit: str) -> Dataset:
    """Return the sites of a federation as a data set without records: names, schema and ranges."""
    found = Kit.read(kit, "admin")
    schema = Schema.read(found.home / SCHEMA)
    empty = np.empty(0, dtype=np.str_)
    return Dataset(
        name=f"federation {found.federation}",
        X=np.empty((0, len(schema.feature_names)), dtype=np.float32),
        y=None if schema.named("label") is None else empty,
        class_names=(),
        groups=empty,
        feature_range=schema.bounds,
        image_shape=None,
        source=f"{len(found.sites)} sites",
        sha256=schema.sha256,
        missing="public-value",
        origin="federation",
        clients=tuple(sorted(found.sites)),
        persons=None if schema.named("person") is None else empty,
        schema=schema,
    )


def link_of(config: RunConfig, callbacks: Sequence[Any]) -> NVFlare | None:
    """Return the link to the real sites of a run; None where sites are made here.

    Parameters
    ----------
    config : RunConfig
    callbacks : sequence
        Those that have a method `told` are called with what the server says of the run.
    """
    if config.link != "nvflare":
        return None
    watching = [each.told for each in callbacks if hasattr(each, "told")]

    def watch(facts: dict[str, Any]) -> None:
        for each in watching:
            each(facts)

    return NVFlare(str(config.kit), patience=config.patience, watch=watch)
