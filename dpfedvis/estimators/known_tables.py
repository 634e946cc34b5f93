"""Every table of settings there is: layouts, clusters, private map, FedDL, mechanisms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accounting.errors import InvalidParameter
from dpfedvis.estimators.tables import Setting, UnknownSetting, settings_of
from dpfedvis.mechanisms import MECHANISMS
from dpfedvis.numerics.layouts import LAYOUTS
from dpfedvis.numerics.spectral import SpectralSettings
from dpfedvis.server.feddl import FedDL
from dpfedvis.server.recipe import Recipe

CLUSTERS, PRIVATE_MAP, FEDDL, CHOSEN = "clusters", "private_map", "feddl", "mechanism"
# Fields of a mechanism that the run sets, and of FedDL that the estimator sets.
SHARED = ("trust", "tau_x")
OF_ESTIMATOR = (
    "landmarks", "mechanism", "budget", "rounds", "tau_x", "seed", "noisy_rows", "exact_rows", "grid", "noise",
    "threshold", "colluders", "retries",
)  # fmt: skip


def known_tables() -> dict[str, dict[str, Setting]]:
    """Return the settings of every table: layouts, clusters, private map, FedDL, mechanisms."""
    fixed: dict[str, type] = {**LAYOUTS, CLUSTERS: SpectralSettings, PRIVATE_MAP: Recipe}
    found = {name: settings_of(kind) for name, kind in fixed.items()}
    found[FEDDL] = settings_of(FedDL, OF_ESTIMATOR)
    return found | {name: settings_of(kind, SHARED) for name, kind in MECHANISMS.items()}


def owner_of(name: str, layout: str) -> str | None:
    """Return the table that a bare name belongs to: that of the chosen map before the others; None if there is none."""
    known = known_tables()
    for table in (layout, PRIVATE_MAP, FEDDL, *LAYOUTS, CLUSTERS):
        if name in known.get(table, {}):
            return table
    return CHOSEN if any(name in known[each] for each in MECHANISMS) else None


def as_table(name: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidParameter(name, value, "a table of settings")
    return value


def checked(table: str, rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a table that were given, checked; those at defaults that a run without them has go."""
    known = known_tables()
    found = {}
    for name, value in rows.items():
        if table == CHOSEN:
            setting = next(known[each][name] for each in MECHANISMS if name in known[each])
        elif name in known[table]:
            setting = known[table][name]
        else:
            raise UnknownSetting(name, known[table])
        value = setting.checked(value)
        if value is not None and (table in (CHOSEN, PRIVATE_MAP, *MECHANISMS) or not _same(value, setting.default)):
            found[name] = value
    if table == PRIVATE_MAP and found.get("density") is False:
        del found["density"]
    return found


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)
