"""Attacks on private runs: membership from noisy sums, and the sentence that all attacks end with."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from accounting import gaussian_mu
from accounting.risk import Risk
from accounting.rounding import rounded_up
from accounting.statement import AllRuns
from attacks.membership.conclusion import conclusion
from attacks.membership.rates import Game, membership
from attacks.membership.report import ANCHORS, SUMS, attack
from attacks.membership.sums import SeenSum, sum_scores, sums_of
from attacks.shared.registry import KINDS, NothingToAttack
from attacks.shared.statistics import Limit
from dpfedvis.cli.attack import truth_of
from dpfedvis.runs.execute import execute
from dpfedvis.runs.settings import RunConfig
from dpfedvis.runs.upload_reader import Recording
from tests.command_line import called

BASE = RunConfig(
    data="digits", records=240, sample="random", clients=3, landmarks=12, rounds=4, epsilon=4.0, jobs=1,
    perplexity=5, private_map={"anchors": 40, "placement": "weights"},
)  # fmt: skip


@pytest.fixture(scope="module", params=["local", "aggregate"])
def private(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(tmp_path_factory.mktemp("private")) / request.param
    execute(BASE.updated(trust=request.param), folder)
    return folder


def test_scores_are_the_likelihood_ratio_written_out(private: Path) -> None:
    recording = Recording.read(private)
    names = [each.name for each in recording.clients]
    behind = names if recording.mechanism.trust == "aggregate" else names[:1]
    seen = sums_of(recording, behind)
    assert len(seen) == 4
    fed = truth_of(private).fed
    X, reference = fed.clients[0].X[:5], fed.clients[1].X[:20]
    centre, axes = recording.published["centre"], recording.published["axes"]
    radius = 0.4 / math.sqrt(2 * recording.public.kernel.gammas[0])

    def part(x: np.ndarray, Y: np.ndarray) -> np.ndarray:
        place = (x.astype(float) - centre) @ axes
        found = np.zeros((len(Y), len(place) + 1))
        row = int(np.argmin([np.sum((place - y) ** 2) for y in Y]))
        offset = (place - Y[row]) / radius
        found[row] = [*(offset / max(1.0, float(np.linalg.norm(offset)))), 1.0]
        return found

    expected = np.zeros(len(X))
    for each in seen:
        mean = sum(part(x, each.landmarks) for x in reference) / len(reference)
        for number, x in enumerate(X):
            mine = part(x, each.landmarks) / each.records
            expected[number] += (np.sum(mine * (each.values - mean)) - np.sum(mine**2) / 2) / each.sigma**2
    np.testing.assert_allclose(sum_scores(recording, seen, X, reference), expected, rtol=1e-6)


def test_without_noise_sums_give_records_away(private: Path) -> None:
    """The exact means of one client's records at one round, of other records and of candidates of both kinds."""
    recording, fed = Recording.read(private), truth_of(private).fed
    pooled = np.random.default_rng(0).permutation(fed.pooled()[0])
    inside, reference, outside = pooled[:20], pooled[20:120], pooled[120:]
    Y = (reference[:15].astype(float) - recording.published["centre"]) @ recording.published["axes"]
    radius = 0.4 / math.sqrt(2 * recording.public.kernel.gammas[0])
    values = np.zeros((len(Y), Y.shape[1] + 1))
    for x in inside:
        place = (x.astype(float) - recording.published["centre"]) @ recording.published["axes"]
        row = int(np.argmin(np.sum((Y - place) ** 2, axis=1)))
        offset = (place - Y[row]) / radius
        values[row] += np.array([*(offset / max(1.0, float(np.linalg.norm(offset)))), 1.0]) / 20
    scores = sum_scores(recording, [SeenSum(Y, values, 1e-3, 20.0)], np.concatenate([inside, outside]), reference)
    assert np.mean(scores[:20, None] > scores[None, 20:]) > 0.65


def test_sums_and_anchors_are_tried_and_stay_within_what_is_allowed(private: Path) -> None:
    recording = Recording.read(private)
    report = attack(recording, truth_of(private), np.random.default_rng(0))
    by_name = {each.game.name: each for each in report.games}
    for game in (SUMS, ANCHORS):
        assert by_name[game.name].auc.low <= by_name[game.name].limit.auc()
        assert by_name[game.name].limit.mu == pytest.approx(gaussian_mu(4.0, 1e-5), rel=1e-6)
    found = conclusion(recording, report.games, {}, 1e-5)
    assert found is not None
    assert f"allowed {rounded_up(by_name[SUMS.name].limit.auc(), 2)}" in found.sentence
    assert "In this simulation" in found.sentence
    assert "at most 67.9 of 100 guesses are right" in found.sentence


def test_the_command_ends_with_one_sentence(private: Path, tmp_path: Path) -> None:
    command = ["attack", "--run", str(private), "--out", str(tmp_path / "out")]
    done = called(*command)
    assert (done.returncode, done.stderr) == (0, "")
    sentence = next(line for line in done.stdout.splitlines() if line.startswith("**In this simulation"))
    assert sentence.count(". ") == 0
    found = json.loads(called(*command, "--json").stdout)
    assert set(found) == {*KINDS, "conclusion"}
    assert found["conclusion"]["sentence"] == sentence.strip("*")
    could = " ".join(each["could"] for each in found["conclusion"]["tried"])
    assert "From sums, landmarks and the published map" in could
    assert "conclusion" not in json.loads(called(*command, "--json", "--kind", "membership").stdout)


NOTHING = {
    name: f"{name} needs what did not leave" for name in ("reconstruction", "inversion", "membership", "exposure")
}


def test_where_nothing_could_be_tried_only_the_bound_is_claimed(private: Path) -> None:
    """That no attack was possible here says nothing of what others can do."""
    recording = Recording.read(private)
    found = conclusion(recording, [], NOTHING, 1e-5)
    assert found is not None
    assert "no attack could be tried on this run: reconstruction needs" in found.sentence
    assert found.sentence.endswith("what holds is the bound alone: at most 67.9 of 100 guesses are right.")
    for untrue in ("could be used to tell", "no record came back"):
        assert untrue not in found.sentence


def test_what_was_tried_is_said_beside_what_was_not(private: Path) -> None:
    recording = Recording.read(private)
    skipped = {name: why for name, why in NOTHING.items() if name != "reconstruction"}
    for recognised, said in ((0.125, "12.5% of the records were recognised"), (None, "reconstruction was tried")):
        found = conclusion(recording, [], skipped, 1e-5, recognised=recognised)
        assert found is not None
        assert said in found.sentence
        assert "who took part could not be tried (membership needs" in found.sentence


def test_the_bound_is_that_of_all_runs_on_these_records(private: Path) -> None:
    recording = Recording.read(private)
    risk = Risk(2.0, 0.683, ())
    for all_runs, said in (
        (AllRuns(9.0, 3, risk=risk), "at most 84.2 of 100 guesses are right by whoever sees all 3 runs"),
        (AllRuns(4.0, 1, risk=risk), "at most 67.9 of 100 guesses are right."),
        (None, "at most 67.9 of 100 guesses are right."),
    ):
        found = conclusion(recording, [], NOTHING, 1e-5, all_runs=all_runs)
        assert found is not None
        assert said in found.sentence


def test_a_leak_is_the_sentence(private: Path) -> None:
    rng = np.random.default_rng(0)
    game = Game("a leak", "in", "out", "all", independent=True)
    leak = membership(rng.normal(5, 1, 200), rng.normal(0, 1, 200), game=game, limit=Limit.of_mu(0.5))
    found = conclusion(Recording.read(private), [leak], {}, 1e-5)
    assert found is not None
    assert "better than the guarantee allows" in found.sentence
    assert "do not publish" in found.sentence


def test_without_a_guarantee_there_is_no_such_sentence(tmp_path: Path) -> None:
    execute(
        RunConfig(data="digits", records=60, clients=2, landmarks=10, rounds=2, perplexity=5, jobs=1), tmp_path / "r"
    )
    recording = Recording.read(tmp_path / "r")
    assert conclusion(recording, [], {}, 1e-5) is None
    with pytest.raises(NothingToAttack, match="k-means"):
        sums_of(recording, ["client-0"])
