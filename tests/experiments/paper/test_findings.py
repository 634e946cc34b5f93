"""What reproduces, from numbers made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dpfedvis.experiments.paper.experiments import EXPERIMENTS
from dpfedvis.experiments.paper.findings import Finding, findings, signed, together
from dpfedvis.experiments.paper.pages import PLAIN, write_index
from dpfedvis.experiments.paper.paper import TABLE1
from dpfedvis.experiments.paper.readings import ComparedNumber, Scale, UnreadableNumbers, read_csv

REPORTS = Path(__file__).parents[3] / "reports" / "paper"
FULL = Scale((40_000, 40_000), (500, 500), (2, 10))
SMALL = Scale((300, 40_000), (3, 500), (2, 10))


def table1(shift: float = 0.0, noise: float = 1.0) -> list[ComparedNumber]:
    """The paper's own numbers, moved by `shift` of its standard deviations, and its noise `noise` times as costly."""
    made = []
    for (group, score), numbers in TABLE1.rows.items():
        plain = {name: number.mean for name, number in zip(TABLE1.columns, numbers, strict=True)}
        for name, number in zip(TABLE1.columns, numbers, strict=True):
            quiet = plain[name.removesuffix(" +")]
            mean = quiet + noise * (number.mean - quiet) + shift * number.sd
            way = "central" if name == "central" else "nystrom"
            deviation = (mean - number.mean) / number.sd
            made.append(ComparedNumber(group, name, way, score, number.mean, number.sd, mean, deviation))
    return made


def curve(*points: tuple[float, float], score: str = "nmi") -> list[ComparedNumber]:
    return [ComparedNumber("Fed-tSNE, IID", f"{x:g}", "nystrom", score, None, None, y, None) for x, y in points]


def answers(found: list[Finding]) -> list[str]:
    return [each.answer for each in found]


def test_the_papers_own_numbers_reproduce() -> None:
    found = findings(EXPERIMENTS["table1"], FULL, table1())
    assert set(answers(found)) == {"yes"}
    assert len(found) == 2 + 4  # two ways; four changes between settings
    assert found[1].ours == "64 of 64 met; mean difference 0.000"


def test_numbers_that_are_off_do_not() -> None:
    found = findings(EXPERIMENTS["table1"], FULL, table1(shift=-3))
    assert answers(found)[:2] == ["no", "no"]
    assert "mean difference -0." in found[1].ours
    # All moved alike, so that most changes between settings are as they were.
    assert "no" not in answers(found)[2:]


def test_noise_that_helps_is_told_from_noise_that_costs() -> None:
    found = {each.claim: each for each in findings(EXPERIMENTS["table1"], FULL, table1(noise=-1))}
    assert found["from no noise to the paper's β, one class a client"].answer == "no"
    assert found["from mixed clients to one class a client"].answer == "yes"


def test_other_scales_and_other_data_cannot_tell() -> None:
    found = findings(EXPERIMENTS["table1"], SMALL, table1())
    assert answers(found)[:2] == ["open", "open"]
    assert "300 of 40000 records, 3 of 500 rounds" in found[0].ours
    assert set(answers(found)[2:]) == {"yes"}
    assert all(each.ours.endswith("(300 of 40000 records, 3 of 500 rounds)") for each in found[2:])
    other = Scale(FULL.records, FULL.rounds, FULL.seeds, "digits")
    assert answers(findings(EXPERIMENTS["table1"], other, table1())) == ["open"]
    assert answers(findings(EXPERIMENTS["table1"], FULL, [])) == ["open"]


@pytest.mark.parametrize(
    ("name", "points", "answer"),
    [
        ("figure-ny", [(50, 0.5), (100, 0.6), (500, 0.7)], "yes"),
        ("figure-ny", [(50, 0.7), (100, 0.6), (500, 0.65)], "no"),
        ("figure-ny", [(50, 0.7), (100, 0.7), (500, 0.7)], "no"),
        ("figure-ny", [(50, 0.5), (100, 0.6)], "open"),
        ("figure-beta", [(0, 0.7), (1, 0.6), (5, 0.2)], "yes"),
        ("figure-beta", [(0, 0.2), (1, 0.6), (5, 0.7)], "no"),
        ("figure-convergence", [(1, 0.1), (10, 0.5), (50, 0.69), (100, 0.7)], "yes"),
        ("figure-convergence", [(1, 0.1), (10, 0.2), (50, 0.4), (100, 0.7)], "no"),
        ("figure-convergence", [(1, 0.1), (10, 0.5), (20, 0.69)], "open"),
    ],
)
def test_trends(name: str, points: list[tuple[float, float]], answer: str) -> None:
    (found,) = (each for each in findings(EXPERIMENTS[name], FULL, curve(*points)) if "NMI" in each.claim)
    assert found.answer == answer
    # Of one seed the scatter may hide a trend.
    once = findings(EXPERIMENTS[name], replace(FULL, seeds=(1, 10)), curve(*points))
    (found,) = (each for each in once if "NMI" in each.claim)
    assert found.answer == ("open" if answer == "no" else answer)
    assert ("one seed may hide the trend" in found.ours) == (answer == "no")


def test_convergence_is_asked_of_every_metric_that_is_drawn() -> None:
    flat, rising = [(1, 0.1), (10, 0.5), (50, 0.69), (100, 0.7)], [(1, 0.1), (10, 0.2), (50, 0.4), (100, 0.7)]
    numbers = [*curve(*flat), *curve(*rising, score="npa_10"), *curve(*flat, score="ca_10")]
    found = findings(EXPERIMENTS["figure-convergence"], FULL, numbers)
    told = {score: each.answer for each in found for score in ("NMI", "NPA", "CA") if each.claim.startswith(score)}
    assert told == {"NMI": "yes", "NPA": "no", "CA": "yes"}


def test_a_change_within_the_scatter_of_seeds_denies_nothing() -> None:
    rising = [(1, 0.1), (10, 0.2), (50, 0.4), (100, 0.7)]
    for sd, answer in ((0.01, "no"), (0.3, "open")):
        numbers = [replace(each, sd=sd, n=2) for each in curve(*rising)]
        (found,) = (each for each in findings(EXPERIMENTS["figure-convergence"], FULL, numbers) if "NMI" in each.claim)
        assert found.answer == answer
        assert found.short == ("50%" if answer == "no" else "50% (noise)")


def test_a_figure_has_one_answer_for_all_its_curves() -> None:
    flat, rising = [(1, 0.1), (10, 0.5), (50, 0.69), (100, 0.7)], [(1, 0.1), (10, 0.2), (50, 0.4), (100, 0.7)]
    experiment = EXPERIMENTS["figure-convergence"]

    def answer(*curves: list[ComparedNumber]) -> Finding:
        return together(experiment, FULL, findings(experiment, FULL, [each for own in curves for each in own]))

    assert answer(curve(*flat), curve(*flat, score="ca_10")).answer == "yes"
    mixed = answer(curve(*flat), curve(*rising, score="ca_10"))
    assert mixed.answer == "in part"
    assert mixed.ours.endswith("(Fed-tSNE, IID): CA 10-NN 50%; NMI 2%")
    assert answer(curve(*rising), curve(*rising, score="ca_10")).answer == "no"
    assert answer([]).answer == "open"


def test_our_own_ways_stand_apart() -> None:
    numbers = [replace(each, way=way) for each in table1(shift=0.5) for way in ("nystrom", "gram")]
    found = findings(EXPERIMENTS["table1"], FULL, numbers)
    assert {each.way for each in found} == {"nystrom", "gram"}
    assert signed(-0.0001) == signed(0.0) == "0.000"
    assert (signed(0.01), signed(-0.0123)) == ("+0.010", "-0.012")


def test_a_folder_without_numbers_says_that_nothing_was_run(tmp_path: Path) -> None:
    write_index(tmp_path)
    page = (tmp_path / PLAIN).read_text()
    assert page.count("| all | not run | - | cannot tell |") == len(EXPERIMENTS)
    assert all(f"| {each.title} |" in page for each in EXPERIMENTS.values())


def test_a_folder_with_numbers_has_a_row_for_each_claim(tmp_path: Path) -> None:
    for page in ("table1.csv", "figure-ny.csv"):
        (tmp_path / page).write_text((REPORTS / page).read_text())
    write_index(tmp_path)
    rows = [line for line in (tmp_path / PLAIN).read_text().splitlines() if line.startswith("| ")][1:]
    assert rows[0].startswith("| [Table 1](table1.md), 2 seeds | the numbers, central | ")
    assert [row for row in rows if "gram" in row] == []
    held = [each for each in rows if "not run" not in each]
    assert len(held) == 2 + 4 + 1  # two ways and four changes of the table, and all curves of the figure in one row
    assert "NMI 0.599 to 0.711 (+1.00), 0.621 to 0.725 (+1.00)" in held[-1]
    assert all(row.count("|") == 6 for row in rows)
    assert {row.split(" | ")[-1] for row in held} <= {"reproduces |", "in part |", "**does not** |", "cannot tell |"}


def test_damaged_numbers_are_named(tmp_path: Path) -> None:
    (tmp_path / "table1.csv").write_text("# command\ngroup,setting\n")
    with pytest.raises(
        UnreadableNumbers, match=r"table1\.csv is damaged or of another version; move it away, or rewrite"
    ):
        read_csv(tmp_path / "table1.csv")
