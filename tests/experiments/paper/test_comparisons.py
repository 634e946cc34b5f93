"""Deviations and verdicts from rows made by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from dpfedvis.experiments.paper import comparisons
from dpfedvis.experiments.paper.comparisons import Comparison, lines, prices, shown_epsilon, verdicts
from dpfedvis.experiments.paper.experiments import EXPERIMENTS, Entry
from dpfedvis.experiments.paper.pages import page, write_experiment, write_index
from dpfedvis.experiments.paper.readings import Scale, as_csv, read_csv
from dpfedvis.experiments.paper.recipes import Shrink
from dpfedvis.experiments.sweeps.store import CellRow
from dpfedvis.experiments.sweeps.summary import Estimate
from dpfedvis.runs.code_version import CodeVersion

HERE = CodeVersion("1")
TABLE3 = EXPERIMENTS["table3"]
SHRINK = Shrink(seeds=2)


def found(monkeypatch: pytest.MonkeyPatch, values, shrink: Shrink = SHRINK, name: str = "table3") -> list[Comparison]:
    """Lines from rows whose scores are `values` of an entry and a seed; None for a row that is not there."""
    experiment = EXPERIMENTS[name]
    monkeypatch.setattr(comparisons, "addressed", lambda cells: {cell.address("x"): (cell, "x") for cell in cells})
    rows = {}
    for entry in experiment.entries(shrink):
        for seed, cell in enumerate(entry.cells(shrink.seeds)):
            scores = values(entry, seed)
            if scores is not None:
                address = cell.address("x")
                nominal = 1e5 / entry.beta + seed if entry.beta else None
                rows[address] = CellRow(
                    address, cell.kind, "done", cell.settings, "x", scores, math.inf, None, nominal, 1e-5, 1.0,
                    HERE if seed == 0 else CodeVersion("0"), "", "",
                )  # fmt: skip
    return lines(experiment, shrink, rows, HERE)


def constant(entry: Entry, seed: int) -> dict[str, float]:
    return {"nmi": 0.75 + 0.01 * seed, "npa_10": 0.336}


def test_numbers_stand_beside_the_papers(monkeypatch: pytest.MonkeyPatch) -> None:
    made = found(monkeypatch, constant)
    assert len(made) == 2 * 2 * 2 * 2
    line = next(line for line in made if (line.entry.group, line.entry.column, line.score)
                == ("Fed-tSNE", "k = 5", "nmi"))  # fmt: skip
    assert line.ours == Estimate.of([0.75, 0.76])
    assert line.paper.text == "0.741 ± 0.011"
    assert line.deviation == pytest.approx((0.755 - 0.741) / 0.011)
    assert line.other_code


def test_verdicts_count_what_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    nystrom, gram = verdicts(found(monkeypatch, constant))
    # NMI .755 is +1.3 and +1.4 sd without noise, +1.8 and +3.5 with it; NPA .336 is 0 and −2, +50 and +53.
    assert (nystrom.arm, nystrom.numbers, nystrom.close, nystrom.above, nystrom.below) == ("nystrom", 8, 5, 3, 0)
    assert gram.close == nystrom.close
    assert "5 of 8 numbers are within 2" in str(nystrom)


def test_other_data_does_not_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    made = found(monkeypatch, constant, Shrink(seeds=2, data="digits"))
    assert verdicts(made) == []
    assert all(line.deviation is None and line.paper is not None for line in made)


def test_what_was_not_run_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    made = found(monkeypatch, lambda entry, seed: None if entry.arm == "gram" else constant(entry, seed))
    text = page(TABLE3, SHRINK, made, "command", HERE)
    assert "Not run yet, or not successfully: 4 of 8 settings." in text
    assert "Made by `command`." in text


def test_every_beta_has_its_price(monkeypatch: pytest.MonkeyPatch) -> None:
    made = found(monkeypatch, constant, name="figure-beta")
    worth = {beta: nominal for (_, beta), (nominal, spent, _) in prices(made).items() if spent == math.inf}
    assert worth == {beta: 1e5 / beta + 1 for beta in (0.1, 0.5, 1.0, 2.0, 5.0)}


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "-"), (math.inf, "∞"), (2.0, "2"), (870.4, "871"), (123456.0, "1.3e5"), (3e12, "3.0e12")],
)
def test_epsilons_are_short(value: float | None, shown: str) -> None:
    assert shown_epsilon(value) == shown


@pytest.mark.parametrize("name", ["table3", "figure-beta", "figure-convergence"])
def test_pages_and_index_are_written(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    experiment = EXPERIMENTS[name]
    falling = {"npa_10": 0.3, "ca_10": 0.9}
    made = found(monkeypatch, lambda entry, seed: {"nmi": 0.7 - 2e-5 * (entry.x or 0), **falling}, name=name)
    paths = write_experiment(experiment, SHRINK, made, tmp_path, "dpfedvis reproduce x", HERE)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in paths)
    assert (tmp_path / f"{name}.csv").read_text() == as_csv(made, Scale.of(experiment, SHRINK), "dpfedvis reproduce x")
    held = read_csv(tmp_path / f"{name}.csv")
    assert (held.command, held.scale) == ("dpfedvis reproduce x", Scale.of(experiment, SHRINK))
    assert [each.mean for each in held.numbers] == [line.ours.mean for line in made]
    index = write_index(tmp_path)[0].read_text()
    assert f"[{experiment.title}]({name}.md)" in index
    if name == "table3":
        assert "| nystrom | NMI | 2 of 4 |" in index
    elif name == "figure-beta":
        assert "rank correlation -1.00" in index
        assert "nominal ε" in (tmp_path / f"{name}.md").read_text()
    else:
        assert "from round 50 on" in index
