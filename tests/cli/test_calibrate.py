"""`dpfedvis calibrate`, as a user runs it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accounting import (
    ACCOUNTANTS,
    Composition,
    GaussianRelease,
    SampledGaussianRelease,
    accountant,
    gaussian_epsilon,
    gaussian_mu,
    sensitivity,
)
from accounting.accountants.closed import theorem_sigma
from accounting.rounding import rounded_up
from dpfedvis.cli.calibrate import MECHANISMS, _table
from tests.command_line import Done, called, check_refused, examples, pasted, started

BUDGET = ["--epsilon", "1", "--delta", "1e-5"]
SIZES = ["--records", "4000", "--landmarks", "500", "--gamma", "0.005"]
FAST = ["--accountants", "gdp,theorem"]
MU = gaussian_mu(1.0, 1e-5)


def calibrated(*arguments: str, accountants: list[str] = FAST, how: Callable[..., Done] = called) -> dict[str, Any]:
    done = how("calibrate", *BUDGET, *arguments, *accountants, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    result: dict[str, Any] = json.loads(done.stdout)
    assert (result["epsilon"], result["delta"]) == (1.0, 1e-5)
    assert result["noise_multiplier"] == pytest.approx(result["sigma"] / result["sensitivity"], rel=1e-12)
    return result


def test_the_example_gives_every_key_and_right_values() -> None:
    result = calibrated("--mechanism", "gradient", "--rounds", "50", *SIZES, accountants=[], how=started)
    delta = 8 * math.sqrt(0.005 / (2 * math.e)) / (4000 * math.sqrt(500))
    assert result["sensitivity"] == pytest.approx(delta, rel=1e-12)
    assert result["sigma"] == pytest.approx(delta * math.sqrt(50) / MU, rel=1e-6)
    assert result["mu"] == pytest.approx(MU, rel=1e-6)
    assert gaussian_epsilon(result["mu"], 1e-5) <= 1.0
    assert list(result["accountants"]) == list(ACCOUNTANTS)
    opinions = result["accountants"]
    event = GaussianRelease(what="x", client="a", sensitivity=delta, sigma=result["sigma"], count=50)
    for name, opinion in opinions.items():
        assert opinion["is_bound"] == (name != "opacus-gdp")
        if opinion["epsilon"] is None:
            assert opinion["reason"]
            continue
        assert opinion["epsilon"] == pytest.approx(accountant(name).epsilon([event], 1e-5), rel=1e-6)
        if opinion["is_bound"]:
            assert opinion["epsilon"] > 1 - 1e-4
            assert opinion["sigma"] > result["sigma"] * (1 - 1e-4)
    assert opinions["gdp"]["epsilon"] == pytest.approx(1.0, rel=1e-6)
    assert opinions["pld"]["epsilon"] == pytest.approx(1.0, rel=1e-4)
    expected = theorem_sigma(sensitivity=delta, rounds=50, epsilon=1.0, delta=1e-5)
    assert opinions["theorem"]["sigma"] == pytest.approx(expected, rel=1e-6)
    assert re.search("opacus-gdp .*(approximation, not a bound|Opacus is not installed)", _table(result))
    # 2.57 times the exact noise, as the theory has it.
    assert opinions["theorem"]["sigma"] / result["sigma"] == pytest.approx(2.57, abs=0.01)


@pytest.mark.parametrize(
    ("mechanism", "options", "rounds", "expected"),
    [
        ("gradient", SIZES, 50, sensitivity.gradient(gamma=0.005, records=4000, landmarks=500)),
        (
            "variable",
            [*SIZES, "--local-steps", "3", "--step-size", "2.5"],
            50,
            sensitivity.variable(gamma=0.005, records=4000, landmarks=500, local_steps=3, step_size=2.5),
        ),
        (
            "variable",
            SIZES,
            50,
            sensitivity.variable(gamma=0.005, records=4000, landmarks=500, local_steps=1, step_size=500 / 0.06),
        ),
        (
            "clipped",
            [*SIZES, "--clip", "1.5"],
            50,
            sensitivity.clipped_gradient(gamma=0.005, records=4000, landmarks=500, clip=1.5),
        ),
        ("input", ["--tau-x", "3"], 1, 6.0),
        ("k-means", ["--records", "4000"], 12, 2 / 4000),
        ("mean-embedding", ["--records", "4000"], 1, 2 / 4000),
        ("second-moment", ["--clip", "2"], 1, math.sqrt(2) * 4),
        ("gram-rows", ["--tau-x", "3"], 1, 6.0),
        ("distance-rows", ["--tau-x", "3", "--landmarks", "100"], 1, 60.0),
        ("kernel-rows", ["--gamma", "9", "--landmarks", "100"], 1, 10.0),
        ("kernel-rows", ["--gamma", "9", "--landmarks", "100", "--tau-x", "0.01"], 1, 0.2 * math.sqrt(18 / math.e)),
        ("histogram", [], 1, math.sqrt(2)),
    ],
)
def test_every_mechanism(mechanism: str, options: list[str], rounds: int, expected: float) -> None:
    result = calibrated("--mechanism", mechanism, *options)
    assert (result["mechanism"], result["rounds"], result["adjacency"]) == (mechanism, rounds, "replace-one")
    assert result["sensitivity"] == pytest.approx(expected, rel=1e-12)
    assert result["sigma"] == pytest.approx(expected * math.sqrt(rounds) / MU, rel=1e-6)
    assert result["mu"] == pytest.approx(MU, rel=1e-6)
    assert list(result["accountants"]) == ["gdp", "theorem"]


def test_every_mechanism_is_in_the_test_above() -> None:
    [mark] = test_every_mechanism.pytestmark
    assert {case[0] for case in mark.args[1]} == set(MECHANISMS)


def test_adjacency() -> None:
    replaced, added = (calibrated(*SIZES, "--adjacency", name) for name in ("replace-one", "add-remove"))
    assert (replaced["adjacency"], added["adjacency"]) == ("replace-one", "add-remove")
    assert replaced["sensitivity"] == 2 * added["sensitivity"]
    assert replaced["sigma"] == pytest.approx(2 * added["sigma"], rel=1e-12)


def test_the_theorem_beside_and_in_place_of_the_tight_bound() -> None:
    bounds = ["--tau-x", "10", "--tau-y", "200", "--upsilon", "20"]
    theorem = 8 * 0.005 * 10 / (4000 * math.sqrt(500)) * (1 + 2 * 0.005 * (10 + 200) * (10 + 20))
    tight = calibrated(*SIZES, *bounds)
    assert tight["sensitivities"]["theorem"] == pytest.approx(theorem, rel=1e-12)
    assert tight["sensitivity"] == tight["sensitivities"]["tight"] < theorem
    printed = calibrated(*SIZES, *bounds, "--bound", "theorem")
    assert printed["sensitivity"] == printed["sensitivities"]["theorem"] == pytest.approx(theorem, rel=1e-12)
    assert printed["sigma"] / tight["sigma"] == pytest.approx(theorem / tight["sensitivity"], rel=1e-9)
    assert list(calibrated(*SIZES)["sensitivities"]) == ["tight"]


def test_several_widths_stand_for_the_mean_kernel() -> None:
    result = calibrated("--records", "4000", "--landmarks", "500", "--gamma", "0.005,0.02,0.5")
    singles = [sensitivity.gradient(gamma=gamma, records=4000, landmarks=500) for gamma in (0.005, 0.02, 0.5)]
    assert result["sensitivity"] == pytest.approx(sum(singles) / 3, rel=1e-12)


def test_sampling_lowers_the_noise_and_the_result_holds() -> None:
    options = ["--rounds", "20", *SIZES, "--sampling-rate", "0.1"]
    result = calibrated(*options, accountants=["--accountants", "gdp,rdp"], how=started)
    delta = sensitivity.gradient(gamma=0.005, records=400, landmarks=500, adjacency="add-remove")
    assert (result["adjacency"], result["mu"], result["accountant"]) == ("add-remove", None, "pld")
    assert (result["sampling_rate"], result["sensitivity"]) == (0.1, pytest.approx(delta, rel=1e-12))
    assert result["noise_multiplier"] < math.sqrt(20) / MU
    opinions = result["accountants"]
    event = SampledGaussianRelease(
        what="x",
        client="a",
        adjacency="add-remove",
        sensitivity=delta,
        sigma=result["sigma"],
        count=20,
        sampling_rate=0.1,
    )
    assert 1 - 1e-3 < accountant("pld").epsilon([event], 1e-5) <= 1.0
    assert opinions["rdp"]["epsilon"] > 1.0
    assert opinions["gdp"]["epsilon"] is None
    assert "sampled" in opinions["gdp"]["reason"]


def test_the_accountants_asked_are_those_named_and_in_that_order() -> None:
    result = calibrated(*SIZES, accountants=["--accountants", "basic, gdp,zcdp"], how=started)
    assert list(result["accountants"]) == ["basic", "gdp", "zcdp"]


def test_the_table_shows_the_numbers_of_the_json() -> None:
    options = [*SIZES, "--tau-x", "10", "--tau-y", "200", "--upsilon", "20"]
    result = calibrated(*options, accountants=["--accountants", "gdp,theorem,advanced"])
    done = called("calibrate", *BUDGET, *options, "--accountants", "gdp,theorem,advanced")
    assert (done.returncode, done.stderr) == (0, "")
    for number in (result["sensitivity"], result["sensitivities"]["theorem"], result["sigma"]):
        assert f"{number:.6g}" in done.stdout
    assert f" {rounded_up(result['mu'], 6)}\n" in done.stdout
    for name, opinion in result["accountants"].items():
        [line] = [line for line in done.stdout.splitlines() if line.split()[:1] == [name]]
        assert line.split()[1:3] == [rounded_up(opinion["epsilon"], 6), f"{opinion['sigma']:.6g}"]


def test_extreme_budgets_give_finite_numbers_or_reasons() -> None:
    for epsilon, delta in (("1e-6", "1e-12"), ("700", "1e-300"), ("1e4", "0.5")):
        done = called(
            *["calibrate", "--epsilon", epsilon, "--delta", delta, *SIZES, "--json"],
            *["--accountants", "gdp,zcdp,theorem,advanced,basic"],
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "NaN" not in done.stdout
        assert "Infinity" not in done.stdout
        result = json.loads(done.stdout)
        composition = Composition([GaussianRelease(what="x", client="a", sensitivity=1, sigma=1 / result["mu"])])
        assert accountant("gdp").epsilon(composition, float(delta)) == pytest.approx(float(epsilon), rel=1e-6)


GRADIENT = ["calibrate", *BUDGET, *SIZES, *FAST]
VARIABLE = [*GRADIENT, "--mechanism", "variable"]
PRIVATE = ["calibrate", *BUDGET, *FAST, "--mechanism", "private-map", "--records", "1000", "--features", "30",
           "--clients", "5"]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "COMMAND"),
        (["dance"], "dance"),
        (["calibrate"], "--delta"),
        (["calibrate", "--delta", "1e-5", *SIZES], "--epsilon, --advantage, or --tpr with --fpr"),
        ([*GRADIENT, "--advantage", "0.1"], "--epsilon"),
        (["calibrate", "--delta", "1e-5", *SIZES, "--tpr", "0.1"], "true positives with false positives"),
        (["calibrate", "--delta", "1e-5", *SIZES, "--tpr", "0.1", "--fpr", "0.2"], "any guess reaches that"),
        (["calibrate", "--delta", "1e-5", *SIZES, "--advantage", "1"], "advantage"),
        ([*GRADIENT, "--features", "3"], "--features"),
        ([*GRADIENT, "--trust", "aggregate"], "--trust"),
        ([*GRADIENT, "--mechanism", "private-map"], "--features and --clients"),
        ([*PRIVATE, "--sampling-rate", "0.1"], "sampling-rate"),
        ([*PRIVATE, "--gamma", "0.1"], "gamma"),
        ([*PRIVATE, "--colluders", "1"], "colluders"),
        ([*PRIVATE, "--features", "1"], "features"),
        (["calibrate", "--epsilon", "1"], "--delta"),
        ([*GRADIENT, "--epsilon", "0"], "epsilon"),
        ([*GRADIENT, "--epsilon", "-1"], "epsilon"),
        ([*GRADIENT, "--epsilon", "nan"], "epsilon"),
        ([*GRADIENT, "--epsilon", "inf"], "epsilon"),
        ([*GRADIENT, "--epsilon", "one"], "epsilon"),
        ([*GRADIENT, "--delta", "0"], "delta"),
        ([*GRADIENT, "--delta", "1"], "delta"),
        ([*GRADIENT, "--delta", "nan"], "delta"),
        ([*GRADIENT, "--rounds", "0"], "--rounds"),
        ([*GRADIENT, "--rounds", "2.5"], "rounds"),
        ([*GRADIENT, "--records", "0"], "records"),
        ([*GRADIENT, "--landmarks", "0"], "landmarks"),
        ([*GRADIENT, "--gamma", "0"], "gamma"),
        ([*GRADIENT, "--gamma", "0.1,,2"], "gamma"),
        ([*GRADIENT, "--gamma", "0.1,-2"], "gamma"),
        ([*GRADIENT, "--mechanism", "magic"], "magic"),
        ([*GRADIENT, "--adjacency", "swap"], "swap"),
        ([*GRADIENT, "--bound", "theorem"], "--tau-x and --tau-y and --upsilon"),
        ([*GRADIENT, "--bound", "loose"], "loose"),
        ([*GRADIENT, "--accountants", "gdp,abacus"], "abacus"),
        ([*GRADIENT, "--accountants", ""], "accountants"),
        ([*GRADIENT, "--sampling-rate", "0"], "sampling-rate"),
        ([*GRADIENT, "--sampling-rate", "1.5"], "sampling-rate"),
        ([*GRADIENT, "--sampling-rate", "0.1", "--adjacency", "replace-one"], "adjacency"),
        ([*GRADIENT, "--mechanism", "histogram", "--sampling-rate", "0.1"], "sampling-rate"),
        ([*GRADIENT, "--mechanism", "input"], "tau-x"),
        ([*GRADIENT, "--mechanism", "input", "--tau-x", "1", "--adjacency", "add-remove"], "adjacency"),
        ([*GRADIENT, "--mechanism", "clipped"], "clip"),
        ([*GRADIENT, "--mechanism", "second-moment", "--clip", "1e300"], "clip"),
        ([*VARIABLE, "--gamma", "0"], "gamma"),
        ([*VARIABLE, "--landmarks", "0"], "landmarks"),
        ([*VARIABLE, "--step-size", "0"], "step_size"),
        ([*VARIABLE, "--local-steps", "0"], "local_steps"),
        ([*VARIABLE, "--local-steps", "100000"], "local_steps"),
        (["calibrate", *BUDGET], "--gamma"),
        ([*GRADIENT, "--colour", "red"], "--colour"),
    ],
)
def test_bad_input_is_one_plain_line_and_exit_code_2(arguments: list[str], words: str) -> None:
    check_refused(called(*arguments), words)


@pytest.mark.parametrize("bad", [["--epsilon", "0"], ["--mechanism", "magic"], ["--mechanism", "clipped"]])
def test_bad_input_through_the_shell(bad: list[str]) -> None:
    done = started(*GRADIENT, *bad)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "Traceback" not in done.stderr


def test_the_example_of_the_help_works_when_pasted(tmp_path: Path) -> None:
    shown = started("calibrate", "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    line, shared, *_ = examples(shown.stdout)
    # As it stands but for the accountants, of which two are enough here.
    done = pasted(f"{line} {' '.join(FAST)}", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "7.15" in done.stdout  # σ = 7.157e-05
    assert "gdp" in done.stdout
    sums = pasted(f"{shared} {' '.join(FAST)}", tmp_path)
    assert (sums.returncode, sums.stderr) == (0, "")
    assert "at least t = 9 in a sum, c = 2 may collude" in sums.stdout
    assert "√(P/(t − c)) = 1.195 × σ" in sums.stdout


def test_help_names_every_option() -> None:
    shown = started("calibrate", "--help").stdout
    for option in ("--tau-x", "--tau-y", "--upsilon", "--sampling-rate", "--adjacency", "--bound", "--json"):
        assert option in shown


def test_rounds_count_for_one_shot_releases_too() -> None:
    command = ["calibrate", *BUDGET, "--mechanism", "input", "--tau-x", "1", "--json", "--accountants", "gdp"]
    once, often = (json.loads(called(*command, *more).stdout) for more in ([], ["--rounds", "50"]))
    assert (once["rounds"], often["rounds"]) == (1, 50)
    assert often["sigma"] == pytest.approx(50**0.5 * once["sigma"])


def test_variable_is_not_calibrated_for_samples_whose_size_its_sensitivity_does_not_cover() -> None:
    done = called(*GRADIENT, "--mechanism", "variable", "--sampling-rate", "0.05")
    assert done.returncode == 2
    assert "variable" in done.stderr
