"""Everything that an estimator can be told, and the only place where defaults are chosen.

One model gives the command line its flags, TOML its keys, and both their checks, help and defaults; estimators take
theirs from it, too. Mechanisms, layouts and the private map have tables of their own, read from their dataclasses
(`dpfedvis.estimators.tables`). A setting of a table may also be given without naming the table: ``perplexity = 10`` is
that of the layout, ``sweeps = 8`` that of the chosen mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from accounting import Budget, checks
from accounting.budget import ADJACENCIES, MOST_ROWS, SCOPES, UNITS, Adjacency, Scope, Unit
from accounting.errors import InvalidParameter
from accounting.events import TRUSTS, Trust
from dpfedvis.data import FederatedData
from dpfedvis.data.features import FEATURES
from dpfedvis.estimators.known_tables import (
    CHOSEN,
    CLUSTERS,
    FEDDL,
    PRIVATE_MAP,
    as_table,
    checked,
    known_tables,
    owner_of,
)
from dpfedvis.estimators.refusals import refuse_data
from dpfedvis.estimators.tables import UnknownSetting, settings_of
from dpfedvis.mechanisms import MECHANISMS, Mechanism, mechanism
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.layouts import LAYOUTS, Layout, TSNELayout
from dpfedvis.numerics.neighbors import Method
from dpfedvis.numerics.spectral import SpectralSettings
from dpfedvis.protocol.noise import NOISE_SOURCES
from dpfedvis.server.feddl import FedDL, NoiseName
from dpfedvis.server.recipe import Recipe
from dpfedvis.server.rounds import WITHOUT_CHOICE, chooses

ReleaseMode = Literal["exact", "noisy", "none"]
DistanceName = Literal["gram", "nystrom"]
DELTA = 1e-5
LANDMARKS = 500  # where rows are released; a private map takes as many as its noise allows
MOST_LANDMARKS = 100_000
MOST_ROUNDS = 1_000_000
MOST_SEED = 2**32 - 1  # what scikit-learn, openTSNE and umap take
GAMMAS = (1e-30, 1e30)  # whose smoothness and step are numbers of ordinary size
NORMS = (1e-12, 1e12)  # of public bounds on records, within what float32 can square

Check = Callable[[str, Any], Any]


@dataclass(frozen=True)
class About:
    """What else there is to say of a setting: its check, the group of its help, whether only drawing depends on it."""

    check: Check
    group: str
    draws: bool = False


def told(default: Any, check: Check, help: str, group: str = "map", *, draws: bool = False) -> Any:
    """Declare a setting; one whose default is None may be left open."""
    return Field(default, description=help, json_schema_extra={"about": About(check, group, draws)})  # type: ignore[dict-item]  # not JSON


def among(choices: Iterable[str]) -> Check:
    """Return the check of a choice."""
    return partial(checks.one_of, choices=tuple(choices))


def _mechanism(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return checks.one_of(name, value, MECHANISMS)
    return mechanism(value)


def _map(name: str, value: Any) -> str:
    return checks.one_of(name, value, (*LAYOUTS, CLUSTERS))


def _noise(name: str, value: Any) -> str:
    if not (isinstance(value, str) and value in NOISE_SOURCES):
        raise InvalidParameter(name, value, "seeded (a simulation) or discrete (real noise)")
    return value


def _features(name: str, value: Any) -> Any:
    if isinstance(value, str):
        return checks.text(name, value)
    if callable(value) or isinstance(value, Path):
        return value
    raise InvalidParameter(name, value, f"one of {', '.join(FEATURES)}, a file of vectors, or a function of records")


class EstimatorSettings(BaseModel):
    """Settings of an estimator. What is None is chosen by `resolved`, or by the library.

    `tables` holds the settings of mechanisms, layouts and the private map that were given, by table and name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    map: str = told("tsne", _map, "map to draw: tsne, umap or clusters")
    mechanism: Any = told(
        None,
        _mechanism,
        "how landmarks are learned (none without a budget; k-means with release none, else mean-embedding)",
        "privacy",
    )
    trust: Trust = told("local", among(TRUSTS), "who adds the noise: local, aggregate or central", "privacy")
    threshold: int | None = told(
        None,
        partial(checks.whole, least=1),
        "for trust aggregate, fewest clients in a sum (all, or from five on all but a tenth, at least one)",
        "privacy",
    )
    colluders: int | None = told(
        None,
        partial(checks.whole, least=0),
        "for trust aggregate, clients that may work together with the server (1)",
        "privacy",
    )
    retries: int = told(
        0, partial(checks.whole, least=0), "for trust aggregate, sums to set budget aside for repeating", "privacy"
    )
    epsilon: float | None = told(
        None, checks.positive, "ε of the whole run; without it there is no guarantee", "privacy"
    )
    delta: float | None = told(
        None, checks.probability, "δ of the whole run (1e-5, or 1/(10 n) for n above 10,000)", "privacy"
    )
    adjacency: Adjacency = told(
        "replace-one", among(ADJACENCIES), "neighbouring data: replace-one or add-remove", "privacy"
    )
    unit: Unit = told("record", among(UNITS), "privacy unit: record, person or client", "privacy")
    rows_per_person: int | None = told(
        None,
        partial(checks.whole, least=1, most=MOST_ROWS),
        "most records of a person that take part, for unit person (1); for unit record, ε is also said for so many",
        "privacy",
    )
    scope: Scope = told(
        "end-to-end", among(SCOPES), "what ε covers: end-to-end, or landmarks as in the paper", "privacy"
    )
    release: ReleaseMode | None = told(
        None,
        among(get_args(ReleaseMode)),
        "what is released of each record: exact, noisy or none (what the budget allows: exact without one)",
        "privacy",
    )
    release_share: float = told(0.5, checks.share, "share of the budget for noisy rows", "privacy")
    distances: DistanceName = told(
        "gram", among(get_args(DistanceName)), "distance estimate: gram, or the paper's nystrom"
    )
    rank: int | None = told(None, checks.count, "rank k of the Nyström estimate", draws=True)
    ridge: float = told(
        0.0, partial(checks.between, least=0.0, most=1e12), "ridge λ of the Nyström estimate", draws=True
    )
    search: Method = told(
        "auto", among(get_args(Method)), "search for neighbours: auto, exact or approximate", draws=True
    )
    landmarks: int | None = told(
        None,
        partial(checks.whole, least=1, most=MOST_LANDMARKS),
        f"landmarks n_y ({LANDMARKS}; with release none, as many as the noise allows)",
    )
    rounds: int | None = told(
        None,
        partial(checks.whole, least=1, most=MOST_ROUNDS),
        f"rounds S at most ({WITHOUT_CHOICE}; for gradients under a budget, as many as its noise allows); k-means takes"
        " its sweeps",
    )
    features: Any = told(
        None, _features, "public features of each record: hog, hog:28x28, l2, or a file of vectors joined by id", "data"
    )
    compare_features: Any = told(
        None, _features, "the same, by which a client compares its own records at home", "data", draws=True
    )
    noise: NoiseName | None = told(
        None,
        _noise,
        "source of noise: seeded (a simulation) or discrete (real; for a file of yours, else seeded)",
        "privacy",
    )
    tau_x: float | None = told(
        None,
        partial(checks.between, least=NORMS[0], most=NORMS[1]),
        "public bound on the norm of a record (from public bounds)",
        "privacy",
    )
    jobs: int = told(2, checks.count, "threads; they change no result", draws=True)
    seed: int = told(0, partial(checks.whole, least=0, most=MOST_SEED), "seed of everything random but real noise")
    tables: Mapping[str, Mapping[str, Any]] = Field({}, exclude=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            # Our own error, which names the setting and the value, without pydantic's frame around it.
            own = error.errors()[0].get("ctx", {}).get("error")
            raise (own or InvalidParameter(str(error.errors()[0]["loc"]), None, "valid")) from None

    @model_validator(mode="before")
    @classmethod
    def _sort(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Put settings of tables that were given by their bare names into their tables."""
        known, given, found = (
            known_tables(),
            {},
            {name: dict(table) for name, table in values.get("tables", {}).items()},
        )
        layout = str(values.get("map", cls.model_fields["map"].default))  # checked later
        for name, value in values.items():
            if name in cls.model_fields:
                if name != "tables":
                    given[name] = value
            elif name in known and (isinstance(value, Mapping) or name not in known[CLUSTERS]):
                found[name] = {**found.get(name, {}), **as_table(name, value)}
            elif (owner := owner_of(name, layout)) is not None:
                found.setdefault(owner, {})[name] = value
            else:
                raise UnknownSetting(
                    name, [*cls.model_fields, *known, *(each for table in known.values() for each in table)]
                )
        given["tables"] = {name: table for name, rows in found.items() if (table := checked(name, rows))}
        return given

    @field_validator("*", mode="plain")
    @classmethod
    def _check(cls, value: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields[str(info.field_name)]
        if info.field_name == "tables":
            return value
        if value is None:
            if field.default is None:
                return None
            raise InvalidParameter(str(info.field_name), None, "given")
        return about(cls, str(info.field_name)).check(str(info.field_name), value)

    @model_validator(mode="after")
    def _build(self) -> Self:
        """Let the tables check themselves."""
        for name in (*LAYOUTS, CLUSTERS, PRIVATE_MAP):
            if name in self.tables:
                self._made(name)
        FedDL(**self.feddl)
        gamma = self.feddl.get("gamma")
        if gamma is not None and not isinstance(gamma, str | Kernel):
            for each in np.ravel(gamma).tolist():
                checks.between("gamma", each, *GAMMAS)
        return self

    def __hash__(self) -> int:
        return hash(repr(sorted(self.given.items(), key=lambda pair: pair[0])))

    def updated(self, **changes: Any) -> Self:
        """Return the settings with changes, checked anew; settings of tables by their bare names."""
        return type(self)(**{**self.fields_set_to(), "tables": self.tables, **changes})

    def fields_set_to(self) -> dict[str, Any]:
        """Return the settings outside of tables, by name."""
        return {name: getattr(self, name) for name in type(self).model_fields if name != "tables"}

    @property
    def given(self) -> dict[str, Any]:
        """All settings that are not at their defaults, by their bare names."""
        fields = type(self).model_fields
        own = {name: value for name, value in self.fields_set_to().items() if value != fields[name].default}
        return own | {name: value for table in self.tables.values() for name, value in table.items()}

    # What the settings come to

    @property
    def budget(self) -> Budget | None:
        """The budget, if there is one."""
        if self.epsilon is None:
            return None
        return Budget(
            self.epsilon,
            self.stated_delta,
            adjacency=self.adjacency,
            unit=self.unit,
            scope=self.scope,
            rows_per_person=self.rows_per_person,
        )

    @property
    def chosen_release(self) -> ReleaseMode:
        """The release that was given, or else the first that the budget allows.

        Exact rows without a budget, or with one that does not cover them, and after input perturbation; otherwise
        nothing of a record, which clients can place at home.
        """
        if self.release is not None:
            return self.release
        protection = "upload" if self.mechanism is None else mechanism(self.mechanism).protection
        if self.epsilon is None or self.scope == "landmarks" or protection != "upload":
            return "exact"
        return "none"

    @property
    def chosen_mechanism(self) -> str | Mechanism:
        """The mechanism that was given, or else the one that learns most from the budget."""
        if self.mechanism is not None:
            chosen: str | Mechanism = self.mechanism
            return chosen
        if self.epsilon is None:
            return "none"
        return "k-means" if self.chosen_release == "none" else "mean-embedding"

    def chosen_noise(self, fed: FederatedData) -> NoiseName:
        """The noise that was given, or else real noise for records of the user's: in a file, or at real sites."""
        if self.noise is not None:
            return self.noise
        return "discrete" if fed.origin in ("file", "federation") else "seeded"

    def resolved(self, fed: FederatedData) -> Self:
        """Return the settings with all open choices made; they rest on public facts of `fed` alone.

        Parameters
        ----------
        fed : FederatedData
            As it takes part, after its public features.
        """
        noise = self.chosen_noise(fed)
        refuse_data(fed, self.budget, noise)
        release, bounds, tau_x = self.chosen_release, self.feddl_for(fed).get("bounds"), self.tau_x
        if tau_x is None and bounds is not None:
            # No record within the bounds is longer.
            longest = math.sqrt(fed.n_features) * max(abs(bounds[0]), abs(bounds[1]))
            tau_x = min(longest, fed.norm or longest) or None
        chosen = self.updated(
            mechanism=self.chosen_mechanism,
            release=release,
            noise=noise,
            delta=self._chosen_delta(fed),
            landmarks=LANDMARKS if self.landmarks is None and release != "none" else self.landmarks,
            tau_x=tau_x,
            **({} if bounds is None or fed.features is not None else {"bounds": bounds}),
        )
        # A mechanism given as an object has a trust of its own.
        return chosen if isinstance(chosen.mechanism, str) else chosen.updated(trust=chosen.made_mechanism().trust)

    @property
    def stated_delta(self) -> float:
        """The δ at which ε is said: that of the budget, or 1e-5."""
        return DELTA if self.delta is None else self.delta

    def _chosen_delta(self, fed: FederatedData) -> float | None:
        """The δ that was given, or else 1e-5, and at most a tenth of 1/n where the number n of units is public."""
        if self.delta is not None or self.epsilon is None:
            return self.delta
        units = self.public_units(fed)
        return DELTA if units is None else delta_for(units)

    def public_units(self, fed: FederatedData) -> int | None:
        """Public number of records or persons, or what stands in for it; None where there is none."""
        budget = self.budget
        if budget is None or budget.unit == "client" or fed.origin == "federation":
            return None
        if budget.hides_records:
            records = self.feddl.get("public_records")
            return None if records is None else max(1, fed.n_clients * int(records) // budget.rows)
        return fed.n_persons if budget.unit == "person" else fed.n_records

    def feddl_for(self, fed: FederatedData) -> dict[str, Any]:
        """Settings of FedDL with the public range of these data, as they take part.

        Bounds that were given are those of the records; public features have their own.
        """
        given = self.feddl.get("bounds")
        if fed.schema is not None and given not in (None, fed.schema.bounds):
            raise InvalidParameter("bounds", given, "left out: the schema has the range of each column")
        bounds = fed.bounds if fed.features is not None else given or fed.bounds
        rest = {name: value for name, value in self.feddl.items() if name != "bounds"}
        return rest if bounds is None else {**rest, "bounds": bounds}

    @property
    def feddl(self) -> Mapping[str, Any]:
        """Further settings of `dpfedvis.server.feddl.FedDL`."""
        return self.tables.get(FEDDL, {})

    @property
    def layout(self) -> Layout:
        """The layout of the map; private clusters are those of a t-SNE map."""
        if self.map == CLUSTERS and self.chosen_release != "none":
            raise InvalidParameter("map", self.map, f"one of {', '.join(LAYOUTS)}, to be laid out")
        made: Layout = self._made(TSNELayout.name if self.map == CLUSTERS else self.map)
        return made

    @property
    def spectral(self) -> SpectralSettings:
        """How records are clustered."""
        made: SpectralSettings = self._made(CLUSTERS)
        return made

    @property
    def recipe(self) -> Recipe:
        """How a budget becomes a private map; its settings are refused where rows are released."""
        if self.chosen_release != "none":
            for name, value in self.tables.get(PRIVATE_MAP, {}).items():
                raise InvalidParameter(name, value, f"left out with release={self.chosen_release!r}")
        made: Recipe = self._made(PRIVATE_MAP)
        return made

    def made_mechanism(self) -> Mechanism:
        """Return the mechanism with its settings, or raise if it has no such setting."""
        chosen, own = self.chosen_mechanism, self.tables.get(CHOSEN, {})
        if not isinstance(chosen, str):
            for name, value in own.items():
                raise InvalidParameter(name, value, "left out where the mechanism is an object")
            return _trusting(chosen, self.trust)
        kind = MECHANISMS[chosen]
        accepted = settings_of(kind)
        for name, value in own.items():
            if name not in accepted:
                raise InvalidParameter(name, value, f"left out: {chosen!r} has no such setting")
        settings = {"trust": self.trust, **self.tables.get(chosen, {}), **own}
        if "tau_x" in accepted and self.tau_x is not None:
            settings["tau_x"] = self.tau_x
        elif chosen == "input":
            raise InvalidParameter("tau_x", None, "given, as a public bound on the norm of records, for 'input'")
        made: Mechanism = kind(**settings)
        return made

    @property
    def uploads(self) -> int | None:
        """How many uploads a client makes while landmarks are learned; None where the server chooses."""
        # No mechanism's number of uploads depends on the bound on records, which may still be open.
        made = self.updated(tau_x=self.tau_x or 1.0).made_mechanism()
        if self.rounds is None and chooses(made, self.budget):
            return None
        return made.uploads(self.rounds or WITHOUT_CHOICE)

    def _made(self, name: str) -> Any:
        kinds: dict[str, Any] = {**LAYOUTS, CLUSTERS: SpectralSettings, PRIVATE_MAP: Recipe}
        return kinds[name](**self.tables.get(name, {}))


def delta_for(units: int) -> float:
    """Return the δ that is chosen for a public number of records or persons."""
    return min(DELTA, 1 / (10 * units))


def about(model: type[EstimatorSettings], name: str) -> About:
    """Return what else a model says of a setting."""
    extra: Any = model.model_fields[name].json_schema_extra
    found: About = extra["about"]
    return found


def draws(model: type[EstimatorSettings], name: str) -> bool:
    """Whether a setting changes only what is drawn from what was released, so that a resumed run may have another."""
    if name in model.model_fields:
        return about(model, name).draws
    return name == "placement" or any(name in known_tables()[table] for table in (*LAYOUTS, CLUSTERS))


def _trusting(chosen: Mechanism, trust: Trust) -> Mechanism:
    """Return a mechanism object with the trust that was given to it or to the estimator."""
    if trust == "local" or chosen.trust == trust:
        return chosen
    if chosen.trust != "local":
        raise InvalidParameter("trust", trust, f"{chosen.trust}, as in the mechanism, or left out")
    return replace(chosen, trust=trust)  # type: ignore[type-var]  # every mechanism is a frozen dataclass


DEFAULTS = EstimatorSettings()
