"""Settings of a run: what goes in comes out, and nothing else gets in."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from accounting.errors import AccountingError, InvalidParameter
from dpfedvis import FederatedData, FedSpectralClustering, FedTSNE, FedUMAP
from dpfedvis.data import InvalidData
from dpfedvis.estimators.tables import UnknownSetting
from dpfedvis.mechanisms import ClippedGradientPerturbation, HeuristicNoise, InputPerturbation
from dpfedvis.runs.settings import RunConfig, UnreadableConfig, merged

DIGITS = RunConfig(data="digits")


def fed(bounds: tuple[float, float] | None = (0.0, 1.0), features: int = 64) -> FederatedData:
    X = np.random.default_rng(0).uniform(0, 1, (20, features))
    return FederatedData.split(X, clients=2, bounds=bounds)


def written(config: RunConfig, folder: Path) -> Path:
    path = folder / "config.toml"
    path.write_text(config.to_toml())
    return path


@given(
    st.fixed_dictionaries(
        {"data": st.text(min_size=1, alphabet=st.characters(codec="utf-8"))},
        optional={
            "records": st.integers(1, 10**6),
            "label_column": st.text(min_size=1, alphabet=st.characters(codec="utf-8")),
            "epsilon": st.floats(1e-300, 1e300),
            "delta": st.floats(1e-300, 0.999),
            "gamma": st.floats(1e-9, 1e9) | st.lists(st.floats(1e-9, 1e9), min_size=1) | st.just("median"),
            "bounds": st.just([-1, 1.5]),
            "trust": st.sampled_from(["local", "aggregate", "central"]),
            "seed": st.integers(0, 2**32 - 1),
            "shares": st.dictionaries(
                st.sampled_from(["scale", "moments", "subspace", "density"]), st.floats(1e-6, 0.24), min_size=1
            ),
            "components": st.integers(1, 100),
            "placement": st.sampled_from(["anchored", "diffused", "weights", "transform"]),
        },
    )
)
def test_toml_comes_back_as_it_was(values: dict[str, Any]) -> None:
    import tomllib

    config = RunConfig.from_mapping(values)
    found = tomllib.loads(config.to_toml())
    assert RunConfig.from_mapping(found).effective() == config.effective()
    for name, value in config.fields_set_to().items():  # in full
        assert (name in found) == (value is not None)
    assert found["tsne"]["perplexity"] == 30.0


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    path = written(DIGITS.updated(landmarks=30, rounds=7), tmp_path)
    config = RunConfig.from_toml(path, rounds=9)
    assert (config.landmarks, config.rounds) == (30, 9)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("landmarks", 0), ("landmarks", "many"), ("landmarks", 2.5), ("landmarks", True), ("rounds", 0),
        ("epsilon", 0), ("epsilon", -1.0), ("epsilon", math.nan), ("epsilon", math.inf), ("delta", 1.0), ("delta", 0),
        ("map", "pca"), ("mechanism", "laplace"), ("release", "maybe"), ("noise", "white"), ("trust", "nobody"),
        ("scope", "all"), ("adjacency", "swap"), ("seed", -1), ("gamma", []), ("gamma", [0.1, -1]), ("gamma", "mean"),
        ("bounds", [1, 0]), ("bounds", [0, math.nan]), ("bounds", 3), ("bounds", ["0", "1"]), ("data", ""),
        ("tau_x", 0), ("perplexity", -3), ("release_share", 1), ("sampling_rate", 1.5), ("clients", 0),
        ("sample", "last"), ("components", 0), ("components", 2.5), ("placement", "random"),
        ("shares", 0.3), ("shares", [0.3]), ("retries", None),
    ],
)  # fmt: skip
def test_bad_values_are_named_with_the_value(name: str, value: Any) -> None:
    with pytest.raises(InvalidParameter) as caught:
        RunConfig.from_mapping({"data": "digits", name: value})
    assert name in str(caught.value)
    parts = [value, *(value if isinstance(value, list) else ()), tuple(value) if isinstance(value, list) else value]
    assert any(repr(each) in str(caught.value) for each in parts)


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        ({"subspce": 0.1}, "stage of shares must be one of scale, moments, subspace, density, but is 'subspce'"),
        ({"subspace": 0}, "share of subspace must be a number from 1e-06 to 0.999999, but is 0"),
        ({"density": -0.1}, "share of density must be a number from 1e-06 to 0.999999, but is -0.1"),
        ({"density": "much"}, "shares must be a table of numbers, but is {'density': 'much'}"),
    ],
)
def test_bad_shares_are_named_with_their_stage(shares: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidParameter, match=sentence):
        DIGITS.updated(shares=shares)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("map = {}", "map must be one of tsne, umap, clusters, but is {}"),
        ("[tables]\nx = 1", "there is no setting 'tables'"),
        ("[[tsne]]\nperplexity = 3", "tsne must be a table of settings"),
        ("epsilon = 1979-05-27", "epsilon must be a finite number above 0"),
        ("[k-means]\nsweeps = 1e400", "sweeps must be a whole number, but is inf"),
        ("[k-means]\nsweep = 3", "there is no setting 'sweep'; did you mean 'sweeps'"),
        ("[k-menas]\nsweeps = 3", "there is no setting 'k-menas'; did you mean 'k-means'"),
        ("shares = {subspace = {a = 1}}", "shares must be a table of numbers"),
        ("rounds = 0x7fffffffffffffffffffff", "rounds must be a whole number from 1 to 1000000"),
        ("[feddl]\nlandmarks = 3", "there is no setting 'landmarks'"),
        ('"\\u0000" = 1', "there is no setting"),
    ],
)
def test_extremes_of_toml_are_one_sentence(line: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(f'data = "digits"\n{line}\n')
    with pytest.raises((InvalidParameter, UnknownSetting), match=re.escape(sentence)):
        RunConfig.from_toml(path)


def test_unknown_keys_and_missing_data_are_named() -> None:
    with pytest.raises(UnknownSetting, match="landmark'; did you mean 'landmarks'"):
        RunConfig.from_mapping({"data": "digits", "landmark": 3})
    with pytest.raises(InvalidParameter, match="data must be given"):
        RunConfig.from_mapping({"landmarks": 3})


@pytest.mark.parametrize("content", [None, b"= 3", b"\xff\xfe", b"a = " + b"[" * 10**5, b"a = 1e", b"a = 1\na = 2"])
def test_files_that_are_no_toml_are_named(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UnreadableConfig, match=r"settings\.toml"):
        RunConfig.from_toml(path)


@pytest.mark.parametrize(
    ("given", "mechanism", "release"),
    [
        ({}, "none", "exact"),
        ({"epsilon": 2}, "k-means", "none"),
        ({"epsilon": 2, "mechanism": "mean-embedding"}, "mean-embedding", "none"),
        ({"epsilon": 2, "release": "noisy"}, "mean-embedding", "noisy"),
        ({"epsilon": 2, "map": "clusters", "clusters": 2}, "k-means", "none"),
        ({"epsilon": 2, "map": "clusters", "clusters": 2, "release": "noisy"}, "mean-embedding", "noisy"),
        ({"epsilon": 2, "scope": "landmarks"}, "mean-embedding", "exact"),
        ({"epsilon": 2, "mechanism": "input"}, "input", "exact"),
        ({"epsilon": 2, "mechanism": "gradient"}, "gradient", "none"),
        ({"epsilon": 2, "scope": "landmarks", "release": "exact", "mechanism": "clipped"}, "clipped", "exact"),
    ],
)
def test_open_choices_are_ones_that_the_library_allows(given: dict[str, Any], mechanism: str, release: str) -> None:
    data = fed()
    config = DIGITS.updated(landmarks=5, rounds=2, perplexity=2, jobs=1, **given).resolved(data)
    assert (config.mechanism, config.release) == (mechanism, release)
    assert config.resolved(data) == config
    estimator = config.estimator()
    estimator.fit(data)  # raises if it is refused
    assert estimator.get_params()["release"] == release


def test_a_random_sample_is_of_the_whole_file_and_follows_from_the_seed() -> None:
    whole, first = DIGITS.dataset(), DIGITS.updated(records=300)
    drawn = first.updated(sample="random")
    np.testing.assert_array_equal(first.taken(1797), np.arange(300))
    rows = drawn.taken(1797)
    assert len(np.unique(rows)) == 300
    # Were all of them below 1600, that would be chance once in 10^16.
    assert rows.max() > 1600
    dataset = drawn.dataset()
    np.testing.assert_array_equal(dataset.X, whole.X[rows])
    np.testing.assert_array_equal(dataset.y, whole.y[rows])
    assert not dataset.X.flags.writeable
    assert dataset.sha256 == whole.sha256
    np.testing.assert_array_equal(rows, drawn.taken(1797))
    assert not np.array_equal(rows, drawn.updated(seed=1).taken(1797))
    np.testing.assert_array_equal(DIGITS.updated(sample="random").dataset().X, whole.X)
    with pytest.raises(InvalidData, match="between 1 and 1797 for digits, got 1798"):
        drawn.updated(records=1798).dataset()


def test_the_bound_on_records_comes_from_public_bounds_and_holds() -> None:
    assert DIGITS.resolved(fed()).tau_x == 8.0
    assert DIGITS.resolved(fed((-3.0, 1.0), features=4)).tau_x == 6.0
    assert DIGITS.updated(tau_x=2.0).resolved(fed()).tau_x == 2.0
    assert DIGITS.updated(bounds=(0, 2)).resolved(fed()).tau_x == 16.0
    assert DIGITS.resolved(fed(None)).tau_x is None
    data = DIGITS.federated()
    norms = np.linalg.norm(data.pooled()[0], axis=1)
    settled = DIGITS.resolved(data)
    assert settled.tau_x is not None
    assert norms.max() <= settled.tau_x


def test_landmarks_are_500_unless_the_noise_is_to_choose() -> None:
    assert DIGITS.resolved(fed()).landmarks == 500
    assert DIGITS.updated(epsilon=2, release="noisy").resolved(fed()).landmarks == 500
    assert DIGITS.updated(epsilon=2).resolved(fed()).landmarks is None


def test_what_a_private_map_does_not_have_is_refused_by_name() -> None:
    data = fed()
    config = DIGITS.updated(epsilon=2, landmarks=5, gamma=0.1).resolved(data)
    with pytest.raises(InvalidParameter, match="gamma"):
        config.estimator().fit(data)


DENSITY_PICTURE: dict[str, Any] = {
    "shares": {"subspace": 0.3, "density": 0.2},
    "components": 5,
    "placement": "diffused",
}


@pytest.mark.parametrize("kind", ["tsne", "umap"])
def test_settings_of_a_private_map_reach_the_estimator(kind: Any) -> None:
    config = DIGITS.updated(epsilon=2, mechanism="k-means", map=kind)
    assert config.estimator().get_params()["private_map"] is None
    assert config.updated(**DENSITY_PICTURE).estimator().get_params()["private_map"] == DENSITY_PICTURE
    counted = config.updated(density=True, classes=(0, 1), components=5).estimator()
    assert counted.get_params()["private_map"] == {"density": True, "classes": (0, 1), "components": 5}


def test_shares_of_a_private_map_are_those_of_its_events() -> None:
    data = fed()
    config = DIGITS.updated(epsilon=2, landmarks=5, placement="weights", shares={"moments": 0.1, "subspace": 0.4})
    estimator = config.resolved(data).estimator().fit(data)
    noise = {event.what: event.noise_multiplier for event in estimator.ledger_.events(client="client-0")}
    # μ of one Gaussian release is one over its noise multiplier, and shares are of μ².
    assert (noise["moments"] / noise["second moments"]) ** 2 == pytest.approx(4)


@pytest.mark.parametrize(("name", "value"), DENSITY_PICTURE.items())
@pytest.mark.parametrize(
    "given", [{}, {"epsilon": 2, "release": "noisy"}, {"epsilon": 2, "scope": "landmarks"}, {"map": "clusters"}]
)
def test_settings_of_a_private_map_are_refused_without_one(name: str, value: Any, given: dict[str, Any]) -> None:
    config = DIGITS.updated(**given, **{name: value}).resolved(fed())
    with pytest.raises(InvalidParameter, match=f"left out with release='{config.release}'") as caught:
        config.estimator()
    assert (caught.value.name, caught.value.value) == (name, value)


def test_settings_with_shares_can_still_be_told_apart_in_a_set() -> None:
    one, other = (DIGITS.updated(shares={"subspace": share}) for share in (0.1, 0.2))
    assert {one, other, one.updated()} == {one, other}
    assert len({one, other, one.updated()}) == 2


def test_settling_reads_nothing_but_public_facts() -> None:
    # The same for other records of the same public bounds, number of clients and features.
    other = FederatedData.split(np.zeros((20, 64)), clients=2, bounds=(0.0, 1.0))
    config = DIGITS.updated(epsilon=1)
    assert config.resolved(fed()) == config.resolved(other)


def test_the_estimator_gets_every_setting() -> None:
    config = DIGITS.updated(
        map="umap", neighbours=7, landmarks=31, rounds=3, mechanism="clipped", clip=0.3, trust="aggregate",
        epsilon=3, delta=1e-6, scope="landmarks", release="exact", distances="nystrom", rank=5, ridge=0.1, seed=4,
        gamma=(0.1, 0.2), tau_x=5, release_share=0.25, step_size=0.5, optimiser="momentum", weights="equal",
        mmd="biased", start="normal", noise="discrete", local_steps=2, bounds=(0, 1),
    )  # fmt: skip
    estimator = config.estimator()
    assert isinstance(estimator, FedUMAP)
    parameters = clone(estimator).get_params()
    mechanism = parameters["mechanism"]
    assert isinstance(mechanism, ClippedGradientPerturbation)
    assert (mechanism.clip, mechanism.trust) == (0.3, "aggregate")
    budget = parameters["budget"]
    assert (budget.epsilon, budget.delta, budget.scope) == (3, 1e-6, "landmarks")
    taken = {key: parameters[key] for key in ("n_neighbors", "n_landmarks", "rounds", "release", "distances", "rank")}
    assert taken == {"n_neighbors": 7, "n_landmarks": 31, "rounds": 3, "release": "exact", "distances": "nystrom",
                     "rank": 5}  # fmt: skip
    assert (parameters["ridge"], parameters["random_state"], parameters["release_share"]) == (0.1, 4, 0.25)
    assert parameters["tau_x"] == 5
    assert parameters["feddl"] == {
        "gamma": (0.1, 0.2), "step_size": 0.5, "optimiser": "momentum", "weights": "equal", "mmd": "biased",
        "start": "normal", "local_steps": 2, "bounds": (0.0, 1.0),
    }  # fmt: skip
    assert parameters["noise"] == "discrete"


def test_maps_by_name() -> None:
    base = DIGITS.updated(mechanism="none", perplexity=11, clusters=3, jobs=1)
    tsne, clusters = base.estimator(), base.updated(map="clusters").estimator()
    assert isinstance(tsne, FedTSNE)
    assert tsne.perplexity == 11
    assert isinstance(clusters, FedSpectralClustering)
    assert clusters.n_clusters == 3


def test_settings_of_mechanisms_reach_them_or_are_refused() -> None:
    assert DIGITS.updated(mechanism="heuristic", beta=0.1).made_mechanism() == HeuristicNoise(beta=0.1)
    assert DIGITS.updated(mechanism="input", tau_x=3).made_mechanism() == InputPerturbation(tau_x=3)
    with pytest.raises(InvalidParameter, match=r"beta must be left out: 'gradient' has no such setting, but is 0.1"):
        DIGITS.updated(mechanism="gradient", beta=0.1).made_mechanism()
    with pytest.raises(AccountingError, match="tau_x must be given"):
        DIGITS.updated(mechanism="input").made_mechanism()


def test_tables_are_merged_setting_by_setting(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        'data = "digits"\nmap = "clusters"\n[clusters]\nclusters = 3\naffinity = "kernel"\naffinity_gamma = 0.5\n'
    )
    spectral = RunConfig.from_toml(path, clusters=5).spectral
    assert (spectral.clusters, spectral.affinity, spectral.affinity_gamma) == (5, "kernel", 0.5)
    recipe = RunConfig.from_mapping(
        merged({"data": "digits", "epsilon": 1, "private_map": {"components": 3}}, {"private_map": {"radius": 2.0}})
    ).recipe
    assert (recipe.components, recipe.radius) == (3, 2.0)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"start": "x"}, "start must be one of uniform, normal, mean, but is 'x'"),
        ({"feddl": {"projection": "x"}}, "projection must be an object, which only Python can give, but is 'x'"),
        ({"tsne": {"further": {"perplexty": 3}}}, "did you mean 'perplexity'"),
        ({"tsne": {"further": {"perplexity": 3}}}, "tsne setting perplexity must be given as perplexity, but is 3"),
        (
            {"map": "umap", "umap": {"further": {"foo": 3}}},
            "umap setting must be one that the library has",
        ),
        ({"map": "umap", "min_dist": 5.0}, "min_dist must be a number from 0 to 1"),
        ({"rounds": 10**20}, "rounds must be a whole number from 1 to 1000000"),
    ],
)
def test_what_no_run_can_have_is_refused_at_once(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidParameter, match=sentence):
        RunConfig(data="digits", **values)
