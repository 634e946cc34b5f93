"""report.html: what is in it, what must not be in it, and that it says what the ledger says."""

from __future__ import annotations

import base64
import csv
import hashlib
import html
import json
import math
import re
import shutil
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from accounting import Ledger
from dpfedvis.cli.main import main
from dpfedvis.data import load
from dpfedvis.evaluation.metrics.landmarks import certificate_per_record
from dpfedvis.reporting.interactive_maps import packed, points
from dpfedvis.reporting.rendering import script_json, shown
from dpfedvis.reporting.run_facts import Cloud, Grouping, RunFacts, StatementMismatch
from dpfedvis.reporting.run_report import region_rows, trusted, write_report
from dpfedvis.runs.settings import RunConfig
from dpfedvis.runs.upload_reader import Recording, RecordingError
from tests.makers import HOSTILE, MARKED, marked_run, run

RUNS = ("exact", "private", "open_run", "clustered", "simulated", "real")


class Outline(HTMLParser):
    """The elements of a page, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def page(folder: Path) -> str:
    return (folder / "report.html").read_text(encoding="utf-8")


def own(text: str) -> str:
    """The page without the code that draws maps."""
    (code,) = re.findall(r"<script>.*?</script>", text, flags=re.DOTALL)
    return text.replace(code, "")


def policy_of(text: str) -> str:
    """The content policy of a page; it allows the page's own style and script by their hashes, and nothing else."""
    (policy,) = [each["content"] or "" for each in Outline(text).of("meta") if each.get("http-equiv")]
    assert policy.startswith("default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    inline = re.findall(r"<(?:style|script)>(.*?)</(?:style|script)>", text, flags=re.DOTALL)
    assert allowed == {base64.b64encode(hashlib.sha256(each.encode()).digest()).decode() for each in inline}
    assert not [tag for tag, given in Outline(text).elements if any(n == "style" or n.startswith("on") for n in given)]
    return policy


def drawings(text: str) -> list[str]:
    """The SVG pictures in a page."""
    found = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', text)
    return [base64.b64decode(each).decode() for each in found]


def figures(text: str) -> dict[str, dict[str, object]]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, flags=re.DOTALL)
    assert found
    specs: dict[str, dict[str, object]] = json.loads(found[1])
    return specs


@pytest.fixture(params=RUNS)
def folder(request: pytest.FixtureRequest) -> Path:
    found: Path = request.getfixturevalue(request.param)
    return found


def test_the_page_is_whole_and_can_be_read_by_anyone(folder: Path) -> None:
    outline = Outline(page(folder))
    assert outline.open == []
    counts = Counter(tag for tag, _ in outline.elements)
    for landmark in ("header", "nav", "main", "footer", "h1", "title"):
        assert counts[landmark] == 1, landmark
    assert outline.of("html")[0]["lang"] == "en"
    assert any(each.get("name") == "viewport" for each in outline.of("meta"))
    levels = [int(tag[1]) for tag, _ in outline.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert counts["table"] == counts["caption"] > 0
    names = [each["id"] for _, each in outline.elements if "id" in each]
    assert len(names) == len(set(names))
    assert {each["href"] for each in outline.of("a") if (each["href"] or "").startswith("#")} <= {
        f"#{n}" for n in names
    }
    plots = [each for each in outline.of("div") if (each.get("id") or "").startswith("plot-")]
    assert {f"plot-{key}" for key in figures(page(folder))} == {each["id"] for each in plots}
    assert all(each["role"] == "application" and each["aria-label"] for each in plots)
    assert all(each["alt"] for each in outline.of("img"))


def test_the_page_embeds_the_figures_of_the_folder(folder: Path) -> None:
    """Drawn once, and drawn whenever there is a finite number to draw."""
    names = ["budget", "accountants", "delta", "risk", "convergence"]
    facts = RunFacts.read(folder)
    if facts.in_scope == math.inf:
        names = ["convergence"]
    elif facts.epsilon == math.inf:
        names.remove("risk")
    assert drawings(page(folder)) == [(folder / "figures" / f"{name}.svg").read_text() for name in names]
    assert {path.stem for path in (folder / "figures").iterdir()} == {*names, "map"}


def test_the_page_needs_nothing_from_outside(folder: Path) -> None:
    text = page(folder)
    assert len(text) < 2_000_000
    assert "http" not in re.sub(r'http-equiv="[^"]*"', "", text).replace("http://www.w3.org/2000/svg", "")
    policy_of(text)
    for link in Outline(text).of("a"):
        target = link["href"] or ""
        assert target.startswith("#") or (folder / target).exists(), target


def test_epsilon_is_the_ledgers(folder: Path) -> None:
    (shown_at,) = [each for each in Outline(page(folder)).of("p") if "data-epsilon" in each]
    epsilon, delta = float(shown_at["data-epsilon"] or ""), float(shown_at["data-delta"] or "")
    with Ledger.read(folder / "ledger.sqlite") as ledger:
        assert epsilon == ledger.spent(delta, end_to_end=True)
        assert f"ε = {shown(epsilon)}" in page(folder)
        last = RunFacts.read(folder).steps[-1]
        assert (last.in_scope, last.end_to_end) == (ledger.spent(delta), epsilon)


def test_a_statement_that_contradicts_the_ledger_is_refused(private: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(private, tmp_path / "copy"))
    statement = json.loads((copy / "statement.json").read_text())
    (copy / "statement.json").write_text(json.dumps({**statement, "epsilon_end_to_end": 1.0}))
    with pytest.raises(StatementMismatch, match="the statement says ε = 1, and its ledger ε = 4"):
        write_report(copy)


def test_the_page_can_be_made_again_from_the_folder(
    private: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(private, tmp_path / "copy"))
    (copy / "report.html").unlink()
    shutil.rmtree(copy / "figures")
    assert main(["report", "--run", str(copy)]) == 0
    assert capsys.readouterr().out == f"wrote {copy / 'report.html'}\n"
    before, after = ({path.relative_to(each): path.read_bytes() for path in each.rglob("*") if path.is_file()}
                     for each in (private, copy))  # fmt: skip
    assert before == after
    names = {path.name for path in (copy / "figures").iterdir()}
    stems = ("accountants", "budget", "convergence", "delta", "map", "risk")
    assert names == {f"{stem}.svg" for stem in stems}
    assert not list(copy.rglob("*.tmp"))


@pytest.mark.parametrize(
    "name", ["trace.csv", "statement.json", "embedding.csv", "verdict.json", "simulation/scores.json"]
)
def test_a_damaged_folder_is_named(
    name: str, private: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(private, tmp_path / "copy"))
    (copy / name).write_text("{not this")
    before = (copy / "report.html").read_bytes()
    assert main(["report", "--run", str(copy)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "holds a damaged run" in error or "trace.csv is not a trace" in error
    assert (copy / "report.html").read_bytes() == before
    with pytest.raises(RecordingError, match="holds no finished run"):
        write_report(tmp_path / "nothing")


def test_a_simulation_from_before_there_were_yardsticks_is_whole(private: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(private, tmp_path / "copy"))
    for name in ("yardsticks.json", "problems.json"):
        (copy / "simulation" / name).unlink()
    write_report(copy)
    assert "Scores beside their yardsticks" in page(copy)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("scores.json", "[1]"), ("yardsticks.json", '{"central": 3}'), ("yardsticks.json", '{"central": {"nmi": "x"}}'),
        ("yardsticks.json", "[]"), ("problems.json", "{}"),
    ],
)  # fmt: skip
def test_scores_of_another_shape_are_named(name: str, text: str, private: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(private, tmp_path / "copy"))
    (copy / "simulation" / name).write_text(text)
    with pytest.raises(RecordingError, match=f"holds a damaged run .*{name} holds no"):
        write_report(copy)


# What comes from outside


def test_names_from_the_data_stay_text(simulated: Path) -> None:
    text = own(page(simulated))
    for name in HOSTILE:
        assert name not in text
    assert Counter(tag for tag, _ in Outline(text).elements)["script"] == 1  # the figures, beside the page's own
    assert figures(text)["places"]["columns"][1]["names"] == list(HOSTILE)


def test_json_cannot_end_its_script() -> None:
    assert "</script" not in script_json(["</script>", "<!--"])
    assert json.loads(script_json(["</script>", "\u2028"])) == ["</script>", "\u2028"]


# What only clients have


def test_a_page_says_which_yardsticks_failed_and_whose_recipe_no_data_has(
    private: Path, open_run: Path, tmp_path: Path
) -> None:
    assert "dpfedvis run --yardsticks" in page(private)
    for folder, recipe in ((private, "same"), (open_run, "default")):
        copy = Path(shutil.copytree(folder, tmp_path / recipe))
        toml = (copy / "config.toml").read_text()
        (copy / "config.toml").write_text(toml.replace("yardsticks = false", "yardsticks = true"))
        (copy / "simulation" / "yardsticks.json").write_text('{"no data": {"nmi": 0.1}}')
        (copy / "simulation" / "problems.json").write_text('["there is no central <b>map</b>"]')
        write_report(copy)
        text = " ".join(page(copy).split())
        assert f"the private map by the {recipe} recipe at ε = 0.001" in text
        assert "there is no central &lt;b&gt;map&lt;/b&gt;" in text
        assert "dpfedvis run --yardsticks" not in text


def test_every_score_has_a_title_and_says_where_lower_is_better(private: Path) -> None:
    scores = json.loads((private / "simulation" / "scores.json").read_text())
    table = page(private).split("<span>Scores beside their yardsticks")[1].split("</table>")[0]
    titles = re.findall(r'<th scope="row">(.*?)</th>', table)
    assert len(titles) == len(scores)
    assert not [title for title in titles if "_" in title]
    lower = [key for key, title in zip(scores, titles, strict=True) if "lower is better" in title]
    assert lower == [key for key in scores if key.startswith(("mmd", "certificate"))] != []


def coordinates(folder: Path) -> np.ndarray:
    """Where a simulation's records lie."""
    with np.load(folder / "simulation" / "places.npz") as stored:
        places: np.ndarray = stored["places"]
    return places


def traces_of(places: np.ndarray) -> list[str]:
    """What a page would hold of places: as numbers packed, and as digits."""
    small = np.ascontiguousarray(places[:, 0], dtype="<f4")
    return [base64.b64encode(small.tobytes()).decode()[:400], *(repr(value) for value in places[:5, 0].tolist())]


def test_a_simulation_shows_classes_and_places_in_a_section_that_says_so(simulated: Path) -> None:
    text = page(simulated)
    assert "Simulation: in a real federation nobody sees this" in text
    assert traces_of(coordinates(simulated))[0] in text
    assert figures(text)["places"]["columns"][0]["names"] == [str(each) for each in MARKED]
    scores = json.loads((simulated / "simulation" / "scores.json").read_text())
    assert f"{scores['ca_10']:.4g}" in text
    # Of the map that is for everyone, nothing of it.
    assert figures(text)["map"]["noun"] == "anchor"


def labels_in(text: str) -> list[str]:
    """Marked labels that stand there as numbers of their own, and not among the digits of a coordinate."""
    text = re.sub(r"base64,[^\"]*", "", text)  # the drawings are files too, and are looked at there
    return [str(label) for label in MARKED if re.search(rf"(?<![\d.]){label}(?!\d)", text)]


def test_with_real_noise_nothing_that_only_clients_have_is_in_the_folder_or_the_page(
    real: Path, simulated: Path, marked_data: Path, tmp_path: Path
) -> None:
    """Planted there all the same, labels and places must not get into the page."""
    assert not (real / "simulation").exists()
    copy = Path(shutil.copytree(real, tmp_path / "copy"))
    shutil.copytree(simulated / "simulation", copy / "simulation")
    write_report(copy)
    assert page(copy) == page(real)
    text = page(copy)
    assert not labels_in(text)
    assert len(labels_in(page(simulated))) == len(MARKED), "where they may stand they are found"
    for planted in traces_of(coordinates(simulated)):
        assert planted not in text
    for path in real.rglob("*"):
        if path.is_file() and path.suffix in (".csv", ".json", ".md", ".toml", ".html", ".svg"):
            assert not labels_in(path.read_text()), path
    assert "in a real federation nobody sees this" not in text
    assert list(figures(text)) == ["map"]
    # Nor if the settings claim that the noise was seeded: the statement knows better.
    settings = (copy / "config.toml").read_text()
    settings = settings.replace('noise = "discrete"', 'noise = "seeded"').replace("evaluate = false", "evaluate = true")
    (copy / "config.toml").write_text(settings)
    write_report(copy)
    assert "in a real federation nobody sees this" not in page(copy)


def test_a_simulation_need_not_show_labels_and_places(marked_data: Path, tmp_path: Path) -> None:
    folder = marked_run(tmp_path / "run", marked_data, epsilon=8.0, noise="seeded")
    assert not (folder / "simulation").exists()
    assert not labels_in(page(folder))
    assert RunConfig.from_toml(folder / "config.toml").evaluate is False


def test_the_hash_of_the_data_is_not_in_the_page(folder: Path) -> None:
    """And of no file of a run whose noise is real: it would confirm a guess of all records but one."""
    config, facts = (RunConfig.from_toml(folder / "config.toml"), json.loads((folder / "provenance.json").read_text()))
    sha256 = config.dataset().sha256
    assert sha256 not in page(folder)
    if config.noise == "seeded":
        assert facts["data"]["sha256"] == sha256
    else:
        assert facts["data"] == {"name": config.dataset().name}
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert len(files) > 10
        assert not [path.name for path in files if sha256.encode() in path.read_bytes()]


# Numbers


def test_the_paper_s_claim_is_shown_beside_infinity(exact: Path) -> None:
    facts = RunFacts.read(exact)
    assert (facts.in_scope, facts.epsilon) == (pytest.approx(2), math.inf)
    text = page(exact)
    assert 'data-epsilon="inf"' in text
    assert facts.statement["words"]["budget"].replace("'", "&#39;") in text
    assert "Line: ε so far rises to 2 in scope and ∞ end to end." in text


def test_noise_without_a_guarantee_has_its_price_in_the_page(tmp_path: Path) -> None:
    folder = run(tmp_path / "run", mechanism="heuristic", beta=1.0, landmarks=10)
    (found,) = [each for each in Outline(page(folder)).of("p") if "data-nominal-epsilon" in each]
    statement = json.loads((folder / "statement.json").read_text())
    assert float(found["data-nominal-epsilon"] or "") == statement["nominal_epsilon"] > 10


def test_a_verdict_stands_beside_the_map_and_fades_what_is_weak(private: Path, tmp_path: Path) -> None:
    found = json.loads((private / "verdict.json").read_text())
    assert f'data-verdict="{found["signal"]}"' in page(private)
    copy = Path(shutil.copytree(private, tmp_path / "copy"))
    count = len(RunFacts.read(private).cloud.places)
    regions = [{"landmarks": [0, 1], "clear": True, "weak": False}, {"landmarks": [2], "clear": False, "weak": True}]
    of = [number % 3 for number in range(count)]
    verdict = {"signal": "partly", "sentence": "Two of <three> regions.", "regions": regions, "anchors": of}
    (copy / "verdict.json").write_text(json.dumps(verdict))
    write_report(copy)
    text = page(copy)
    assert 'data-verdict="partly"' in text
    assert "<p>Two of &lt;three&gt; regions.</p>" in text
    weak = figures(text)["map"]["weak"]
    assert np.frombuffer(base64.b64decode(weak["bdata"]), "<u1").tolist() == [int(each == 2) for each in of]
    # Of another map it says nothing about single points.
    (copy / "verdict.json").write_text(json.dumps({**verdict, "anchors": of[1:]}))
    write_report(copy)
    assert figures(page(copy))["map"]["weak"] is None


def words_in(svg: str) -> str:
    """What a drawing says; its letters are drawn, and each line stands beside them as a comment."""
    return " ".join(html.unescape(each) for each in re.findall(r"<!-- (.*?) -->", svg))


def test_a_map_of_noise_is_an_empty_frame_that_says_so(private: Path) -> None:
    facts = RunFacts.read(private)
    assert facts.verdict is not None
    assert facts.verdict.signal == "no"
    svg = (private / "figures" / "map.svg").read_text()
    assert facts.verdict.sentence in words_in(svg)
    assert facts.statement["headline"] in words_in(svg)
    assert "PathCollection" not in svg
    spec = figures(page(private))["map"]
    assert spec["noise"] == facts.verdict.sentence
    assert np.frombuffer(base64.b64decode(spec["weak"]["bdata"]), "<u1").all()
    assert "The anchors are noise, and drawn only on request" in page(private)


def test_the_picture_of_a_map_says_its_verdict_and_what_is_faded(simulated: Path, exact: Path) -> None:
    for folder in (simulated, exact):
        facts = RunFacts.read(folder)
        svg = (folder / "figures" / "map.svg").read_text()
        assert facts.verdict is not None
        weak = facts.verdict.weak is not None and facts.verdict.weak.any()
        assert facts.verdict.sentence in words_in(svg)
        assert facts.statement["headline"] in words_in(svg)
        assert ("faded: not above the noise" in words_in(svg)) == weak == (folder == simulated)
        assert "PathCollection" in svg
        spec = figures(page(folder))["map"]
        assert spec["noise"] == ""
        assert spec["note"] == f"{facts.verdict.sentence}\n{facts.statement['headline']}"


def test_each_region_is_in_a_table_with_its_noise(simulated: Path, private: Path) -> None:
    assert "What each region is" in page(simulated)
    rows = list(csv.DictReader((simulated / "regions.csv").read_text().splitlines()))
    head = "region</th>"
    (table,) = [each for each in re.findall(r"<table>.*?</table>", page(simulated), flags=re.DOTALL) if head in each]
    assert table.count("<tr>") == 1 + len(rows)
    for row in rows:
        assert f"{shown(float(row['x0']))} ± {shown(float(row['x0: noise (1 sd)']), 2)}" in table
        assert f"{100 * float(row['share']):.1f} % ± {100 * float(row['share_noise']):.1f} %" in table
    assert "What each region is" not in page(private)  # of a map of noise
    seen = {"region": 3, "clear": "weak", "landmarks": 2, "share": 0.25, "share_noise": 0.1}
    values = {"age [years]": {"mean": 61.5, "noise": 4.0}, "<grade>": {"mean": "low", "noise": "low to high"},
              "sex = f: share": {"mean": 0.5, "noise": "unknown"}}  # fmt: skip
    head_row, table_rows = region_rows([{**seen, "values": values}, {**seen, "clear": "no", "values": values}])
    assert head_row == ["region", "above the noise", "share of the records", *values]
    assert table_rows == [["3", "a hint", "25.0 % ± 10.0 %", "61.5 ± 4", "low (low to high)", "0.5 ± unknown"]]


def test_how_much_comes_back_is_said_on_the_page_and_in_the_statement(simulated: Path) -> None:
    back = json.loads((simulated / "verdict.json").read_text())["comes_back"]
    said = f"Made again from records drawn from it, about {100 * back:.0f} % of the map comes back."
    (card,) = re.findall(r'data-verdict="partly">.*?</div>', page(simulated), flags=re.DOTALL)
    assert said in card
    for name in ("statement.md", "statement.html"):
        assert said in (simulated / name).read_text(), name


def test_what_was_released_is_told_in_whole_words(private: Path, tmp_path: Path) -> None:
    assert "published a map of protected landmarks, and each client places" in page(private)
    clusters = run(tmp_path / "run", map="clusters", clusters=3, landmarks=10, epsilon=8.0)
    assert "published a map of protected landmarks with the centres of the clusters, and each client" in page(clusters)


def test_three_numbers_stand_beside_the_map(private: Path, exact: Path, open_run: Path) -> None:
    """What may be learned, in guesses, and who is trusted: from the statement."""
    for folder, who in (
        (private, "Whoever ran this machine"), (exact, "Everybody who sees the uploads"),
        (open_run, "Everybody who sees the uploads"),
    ):  # fmt: skip
        hero = page(folder).split('<div class="numbers">')[1].split("</section>")[0]
        assert f'<p class="big">{who}</p>' in hero
        statement = json.loads((folder / "statement.json").read_text())
        assert statement["words"]["one_machine"] in hero
        if math.isfinite(RunFacts.read(folder).epsilon):
            right = 100 * statement["best_guess"]
            (shown_at,) = re.findall(r"most ([0-9.]+) of 100 guesses", hero)
            assert right <= float(shown_at) < right + 0.1
            assert hero.count('class="blind"') == 50
            assert hero.count('class="more"') == math.ceil(right - 50)
        else:
            assert "No number bounds it" in hero
            assert "of 100 guesses" not in hero


def test_nobody_must_be_trusted_only_between_machines(private: Path, real: Path) -> None:
    for folder, between in ((private, "Most sites, not the server"), (real, "Nobody")):
        statement = json.loads((folder / "statement.json").read_text())
        assert statement["one_machine"] is True
        few, more = trusted(statement)
        assert few == "Whoever ran this machine"
        assert more.startswith(f"Trust {statement['trusts'][0]}: ")
        assert trusted({**statement, "one_machine": False})[0] == between


def test_a_dot_is_said_to_be_no_record_where_it_is_none(private: Path, simulated: Path, exact: Path) -> None:
    said = "A dot is no record, and how many dots there are says nothing about how many records."
    assert [page(each).count(said) for each in (private, simulated, exact)] == [1, 1, 0]


def test_the_certificate_is_that_of_the_exact_rows(exact: Path) -> None:
    found = RunFacts.read(exact).certificate
    assert found is not None
    recording = Recording.read(exact)
    truth = certificate_per_record(load("digits", records=100).X, recording.landmarks, recording.public.kernel)
    assert found.bound == pytest.approx(100 * truth, rel=1e-6)
    assert found.trivial == 100
    assert shown(found.bound) in page(exact)


def test_where_records_stay_there_is_no_certificate(private: Path) -> None:
    assert RunFacts.read(private).certificate is None
    assert 'id="certificate"' not in page(private)


def test_points_in_the_page_are_those_of_the_map(clustered: Path) -> None:
    spec = figures(page(clustered))["map"]
    with np.load(clustered / "embedding.npz") as stored:
        expected = stored["spectral"].astype(np.float32)
    x = np.frombuffer(base64.b64decode(spec["x"]["bdata"]), "<f4")
    np.testing.assert_array_equal(x, expected[:, 0])
    assert [each["key"] for each in spec["columns"]] == ["cluster", "client"]


def test_forty_thousand_points_stay_small() -> None:
    rng = np.random.default_rng(0)
    groups = {"class": Grouping.of(rng.integers(10, size=40_000)), "client": Grouping.of(rng.integers(50, size=40_000))}
    spec = points(Cloud(rng.normal(size=(40_000, 2)), "record", groups))
    assert len(script_json(spec)) < 1_000_000


def test_points_without_a_place_are_left_out() -> None:
    spec = points(Cloud(np.array([[0.0, 1.0], [np.nan, 0.0], [2.0, 3.0]]), "record", {}))
    assert np.frombuffer(base64.b64decode(spec["x"]["bdata"]), "<f4").tolist() == [0.0, 2.0]
    assert np.frombuffer(base64.b64decode(spec["numbers"]["bdata"]), "<u4").tolist() == [0, 2]


def test_groups_keep_their_order_and_numbers_are_sorted() -> None:
    names = Grouping.of(np.array(["c-10", "c-2", "c-10", "a"]))
    assert names.names == ("c-10", "c-2", "a")
    assert names.codes.tolist() == [0, 1, 0, 2]
    assert Grouping.of(np.array([10, 9, 10])).names == ("9", "10")
    assert Grouping.of(np.array([2, 0, 2]), np.array(["zero", "one", "two"])).names == ("zero", "two")


def test_packed_numbers_come_back() -> None:
    values = np.array([0, 1, 65535], dtype=np.uint16)
    assert packed(values)["dtype"] == "u2"
    assert np.frombuffer(base64.b64decode(packed(values)["bdata"]), "<u2").tolist() == [0, 1, 65535]


def test_a_report_says_what_the_trace_says(exact: Path) -> None:
    facts = RunFacts.read(exact)
    assert facts.trace.shape == (3, 3)
    for number, step, change in facts.trace.tolist():
        row = f'<th scope="row">{number:.0f}</th><td class="number">{shown(step)}</td>'
        assert f'{row}<td class="number">{shown(change)}</td>' in page(exact)
