"""`dpfedvis calibrate` to a risk, and for all stages of a private map."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting import Budget, Composition, GaussianRelease, gaussian_mu, risk
from accounting.risk import TradeOff
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.cli.calibrate_map import map_table
from dpfedvis.mechanisms import KMeans
from tests.command_line import called, examples, pasted, started

FAST = ["--delta", "1e-5", "--accountants", "gdp", "--json"]
MAP = ["--mechanism", "private-map", "--records", "150", "--features", "12", "--clients", "3"]


def calibrated(*arguments: str) -> dict[str, Any]:
    done = called("calibrate", *arguments, *FAST)
    assert (done.returncode, done.stderr) == (0, "")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def curve_of(result: dict[str, Any]) -> TradeOff:
    event = GaussianRelease(
        what="x", client="a", sensitivity=result["sensitivity"], sigma=result["sigma"], count=result["rounds"]
    )
    return TradeOff.of(Composition([event]))


def test_an_advantage_is_what_the_noise_allows() -> None:
    result = calibrated("--advantage", "0.1", "--mechanism", "k-means", "--records", "4000")
    assert curve_of(result).advantage == pytest.approx(0.1, rel=1e-6)
    assert result["risk"]["advantage"] == pytest.approx(0.1, rel=1e-6)
    assert result["risk"]["right_guesses_of_100"] == pytest.approx(55.0, rel=1e-6)
    assert result["epsilon"] == pytest.approx(0.9317, abs=1e-4)


def test_a_rate_of_true_positives_is_what_the_noise_allows() -> None:
    result = calibrated("--tpr", "0.02", "--fpr", "0.01", "--mechanism", "histogram")
    assert curve_of(result).true_positive_rate(0.01) == pytest.approx(0.02, rel=1e-6)
    assert dict(map(tuple, result["risk"]["true_positive_rates"]))[0.01] == pytest.approx(0.02, rel=1e-6)


def test_the_table_says_the_risk() -> None:
    done = called("calibrate", "--epsilon", "1", "--mechanism", "histogram", *FAST[:-1])
    mu = gaussian_mu(1.0, 1e-5)
    assert risk.right_guesses(mu) == pytest.approx(55.33, abs=0.01)
    assert "at most 55.4 of 100; blind: 50" in done.stdout
    assert "1.98 % at 1 %" in done.stdout


@pytest.mark.parametrize("trust", ["local", "aggregate"])
def test_the_stages_of_a_map_are_those_that_a_run_releases(trust: str) -> None:
    """Shares, uploads and noise multipliers are read off the ledger of a run with these public numbers."""
    result = calibrated("--epsilon", "5", *MAP, "--trust", trust)
    X = np.random.default_rng(0).random((450, 12))
    fed = FederatedData.split(X, clients=3, seed=0)
    estimator = FedTSNE(
        budget=Budget(5, 1e-5),
        mechanism=KMeans(trust=trust),  # type: ignore[arg-type]
        release="none",
        n_jobs=1,
        feddl={"bounds": (0, 1)},
    ).fit(fed)
    released: dict[str, list[float]] = {}
    for event in estimator.ledger_.events(client=estimator.ledger_.clients[0]):
        assert isinstance(event, GaussianRelease)
        released.setdefault(event.what, []).extend([event.noise_multiplier] * event.count)
    assert released.keys() == {stage["what"] for stage in result["stages"]}
    for stage in result["stages"]:
        multipliers = released[stage["what"]]
        assert len(multipliers) == stage["count"]
        # The number of landmarks, which the charge for integers depends on, is known only later.
        assert multipliers == pytest.approx([stage["noise_multiplier"]] * len(multipliers), rel=1e-5)
    assert result["mu"] == pytest.approx(estimator.ledger_.composition("client-0").total_mu, rel=1e-5)
    assert sum(stage["share"] for stage in result["stages"]) == pytest.approx(1.0)


def test_the_table_of_a_map_shows_no_less_than_it_is() -> None:
    """μ and ε of the accountants are shown rounded up."""
    result: dict[str, Any] = {
        **calibrated("--epsilon", "5", *MAP),
        "mu": 1.2345612,
        "accountants": {"gdp": {"epsilon": 4.9999911, "is_bound": True, "reason": ""}},
    }
    table = map_table(result)
    assert " 1.23457\n" in table
    assert table.splitlines()[-1].split() == ["gdp", "5"]


def test_a_map_is_calibrated_to_a_risk() -> None:
    result = calibrated("--advantage", "0.2", *MAP, "--trust", "aggregate")
    assert result["risk"]["advantage"] <= 0.2
    assert result["risk"]["advantage"] == pytest.approx(0.2, rel=1e-5)
    assert result["sharing"] == {"threshold": 3, "colluders": 1, "factor": pytest.approx(1.2247, abs=1e-4)}


def test_the_examples_of_the_help_work_when_pasted(tmp_path: Path) -> None:
    _, _, advantage, rates, private = examples(started("calibrate", "--help").stdout)
    for line, words in (
        (advantage, "ε = 0.9318"),
        (rates, "2 % at 1 %"),
        (private, "second moments"),
    ):
        done = pasted(f"{line} --accountants gdp", tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert words in done.stdout
