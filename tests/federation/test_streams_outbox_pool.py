"""Random streams without state, uploads kept at home, and clients at work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from accounting import InvalidParameter, PostProcessing
from dpfedvis.federation import Client, ClientPlan, Failure, Outbox, Pool, Streams, Upload
from dpfedvis.mechanisms import NoPerturbation
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.files import write_arrays
from dpfedvis.numerics.kernels import Kernel


def test_a_stream_depends_on_seed_and_purpose_alone():
    streams = Streams(1)
    first = streams.generator("noise", "gradient", 0, 1).normal(size=5)
    streams.generator("sample", "gradient", 0, 1).normal(size=7)
    np.testing.assert_array_equal(first, Streams(1).generator("noise", "gradient", 0, 1).normal(size=5))


def test_streams_of_different_purposes_are_different():
    purposes = [(kind, what, p, s) for kind in ("noise", "sample", "message") for what in "ab" for p in range(3)
                for s in range(4)]  # fmt: skip
    purposes += [("start",), ("noise", "a", "curator", 1)]
    values = {Streams(seed).generator(*purpose).random() for purpose in purposes for seed in (0, 1)}
    assert len(values) == 2 * len(purposes)


def test_streams_look_independent():
    draws = np.stack([Streams(0).generator("noise", "gradient", p, s).normal(size=2000) for p in range(4)
                      for s in range(4)])  # fmt: skip
    correlations = np.corrcoef(draws)[np.triu_indices(16, k=1)]
    assert np.abs(correlations).max() < 6 / np.sqrt(2000)


def test_the_outbox_gives_back_the_same_bytes(tmp_path, make_upload):
    outbox = Outbox(tmp_path / "outbox")
    assert outbox.find("mean embedding", 1) is None
    uploads = [
        make_upload(np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)),
        Upload(np.array([np.pi]), PostProcessing(what="x", client="ä", of="records")),
    ]
    outbox.keep("mean embedding", 1, uploads)
    found = Outbox(tmp_path / "outbox").find("mean embedding", 1)
    for before, after in zip(uploads, found, strict=True):
        np.testing.assert_array_equal(before.values, after.values)
        assert before.values.dtype == after.values.dtype
        assert before.event == after.event


def test_the_outbox_drops_earlier_rounds_of_the_same_upload_only(tmp_path, make_upload):
    outbox, upload = Outbox(tmp_path), make_upload(np.zeros(2))
    outbox.keep("moments", 0, [upload])
    outbox.keep("curated gradient", 1, [upload])
    for round in (1, 2, 3):
        outbox.keep("gradient", round, [upload])
    assert outbox.find("gradient", 2) is None
    assert outbox.find("gradient", 3) is not None
    assert outbox.find("moments", 0) is not None
    assert outbox.find("curated gradient", 1) is not None


def test_files_are_whole_or_absent(tmp_path, monkeypatch):
    path = tmp_path / "file.npz"
    write_arrays(path, {"a": np.ones(3)})
    monkeypatch.setattr(np, "savez", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_arrays(path, {"a": np.zeros(3)})
    with np.load(path) as stored:
        np.testing.assert_array_equal(stored["a"], np.ones(3))


@dataclass(frozen=True)
class Misbehaving(NoPerturbation):
    """Raises what it is told to, where others compute."""

    error: Exception | None = None

    def message(self, local, Y, public, generator):
        if self.error is not None:
            raise self.error
        return super().message(local, Y, public, generator)


def client(index, error=None):
    records = np.random.default_rng(index).random((5, 2))
    plan = ClientPlan(index, f"client-{index}", 5.0, 0.25, 4, None)
    public = PublicParameters(Kernel.gaussian(1.0), 3, 2, rounds=1, local_steps=1, step_size=1.0)
    return Client(records, plan, Misbehaving(error=error), public, Streams(0), "seeded")


@pytest.mark.parametrize("workers", [1, 3])
def test_the_pool_keeps_the_order_and_turns_errors_into_failures(workers):
    good = [client(p) for p in range(4)]
    Y = np.zeros((3, 2))
    with Pool([*good, client(4, MemoryError("too big")), client(5, ZeroDivisionError())], workers) as pool:
        answers = pool.uploads(Y, 9)
    for answer, each in zip(answers[:4], good, strict=True):
        expected = each.upload(Y, 9)
        assert answer.event == expected.event
        np.testing.assert_array_equal(answer.values, expected.values)
    # The kind of error passes, and not its words, which may quote a record.
    assert answers[4:] == [
        Failure("client-4", 9, "raised MemoryError"),
        Failure("client-5", 9, "raised ZeroDivisionError"),
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_invalid_setting_is_no_clients_fault(workers):
    clients = [client(p, InvalidParameter("gamma", -1, "positive")) for p in range(2)]
    with Pool(clients, workers) as pool, pytest.raises(InvalidParameter):
        pool.uploads(np.zeros((3, 2)), 1)


@pytest.mark.parametrize(("settings", "value"), [({"workers": 0}, 0), ({"backend": "gpus"}, "gpus")])
def test_bad_workers_are_named(settings, value):
    with pytest.raises(InvalidParameter) as caught:
        Pool([client(0)], **settings)
    assert caught.value.value == value
