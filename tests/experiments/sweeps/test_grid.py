"""TOML → cells, and what a cell's address depends on."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from accounting import InvalidParameter
from dpfedvis.estimators.tables import UnknownSetting
from dpfedvis.experiments.sweeps.cells import Cell
from dpfedvis.experiments.sweeps.grid import Grid, InvalidGrid
from dpfedvis.mechanisms import MECHANISMS, PublishedFedDL
from dpfedvis.runs.settings import RunConfig, UnreadableConfig


def configs(**values: Any) -> list[RunConfig]:
    return [cell.config for cell in Grid.from_mapping({"data": "digits", **values}).cells]


def test_lists_are_axes_and_scalars_are_fixed() -> None:
    found = configs(landmarks=[10, 20], rounds=[1, 2, 3], clients=4, seeds=2)
    assert len(found) == 2 * 3 * 2
    assert {(each.landmarks, each.rounds, each.seed) for each in found} == {
        (n, r, s) for n in (10, 20) for r in (1, 2, 3) for s in (0, 1)
    }
    assert {each.clients for each in found} == {4}


def test_tables_share_what_stands_above_them(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(
        'data = "digits"\nseeds = [3, 5]\nrounds = 7\n[[grid]]\nmechanism = "gradient"\nepsilon = [1, 2]\n'
        '[[grid]]\nmechanism = "none"\nrounds = 9\n'
    )
    found = [(cell.config.mechanism, cell.config.epsilon, cell.config.rounds) for cell in Grid.from_toml(path).cells]
    assert found[::2] == [("gradient", 1.0, 7), ("gradient", 2.0, 7), ("none", None, 9)]
    assert len(found) == 6


def test_settings_that_are_lists_need_lists_of_lists_for_an_axis() -> None:
    assert [each.feddl["gamma"] for each in configs(gamma=[0.1, 0.2])] == [(0.1, 0.2)]
    assert [each.feddl["gamma"] for each in configs(gamma=[[0.1], [0.1, 0.2]])] == [(0.1,), (0.1, 0.2)]
    assert [each.feddl["gamma"] for each in configs(gamma=["public", 0.1])] == ["public", 0.1]
    assert [each.feddl["bounds"] for each in configs(bounds=[0, 1])] == [(0.0, 1.0)]


@pytest.mark.parametrize("infinite", ["inf", math.inf])
def test_an_infinite_epsilon_is_one_run_without_noise(infinite: Any) -> None:
    found = configs(
        mechanism=["gradient", "k-means"], epsilon=[1, infinite], trust="aggregate", scope="landmarks", release="exact"
    )
    free = [each for each in found if each.epsilon is None]
    assert free == [RunConfig(data="digits", mechanism="none")]
    assert [each.epsilon for each in found if each.epsilon is not None] == [1.0, 1.0]


def test_shares_are_one_value_and_belong_to_the_budget() -> None:
    one, other = {"subspace": 0.3}, {"subspace": 0.1, "density": 0.1}
    found = configs(epsilon=[1, "inf"], shares=[one, other], components=4, placement="weights")
    assert [each.given["shares"] for each in found if each.epsilon is not None] == [one, other]
    assert [each for each in found if each.epsilon is None] == [RunConfig(data="digits", mechanism="none")]
    assert [each.given["shares"] for each in configs(shares=one)] == [one]
    cells = Grid.from_mapping({"data": "digits", "epsilon": 1, "shares": [one, other]}).cells
    assert len({cell.address("0") for cell in cells}) == 2


def test_an_infinite_epsilon_leaves_mechanisms_that_protect_nothing() -> None:
    (found,) = configs(mechanism="published", beta=1.0, batch=9, epsilon="inf")
    assert (found.made_mechanism(), found.epsilon) == (PublishedFedDL(beta=1.0, batch=9), None)


def test_epsilon_zero_is_the_data_free_baseline() -> None:
    cells = Grid.from_mapping({"data": "digits", "mechanism": ["gradient", "k-means"], "epsilon": [0, 1]}).cells
    assert [cell.kind for cell in cells] == ["data-free", "run", "run"]


def test_the_data_free_baseline_keeps_what_is_public() -> None:
    (cell, _) = Grid.from_mapping({"data": "own.csv", "bounds": [0, 2], "tau_x": 3, "epsilon": [0, 1]}).cells
    assert (cell.config.feddl["bounds"], cell.config.tau_x) == ((0.0, 2.0), 3.0)
    assert cell.settings["bounds"] == [0.0, 2.0]


def test_baselines_stand_beside_the_runs_once() -> None:
    cells = Grid.from_mapping(
        {"data": "digits", "mechanism": ["gradient", "k-means"], "epsilon": [1, 2], "landmarks": [9, 10], "seeds": 2,
         "baselines": ["data-free", "central"], "perplexity": 7}
    ).cells  # fmt: skip
    kinds = [cell.kind for cell in cells]
    assert (kinds.count("run"), kinds.count("central"), kinds.count("data-free")) == (16, 2, 4)
    central = [cell.config for cell in cells if cell.kind == "central"]
    assert central == [RunConfig(data="digits", perplexity=7.0, seed=seed) for seed in (0, 1)]


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ({"landmark": 3}, UnknownSetting, "did you mean 'landmarks'"),
        ({"landmarks": []}, InvalidGrid, "axis 'landmarks' is empty"),
        ({"landmarks": [3, 0]}, InvalidParameter, "landmarks"),
        ({"mechanism": ["none", "laplace"]}, InvalidParameter, "laplace"),
        ({"epsilon": "many"}, InvalidParameter, "epsilon"),
        ({"epsilon": True}, InvalidParameter, "epsilon"),
        ({"epsilon": -1}, InvalidParameter, "epsilon"),
        ({"seeds": 0}, InvalidParameter, "seeds"),
        ({"seeds": []}, InvalidParameter, "seeds"),
        ({"seeds": [1, 1]}, InvalidParameter, "seeds"),
        ({"seed": 1}, InvalidGrid, "'seeds'"),
        ({"baselines": ["none"]}, InvalidParameter, "baselines"),
        ({"grid": 3}, InvalidGrid, r"\[\[grid\]\]"),
        ({"grid": []}, InvalidGrid, r"\[\[grid\]\]"),
        ({"seeds": 200_000}, InvalidGrid, "100000"),
        ({"data": None}, InvalidParameter, "data"),
    ],
)
def test_what_is_no_grid_is_named(values: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        configs(**values)


def test_a_grid_needs_data_and_a_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="data"):
        Grid.from_mapping({"landmarks": 3})
    with pytest.raises(UnreadableConfig):
        Grid.from_toml(tmp_path / "none.toml")


# Addresses


def test_addresses_tell_apart_what_differs() -> None:
    base = Cell("run", RunConfig(data="digits"))
    others = [
        Cell("central", base.config),
        Cell("run", RunConfig(data="digits", seed=1)),
        Cell("run", RunConfig(data="digits", gamma=(0.1,))),
        Cell("run", RunConfig(data="digits", gamma=(0.1, 0.2))),
        Cell("run", RunConfig(data="digits", epsilon=1.0)),
    ]
    addresses = {cell.address("x") for cell in (base, *others)} | {base.address("y")}
    assert len(addresses) == 7
    assert all(len(address) == 64 for address in addresses)


def test_addresses_do_not_change_with_what_does_not_matter() -> None:
    base = Cell("run", RunConfig(data="digits")).address("x")
    assert Cell("run", RunConfig(data="digits", jobs=7, recorded_rounds=1)).address("x") == base
    assert Cell("run", RunConfig(data="/elsewhere/digits.csv")).address("x") == base
    assert Cell("run", RunConfig(data="digits", rounds=50)).address("x") == base  # the default, said


def test_chosen_rounds_have_an_address_of_their_own() -> None:
    def address(**settings: object) -> str:
        return Cell("run", RunConfig(data="digits", mechanism="gradient", epsilon=1.0, **settings)).address("x")

    # As it was when 50 was the default.
    assert address(rounds=50) == "abbc6a00de842b7beb40d48506c541a073fce78033456e19e928f2029dd1db60"
    assert len({address(), address(rounds=50), address(rounds=49)}) == 3
    assert Cell("run", RunConfig(data="digits", mechanism="gradient", epsilon=1.0, rounds=50)).settings["rounds"] == 50


def test_an_address_is_the_same_on_every_machine() -> None:
    cell = Cell("run", RunConfig(data="digits", epsilon=2, gamma=[0.1, 0.2], seed=3))
    assert cell.address("x") == "51d5d8de5fc37f3afa3c175de0f2ab96580117fd6cfd20506d005ebd0f2b4812"


def test_landmarks_are_shared_by_maps_without_a_budget_only() -> None:
    def landmarks(**settings: Any) -> str | None:
        return Cell("run", RunConfig(data="digits", mechanism="none", **settings)).landmark_address("x", "code")

    base = landmarks()
    assert base is not None
    assert landmarks(map="umap") == landmarks(distances="nystrom") == landmarks(map="clusters", clusters=3) == base
    assert len({base, landmarks(seed=1), landmarks(rounds=3), landmarks(partition="by-class")}) == 4
    assert landmarks(epsilon=1.0) is None
    assert Cell("central", RunConfig(data="digits")).landmark_address("x", "code") is None
    other = Cell("run", RunConfig(data="digits", mechanism="none")).landmark_address("x", "other code")
    assert other != base


@pytest.mark.parametrize("name", ["digits", "mnist"])
def test_the_grids_of_the_reports_hold_all_mechanisms_and_budgets(name: str) -> None:
    cells = Grid.from_toml(Path(__file__).parents[3] / "reports" / "privacy-utility" / f"{name}.toml").cells
    assert {cell.kind for cell in cells} == {"run", "central", "data-free"}
    assert {cell.config.seed for cell in cells} == {0, 1, 2}
    runs = [cell.config for cell in cells if cell.kind == "run"]
    protecting = {name for name, kind in MECHANISMS.items() if kind().protection != "none"}
    assert {config.mechanism for config in runs} >= protecting | {"heuristic", "none"}
    for mechanism in protecting:
        budgets = {config.epsilon for config in runs if config.mechanism == mechanism}
        assert budgets == {0.5, 1, 2, 5, 10, 50}
