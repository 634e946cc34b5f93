"""The door: nothing passes before it is written down, nothing bad is paid for, nothing beyond the budget passes."""

from __future__ import annotations

import numpy as np
import pytest

from accounting import Budget, BudgetExceeded, Ledger, Unprotected, UnprotectedReleaseError
from dpfedvis.federation import BadUpload, Door, Upload

SHAPE = (3, 2)


def good(value=1):
    return np.full(SHAPE, value, np.int64)


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
    "floats": np.zeros(SHAPE),
    "shape": np.zeros((2, 2), np.int64),
    "flat": np.zeros(6, np.int64),
    "unsigned": np.zeros(SHAPE, np.uint64),
    "short": np.zeros(SHAPE, np.int32),
    "objects": np.array([[None] * 2] * 3, dtype=object),
    "list": [[1, 2]] * 3,
    "nothing": None,
}
BAD_FLOATS = {
    "nan": np.array([[1, 2], [np.nan, 4], [5, 6]], np.float32),
    "inf": np.array([[1, 2], [3, 4], [5, np.inf]], np.float64),
    "shape": np.zeros((2, 2), np.float32),
    "integers": np.zeros(SHAPE, np.int64),
    "half": np.zeros(SHAPE, np.float16),
    "list": [[1.0, 2.0]] * 3,
    "nothing": None,
}
EXACT = Unprotected(what="gradient", client="client-0", why="exact")


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


@pytest.mark.parametrize("kind", BAD_FLOATS)
def test_a_bad_array_without_noise_is_refused_before_it_is_written_down(kind):
    door = Door(Ledger())
    with pytest.raises(BadUpload):
        door.release([Upload(BAD_FLOATS[kind], EXACT)], SHAPE)
    assert len(door.ledger) == 0


def test_the_reason_has_the_numbers(make_upload):
    for kind, words in {"shape": r"\(2, 2\), not \(3, 2\)", "floats": "float64, not int64"}.items():
        with pytest.raises(BadUpload, match=words):
            make_upload(BAD[kind]).check(SHAPE)
    for kind, words in {"nan": "not finite", "inf": "not finite", "integers": "int64, not float32 or"}.items():
        with pytest.raises(BadUpload, match=words):
            Upload(BAD_FLOATS[kind], EXACT).check(SHAPE)


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
    with pytest.raises(UnprotectedReleaseError):
        Door(ledger).release([Upload(np.ones(SHAPE), EXACT)], SHAPE)
    assert len(ledger) == 0


def test_uploads_pass_as_they_are(ledger, make_upload):
    """A witness sees the integers, and the server reads them in units of the grid; floats have no other unit."""
    seen = []
    door = Door(ledger, lambda events, values: seen.append((events, values)))
    uploads = [make_upload(good(p), client=f"client-{p}") for p in range(3)]
    for passed, upload in zip(door.release(uploads, SHAPE), uploads, strict=True):
        np.testing.assert_array_equal(passed, upload.values * upload.event.grid)
        assert passed.dtype == np.float64
    assert [
        (list(events), values is upload.values) for (events, values), upload in zip(seen, uploads, strict=True)
    ] == [([upload.event], True) for upload in uploads]
    floats = np.full(SHAPE, 0.1, np.float32)
    assert Door(Ledger()).release([Upload(floats, EXACT)], SHAPE)[0] is floats


def test_only_the_sum_passes(ledger, make_upload):
    seen = []
    door = Door(ledger, lambda events, values: seen.append((list(events), values)))
    # Beyond 2⁵³, where a sum of floats would lose the last bit.
    uploads = [make_upload(good(2**60 + p), client=f"client-{p}") for p in range(3)]
    total = door.release_sum(uploads, SHAPE, curate=lambda exact: exact + 1)
    np.testing.assert_array_equal(total, good(3 * 2**60 + 4) * uploads[0].event.grid)
    assert total.dtype == np.float64
    assert len(seen) == 1
    assert seen[0][0] == [upload.event for upload in uploads]
    np.testing.assert_array_equal(seen[0][1], good(3 * 2**60 + 4), strict=True)


def test_a_sum_has_one_grid(ledger, make_upload):
    seen = []
    door = Door(ledger, lambda events, values: seen.append(values))
    uploads = [make_upload(good(), client="client-0"), make_upload(good(), client="client-1", grid=2.0**-9)]
    with pytest.raises(BadUpload, match="different grids"):
        door.release_sum(uploads, SHAPE)
    assert not seen
    assert len(ledger) == 0


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
