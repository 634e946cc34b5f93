"""Recorded runs: all that passed the door is there, as it passed, and no record is."""

from __future__ import annotations

import base64
import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from accounting import Event, GaussianRelease, Ledger, PostProcessing, Unprotected
from attacks.shared.gradients import contribution_of
from attacks.shared.registry import NothingToAttack
from dpfedvis import FederatedData
from dpfedvis.estimators.tsne import FedTSNE
from dpfedvis.mechanisms import mechanism
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.mmd import data_gradient
from dpfedvis.protocol.uploads import in_units
from dpfedvis.reporting.run_report import show
from dpfedvis.runs.execute import execute
from dpfedvis.runs.settings import RunConfig
from dpfedvis.runs.upload_reader import Recorder, Recording, RecordingError

BASE = RunConfig(
    data="digits",
    records=120,
    clients=3,
    landmarks=12,
    rounds=4,
    perplexity=5,
    jobs=1,
    mechanism="gradient",
    epsilon=2,
    release="noisy",
    evaluate=False,  # what lies past the door has a folder of its own, and is tested with the page
)


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("runs") / "private"
    execute(BASE, folder, show=show)
    return folder


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("runs") / "exact"
    execute(BASE.updated(mechanism="none", epsilon=None, release=None), folder, show=show)
    return folder


class Listener:
    """Another witness, to compare with: keeps everything in memory."""

    def __init__(self) -> None:
        self.heard: list[tuple[list[Event], Array]] = []

    def __call__(self, events: Any, values: Array) -> None:
        self.heard.append((list(events), values.copy()))


def refit(config: RunConfig) -> tuple[Any, Listener]:
    fed = config.federated()
    listener = Listener()
    estimator = config.resolved(fed).estimator().watch(witness=listener)
    return estimator.fit(fed), listener


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"mechanism": "none", "epsilon": None, "release": None},
        {"trust": "aggregate"},
        {"mechanism": "input", "release": None},
        {"mechanism": "mean-embedding", "map": "clusters", "clusters": 3},
        {"bounds": (-1.0, 2.0), "gamma": "histogram", "start": "mean"},
    ],
    ids=["noisy", "exact", "sums", "input", "clusters", "scale"],
)
def test_all_that_passed_is_there_in_its_order(changes: dict[str, Any], tmp_path: Path) -> None:
    config = BASE.updated(**changes)
    execute(config, tmp_path / "run", show=show)
    estimator, listener = refit(config)
    recording = Recording.read(tmp_path / "run")
    assert len(recording.uploads) == len(listener.heard) > 0
    for upload, (events, values) in zip(recording.uploads, listener.heard, strict=True):
        assert list(upload.events) == events
        assert upload.integers.dtype == values.dtype
        assert upload.shape == values.shape
        np.testing.assert_array_equal(upload.integers, values)
        np.testing.assert_array_equal(upload.values, in_units(values, events[0]))
    # And every release in the ledger that left is accounted for by an upload: nothing passed unseen.
    with recording.ledger() as ledger:
        accounted = [event.to_json() for event in ledger.events() if event.what != "records"]
        assert [event.to_json() for upload in recording.uploads for event in upload.events] == accounted
    np.testing.assert_array_equal(recording.landmarks, estimator.landmarks_)
    assert recording.public == estimator.feddl_.public
    assert recording.mechanism == mechanism(estimator.mechanism)
    assert [each.name for each in recording.clients] == ["client-0", "client-1", "client-2"]
    assert sum(each.weight for each in recording.clients) == pytest.approx(1)
    assert [each.denominator for each in recording.clients] == [40, 40, 40]
    if config.map == "clusters":
        np.testing.assert_array_equal(recording.labels, estimator.labels_)
    else:
        np.testing.assert_array_equal(recording.embedding, estimator.embedding_)


def test_uploads_of_a_round_follow_from_the_landmarks_that_the_server_sent(exact: Path) -> None:
    """The slow way round: an honest gradient at the recorded Y is the recorded upload."""
    recording = Recording.read(exact)
    fed = BASE.updated(mechanism="none", epsilon=None, release=None).federated()
    assert sorted(recording.trajectory) == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(recording.trajectory[4], recording.landmarks)
    uploads = recording.of("gradient")
    assert len(uploads) == 12
    for upload in uploads:
        X = next(client.X for client in fed.clients if client.name == upload.clients[0])
        Y, kernel = recording.seen(upload), recording.public.kernel
        expected = data_gradient(X, Y, kernel, denominator=len(X))
        np.testing.assert_allclose(upload.values, expected, atol=1e-5 * np.abs(expected).max())
    assert len(recording.of("gradient", round=2)) == 3
    assert len(recording.of("gradient", client="client-1")) == 4
    assert [upload.what for upload in recording.rows] == ["distance rows"] * 3
    assert recording.seen(recording.rows[0]) is recording.landmarks


def test_kinds_of_events_survive(private: Path, exact: Path, tmp_path: Path) -> None:
    assert all(isinstance(upload.events[0], GaussianRelease) for upload in Recording.read(private).uploads)
    assert all(isinstance(upload.events[0], Unprotected) for upload in Recording.read(exact).uploads)
    execute(BASE.updated(mechanism="input", release=None), tmp_path / "run", show=show)
    assert all(isinstance(upload.events[0], PostProcessing) for upload in Recording.read(tmp_path / "run").uploads)


def test_sums_are_recorded_as_sums(tmp_path: Path) -> None:
    execute(BASE.updated(trust="aggregate", rounds=2), tmp_path / "run", show=show)
    uploads = Recording.read(tmp_path / "run").of("gradient")
    assert [upload.clients for upload in uploads] == [("client-0", "client-1", "client-2")] * 2
    assert all((upload.integers.dtype, upload.values.dtype) == (np.int64, np.float64) for upload in uploads)


def arrays_in(folder: Path) -> list[tuple[str, Array]]:
    """Every number in a folder, whatever the file: arrays, index, text, database."""
    found: list[tuple[str, Array]] = []
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".npz":
            with np.load(path) as stored:
                found += [
                    (f"{path.name}:{name}", stored[name]) for name in stored.files if stored[name].dtype.kind != "U"
                ]
        elif path.suffix == ".bin":
            raw = path.read_bytes()
            kinds = ("<f4", "<f8", "<i8")
            found += [(f"{path.name}:{kind}", np.frombuffer(raw[: len(raw) // 8 * 8], kind)) for kind in kinds]
        elif path.suffix == ".csv":
            lines = [line.split(",")[2:] for line in path.read_text().splitlines()[1:]]
            found.append((path.name, np.array(lines, dtype=np.float64)))
        elif path.suffix == ".html":
            packed = re.findall(r'"dtype":"(\w+)","bdata":"([^"]*)"', path.read_text())
            columns = [np.frombuffer(base64.b64decode(data), f"<{kind}") for kind, data in packed]
            found += [(f"{path.name}:{length}", np.column_stack([each for each in columns if len(each) == length]))
                      for length in {len(each) for each in columns}]  # fmt: skip
    return found


def test_a_private_run_holds_no_record(private: Path) -> None:
    """No file has a record in it, and none has numbers from which a linear map gives the records back."""
    known = {path.name for path in private.rglob("*") if path.is_file()}
    assert known == {
        "config.toml", "provenance.json", "ledger.sqlite", "index.jsonl", "values.bin", "public.json", "landmarks.npz",
        "embedding.npz", "embedding.csv", "statement.md", "statement.json", "map.png", "trace.csv", "report.html",
        "verdict.json", "statement.html",
        *(f"{name}.svg" for name in ("map", "budget", "accountants", "delta", "convergence", "risk")),
    }  # fmt: skip
    records = BASE.federated().pooled()[0]
    everything = b"".join(path.read_bytes() for path in private.rglob("*") if path.is_file())
    for record in records:
        for kind in (np.float32, np.float64):
            assert record.astype(kind).tobytes() not in everything
            # Not even a part of one: 16 of 64 values in a row, unless they are all alike.
            part = record[24:40].astype(kind)
            assert len(set(part)) < 4 or part.tobytes() not in everything
    numbers = arrays_in(private)
    assert any(name.startswith("report.html") and len(values) == len(records) for name, values in numbers)
    for name, values in numbers:
        if values.ndim == 2 and len(values) == len(records):
            assert determination(values, records) < 0.3, name
    recording = Recording.read(private)
    rows = np.concatenate([upload.values for upload in recording.rows])
    assert len(rows) == len(records)
    assert determination(rows, records) < 0.3


def test_of_a_private_map_the_server_has_landmarks_and_no_place_of_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients place their records at home, exactly: a folder with those places would break the statement's ε."""
    made, make = [], RunConfig.estimator
    monkeypatch.setattr(RunConfig, "estimator", lambda config: made.append(make(config)) or made[-1])
    execute(BASE.updated(release="none", mechanism="k-means"), tmp_path / "run", show=show)
    (estimator,) = made
    assert estimator.embedding_.shape == (120, 2)
    recording = Recording.read(tmp_path / "run")
    assert recording.embedding is None
    assert recording.labels is None
    assert recording.rows == ()
    with np.load(tmp_path / "run" / "embedding.npz") as stored:
        assert stored.files == ["anchors"]
        np.testing.assert_array_equal(stored["anchors"], estimator.published_map_.places)
    np.testing.assert_array_equal(recording.landmarks, estimator.landmarks_)
    np.testing.assert_array_equal(recording.published["places"], estimator.published_map_.places)
    np.testing.assert_array_equal(recording.published["anchors"], estimator.published_map_.anchors)
    assert len((tmp_path / "run" / "embedding.csv").read_text().splitlines()) == 1 + len(
        estimator.published_map_.places
    )
    everything = b"".join(path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file())
    for place in estimator.embedding_:
        assert place.tobytes() not in everything
        assert place.astype(np.float32).tobytes() not in everything
        assert repr(float(place[0])).encode() not in everything
    shown = [values for name, values in arrays_in(tmp_path / "run") if name.startswith("report.html")]
    assert {len(values) for values in shown} == {len(estimator.published_map_.places)}  # anchors, and nothing else
    # What was learned in the subspace is there as points among the records too.
    last = max(recording.trajectory)
    np.testing.assert_allclose(recording.trajectory[last], recording.landmarks, rtol=1e-5, atol=1e-6)
    assert (
        recording.seen(recording.of("cluster sums")[0]).shape[1]
        == recording.public.features
        == recording.published["axes"].shape[1]
    )


def determination(values: Array, records: Array) -> float:
    """Share of the records' variance that the best affine map from `values` explains on records held out."""
    half = len(records) // 2
    design = np.column_stack([values, np.ones(len(values))])
    weights = np.linalg.lstsq(design[:half], records[:half], rcond=None)[0]
    rest = records[half:]
    return float(1 - np.square(design[half:] @ weights - rest).sum() / np.square(rest - rest.mean(axis=0)).sum())


def test_the_check_for_records_would_find_them(exact: Path) -> None:
    """The same check on a run that releases exact rows: squared distances determine the records."""
    records = BASE.federated().pooled()[0]
    rows = np.concatenate([upload.values for upload in Recording.read(exact).rows])
    # 12 landmarks of 64 features give 11 directions.
    assert determination(np.square(rows), records) > 0.3


def test_labels_stay_with_the_clients(private: Path) -> None:
    fed = BASE.federated()
    labels = fed.pooled()[1]
    assert labels is not None
    for name, values in arrays_in(private):
        for column in values.reshape(len(values), -1).T if values.ndim else []:
            assert len(column) != len(labels) or not np.array_equal(column, labels), name


def test_how_many_records_a_client_has_is_private_where_it_is_the_unit(tmp_path: Path) -> None:
    """No file of the server's tells it; the gradient attacks, which need it, say so."""
    folder = tmp_path / "run"
    config = BASE.updated(mechanism="gradient", release="none", unit="client", epsilon=4.0, partition="dirichlet:0.5")
    execute(config, folder, show=show)
    sizes = {str(n) for n in config.federated().records if n > 9}
    assert sizes
    public = json.loads((folder / "public.json").read_text())
    assert [client["denominator"] for client in public["clients"]] == [None] * config.clients
    told = (folder / "public.json").read_text() + (folder / "statement.json").read_text()
    # The number of columns is public; digits of a hash or a time are no numbers.
    told = re.sub(r'"[0-9a-f]{64}"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.+]+', "", told)
    columns = config.federated().n_features
    told = (
        told.replace("blind guessing: 50", "")
        .replace(f'"columns": {columns}', "")
        .replace(f"From {columns} columns", "")
    )
    numbers = {number.rstrip(".").removesuffix(".0") for number in re.findall(r"[0-9.]+", told)}
    assert len(numbers) > 50
    assert not sizes & numbers
    recording = Recording.read(folder)
    with pytest.raises(RecordingError, match="number of records of client-0 is private"):
        _ = recording.clients[0].stated_denominator
    with pytest.raises(NothingToAttack, match="private in this run"):
        contribution_of(recording)


def test_recorded_rounds_are_the_first(tmp_path: Path) -> None:
    execute(BASE.updated(recorded_rounds=1), tmp_path / "run", show=show)
    recording = Recording.read(tmp_path / "run")
    assert {upload.round for upload in recording.uploads} == {1, None}
    assert sorted(recording.trajectory) == [0, 1]
    assert len(recording.rows) == 3


def test_recording_changes_nothing(private: Path) -> None:
    fed = BASE.federated()
    plain = BASE.resolved(fed).estimator().fit(fed)
    np.testing.assert_array_equal(Recording.read(private).landmarks, plain.landmarks_)
    np.testing.assert_array_equal(Recording.read(private).embedding, plain.embedding_)


def test_a_clone_is_not_watched_and_fits_are_the_same(tmp_path: Path) -> None:
    fed = FederatedData.split(np.random.default_rng(0).random((30, 3)), clients=2, bounds=(0, 1))
    listener = Listener()
    estimator = FedTSNE(n_landmarks=5, mechanism="none", rounds=2, perplexity=3, n_jobs=1)
    assert estimator.watch(witness=listener) is estimator
    assert "witness" not in estimator.get_params()
    first = estimator.fit_transform(fed)
    heard = len(listener.heard)
    assert heard == 2 * 2 + 2
    np.testing.assert_array_equal(clone(estimator).fit_transform(fed), first)
    assert len(listener.heard) == heard


def test_the_ledger_of_a_watched_run_is_the_file(private: Path) -> None:
    rows = sqlite3.connect(private / "ledger.sqlite").execute("SELECT count(*) FROM events").fetchone()[0]
    with Ledger.read(private / "ledger.sqlite") as ledger:
        assert len(ledger) == rows == 3 * 4 + 3
        assert ledger.spent() == pytest.approx(2)


def damaged(source: Path, target: Path) -> Path:
    shutil.copytree(source, target)
    return target


def test_a_flipped_byte_is_found(private: Path, tmp_path: Path) -> None:
    folder = damaged(private, tmp_path / "run")
    path = folder / "uploads" / "values.bin"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    uploads = Recording.read(folder).uploads
    with pytest.raises(RecordingError, match=r"values\.bin is damaged at byte 0: wrong checksum"):
        _ = uploads[0].values
    assert uploads[1].values.size  # the others are whole


def test_a_torn_tail_is_found(private: Path, tmp_path: Path) -> None:
    folder = damaged(private, tmp_path / "run")
    index = folder / "uploads" / "index.jsonl"
    index.write_text(index.read_text()[:-20])
    with pytest.raises(RecordingError, match=r"line 19 of .*index\.jsonl is damaged"):
        Recording.read(folder)
    folder = damaged(private, tmp_path / "other")
    values = folder / "uploads" / "values.bin"
    values.write_bytes(values.read_bytes()[:-200])
    with pytest.raises(RecordingError, match="damaged at byte"):
        _ = Recording.read(folder).uploads[-1].values


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("public.json", None),
        ("public.json", b"{"),
        ("public.json", b"{}"),
        ("landmarks.npz", None),
        ("landmarks.npz", b"zip?"),
        ("uploads/index.jsonl", None),
        ("uploads/index.jsonl", b'{"offset": 0}\n'),
        ("embedding.npz", b""),
    ],
)
def test_damaged_runs_are_named(name: str, content: bytes | None, private: Path, tmp_path: Path) -> None:
    folder = damaged(private, tmp_path / "run")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(RecordingError, match="run"):
        Recording.read(folder)


def test_an_unfinished_run_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="holds no finished run"):
        Recording.read(tmp_path)
    recorder = Recorder(tmp_path)
    recorder.close()
    with pytest.raises(RecordingError, match="holds no finished run"):
        Recording.read(tmp_path)
    with pytest.raises(RecordingError, match="holds the uploads of another run"):
        Recorder(tmp_path)


def test_the_index_is_plain_json(private: Path) -> None:
    """Another program can read it: a line an array, with its place and its events."""
    entries = [json.loads(line) for line in (private / "uploads" / "index.jsonl").read_text().splitlines()]
    raw = (private / "uploads" / "values.bin").read_bytes()
    first = entries[0]
    values = np.frombuffer(raw, first["dtype"], int(np.prod(first["shape"])), first["offset"]).reshape(first["shape"])
    assert first["dtype"] == "<i8"
    np.testing.assert_array_equal(values, Recording.read(private).uploads[0].integers)
    assert first["events"][0]["kind"] == "gaussian"
    np.testing.assert_array_equal(values * first["events"][0]["grid"], Recording.read(private).uploads[0].values)
    assert [entry["landmarks"] for entry in entries if "landmarks" in entry] == [1, 2, 3, 4]
