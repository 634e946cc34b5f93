"""`dpfedvis audit`, as a user runs it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from accounting.rounding import rounded_down
from dpfedvis.mechanisms import MECHANISMS, GradientPerturbation
from dpfedvis.mechanisms.public_parameters import PublicParameters
from tests.command_line import called, check_refused, examples, once, pasted

FAST = ["--games", "60", "--canaries", "2000", "--rounds", "2", "--frequencies", "400"]
GRADIENT = ["audit", "--mechanism", "gradient", "--epsilon", "4", *FAST[:-2]]


def audited(*arguments: str) -> list[dict[str, Any]]:
    done = called(*once(*arguments, "--json"))
    assert (done.returncode, done.stderr) == (0, "")
    results: list[dict[str, Any]] = json.loads(done.stdout)
    return results


def test_both_levels_at_the_budget() -> None:
    noise, records = audited(*GRADIENT)
    assert [each["facts"]["level"] for each in (noise, records)] == ["noise", "records"]
    for each in (noise, records):
        assert each["claimed_epsilon"] == pytest.approx(4.0, rel=1e-6)
        assert (each["verdict"], each["delta"]) == ("consistent", 1e-5)
        assert 0 < each["lower_bound"] <= 4
        assert each["ratio"] == pytest.approx(each["lower_bound"] / each["claimed_epsilon"])
        assert set(each["bounds"]) == {"gdp", "one-run"}
        assert all(bound["confidence"] == 0.95 and bound["assumptions"] for bound in each["bounds"].values())
    assert (noise["canaries"], records["canaries"]) == (2000, 60)
    assert noise["lower_bound"] > 2.5


def test_every_mechanism_of_the_registry() -> None:
    results = audited("audit", "--mechanism", "all", "--epsilon", "2", *FAST, "--canaries", "500")
    verdicts = {(each["facts"]["mechanism"], each["facts"]["level"]): each["verdict"] for each in results}
    expected = {}
    for name, kind in MECHANISMS.items():
        if kind().protection == "none":
            expected[name, "records"] = "no claim"
        else:
            expected[name, "noise"] = expected[name, "records"] = "kept"
    # One bound in twenty is above its claim by chance, which is suspect and no more.
    kept = {"consistent": "kept", "suspect": "kept"}
    assert {key: kept.get(verdict, verdict) for key, verdict in verdicts.items()} == expected


def test_a_mechanism_without_protection_needs_no_budget() -> None:
    [result] = audited("audit", "--mechanism", "published", *FAST[:-2])
    assert (result["verdict"], result["claimed_epsilon"]) == ("no claim", None)
    done = called("audit", "--mechanism", "none", *FAST[:-2])
    assert done.returncode == 0
    assert "No claim to audit; lower bound found: ε ≥" in done.stdout


def test_options_reach_the_audit() -> None:
    options = ["--delta", "1e-4", "--confidence", "0.9", "--seed", "3", "--trust", "aggregate", "--level", "noise"]
    [result] = audited(*GRADIENT, *options)
    assert (result["delta"], result["facts"]["seed"], result["facts"]["trust"]) == (1e-4, 3, "aggregate")
    assert result["bounds"]["gdp"]["confidence"] == 0.9
    assert (result["facts"]["rounds"], result["facts"]["level"]) == (2, "noise")
    [fewer] = audited(*GRADIENT, "--level", "records", "--rounds", "1")
    assert fewer["facts"]["rounds"] == 1


def test_the_text_shows_the_numbers_of_the_json() -> None:
    results = audited(*GRADIENT)
    done = called(*GRADIENT)
    assert (done.returncode, done.stderr) == (0, "")
    for each in results:
        assert each["sentence"] in done.stdout
        for bound in each["bounds"].values():
            assert f"ε ≥ {rounded_down(bound['epsilon'])}" in done.stdout


@pytest.mark.parametrize(
    ("noise", "words"), [("seeded", "simulation (seeded noise), on one machine"), ("discrete", "on one machine")]
)
def test_both_facts_stand_wherever_epsilon_does(noise: str, words: str, tmp_path: Path) -> None:
    done = called(*GRADIENT, "--level", "noise", "--noise", noise, "--out", str(tmp_path))
    assert f"  the games: {words}\n" in done.stdout
    stored = json.loads((tmp_path / "gradient-noise.json").read_text())
    [shown] = audited(*GRADIENT, "--level", "noise", "--noise", noise)
    for each in (stored, shown):
        assert (each["simulation"], each["one_machine"]) == (noise == "seeded", True)
    page = (tmp_path / "gradient-noise.md").read_text()
    assert f"The games: {words}." in page
    assert f"![Scores and bounds; {words}](gradient-noise.svg)" in page
    assert words in (tmp_path / "gradient-noise.svg").read_text()


def test_the_folder_holds_a_page_a_picture_and_json_of_each(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "audit"
    done = called(*GRADIENT, "--out", str(folder))
    assert done.returncode == 0
    assert str(folder) in done.stdout
    names = {f"gradient-{level}.{kind}" for level in ("noise", "records") for kind in ("md", "svg", "json")}
    assert {path.name for path in folder.iterdir()} == names
    for level in ("noise", "records"):
        result = json.loads((folder / f"gradient-{level}.json").read_text(encoding="utf-8"))
        page = (folder / f"gradient-{level}.md").read_text(encoding="utf-8")
        assert f"**{result['sentence']}**" in page
        assert f"(gradient-{level}.svg)" in page
        assert "<svg" in (folder / f"gradient-{level}.svg").read_text()


@dataclass(frozen=True)
class Careless(GradientPerturbation):
    """A mechanism that states half of its sensitivity."""

    name: ClassVar[str] = "careless"

    def sensitivity(self, setting: PublicParameters, records: float) -> float:
        return super().sensitivity(setting, records) / 2


def test_a_broken_claim_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """A faulty mechanism in the registry, where any new mechanism goes."""
    monkeypatch.setitem(MECHANISMS, "careless", Careless)
    options = ["--epsilon", "4", "--games", "400", "--rounds", "1", "--canaries", "2000", "--seed", "1"]
    done = called("audit", "--mechanism", "careless", *options)
    assert (done.returncode, done.stderr) == (1, "")
    # Its noise is what its stated sensitivity asks for; it is the statement that is wrong.
    assert "careless, noise and accounting: consistent" in done.stdout
    assert "careless, with records: violated" in done.stdout
    assert "1 contradiction" in done.stdout  # a canary moves further than is stated


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["audit"], "--epsilon"),
        ([*GRADIENT, "--mechanism", "magic"], "magic"),
        ([*GRADIENT, "--epsilon", "0"], "epsilon"),
        ([*GRADIENT, "--epsilon", "nan"], "epsilon"),
        ([*GRADIENT, "--epsilon", "four"], "epsilon"),
        ([*GRADIENT, "--delta", "1"], "delta"),
        (["audit", "--mechanism", "none", "--delta", "0"], "delta"),
        ([*GRADIENT, "--confidence", "1"], "confidence"),
        ([*GRADIENT, "--canaries", "1"], "canaries"),
        ([*GRADIENT, "--games", "1"], "games"),
        ([*GRADIENT, "--rounds", "0"], "rounds"),
        ([*GRADIENT, "--level", "deep"], "deep"),
        ([*GRADIENT, "--noise", "loud"], "loud"),
        ([*GRADIENT, "--trust", "blind"], "blind"),
        ([*GRADIENT, "--clip", "0.5"], "--clip"),
        ([*GRADIENT, "--seed", "-1"], "seed"),
        ([*GRADIENT, "--mechanism", "none", "--level", "noise"], "none"),
        ([*GRADIENT, "--mechanism", "input", "--tau-x", "-1"], "tau_x"),
        ([*GRADIENT, "--colour", "red"], "--colour"),
    ],
)
def test_bad_input_is_one_plain_line_and_exit_code_2(arguments: list[str], words: str) -> None:
    check_refused(called(*once(*arguments)), words)


def test_a_folder_that_cannot_be_written_is_named_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    done = called(*GRADIENT, "--out", str(tmp_path / "file"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be written to" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_example_of_the_help_works_when_pasted(tmp_path: Path) -> None:
    line = examples(called("audit", "--help").stdout)[0]
    assert line.startswith("dpfedvis audit --mechanism gradient --epsilon 4")
    done = pasted(line, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("consistent") == 2
