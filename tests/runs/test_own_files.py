"""A file of the user's: real noise by default, labels and scores stay at home, what cannot be is refused at once."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting import Budget, Ledger
from accounting.errors import AccountingError
from dpfedvis import FederatedData, FedTSNE
from dpfedvis.data import load
from dpfedvis.data.features import with_features
from dpfedvis.errors import DpfedvisError
from dpfedvis.estimators.refusals import refuse_data
from dpfedvis.reporting.run_facts import RunFacts
from dpfedvis.reporting.run_report import show
from dpfedvis.runs.execute import execute
from dpfedvis.runs.results import SIMULATION
from dpfedvis.runs.resume import RunInterrupted
from dpfedvis.runs.settings import RunConfig
from dpfedvis.runs.statement_file import statement_of
from dpfedvis.site.ledger import SiteLedger
from dpfedvis.site.ledger_file import ledger_path
from tests.command_line import called, check_refused
from tests.crash.folders import content, copy

COLUMNS = {"label_column": "diagnosis", "client_column": "hospital", "partition": "groups"}
FAST = {"bounds": (0.0, 1.0), "placement": "weights", "sweeps": 1, "landmarks": 20, "anchors": 40, "jobs": 1}


def write(
    path: Path,
    labels: tuple[str, ...] = ("benign", "malignant"),
    records: int = 60,
    hospitals: tuple[str, ...] = ("Suedklinik", "Nordspital", "Nordspital"),
) -> Path:
    """Two hospitals, and a label in words."""
    rng = np.random.default_rng(0)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["age", "pressure", "bmi", "hospital", "diagnosis"])
        for number in range(records):
            words = [hospitals[number % len(hospitals)], labels[number % len(labels)]]
            table.writerow([*rng.uniform(0, 1, 3).round(3), *words])
    return path


@pytest.fixture
def patients(tmp_path: Path) -> Path:
    return write(tmp_path / "patients.csv")


def config(data: Path, **settings: Any) -> RunConfig:
    return RunConfig(**{"data": str(data), **COLUMNS, **FAST, "epsilon": 1.0, **settings})


def resolved(data: Path | str, **settings: Any) -> RunConfig:
    chosen = RunConfig(data=str(data), **settings)
    return chosen.resolved(chosen.federated())


# Defaults


def test_records_remember_where_they_come_from(patients):
    own, built_in = load(patients, label_column="diagnosis", client_column="hospital"), load("digits", records=20)
    assert (own.origin, built_in.origin) == ("file", "built-in")
    feds = [FederatedData.from_dataset(each, clients=2) for each in (own, built_in)]
    assert [fed.origin for fed in feds] == ["file", "built-in"]
    assert FederatedData([np.zeros((3, 2))]).origin == "memory"
    for fed in feds:
        for other in (fed.clip(1.0), with_features(fed, lambda X: X), fed.shuffled(0), fed.with_neutral_names()):
            assert (other.origin, other.class_names) == (fed.origin, fed.class_names)


def test_noise_is_real_for_a_file_and_seeded_for_all_else(patients):
    columns = {"label_column": "diagnosis", "client_column": "hospital"}
    assert resolved(patients, **columns).noise == "discrete"
    assert resolved(patients, **columns, noise="seeded").noise == "seeded"
    assert resolved("digits", records=50).noise == "seeded"
    fed = FederatedData([np.random.default_rng(0).uniform(size=(20, 3))])
    estimator = FedTSNE()
    assert estimator.noise is None
    assert estimator.settings().resolved(fed).noise == "seeded"
    assert estimator.settings().resolved(FederatedData.from_dataset(load(patients, **columns))).noise == "discrete"


def test_scores_are_written_for_built_in_data_or_if_asked_for_twice(patients):
    columns = {"label_column": "diagnosis", "client_column": "hospital"}
    assert resolved("digits", records=50).evaluate is True
    assert resolved("digits", records=50, noise="discrete").evaluate is False
    assert resolved(patients, **columns).evaluate is False
    assert resolved(patients, **columns, noise="seeded").evaluate is False
    assert resolved(patients, **columns, noise="seeded", evaluate=True).evaluate is True
    for data, more in ((patients, columns), ("digits", {"records": 50, "noise": "discrete"})):
        with pytest.raises(AccountingError, match="evaluate must be left out with real noise"):
            resolved(data, **more, evaluate=True)


def test_maps_to_hold_a_score_against_are_made_of_simulations_alone(patients):
    """They are computed from all records in one place, and no ε covers them."""
    columns = {"label_column": "diagnosis", "client_column": "hospital"}
    assert resolved("digits").yardsticks is True
    assert resolved("digits", yardsticks=False).yardsticks is False
    # Left open without scores, so that the same settings with scores have them.
    assert resolved("digits", evaluate=False).yardsticks is None
    assert resolved("digits", noise="discrete").yardsticks is None
    assert resolved(patients, **columns).yardsticks is None
    assert resolved(patients, **columns, noise="seeded").yardsticks is None
    assert "yardsticks" not in resolved(patients, **columns, noise="seeded").to_toml()
    assert resolved("digits", evaluate=False, yardsticks=True).yardsticks is None
    with pytest.raises(AccountingError, match="yardsticks must be left out without scores: it needs --evaluate"):
        resolved(patients, **columns, noise="seeded", yardsticks=True)
    assert resolved(patients, **columns, noise="seeded", evaluate=True).yardsticks is True
    for data, more in ((patients, columns), ("digits", {"noise": "discrete"})):
        with pytest.raises(AccountingError, match="yardsticks must be left out with real noise"):
            resolved(data, **more, yardsticks=True)
        with pytest.raises(AccountingError, match="evaluate and yardsticks must be left out with real noise"):
            resolved(data, **more, evaluate=True, yardsticks=True)


def test_real_sites_have_no_scores():
    """Their server holds no record."""
    fed = FederatedData([np.zeros((20, 3)), np.ones((20, 3))])
    sites = RunConfig(data="federation", link="nvflare", kit="kit", epsilon=1.0, bounds=(0.0, 1.0), noise="seeded")
    assert sites.resolved(fed).evaluate is False
    for name in ("evaluate", "yardsticks"):
        with pytest.raises(AccountingError, match=f"^{name} must be left out between real sites"):
            sites.updated(**{name: True}).resolved(fed)


# A run


def test_a_run_with_real_noise_is_counted_and_keeps_labels_at_home(patients, tmp_path):
    runs = [
        execute(config(patients, density=True, classes=("malignant",), seed=seed), tmp_path / str(seed))
        for seed in (0, 1)
    ]
    for number, run in enumerate(runs, 1):
        summary = run.summary()
        assert (summary["simulation"], summary["one_machine"]) == (False, True)
        assert summary["all_runs"]["runs"] == number
        assert not (run.folder / SIMULATION).exists()
    first, second = (run.statement for run in runs)
    assert first.all_runs.epsilon == pytest.approx(first.end_to_end)
    assert [each.split(":")[0] for each in runs[0].warnings] == ["no schema says the public range of each column"]
    assert 1.4 < second.all_runs.epsilon < 1.5
    assert "2 runs with real noise" in runs[1].warnings[1]
    assert statement_of(runs[1].folder).to_dict() == second.to_dict()
    with SiteLedger.read(ledger_path(patients)) as lifetime:
        assert lifetime.statement().end_to_end == pytest.approx(second.all_runs.epsilon)
    with np.load(runs[0].folder / "density.npz") as density:
        assert density["classes"].tolist() == ["malignant"]
        assert len(density["shares"]) == 2  # and "other"
    for file in runs[0].folder.rglob("*"):
        if file.is_file():
            assert b"benign" not in file.read_bytes(), file


def test_a_simulation_of_a_file_is_not_counted_and_is_judged_if_asked(patients, tmp_path):
    silent = execute(config(patients, noise="seeded"), tmp_path / "silent")
    assert silent.summary()["all_runs"] is None
    assert silent.summary()["simulation"] is True
    assert not (silent.folder / SIMULATION).exists()
    judged = execute(config(patients, noise="seeded", evaluate=True), tmp_path / "judged", show=show)
    assert not ledger_path(patients).exists()
    facts = RunFacts.read(judged.folder)
    classes = facts.simulation.cloud.groupings["class"]
    assert classes.names == ("benign", "malignant")
    assert np.bincount(classes.codes).tolist() == [30, 30]
    page = (judged.folder / "report.html").read_text()
    assert "Simulation (seeded noise); with real noise this would be" in page
    assert "on one machine: ε holds for what is published, not against whoever ran it" in page
    for name in ("budget", "delta"):
        assert "simulation (seeded noise), on one machine" in (judged.folder / "figures" / f"{name}.svg").read_text()


def test_a_lifetime_budget_refuses_before_anything_is_spent(patients, tmp_path):
    execute(config(patients), tmp_path / "first", lifetime_epsilon=1.2)
    with pytest.raises(Exception, match="no room in the lifetime budget"):
        execute(config(patients), tmp_path / "second")
    assert not (tmp_path / "second").exists()
    other = tmp_path / "mine.sqlite"
    assert execute(config(patients), tmp_path / "third", ledger=other).statement.all_runs.runs == 1
    assert other.exists()


def test_a_simulation_has_no_ledger_to_charge(patients, tmp_path):
    for more in ({"ledger": tmp_path / "a.sqlite"}, {"lifetime_epsilon": 3.0}):
        with pytest.raises(AccountingError, match="left out in a simulation"):
            execute(config(patients, noise="seeded"), tmp_path / "run", **more)
    assert not (tmp_path / "run").exists()


# Refused on public facts alone, before anything is spent

COMBINATIONS: dict[str, tuple[dict[str, Any], str]] = {
    "client-mean": ({"missing": "client-mean"}, "missing must be public-value"),
    "by-class": ({"partition": "by-class", "client_column": None, "clients": 2}, "partition must be iid or groups"),
    "classes:1": ({"partition": "classes:1", "client_column": None, "clients": 2}, "partition must be iid or groups"),
    "dirichlet": ({"partition": "dirichlet:1", "client_column": None, "clients": 2}, "partition must be iid or groups"),
    "by-class, whole groups": ({"partition": "by-class"}, "partition must be iid or groups"),
    "more classes than there are": ({"partition": "classes:9"}, "partition must be iid or groups"),
    "dealt by number, unit client": ({"partition": "iid", "unit": "client"}, "partition must be groups"),
    "dealt by number, more clients than records": (
        {"partition": "iid", "client_column": None, "clients": 999, "adjacency": "add-remove", "public_records": 30},
        "partition must be groups",
    ),
    "some records, unit client": ({"records": 30, "unit": "client"}, "records must be left out with real noise"),
    "some records, add-remove": (
        {"records": 30, "adjacency": "add-remove", "public_records": 30},
        "records must be left out with real noise",
    ),
    "evaluate": ({"evaluate": True}, "evaluate must be left out"),
    "unit client, input": (
        {"unit": "client", "mechanism": "input", "release": "exact"},
        "unit of the budget must be record",
    ),
    "unit client, add-remove": (
        {"unit": "client", "adjacency": "add-remove", "public_records": 30},
        "unit of the budget must be record",
    ),
    "unit client, noisy rows": ({"unit": "client", "release": "noisy"}, "unit of the budget must be record"),
    "unit client, the paper's claim": (
        {"unit": "client", "scope": "landmarks", "release": "exact"},
        "unit of the budget must be record",
    ),
    "unit client, exact rows": ({"unit": "client", "release": "exact"}, "exact rows determine the records"),
    "landmarks only, private map": ({"scope": "landmarks", "release": "none"}, "scope must be end-to-end"),
    "exact rows": ({"release": "exact"}, "exact rows determine the records"),
    "no protection": ({"mechanism": "none", "release": "none"}, "mechanism must be one with protection"),
    "no protection, noisy": ({"mechanism": "none", "release": "noisy"}, "protects nothing"),
    "add-remove without n": ({"adjacency": "add-remove"}, "public_records must be given"),
    "add-remove, noisy rows": (
        {"adjacency": "add-remove", "public_records": 30, "release": "noisy"},
        "adjacency must be replace-one",
    ),
    "other as a class": ({"density": True, "classes": ("benign", "other")}, "without 'other'"),
    "classes without labels": ({"label_column": None, "density": True, "classes": ("a",)}, "labels must be given"),
    "too many clusters": ({"map": "clusters", "clusters": 61}, "n_clusters must be at most"),
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_what_cannot_be_is_refused_before_anything_is_spent(name, patients, tmp_path):
    settings, words = COMBINATIONS[name]
    bare = settings.get("label_column", "") is None
    if bare:
        lines = [line.rsplit(",", 1)[0] for line in patients.read_text().splitlines()]
        patients.write_text("\n".join(lines) + "\n")
    if settings.get("client_column", "") is None:
        rows = [[*row[:3], row[4]] for row in csv.reader(patients.read_text().splitlines())]
        patients.write_text("\n".join(map(",".join, rows)) + "\n")
    if settings.get("release", "none") != "none":
        settings = {"placement": None, "anchors": None, "sweeps": None, **settings}
    if settings.get("mechanism", "k-means") != "k-means":
        settings = {"sweeps": None, **settings}
    given = {key: value for key, value in {**COLUMNS, **FAST, "epsilon": 1.0, **settings}.items() if value is not None}
    with pytest.raises(Exception, match=words):
        execute(RunConfig(data=str(patients), **given), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "run.unfinished").exists()
    ledger = ledger_path(patients)
    assert not list(ledger.parent.glob(f"{ledger.name}*"))


@pytest.mark.parametrize("hidden", [{"unit": "client"}, {"adjacency": "add-remove"}])
def test_an_estimator_refuses_a_deal_by_number_where_numbers_are_private(patients, hidden):
    """One record more would move others to other clients."""
    table = load(patients, label_column="diagnosis", client_column="hospital")
    budget = Budget(1.0, 1e-5, **hidden)
    for fed, noise in (
        (FederatedData.from_dataset(table, clients=2, partition="iid"), "seeded"),
        (FederatedData.from_dataset(table, partition="groups"), "discrete"),
        (FederatedData([table.X[:30], table.X[30:]]), "discrete"),
    ):
        refuse_data(fed, budget, noise)
    dealt = FederatedData.from_dataset(table, clients=2, partition="iid")
    refuse_data(dealt, Budget(1.0, 1e-5), "discrete")
    with pytest.raises(AccountingError, match=r"partition must be groups.*'iid'"):
        refuse_data(dealt, budget, "discrete")


def test_a_simulation_may_be_dealt_in_any_way(patients):
    rows = [",".join([*row[:3], row[4]]) for row in csv.reader(patients.read_text().splitlines())]
    patients.write_text("\n".join(rows) + "\n")
    simulated = {"label_column": "diagnosis", "noise": "seeded", "clients": 2, "epsilon": 1.0}
    for partition in ("by-class", "dirichlet:1"):
        assert RunConfig(data=str(patients), partition=partition, **simulated).federated().n_clients == 2


def test_a_hole_in_the_data_changes_no_refusal(tmp_path):
    """Filled means are refused as a rule: to refuse them only where there is a hole would tell that there is one."""
    whole, holed = write(tmp_path / "whole.csv"), write(tmp_path / "holed.csv")
    holed.write_text(holed.read_text().replace(holed.read_text().splitlines()[1].split(",")[0], "", 1))
    said = []
    for data in (whole, holed):
        with pytest.raises(AccountingError) as caught:
            resolved(data, **COLUMNS, missing="client-mean", epsilon=1.0)
        said.append(str(caught.value))
    assert said[0] == said[1]


# Names


def test_where_the_unit_is_a_client_its_name_is_nowhere(patients, tmp_path):
    views = tmp_path / "views"
    run = execute(config(patients, unit="client", epsilon=50.0), tmp_path / "run", views=views, show=show)
    assert {client.name for client in run.fed.clients} == {"client-0", "client-1"}
    for file in run.folder.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert b"Nordspital" not in content, file
            assert b"Suedklinik" not in content, file
    # At home each is called by its name.
    assert sorted(path.name for path in views.glob("*.png")) == ["Nordspital.png", "Suedklinik.png"]


HOSPITALS = ("Nord", "West", "Ost", "Sued", "Mitte", "Insel")


def names(fed: FederatedData) -> list[str]:
    return [client.own_name for client in fed.clients]


def test_clients_of_groups_are_in_the_order_of_their_names(tmp_path):
    """In the order of the file, one record more could change it."""
    data = write(tmp_path / "a.csv", hospitals=HOSPITALS)
    assert names(config(data).federated()) == sorted(HOSPITALS)


def test_the_order_of_clients_as_units_follows_from_a_secret_and_not_from_the_seed(tmp_path):
    data = write(tmp_path / "a.csv", hospitals=HOSPITALS)
    chosen = config(data, unit="client", epsilon=50.0)
    table = chosen.dataset()
    orders = {tuple(names(chosen.federated(table, secret))) for secret in range(10)}
    assert len(orders) > 5
    assert all(
        names(chosen.updated(seed=seed).federated(table, 7)) == names(chosen.federated(table, 7)) for seed in range(5)
    )


def test_the_secret_order_is_kept_beside_the_run_and_used_again(tmp_path):
    data = write(tmp_path / "a.csv", hospitals=HOSPITALS)
    chosen, secrets = config(data, unit="client", epsilon=50.0), []
    for name in ("one", "two"):
        interrupted(chosen, tmp_path / name)
        secrets.append(json.loads((tmp_path / f"{name}.unfinished" / "order.json").read_text()))
    assert secrets[0] != secrets[1]
    assert chosen.seed not in secrets
    run = execute(chosen, tmp_path / "one", resume=True)
    assert names(run.fed) == names(chosen.federated(order=secrets[0]))
    for file in run.folder.rglob("*"):
        if file.is_file():
            assert str(secrets[0]).encode() not in file.read_bytes(), file


def test_a_simulation_has_no_secret_order(tmp_path):
    data = write(tmp_path / "a.csv", hospitals=HOSPITALS)
    chosen = config(data, unit="client", epsilon=50.0, noise="seeded")
    interrupted(chosen, tmp_path / "run")
    assert json.loads((tmp_path / "run.unfinished" / "order.json").read_text()) is None
    assert names(chosen.federated()) == names(chosen.federated(order=chosen.seed))


# Interrupted


def interrupted(chosen: RunConfig, folder: Path) -> None:
    """Stop a run after its first round."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(RunInterrupted, match="--resume"):
        execute(chosen, folder, (stop,))


def test_of_a_run_and_its_copy_only_one_goes_on(patients, tmp_path):
    """Both would draw noise of their own for the same releases, and one would be charged."""
    chosen, kept = config(patients, sweeps=3), ledger_path(patients)
    interrupted(chosen, tmp_path / "run")
    twin = copy(tmp_path / "run", tmp_path / "twin")
    assert execute(chosen, tmp_path / "run", resume=True).statement.all_runs.runs == 1
    with Ledger.read(kept) as ledger:
        before = [event.to_json() for event in ledger.events()]
    left = content(twin)
    with pytest.raises(DpfedvisError, match="tells of releases that it has not"):
        execute(chosen, twin, resume=True)
    with Ledger.read(kept) as ledger:
        assert [event.to_json() for event in ledger.events()] == before
    now = content(twin)
    assert {name: now[name] for name in left if "uploads" in name} == {
        name: left[name] for name in left if "uploads" in name
    }


def test_a_run_may_be_interrupted_and_resumed_many_times(patients, tmp_path):
    chosen = config(patients)
    interrupted(chosen, tmp_path / "run")
    for _ in range(2):
        with pytest.raises(RunInterrupted):
            execute(chosen, tmp_path / "run", resume=True, progress=_interrupt)
    assert execute(chosen, tmp_path / "run", resume=True).statement.all_runs.epsilon == pytest.approx(1.0)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def test_the_order_of_neutral_names_is_a_public_shuffle():
    sizes = (30, 20, 10, 5, 4, 3)
    fed = FederatedData([np.full((n, 2), n) for n in sizes], names=list("abcdef"))
    orders = {tuple(client.own_name for client in fed.shuffled(seed).clients) for seed in range(20)}
    assert len(orders) > 15
    mixed = fed.shuffled(3).with_neutral_names()
    assert [client.name for client in mixed.clients] == [f"client-{p}" for p in range(6)]
    X, _ = mixed.pooled()
    np.testing.assert_array_equal(mixed.index.restore(X), fed.pooled()[0])


def test_an_estimator_gives_neutral_names_to_the_ledger_and_its_own_to_views():
    rng = np.random.default_rng(0)
    fed = FederatedData([rng.uniform(size=(20, 3)) for _ in "ab"], names=["Nordspital", "Suedklinik"], bounds=(0, 1))
    fast = {"placement": "weights", "anchors": 40}
    estimator = FedTSNE(budget=Budget(50, 1e-5, unit="client"), private_map=fast, n_landmarks=20).fit(fed)
    assert estimator.ledger_.clients == ["client-0", "client-1"]
    assert list(estimator.views()) == ["Nordspital", "Suedklinik"]


# The command


def test_statement_of_a_run_and_of_a_ledger(patients, tmp_path):
    flags = ["--data", str(patients), "--label-column", "diagnosis", "--client-column", "hospital", "--epsilon", "1"]
    flags += ["--bounds", "0", "1", "--placement", "weights", "--sweeps", "1", "--landmarks", "20", "--anchors", "40"]
    done = called("run", *flags, "--out", str(tmp_path / "run"), "--json")
    assert done.returncode == 0, done.stderr
    own = json.loads(called("statement", str(tmp_path / "run"), "--json").stdout)
    assert own["headline"] == json.loads(done.stdout)["headline"]
    assert own["all_runs"]["runs"] == 1
    kept = called("statement", "--ledger", str(ledger_path(patients)))
    assert kept.stdout.startswith("# Privacy statement\n\n**End to end, ε = 1 at δ = 1e-05")
    plain = json.loads(called("statement", "--ledger", str(tmp_path / "run" / "ledger.sqlite"), "--json").stdout)
    assert plain["epsilon_end_to_end"] == own["epsilon_end_to_end"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give the folder of a run or --ledger FILE, one of the two; neither was given"),
        (["run", "--ledger", "a"], "one of the two; both run and a was given"),
        (["--ledger", "nowhere"], "nowhere"),
        (["nowhere"], "nowhere holds no run"),
        (["patients.csv"], "patients.csv is a file; give the folder of a run, or a ledger by --ledger"),
    ],
)
def test_statement_needs_one_of_them(arguments, words, patients, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_refused(called("statement", *arguments), words)
    assert [path.name for path in tmp_path.iterdir()] == ["patients.csv"]


def test_statement_of_an_unfinished_run_says_how_to_resume_it(patients, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    interrupted(config(patients), tmp_path / "run")
    check_refused(called("statement", "run"), "run is not finished; resume it: dpfedvis run --out run --resume")


def test_statement_has_all_runs_as_they_are_now(patients, tmp_path):
    """Where their ledger is at hand; else as they were, with the time."""
    first, second = (execute(config(patients, seed=seed), tmp_path / str(seed)).folder for seed in (0, 1))
    written = (first / "statement.md").read_text()
    assert "When this run ended, the ledger of these records knew of no other run." in written
    now = called("statement", str(first)).stdout
    assert "The ledger of these records knows of 2 runs with real noise: all together ε = 1.4" in now
    assert (first / "statement.md").read_text() == written
    for file in first.rglob("*"):
        if file.is_file():
            assert str(ledger_path(patients).parent).encode() not in file.read_bytes(), file
    for left in ledger_path(patients).parent.glob(f"{ledger_path(patients).name}*"):
        left.unlink()
    assert called("statement", str(first)).stdout == written
    assert "When this run ended, the ledger of these records knew of 2 runs" in called("statement", str(second)).stdout


def test_a_run_without_a_budget_warns_that_it_counts_for_good(patients, tmp_path):
    bare = {key: value for key, value in FAST.items() if key in ("bounds", "landmarks", "jobs")}
    chosen = RunConfig(data=str(patients), **COLUMNS, **bare, rounds=2, perplexity=5.0)
    run = execute(chosen, tmp_path / "run")
    assert [warning for warning in run.summary()["warnings"] if "ε = ∞ from now on" in warning]
    assert "with real noise" not in run.statement.words["all_runs"]
    simulated = execute(chosen.updated(noise="seeded"), tmp_path / "simulated")
    assert not simulated.warnings


def test_a_stand_in_for_private_numbers_is_called_so(patients, tmp_path):
    chosen = config(patients, adjacency="add-remove", public_records=225, epsilon=50.0)
    page = str(execute(chosen, tmp_path / "run").statement)
    assert "- records (public stand-in): 450" in page
    assert "- records: " not in page
    assert "All features share the public range from 0 to 1." in page
