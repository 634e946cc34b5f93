"""All settings of a run: those of its estimator, and the data. From flags or a TOML file, and back to TOML in full."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
import tomli_w
from numpy.typing import NDArray

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.data.checks import Missing
from dpfedvis.errors import DpfedvisError
from dpfedvis.estimators.known_tables import CLUSTERS, FEDDL, PRIVATE_MAP, known_tables
from dpfedvis.estimators.settings import EstimatorSettings, among, told
from dpfedvis.estimators.tables import UnknownSetting
from dpfedvis.numerics.layouts import LAYOUTS

if TYPE_CHECKING:
    from dpfedvis.data import Dataset, FederatedData
    from dpfedvis.estimators.base import FederatedEstimator

Sample = Literal["first", "random"]
LinkName = Literal["in-process", "nvflare"]


NO_SCORES = "left out without scores: it needs --evaluate"
FEW_RECORDS = 2000  # up to which maps to hold a score against take seconds


class UnreadableConfig(DpfedvisError):
    """A file that is not there, or not TOML."""


def _text(name: str, value: Any) -> str:
    if not (isinstance(value, str) and value):
        raise InvalidParameter(name, value, "a non-empty string")
    return value


def _file(name: str, value: Any) -> str:
    return _text(name, str(value) if isinstance(value, Path) else value)


def _data(name: str, value: Any) -> str | tuple[str, ...]:
    if isinstance(value, str | Path):
        return _text(name, str(value))
    if not (isinstance(value, list | tuple) and value):
        raise InvalidParameter(name, value, "the name of a data set, or of files")
    found = tuple(_text(name, str(each)) for each in value)
    return found[0] if len(found) == 1 else found


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidParameter(name, value, "true or false")
    return value


def _partition(name: str, value: Any) -> str:
    from dpfedvis.data.partitions import partition

    partition(_text(name, value))  # raises for what it cannot read
    return str(value)


class RunConfig(EstimatorSettings):
    """Settings of one run. What is None is chosen by `resolved`, or by the library."""

    data: str | tuple[str, ...] = told(
        ..., _data, "name of a data set (see dpfedvis data list), or files, a client each", "data"
    )
    schema_file: str | None = told(None, _file, "public schema of the columns of files, in TOML", "data")
    link: LinkName = told(
        "in-process", among(get_args(LinkName)), "where sites are: in-process, or nvflare for real ones", "data"
    )
    kit: str | None = told(None, _file, "with --link nvflare, the kit of the federation's admin", "data")
    patience: float = told(
        20.0,
        partial(checks.between, least=3.0, most=86_400.0),  # a site that computes says so every second
        "seconds without a word after which a real site is away",
        "data",
    )
    records: int | None = told(None, checks.count, "take so many records only", "data")
    sample: Sample = told("first", among(get_args(Sample)), "records to take: first, or random by the seed", "data")
    label_column: str | None = told(None, _text, "label column (key, in an NPZ file) of a file", "data")
    client_column: str | None = told(None, _text, "client column (key, in an NPZ file) of a file", "data")
    missing: Missing = told(
        "refuse", among(get_args(Missing)), "missing values: refuse, client-mean or public-value", "data"
    )
    clients: int | None = told(
        None,
        checks.count,
        "deal the records to so many clients, a simulation (the clients that a file comes with; else 10)",
        "data",
    )
    partition: str | None = told(
        None,
        _partition,
        "how they are dealt: iid, by-class, classes:K, dirichlet:ALPHA, or groups for the clients that the data come "
        "with",
        "data",
    )
    recorded_rounds: int | None = told(
        None, partial(checks.whole, least=0), "record uploads of the first so many rounds only", "output"
    )
    evaluate: bool | None = told(
        None,
        _switch,
        "in a simulation, write scores, places and labels of records, which nobody has in a real federation (only of "
        "built-in data)",
        "output",
        draws=True,
    )
    yardsticks: bool | None = told(
        None,
        _switch,
        "beside the scores of a simulation, those of a map without data and of a central one (up to "
        f"{FEW_RECORDS} records)",
        "output",
        draws=True,
    )

    def __init__(self, **values: Any) -> None:  # for type checkers: settings of tables have bare names
        # pydantic has a `schema` of its own, so that the field has another name than flag and key.
        if "schema" in values:
            values["schema_file"] = values.pop("schema")
        super().__init__(**values)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Return the settings under their names; the rest has its defaults."""
        if "tables" in values:  # the model's own
            raise UnknownSetting("tables", known_tables())
        if values.get("link", "in-process") == "nvflare":
            values = _of_federation(values)
        elif values.get("kit") is not None and values.get("link", "in-process") == "in-process":
            raise InvalidParameter("kit", values["kit"], "left out without --link nvflare")
        if values.get("data") is None:
            raise InvalidParameter("data", None, "given: the name of a data set, or a file")
        return cls(**values)

    @classmethod
    def from_toml(cls, path: str | Path, **overrides: Any) -> Self:
        """Read a TOML file; `overrides` win over it."""
        return cls.from_mapping(merged(read_toml(path), overrides))

    def to_toml(self) -> str:
        """Return every setting that takes part as TOML; one that is left open is not in it."""
        values = {name: _toml(value) for name, value in self.fields_set_to().items() if value is not None}
        for name, words in (("mechanism", "MECHANISMS"), ("features", "FEATURES"), ("compare_features", "FEATURES")):
            if not isinstance(value := getattr(self, name), str | Path | None):
                raise InvalidParameter(name, value, f"one of {words} by name, to be written as TOML")
        if "schema_file" in values:
            values["schema"] = values.pop("schema_file")
        return tomli_w.dumps({**values, **{name: _toml(table) for name, table in self._written().items()}})

    def effective(self) -> dict[str, Any]:
        """Return all settings that take part, defaults too, by their bare names."""
        tables = {name: value for table in self._written().values() for name, value in _toml(table).items()}
        return self.fields_set_to() | tables

    def _written(self) -> dict[str, dict[str, Any]]:
        """The tables that take part, each with all its settings."""
        known, found = known_tables(), {}
        layout = CLUSTERS if self.map == CLUSTERS else self.map
        names, made = [layout, FEDDL], {layout: self._made(layout), PRIVATE_MAP: self._made(PRIVATE_MAP)}
        if self.chosen_release == "none":
            names += [PRIVATE_MAP, self.layout.name]  # of clusters: the map that they are in
            made[self.layout.name] = self.layout
        for name in names:
            table = {each.name: each.default for each in known[name].values() if each.hint is not None}
            found[name] = {**table, **(_values(made[name]) if name in made else self.tables.get(name, {}))}
        if isinstance(chosen := self.mechanism, str):
            own = _values(self.made_mechanism())
            found[chosen] = {name: own[name] for name in known[chosen]}
        return {name: table for name, table in found.items() if table}

    def dataset(self) -> Dataset:
        """Load the data; of real sites, what is public of them."""
        if self.link == "nvflare":
            from dpfedvis.runs.federation import dataset_of

            return dataset_of(str(self.kit))
        if self.sample == "first":
            return self._load(self.records)
        whole = self._load(None)
        return whole.taking(self.taken(len(whole.X)))

    def taken(self, size: int) -> NDArray[np.int64]:
        """Rows that take part, of the `size` rows of the data; sorted.

        A random sample follows from the seed, and is public: then the records that took no part differ from those that
        did by chance alone.
        """
        from dpfedvis.data import InvalidData
        from dpfedvis.numerics.random_streams import Streams

        records = size if self.records is None else self.records
        if records > size:
            raise InvalidData(f"records must be between 1 and {size} for {self.data_name}, got {records}")
        if self.sample == "first":
            return np.arange(records)
        return np.sort(Streams(self.seed).generator("sample").permutation(size)[:records])

    def _load(self, records: int | None) -> Dataset:
        from dpfedvis.data import load

        return load(
            self.data,
            schema=self.schema_file,
            label_column=self.label_column,
            client_column=self.client_column,
            missing=self.missing,
            records=records,
        )

    def federated(self, dataset: Dataset | None = None, order: int | None = None) -> FederatedData:
        """Deal the data, loaded here unless given, to the clients.

        Parameters
        ----------
        dataset : Dataset, optional
        order : int, optional
            Seed of the order of clients where the unit is a client; secret with real noise. By default that of the run.
        """
        from dpfedvis.data import FederatedData
        from dpfedvis.data.features import with_features
        from dpfedvis.data.partitions import refuse_partition

        dataset = self.dataset() if dataset is None else dataset
        hidden = self.budget is not None and self.budget.hides_rows
        if self._deals(dataset):
            refuse_partition(self.partition or "iid", noise=self.noise_for(dataset), hides_records=hidden)
            if dataset.clients and self.clients is None:
                raise InvalidParameter(
                    "clients", None, f"given, to deal the records of {len(dataset.clients)} clients to so many others"
                )
            if len(dataset.files) > 1 and self.noise_for(dataset) != "seeded":
                raise InvalidParameter(
                    "clients", self.clients, "left out with several files and real noise: each file is a client"
                )
        fed = FederatedData.from_dataset(dataset, clients=self.clients, partition=self.partition, seed=self.seed)
        if self.epsilon is not None and self.unit == "client":
            # Neither a client's name nor its place in a file may tell that it took part.
            fed = fed.shuffled(self.seed if order is None else order).with_neutral_names()
        return with_features(fed, self.features, self.feddl.get("bounds"))

    def _deals(self, dataset: Dataset) -> bool:
        """Whether records are dealt to other clients than the data come with."""
        given = bool(dataset.clients)
        return not (given and (self.partition == "groups" or (self.clients is None and self.partition is None)))

    @property
    def data_name(self) -> str:
        """What the data are called for people: without folders."""
        if isinstance(self.data, str):
            return Path(self.data).name
        shown = ", ".join(Path(each).name for each in self.data[:3])
        return shown if len(self.data) <= 3 else f"{shown} and {len(self.data) - 3} more"

    def noise_for(self, dataset: Dataset) -> str:
        """The noise that was given, or else real noise for a file of the user's."""
        return self.noise or ("discrete" if dataset.origin in ("file", "federation") else "seeded")

    def resolved(self, fed: FederatedData) -> Self:
        """Return the settings with all open choices made; they rest on public facts of `fed` alone."""
        chosen = super().resolved(fed)
        if self.link == "nvflare" and chosen.release != "none":
            raise InvalidParameter(
                "release", chosen.release, "none, with a budget, between real sites: no row of a record leaves one"
            )
        seeded, evaluate = chosen.noise == "seeded", self.evaluate
        asked = " and ".join(name for name in ("evaluate", "yardsticks") if getattr(self, name))
        if asked and self.link == "nvflare":
            raise InvalidParameter(asked, True, "left out between real sites: no record is at the server, to be scored")
        if asked and not seeded:
            raise InvalidParameter(
                asked, True, "left out with real noise (no ε covers scores, places, labels and a central map)"
            )
        hidden = chosen.budget is not None and chosen.budget.hides_rows
        if hidden and not seeded and self.records is not None:
            raise InvalidParameter(
                "records", self.records, "left out with real noise where numbers of records are private"
            )
        if evaluate is None:
            evaluate = seeded and fed.origin == "built-in"
        yardsticks = self.yardsticks
        if evaluate and yardsticks is None:
            yardsticks = fed.n_records <= FEW_RECORDS
        elif yardsticks and not evaluate:
            if self.evaluate is None:
                raise InvalidParameter("yardsticks", True, NO_SCORES)
            yardsticks = None  # of a run before that had scores, which are no longer wanted
        partition = fed.dealt or "groups"
        return chosen.updated(clients=fed.n_clients, partition=partition, evaluate=evaluate, yardsticks=yardsticks)

    def estimator(self) -> FederatedEstimator:
        """Return the estimator, ready to fit."""
        from dpfedvis.estimators.registry import estimator_of

        return estimator_of(self)


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of two sources, those `above` winning one by one: a table does not replace a table."""
    found = dict(below)
    for name, value in above.items():
        known = found.get(name)
        if isinstance(known, Mapping):
            # The number of clusters has the name of its table.
            value = {**known, **(value if isinstance(value, Mapping) else {name: value})}
        found[name] = value
    return found


def _of_federation(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run between real sites: data and features are those of the kit."""
    from dpfedvis.runs.federation import facts_of

    if values.get("kit") is None:
        raise InvalidParameter("kit", None, "given with --link nvflare: the folder of the federation's admin")
    own = facts_of(str(values["kit"]))
    for name in ("schema", "schema_file", "label_column", "client_column", "records", "clients", "partition"):
        if values.get(name) is not None and values.get("data") is None:
            raise InvalidParameter(name, values[name], "left out with --link nvflare: each site has its own records")
    for name, value in own.items():
        if name != "kit" and values.get(name) not in (None, value):
            raise InvalidParameter(name, values[name], f"left out with --link nvflare, where it is {value}")
    return {**values, **own}


def bare_defaults() -> dict[str, Any]:
    """Return the default of every setting by its bare name; None for those of mechanisms and the private map."""
    fields = {name: field.default for name, field in RunConfig.model_fields.items() if name != "tables"}
    tables: dict[str, Any] = {}
    for table, settings in known_tables().items():
        fixed = table in (*LAYOUTS, CLUSTERS, FEDDL)
        tables |= {each.name: each.default if fixed else None for each in settings.values() if each.name not in tables}
    return {**tables, **fields}


def read_toml(path: str | Path) -> dict[str, Any]:
    """Return the keys and values of a TOML file."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except RecursionError as error:
        raise UnreadableConfig(f"{path} is not TOML that can be read: it is nested too deeply") from error
    except (OSError, ValueError) as error:
        if isinstance(error, UnicodeDecodeError):
            raise UnreadableConfig(f"{path} is not TOML: it is not UTF-8") from error
        if isinstance(error, tomllib.TOMLDecodeError):
            raise UnreadableConfig(f"{path} is not TOML: {error}") from error
        raise UnreadableConfig(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _values(made: Any) -> dict[str, Any]:
    return {each.name: getattr(made, each.name) for each in fields(made)}


def _toml(value: Any) -> Any:
    """A value as TOML can hold it, without what is left open."""
    if is_dataclass(value):
        value = _values(value)
    if isinstance(value, Mapping):
        return {name: _toml(each) for name, each in value.items() if each is not None and each != {}}
    if isinstance(value, Path):
        return str(value)
    return [_toml(each) for each in value] if isinstance(value, tuple | list) else value
