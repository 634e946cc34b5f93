"""`dpfedvis demo`: the page tells what its runs say, and is there whole or not at all."""

from __future__ import annotations

import base64
import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from accounting import Ledger
from dpfedvis.cli.main import main, parser
from dpfedvis.reporting.rendering import shown
from dpfedvis.reporting.run_facts import RunFacts
from dpfedvis.runs import execute as runs
from dpfedvis.runs.settings import RunConfig
from tests.reporting.test_page import Outline, drawings, figures, own

PRIVATE = ("private-low", "private-middle", "private-high")
RUNS = {"exact", "plus", *PRIVATE, "noisy"}


def index(folder: Path) -> str:
    return (folder / "index.html").read_text(encoding="utf-8")


def test_every_epsilon_is_that_of_a_ledger(demo: Path) -> None:
    outline = Outline(index(demo))
    links = [each for each in outline.of("a") if "data-run" in each]
    epsilons = {each["data-run"]: float(each["data-run-epsilon"] or "") for each in links}
    assert set(epsilons) == RUNS
    for key, epsilon in epsilons.items():
        with Ledger.read(demo / str(key) / "ledger.sqlite") as ledger:
            assert epsilon == ledger.spent(1e-5, end_to_end=True), key
    assert (epsilons["exact"], epsilons["plus"]) == (math.inf, math.inf)
    headlines = [float(each["data-epsilon"] or "") for each in outline.of("p") if "data-epsilon" in each]
    assert headlines == [epsilons[key] for key in PRIVATE] == pytest.approx([1, 3, 10])


def test_no_epsilon_stands_without_whom_it_is_against(demo: Path) -> None:
    seen = re.sub(r"<details>.*?</details>", "", own(index(demo)), flags=re.DOTALL)
    # Three headlines, below the table for each, and of the hospitals.
    assert seen.count("against a server that sees sums over clients") == 7
    assert "noisy rows, ε = 10, against whoever sees the uploads" in seen
    assert re.search(r"opened only if at least \d+ of \d+ sites are in it\.", index(demo))


def test_the_paper_s_noise_has_its_price(demo: Path) -> None:
    (found,) = [each for each in Outline(index(demo)).of("p") if "data-nominal-epsilon" in each]
    statement = json.loads((demo / "plus" / "statement.json").read_text())
    nominal = statement["nominal_epsilon"]
    assert float(found["data-nominal-epsilon"] or "") == nominal
    found_at = [re.search(r"data-nominal-epsilon.*?ε = ([0-9.]+)[< ]", text, flags=re.DOTALL)
             for text in (index(demo), (demo / "plus" / "report.html").read_text())]  # fmt: skip
    for each in found_at:  # on this page and on its own
        assert each is not None
        assert nominal <= float(each[1]) < 1.001 * nominal


def test_scores_stand_beside_chance_no_data_and_central(demo: Path) -> None:
    """On this page and in the reports of its runs."""
    for key in RUNS:
        known = json.loads((demo / key / "simulation" / "yardsticks.json").read_text())
        assert list(known) == ["chance", "no data", "central"]
        scores = json.loads((demo / key / "simulation" / "scores.json").read_text())
        report = (demo / key / "report.html").read_text()
        row = [scores["ca_10"], *(each["ca_10"] for each in known.values())]
        cells = "".join(f'<td class="number">{shown(each)}</td>' for each in row)
        assert f"class accuracy of 10-NN in the map (CA)</th>{cells}" in re.sub(r">\s+<", "><", report)
        assert not {"mmd", "certificate"} & {*known["no data"], *known["central"]}  # of one run's kernel
    rows = re.findall(r'<tr class="yardstick"><th scope="row">([^<]*)</th>(.*?)</tr>', index(demo), flags=re.DOTALL)
    assert [name for name, _ in rows] == ["chance", "no data", "central"]
    assert f"{known['central']['ca_10']:.3f}" in rows[-1][1]
    assert known["chance"]["ca_10"] < known["no data"]["ca_10"] < known["central"]["ca_10"]


def test_the_attack_succeeds_on_exact_rows_and_fails_under_privacy(demo: Path) -> None:
    found = {each["data-attack"]: each for each in Outline(index(demo)).of("figure") if "data-attack" in each}
    assert list(found) == ["exact", "plus", "noisy"]
    errors = {key: float(each["data-relative-error"] or "") for key, each in found.items()}
    assert errors["exact"] < 1e-6
    assert errors["plus"] < 1e-6
    assert errors["noisy"] > 0.3
    for key, error in errors.items():
        assert json.loads((demo / f"{key}-attacks" / "reconstruction.json").read_text())["relative_error"] == error
    pictures = re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", own(index(demo)))
    assert len(pictures) == 3
    assert all(base64.b64decode(each).startswith(b"\x89PNG") for each in pictures)
    assert "There is nothing to attack: reconstruction needs one row a record" in index(demo)
    assert "Nothing came back." in index(demo)


def test_all_parts_are_there_and_links_lead_somewhere(demo: Path) -> None:
    text, outline = index(demo), Outline(index(demo))
    assert outline.open == []
    parts = ["maps", "attack", "cost", "ledger", "statement"]
    assert [each["id"] for each in outline.of("section")] == parts
    assert [each["href"] for each in outline.of("a")][1:6] == [f"#{each}" for each in parts]
    for link in outline.of("a"):
        target = link["href"] or ""
        assert target.startswith("#") or (demo / target).is_file(), target
    assert list(figures(text)) == [f"map-{key}" for key in ("central", "exact", "plus", *PRIVATE)]
    config = (demo / "hospitals" / "config.toml").read_text()
    assert all(Path(path).name in config for path in (demo / "hospital-files").glob("*.csv"))
    assert "runs/story/hospital-files/schema.toml" in config
    assert "All releases, as recorded in the ledger" in text
    assert len(drawings(text)) == 2  # the curve, and the timeline
    assert f"<blockquote>{RunFacts.read(demo / 'private-high').statement['headline']}</blockquote>" in text
    assert (demo / "private-high" / "statement.md").read_text().splitlines()[2].strip("*") in text


def test_the_timeline_names_every_site_and_stage(demo: Path) -> None:
    with Ledger.read(demo / "private-high" / "ledger.sqlite") as ledger:
        events = list(ledger.events())
    (_, timeline) = drawings(index(demo))
    for name in {event.client for event in events} | {event.stage for event in events}:
        assert f"<!-- {name} -->" in timeline
    # matplotlib draws a marker once, and uses it at every place.
    assert timeline.count("<use ") >= len(events)


def test_it_says_where_to_look(demo: Path) -> None:
    said = demo.with_name("said.txt").read_text().splitlines()
    assert said[0] == "Fed-tSNE, exact distances: runs/story/exact"
    assert said[-1].endswith("open runs/story/index.html in a browser")


def test_it_refuses_what_is_taken_and_leaves_nothing_when_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes").touch()
    assert main(["demo", "--out", str(tmp_path / "taken")]) == 2
    assert main(["demo", "--out", str(tmp_path / "taken" / "notes")]) == 2
    error = capsys.readouterr().err
    assert "holds other files; choose another folder" in error
    assert "is a file; choose another folder" in error

    real = runs.execute

    def interrupted(config: RunConfig, folder: Path, **further: Any) -> runs.Run:
        if folder.name == "plus":
            raise KeyboardInterrupt
        return real(config, folder, **further)

    monkeypatch.setattr(runs, "execute", interrupted)
    flags = ["--records", "120", "--clients", "2", "--epsilons", "2,3,4"]
    assert main(["demo", "--out", str(tmp_path / "new"), *flags]) == 130
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--epsilons", "1"], "'1' is not three numbers, such as 1,3,10"),
        (["--epsilons", "3,1,3"], "'3,1,3' has the same budget twice"),
        (["--records", "5"], "5 records"),
        (["--epsilons", "0,1,2"], "epsilon must be a finite number above 0"),
        (["--records", "0"], "records must be"),
        (["--clients", "0"], "clients must be"),
    ],
)
def test_bad_input_is_one_sentence(
    flags: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["demo", "--out", str(tmp_path / "new"), *flags])
    except SystemExit as stop:
        code = int(stop.code or 0)
    error = capsys.readouterr().err
    assert (code, error.count("\n")) == (2, 1)
    assert sentence in error
    assert list(tmp_path.iterdir()) == []


def test_the_example_of_the_help_parses(capsys: pytest.CaptureFixture[str]) -> None:
    """It is what the fixture runs, but for the number of records."""
    with pytest.raises(SystemExit, match="0"):
        main(["demo", "--help"])
    (line,) = re.findall(r"^  dpfedvis (.*)$", capsys.readouterr().out, flags=re.MULTILINE)
    assert parser().parse_args(shlex.split(line)).epsilons == (1.0, 3.0, 10.0)
