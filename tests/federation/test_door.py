"""The door: nothing passes before it is written down, nothing bad is paid for, nothing beyond the budget passes."""

from __future__ import annotations

import numpy as np
import pytest

from accounting import Budget, BudgetExceeded, Ledger, Unprotected, UnprotectedReleaseError
from dpfedvis.federation import BadUpload, Door, Upload

SHAPE = (3, 2)


def good(value=1.0):
    return np.full(SHAPE, value, np.float32)


class Stop(Exception):
    pass


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "ledger.sqlite", Budget(1.0, 1e-5)) as opened:
        yield opened


@pytest.mark.parametrize("way", ["release", "release_sum"])
def test_the_event_is_on_disk_before_anything_passes(way, ledger, make_upload, tmp_path):
    seen = []

    def witness(events, values):
        with Ledger.read(tmp_path / "ledger.sqlite") as other:
            seen.append(list(other.events()))
        raise Stop

    uploads = [make_upload(good(), client=f"client-{p}") for p in range(2)]
    with pytest.raises(Stop):
        getattr(Door(ledger, witness), way)(uploads, SHAPE)
    assert seen == [[upload.event for upload in uploads]]
    assert list(ledger.events()) == [upload.event for upload in uploads]


BAD = {
    "nan": np.array([[1, 2], [np.nan, 4], [5, np.inf]], np.float32),
    "shape": np.zeros((2, 2), np.float32),
    "flat": np.zeros(6, np.float32),
    "integers": np.zeros(SHAPE, np.int64),
    "objects": np.array([[None] * 2] * 3, dtype=object),
    "half": np.zeros(SHAPE, np.float16),
    "list": [[1.0, 2.0]] * 3,
    "nothing": None,
}


@pytest.mark.parametrize("way", ["release", "release_sum"])
@pytest.mark.parametrize("kind", BAD)
def test_a_bad_array_is_refused_before_anything_is_spent(kind, way, ledger, make_upload):
    seen = []
    door = Door(ledger, lambda events, values: seen.append(values))
    uploads = [make_upload(good(), client="client-0"), make_upload(BAD[kind], client="client-1", round=4)]
    with pytest.raises(BadUpload) as caught:
        getattr(door, way)(uploads, SHAPE)
    assert (caught.value.client, caught.value.what, caught.value.round) == ("client-1", "gradient", 4)
    assert "client-1" in str(caught.value)
    assert len(ledger) == 0
    assert not seen
    assert ledger.remaining() == pytest.approx(1.0)


def test_the_reason_has_the_numbers(make_upload):
    for kind, words in {"nan": "not finite", "shape": r"\(2, 2\), not \(3, 2\)", "integers": "int64"}.items():
        with pytest.raises(BadUpload, match=words):
            make_upload(BAD[kind]).check(SHAPE)


@pytest.mark.parametrize("way", ["release", "release_sum"])
def test_nothing_passes_beyond_the_budget(way, ledger, make_upload):
    seen = []
    door = Door(ledger, lambda events, values: seen.append(values))
    cheap = make_upload(good(), client="client-0", mu=0.01)
    costly = make_upload(good(), client="client-1", mu=10.0)
    with pytest.raises(BudgetExceeded) as caught:
        getattr(door, way)([cheap, costly], SHAPE)
    assert caught.value.client == "client-1"
    assert caught.value.total > 1.0
    assert not seen
    assert len(ledger) == 0, "all or nothing"


def test_a_budget_runs_out(ledger, make_upload):
    seen, mu = [], ledger.budget.mu / np.sqrt(3.5)
    door = Door(ledger, lambda events, values: seen.append(values))
    for round in range(1, 4):
        door.release([make_upload(good(), round=round, mu=mu)], SHAPE)
    with pytest.raises(BudgetExceeded):
        door.release([make_upload(good(), round=4, mu=mu)], SHAPE)
    assert len(seen) == len(ledger) == 3


def test_unprotected_uploads_do_not_pass_under_a_budget(ledger):
    event = Unprotected(what="gradient", client="client-0", why="exact")
    with pytest.raises(UnprotectedReleaseError):
        Door(ledger).release([Upload(good(), event)], SHAPE)
    assert len(ledger) == 0


def test_uploads_pass_as_they_are(ledger, make_upload):
    seen = []
    door = Door(ledger, lambda events, values: seen.append((events, values)))
    uploads = [make_upload(good(p), client=f"client-{p}") for p in range(3)]
    for passed, upload in zip(door.release(uploads, SHAPE), uploads, strict=True):
        assert passed is upload.values
    assert [
        (list(events), values is upload.values) for (events, values), upload in zip(seen, uploads, strict=True)
    ] == [([upload.event], True) for upload in uploads]


def test_only_the_sum_passes(ledger, make_upload):
    seen = []
    door = Door(ledger, lambda events, values: seen.append((list(events), values)))
    uploads = [make_upload(good(0.1 * (p + 1)), client=f"client-{p}") for p in range(3)]
    total = door.release_sum(uploads, SHAPE, curate=lambda exact: exact + 1)
    np.testing.assert_allclose(total, np.full(SHAPE, 1.6), rtol=1e-6)
    assert total.dtype == np.float64
    assert len(seen) == 1
    assert seen[0][0] == [upload.event for upload in uploads]
    assert seen[0][1] is total


def test_the_same_bytes_again_cost_nothing_and_new_ones_do(ledger, make_upload):
    door = Door(ledger)
    first = make_upload(good(), round=1)
    door.release([first], SHAPE)
    door.release([make_upload(good(), round=1, resent=True)], SHAPE)
    assert len(ledger) == 1
    door.release([make_upload(good(), round=2, resent=True)], SHAPE)
    assert len(ledger) == 2, "kept but never accounted for: it must be now"
    door.release([make_upload(good(), round=1)], SHAPE)
    assert len(ledger) == 3, "fresh bytes of a round that was there before"


def test_a_ledger_in_memory_will_do(make_upload):
    ledger = Ledger()
    Door(ledger).release([make_upload(good())], SHAPE)
    assert len(ledger) == 1
