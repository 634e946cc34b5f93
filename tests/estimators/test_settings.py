"""One place chooses defaults: Python and the command line come to the same settings, and what can fail fails first."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import AccountingError, Budget, InvalidParameter, Ledger
from dpfedvis import FederatedData, FedSpectralClustering, FedTSNE, FedUMAP
from dpfedvis.cli.main import parser
from dpfedvis.cli.run import config_of
from dpfedvis.errors import DpfedvisError
from dpfedvis.estimators.known_tables import CLUSTERS, SHARED, known_tables
from dpfedvis.estimators.maps import FedMap
from dpfedvis.estimators.registry import estimator_of
from dpfedvis.estimators.settings import EstimatorSettings
from dpfedvis.mechanisms import MECHANISMS, KMeans
from dpfedvis.numerics.layouts import UMAPLayout
from dpfedvis.runs.settings import RunConfig
from tests.makers import blobs, digits

KINDS = {"tsne": FedTSNE, "umap": FedUMAP, CLUSTERS: FedSpectralClustering}
BUDGETS = {"no budget": None, "end to end": Budget(2.0, 1e-5), "landmarks": Budget(2.0, 1e-5, scope="landmarks")}
FED = digits(60, clients=2, bounds=(0.0, 1.0))


def by_flags(**values: Any) -> RunConfig:
    """Parse a command line with these settings."""
    line = ["run", "--out", "x", "--data", "digits"]
    for name, value in values.items():
        if value is not None:
            line += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, tuple) else (value,))]
    return config_of(parser().parse_args(line), {})


def outcome(make: Any) -> Any:
    """Settings with all choices made, or the error that there is instead."""
    try:
        chosen = make().resolved(FED)
        found = {name: getattr(chosen, name) for name in EstimatorSettings.model_fields if name != "tables"}
        found["mechanism"] = chosen.made_mechanism()
        return found | {"recipe": chosen.recipe, "feddl": dict(chosen.feddl)}
    except (AccountingError, DpfedvisError) as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("map", KINDS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_python_and_command_line_choose_the_same(map: str, budget: str) -> None:
    given, both = BUDGETS[budget], []
    for mechanism, release in product((None, *MECHANISMS), (None, "exact", "noisy", "none")):
        python = KINDS[map](mechanism=mechanism, budget=given, release=release)
        flags = {} if given is None else {"epsilon": given.epsilon, "delta": given.delta, "scope": given.scope}
        line = outcome(lambda m=mechanism, r=release, f=flags: by_flags(map=map, mechanism=m, release=r, **f))
        assert outcome(python.settings) == line, (mechanism, release)
        both.append(line)
    assert any(isinstance(each, dict) for each in both)


@pytest.mark.parametrize("kind", [FedTSNE, FedUMAP, FedSpectralClustering, FedMap])
def test_an_estimator_comes_back_from_its_settings(kind: type) -> None:
    for options in ({}, {"budget": Budget(3.0, 1e-6), "rounds": 7, "random_state": 5, "tau_x": 3.0}):
        told = kind(**options).settings()
        assert estimator_of(told.updated(mechanism="none")).settings().updated(mechanism=None) == told
    assert FedMap(UMAPLayout(neighbours=7)).settings() == FedUMAP(n_neighbors=7).settings()


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_setting_of_every_mechanism_is_reachable(name: str) -> None:
    """From flags, from a table, by its bare name; as the mechanism object would have it."""
    for setting in known_tables()[name].values():
        value = {"bound": "theorem", "tau_y": 9.0, "upsilon": 50.0}.get(setting.name)
        if value is None:
            value = setting.default + 1 if isinstance(setting.default, int) else setting.default / 2 or 0.5
        theorem = {"tau_y": 9.0, "upsilon": 50.0} if setting.name == "bound" else {}
        more = {"tau_x": 4.0, **theorem}
        ways = [
            by_flags(mechanism=name, **{**more, setting.name: value}),
            RunConfig(data="digits", mechanism=name, **{**more, setting.name: value}),
            RunConfig(data="digits", mechanism=name, tau_x=4.0, **{name: {setting.name: value}})
            if setting.name != "bound"
            else RunConfig(
                data="digits", mechanism=name, tau_x=4.0, **{name: {"bound": value, "tau_y": 9.0, "upsilon": 50.0}}
            ),
        ]
        for way in ways:
            assert getattr(way.made_mechanism(), setting.name) == value, setting.name
    assert not set(known_tables()[name]) & set(SHARED)


def test_a_setting_that_another_mechanism_has_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="sweeps must be left out: 'gradient' has no such setting, but is 8"):
        RunConfig(data="digits", mechanism="gradient", sweeps=8).made_mechanism()


def test_trust_belongs_to_the_mechanism_or_to_the_estimator() -> None:
    assert (
        FedTSNE(mechanism=KMeans(trust="aggregate"), budget=Budget(1, 1e-5)).settings().made_mechanism().trust
        == "aggregate"
    )
    assert FedTSNE(mechanism=KMeans(sweeps=3), trust="aggregate").settings().made_mechanism() == KMeans("aggregate", 3)
    with pytest.raises(InvalidParameter, match="trust must be central"):
        FedTSNE(mechanism=KMeans(trust="central"), trust="aggregate").settings().made_mechanism()


@pytest.mark.parametrize("estimator", [FedTSNE(), FedUMAP(), FedSpectralClustering(n_clusters=3)])
def test_an_estimator_fits_with_its_own_defaults_and_says_that_nothing_is_protected(estimator: Any) -> None:
    estimator.fit(blobs())
    assert estimator.ledger_.spent(1e-5, end_to_end=True) == math.inf
    assert "ε = ∞" in estimator.statement_.headline


def test_numbers_stay_whole() -> None:
    assert RunConfig(data="digits", seed=2**32 - 1).seed == 2**32 - 1
    assert RunConfig(data="digits", public_records=2**53 + 1).feddl["public_records"] == 2**53 + 1
    with pytest.raises(
        InvalidParameter, match="seed must be a whole number from 0 to 4294967295, but is 9007199254740993"
    ):
        by_flags(seed=2**53 + 1)


# What can fail, fails before the first release.

LATE = [
    ("seed", 2**32), ("perplexity", 0.3), ("neighbours", 1), ("classes", ("", "a")), ("release_share", 1e-300),
    ("shares", {"subspace": 1e-300}), ("anchors", 10**9), ("landmarks", 10**9), ("radius", 1e300), ("ridge", math.inf),
    ("min_dist", 1e9), ("gamma", 1e-300), ("step_size", 1e300), ("tau_x", 1e300), ("factors", (1e300,)), ("rank", 0),
]  # fmt: skip
EXTREMES: dict[type, list[Any]] = {
    int: [0, 1, 2, -1, 7, 2**31, 2**32, 2**53 + 1, 2**63, 10**30],
    float: [0.0, -1.0, 5e-324, 1e-300, 1e-9, 0.3, 1.0, 1e9, 1e300, math.inf, math.nan],
}


def small(**values: Any) -> RunConfig:
    base = {"data": "digits", "landmarks": 6, "rounds": 2, "epsilon": 5.0, "perplexity": 3.0, "jobs": 1}
    return RunConfig(**{**base, **({"placement": "weights"} if "release" not in values else {}), **values})


def fitted(fed: FederatedData, values: dict[str, Any]) -> bool:
    """Fit with these settings: True if it works; an error of ours must come before anything is in the ledger."""
    ledger = None
    try:
        config = small(**values).resolved(fed)
        ledger = Ledger(budget=config.budget)
        config.estimator().watch(ledger=ledger).fit(fed)
    except (AccountingError, DpfedvisError) as error:
        if ledger is not None and len(ledger):
            raise AssertionError(f"{values} ended a run that had spent") from error
        return False
    return True


@pytest.mark.parametrize(("name", "value"), LATE)
@pytest.mark.parametrize("release", ["none", "noisy"])
def test_what_failed_late_is_refused_first(name: str, value: Any, release: str) -> None:
    more = {"density": True} if name == "classes" else {}
    if release == "noisy":
        more = {"release": "noisy"}
    if name in ("neighbours", "min_dist"):
        more |= {"map": "umap"}
    assert not fitted(FED, {name: value, **more})


def numeric() -> list[tuple[str, Any]]:
    """Every setting that is a number, with extremes of its kind. Rounds only take long; ε and δ are for accounting."""
    hints = {
        name: field.annotation
        for name, field in RunConfig.model_fields.items()
        if name not in ("tables", "rounds", "epsilon", "delta")
    }
    hints |= {each.name: each.hint for table in known_tables().values() for each in table.values()}
    found = []
    for name, hint in hints.items():
        for kind, values in EXTREMES.items():
            if kind in (hint, *getattr(hint, "__args__", ())):
                found += [(name, value) for value in values]
    return found


@settings(max_examples=min(settings.default.max_examples, 400) // 2)
@given(st.sampled_from(numeric()), st.sampled_from([{}, {"release": "noisy"}, {"map": CLUSTERS}]))
def test_no_number_ends_a_run_after_it_has_spent(case: tuple[str, Any], more: dict[str, Any]) -> None:
    name, value = case
    owners = [each for each in MECHANISMS if name in known_tables()[each] and MECHANISMS[each].protection != "none"]
    more = {**more, **({"mechanism": owners[0]} if owners else {})}
    if (
        name in ("records", "clients", "landmarks", "frequencies", "public_records", "steps", "starts")
        and value
        and value > 10**6
    ):
        return  # allowed, and beyond what a test has time or memory for
    fitted(FED, {**more, name: value})


def test_more_threads_than_cores_are_not_started() -> None:
    """100,000 of them crashed the interpreter."""
    fed = blobs((12, 12))
    few, many = (FedTSNE(n_landmarks=6, rounds=1, perplexity=3, n_jobs=n).fit(fed) for n in (1, 100_000))
    np.testing.assert_array_equal(few.embedding_, many.embedding_)
