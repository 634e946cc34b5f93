"""A server that tries to learn from refusals, and to be answered twice: each of these once worked."""

from __future__ import annotations

import math
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting import Budget, Ledger
from accounting.errors import InvalidParameter, LedgerError
from dpfedvis.mechanisms import (
    MECHANISMS,
    GradientPerturbation,
    InputPerturbation,
    KMeans,
    MeanEmbedding,
    PreparedRecords,
)
from dpfedvis.mechanisms.density import GridCounts
from dpfedvis.mechanisms.rows import GramRows
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.layouts import LAYOUTS
from dpfedvis.protocol import wire
from dpfedvis.protocol.contract import Member
from dpfedvis.protocol.density import DensityGrid
from dpfedvis.protocol.messages import (
    PLACEMENTS,
    Agree,
    Describe,
    Done,
    Forget,
    Perturb,
    Place,
    Prepare,
    Refused,
    Send,
    SendRows,
    Sent,
    Signed,
)  # fmt: skip
from dpfedvis.protocol.noise_plan import Extra, plan_run, site_plans
from dpfedvis.protocol.published_map import PublishedMap
from dpfedvis.protocol.subspace import Subspace
from dpfedvis.protocol.views import DensityView, SubspaceView
from dpfedvis.site import Identity, Policy, Site, SiteLedger, accept_restored, clear_failure, open_site, write_site
from tests.site.test_lying_server import (
    FEATURES,
    LANDMARKS,
    OPENED,
    RECORDS,
    asked,
    begun,
    contract,
    landmarks,
    public,
    records,
    refused,
    site,
    spent,
)

TSNE = LAYOUTS["tsne"]()


@pytest.fixture(autouse=True)
def _closed() -> Any:
    yield
    while OPENED:
        OPENED.pop().close()


def as_bytes(own: Site, request: Any) -> Any:
    """Ask as another process would."""
    return wire.decode(own.answer(wire.encode(request)))


def plane(axis: int = 0, size: float = 1.0, centre: float = 0.0) -> Subspace:
    axes, middle = np.zeros((FEATURES, 1)), np.zeros(FEATURES)
    axes[axis, 0], middle[axis] = size, centre
    return Subspace(middle, axes, np.array([1.0]), Grid(2.0**-10, 2**20))


def published(subspace: Subspace | None = None, seed: int = 0) -> PublishedMap:
    rng = np.random.default_rng(seed)
    return PublishedMap(subspace or plane(), rng.normal(size=(3, 1)).astype(np.float32), rng.normal(size=(3, 2)), seed)


# What comes back from placing


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_placing_tells_nothing_of_records(placement: str) -> None:
    """Axes so long that a record at the centre gave NaN, and any other infinity."""
    own = site()
    label = begun(own)
    at = float(records()[1, 0])
    for centre in (at, at + 1.0):
        reply = as_bytes(own, Place(label, published(plane(size=1e306, centre=centre)), TSNE, placement))
        assert isinstance(reply, Refused)
    assert isinstance(as_bytes(own, Place(label, published(), TSNE, placement)), Done)


def test_a_placement_that_fails_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    own = site()

    def failing(published: PublishedMap, X: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError("a record")

    assert isinstance(own.answer(Place(begun(own), published(), TSNE, failing)), Done)
    assert "could not place" in caplog.text


def test_one_map_is_published_in_a_run() -> None:
    own = site()
    label = begun(own)
    for _ in range(2):
        assert isinstance(as_bytes(own, Place(label, published(), TSNE, "weights")), Done)
    assert "another map" in refused(as_bytes(own, Place(label, published(seed=1), TSNE, "weights")))


# Views under other names


def test_a_view_has_the_name_of_its_kind() -> None:
    with pytest.raises(TypeError):
        SubspaceView(plane(), name="density")  # type: ignore[call-arg]
    message = wire.encode(Prepare("x", SubspaceView(plane())))
    edited = message.replace(b'"subspace":{', b'"name":"density","subspace":{')
    length = len(wire.MAGIC)
    size = int.from_bytes(message[length : length + 8], "big") + len(edited) - len(message)
    edited = edited[:length] + size.to_bytes(8, "big") + edited[length + 8 :]
    assert "cannot be read" in refused(wire.decode(site().answer(edited)))


@pytest.mark.parametrize("far", [-5, 10**9])
def test_a_record_counts_whatever_its_cell(far: int) -> None:
    own = site()
    label = begun(own, contract(own, extras={"density": Extra(0.2, "density", 16)}))
    assert isinstance(own.answer(Prepare(label, DensityView(published(), DensityGrid(1.0, 4)))), Done)
    run = own._runs[label]
    run.computation.views["density"] = np.full((RECORDS, 1), far)
    request = Send(label, GridCounts(cells=16), public(landmarks=1, features=1), view="density")
    assert isinstance(own.answer(request), Sent)


def test_whether_there_is_room_is_known_before_records_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a spent budget shows whether a computation that is not charged would have failed."""
    own = site()
    label = begun(own)
    run = own._runs[label]
    monkeypatch.setattr(run.account._own, "check", Ledger(budget=Budget(1e-9, 1e-5)).check)
    monkeypatch.setattr(run.computation, "upload", lambda request: pytest.fail("records were looked at"))
    assert "no room" in refused(own.answer(asked(label)))


def test_an_error_that_may_depend_on_records_is_seen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    own = site()
    label = begun(own)
    monkeypatch.setattr(own._runs[label].computation, "upload", lambda request: 1 / 0)
    assert "could not do it" in refused(own.answer(asked(label)))
    monkeypatch.undo()
    assert spent(own, label) == 1, "it counts as the release"
    assert "waits for its owner" in refused(own.answer(asked(label, round=2)))
    label = begun(own, contract(own, run="run 2"))
    assert "waits for its owner" in refused(own.answer(asked(label)))


def test_a_failure_outlives_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stored(tmp_path / "north")
    own = kept(folder)
    monkeypatch.setattr(own._runs[begun(own)].computation, "upload", lambda request: 1 / 0)
    label = begun(own)
    refused(own.answer(asked(label)))
    closed(own)
    own = kept(folder)
    assert "waits for its owner" in refused(own.answer(asked(begun(own), round=2)))
    closed(own)
    clear_failure(folder)
    own = kept(folder)
    assert isinstance(own.answer(asked(begun(own), round=2)), Sent)


@pytest.mark.parametrize(
    "view",
    [None, "raw", SubspaceView(plane(size=2.0)), SubspaceView(plane(size=1e306))],
    ids=["none", "text", "long", "very"],
)
def test_nonsense_does_not_stop_a_site(view: Any) -> None:
    own = site()
    label = begun(own)
    refused(own.answer(Prepare(label, view)))
    assert isinstance(own.answer(asked(label)), Sent)


EXTREME = [1e-305, 1e-41, 1e41, 1e300]


@pytest.mark.parametrize("size", EXTREME)
@pytest.mark.parametrize("field", ["clip", "norm"])
def test_numbers_that_overflow_with_records_are_refused(field: str, size: float) -> None:
    """A clip of 1e-305 made 0·inf of the one record beside the centre: a bit about it, without noise."""
    own = site()
    label = begun(own, contract(own, extras={"second moments": Extra(0.2, "subspace", 6)}))
    chosen = SecondMoments(centre=np.zeros(FEATURES), **{"norm": 2.0, field: size})
    assert "number of the request" in refused(as_bytes(own, Send(label, chosen, public(landmarks=1))))


@pytest.mark.parametrize("size", EXTREME)
@pytest.mark.parametrize("mechanism", [KMeans(), MeanEmbedding(), GradientPerturbation()], ids=lambda each: each.name)
def test_kernels_and_grids_that_overflow_are_refused(mechanism: Any, size: float) -> None:
    for X in (records()[:0], records()[:1]):
        own = Site("north", X, policy=Policy(number_of_records="secret"), identity=Identity(b"n" * 32))
        hiding = Budget(1.0, 1e-5, adjacency="add-remove")
        label = begun(own, contract(own, mechanism=mechanism, budget=hiding, extras={}, values=10**4))
        for change in ({"kernel": Kernel.gaussian(size)}, {"grid": Grid(2.0 ** round(math.log2(size)), 4)}):
            changed = public(adjacency="add-remove", **change)
            request = asked(label, mechanism=mechanism, public=changed, landmarks=np.zeros((LANDMARKS, FEATURES)))
            assert "number of the request" in refused(own.answer(request))


@settings(max_examples=60)
@given(st.data())
def test_numbers_at_the_edges_of_the_range_make_no_nan(data: st.DataObject) -> None:
    """Neighbouring records, without noise: no value beyond the sensitivity, and no failure of one alone."""
    size = st.sampled_from([1e-40, 1e-20, 1e-3, 1.0, 1e3, 1e20, 1e40])
    clip, norm, place = data.draw(size), data.draw(size), data.draw(st.sampled_from([0.0, 0.5, 1e15, -1e15]))
    chosen = SecondMoments(centre=np.full(FEATURES, place), clip=clip, norm=norm)
    made = public(landmarks=1)
    try:
        grid = chosen.grid(made, np.zeros((1, FEATURES)))
    except InvalidParameter:
        return  # from public facts
    near, far = np.full((1, FEATURES), place), np.full((1, FEATURES), 7.0)
    totals = [chosen.total(PreparedRecords(X, 1.0), np.zeros((1, FEATURES)), made, grid) for X in (near, far)]
    moved = (totals[0] - totals[1]) * chosen.cell(made, grid) / chosen.relative_noise(made)
    assert np.linalg.norm(moved) <= chosen.sensitivity(made, 1.0) * (1 + 1e-9)


@pytest.mark.parametrize("on_disk", [False, True])
def test_two_sites_of_one_name_share_an_account(on_disk: bool, tmp_path: Path) -> None:
    ledger = SiteLedger(tmp_path / "ledger.sqlite" if on_disk else None)
    OPENED.append(ledger)
    twins = [Site("north", records(), ledger=ledger, identity=Identity(b"n" * 32)) for _ in range(2)]
    labels = [begun(each) for each in twins]
    assert isinstance(twins[0].answer(asked(labels[0])), Sent)
    assert "released already" in refused(twins[1].answer(asked(labels[1])))
    assert [spent(each, label) for each, label in zip(twins, labels, strict=True)] == [1, 1]


def test_a_full_disk_does_not_spend_the_lifetime_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stored(tmp_path / "north", lifetime_epsilon=1.0)
    own = kept(folder)
    label = begun(own)
    with monkeypatch.context() as patch:
        patch.setattr(own.ledger._ledger, "record", lambda *events: (_ for _ in ()).throw(OSError("no space")))
        for _ in range(5):
            assert "cannot be read or written" in refused(own.answer(asked(label)))
    for round in (1, 2, 3):
        assert isinstance(own.answer(asked(label, round=round)), Sent)


# Answered once


@pytest.mark.parametrize("on_disk", [False, True])
def test_threads_that_ask_at_once_get_the_same_bytes(on_disk: bool, tmp_path: Path) -> None:
    for attempt in range(4):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        own = site(folder if on_disk else None)
        label, found = begun(own), []

        def ask(shift: int, own: Site = own, label: str = label, found: list[Any] = found) -> None:
            found.append(own.answer(asked(label, landmarks=landmarks()[:: 1 if shift % 2 else -1])))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        values = {each.values.tobytes() for each in found if isinstance(each, Sent)}
        assert (len(values), spent(own, label)) == (1, 1)


def test_a_run_that_is_forgotten_is_not_begun_anew() -> None:
    own = site()
    label = begun(own)
    first = own.answer(asked(label))
    own.answer(Forget(label))
    assert begun(own) == label
    assert isinstance(first, Sent)
    assert "released already" in refused(own.answer(asked(label)))
    assert spent(own, label) == 1


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_run_has_one_contract(on_disk: bool, tmp_path: Path) -> None:
    own = site(tmp_path if on_disk else None)
    first = begun(own)
    other = contract(own, values=2 * LANDMARKS * FEATURES)
    second = begun(own, other)  # nothing was released: the first ends here
    assert "no such contract" in refused(own.answer(asked(first)))
    assert isinstance(own.answer(asked(second)), Sent)
    assert "another contract" in refused(own.answer(Agree(contract(own))))
    own.answer(Forget(second))
    assert "another contract" in refused(own.answer(Agree(contract(own))))


@pytest.mark.parametrize("run", ["x/0", "/", "a/b/c"])
def test_a_run_has_no_slash_in_its_name(run: str) -> None:
    """A ledger of all runs calls a site RUN/SITE: runs x/0, x/1 and so on were counted as one."""
    with pytest.raises(InvalidParameter, match="slash"):
        contract(site(), run=run)


def test_two_members_have_two_keys() -> None:
    own = site()
    members = contract(own).members
    with pytest.raises(InvalidParameter, match="keys"):
        contract(own, members=(members[0], type(members[1])("south", RECORDS, 0.5, own.identity.public)))


# The ledger and what lies beside it


def kept(folder: Path, **policy: Any) -> Site:
    own = open_site(folder)
    OPENED.append(own.ledger)
    return own


def stored(folder: Path, **policy: Any) -> Path:
    write_site(folder, "north", records(), policy=Policy(**policy))
    return folder


def closed(own: Site) -> None:
    own.ledger.close()


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("lost", ["deleted", "older", "empty"])
def test_a_lost_or_older_ledger_is_found(lost: str, finished: bool, tmp_path: Path) -> None:
    folder = stored(tmp_path / "north")
    shutil.copy(folder / "ledger.sqlite", tmp_path / "empty.sqlite")
    own = kept(folder)
    label = begun(own)
    assert isinstance(own.answer(asked(label)), Sent)
    closed(own)
    shutil.copy(folder / "ledger.sqlite", tmp_path / "older.sqlite")
    own = kept(folder)
    begun(own)
    for round in (2, 3):
        assert isinstance(own.answer(asked(label, round=round)), Sent)
    if finished:
        own.answer(Forget(label))
    closed(own)
    (folder / "ledger.sqlite").unlink()
    if lost == "deleted":
        with pytest.raises(LedgerError, match="missing"):
            open_site(folder)
        return
    shutil.copy(tmp_path / f"{lost}.sqlite", folder / "ledger.sqlite")
    for _ in range(2):  # also after a restart, and without any receipt
        own = kept(folder)
        assert "must say that it was restored" in refused(own.answer(Agree(contract(own))))
        closed(own)
    accept_restored(folder)
    own = kept(folder)
    assert isinstance(own.answer(Agree(contract(own, run="run 2"))), Signed)


def test_a_receipt_that_was_accepted_is_not_held_against_a_site(tmp_path: Path) -> None:
    folder = stored(tmp_path / "north")
    shutil.copy(folder / "ledger.sqlite", tmp_path / "copy.sqlite")
    own = kept(folder)
    sent = own.answer(asked(begun(own)))
    closed(own)
    shutil.copy(tmp_path / "copy.sqlite", folder / "ledger.sqlite")
    own = kept(folder)
    shown = Agree(contract(own, run="run 2"), (sent.receipt,))
    assert "restored" in refused(own.answer(shown))
    own.accept_restored()
    assert isinstance(own.answer(shown), Signed)


def test_what_was_made_before_an_interruption_is_sent_and_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between outbox and ledger: the same bytes, also for other landmarks."""
    folder = stored(tmp_path / "north")
    own = kept(folder)
    label = begun(own)
    made: list[Any] = []
    run = own._runs[label]
    keep = run.outbox.keep
    monkeypatch.setattr(run.outbox, "keep", lambda *given: (made.append(given[2]), keep(*given)))
    monkeypatch.setattr(run.account, "record", lambda event: 1 / 0)
    own.answer(asked(label))
    closed(own)
    own = kept(folder)
    sent = own.answer(asked(begun(own), landmarks=landmarks()[::-1]))
    assert np.array_equal(sent.values, made[0].values)


def test_a_site_without_its_key_is_not_opened(tmp_path: Path) -> None:
    folder = stored(tmp_path / "north")
    (folder / "identity.key").unlink()
    with pytest.raises(LedgerError, match=r"identity\.key is missing"):
        open_site(folder)


def test_a_folder_of_a_site_is_not_written_over(tmp_path: Path) -> None:
    folder = stored(tmp_path / "north")
    with pytest.raises(InvalidParameter, match="new one"):
        write_site(folder, "north", records()[:5])


# The number of records


def test_the_site_decides_whether_its_number_of_records_is_told() -> None:
    secret = site(unit="client", number_of_records="secret")
    assert secret.answer(Describe(hides_records=False)).records is None
    assert "keeps secret" in refused(secret.answer(Agree(contract(secret, budget=Budget(1.0, 1e-5, unit="record")))))
    told = site()
    assert told.answer(Describe()).records == RECORDS
    hiding = Budget(1.0, 1e-5, adjacency="add-remove")
    assert "which this site tells" in refused(told.answer(Agree(contract(told, budget=hiding))))


@pytest.mark.parametrize("rows", [1, 2, RECORDS])
def test_a_centre_has_the_shape_of_a_record(rows: int) -> None:
    """One row for each record would be taken, and others refused: that told their number."""
    own = site()
    made = contract(own, extras={"second moments": Extra(0.2, "subspace", 6)})
    request = Send(begun(own, made), SecondMoments(centre=np.zeros((rows, FEATURES)), norm=2.0), public())
    assert "centre" in refused(as_bytes(own, request))


# Rows where the number of records, or a whole site, is what is protected


@pytest.mark.parametrize("budget", [{"unit": "client"}, {"adjacency": "add-remove"}], ids=str)
def test_rows_are_for_one_record_under_replace_one(budget: Any) -> None:
    own = site(unit=None, number_of_records="secret")
    hiding = Budget(1.0, 1e-5, **budget)
    rows = contract(own, budget=hiding, extras={GramRows.what: Extra(0.2, "release", LANDMARKS)}, tau_x=1.0)
    for made in (rows, contract(own, budget=hiding, mechanism=InputPerturbation(tau_x=1.0), extras={})):
        assert isinstance(own.answer(Agree(made)), Refused)


@pytest.mark.parametrize("change", [{"features": 1}, {"adjacency": "add-remove"}, {"public_seed": 6}], ids=str)
def test_records_are_perturbed_as_the_contract_says(change: Any) -> None:
    own = site()
    chosen = InputPerturbation(tau_x=1.0)
    label = begun(own, contract(own, mechanism=chosen, extras={}))
    assert isinstance(own.answer(Perturb(label, chosen, public(**change))), Refused)
    assert spent(own, label) == 0


# Mechanisms and releases that the owner has not allowed


class Foreign(GradientPerturbation):
    """States a sensitivity that is far too small."""

    name = "foreign"

    def sensitivity(self, public: Any, records: float) -> float:
        return 1e-9


def test_a_mechanism_of_another_package_must_be_on_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MECHANISMS, "foreign", Foreign)
    for policy in ({}, {"releases": ("gradient", "moments")}):
        own = site(**policy)
        made = contract(own, mechanism=Foreign())
        assert "not on this site's list" in refused(own.answer(Agree(made)))
        assert "not on this site's list" in refused(as_bytes(own, Agree(made)))
    listed = site(mechanisms=("foreign",))
    assert isinstance(as_bytes(listed, Agree(contract(listed, mechanism=Foreign()))), Signed)


def test_a_class_that_takes_the_name_of_another_is_not_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Foreign, "name", "gradient")
    own = site()
    assert "not on this site's list" in refused(own.answer(Agree(contract(own, mechanism=Foreign()))))


def test_a_mechanism_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MECHANISMS, "foreign", Foreign)
    own = site(mechanisms=("foreign",))
    message = wire.encode(Agree(contract(own, mechanism=Foreign())))
    monkeypatch.delitem(MECHANISMS, "foreign")
    assert "not installed here" in refused(wire.decode(own.answer(message)))


def test_rows_of_perturbed_records_are_releases(tmp_path: Path) -> None:
    own = site(releases=("records", "input", "points"))
    made = contract(own, mechanism=InputPerturbation(tau_x=1.0), extras={})
    assert "does not release" in refused(own.answer(Agree(made)))


# Words and sizes


def test_a_header_that_takes_long_is_not_read() -> None:
    own = site()
    bomb = b"[" + b"[]," * (2 * 2**20) + b"[]]"
    message = wire.MAGIC + len(bomb).to_bytes(8, "big") + bomb
    assert "header is too large" in refused(wire.decode(own.answer(message)))


@pytest.mark.parametrize("number", ["1e400", "-1e999", "NaN", "Infinity"])
def test_a_number_that_is_not_finite_is_not_read(number: str) -> None:
    text = f'{{"!":"Describe","hides_records":{number}}}'.encode()
    message = wire.MAGIC + len(text).to_bytes(8, "big") + text
    with pytest.raises(wire.Malformed, match="finite"):
        wire.decode(message)


def test_words_of_the_server_do_not_come_back() -> None:
    own = site()
    label = begun(own)
    refused(own.answer(asked(label, view="v" * 10**6)))
    refused(own.answer(SendRows(label, GramRows(), np.zeros((2, 7)))))


# Records that are none


@pytest.mark.parametrize(
    ("X", "word"),
    [([[1.0]], "array"), (np.zeros(3), "shape"), (np.array([[np.nan]]), "finite"), (np.array([["a"]]), "numbers")],
)
def test_records_are_a_table_of_numbers(X: Any, word: str) -> None:
    with pytest.raises(InvalidParameter, match=word):
        Site("north", X)


@pytest.mark.parametrize("other", [{"policy": "p.toml"}, {"ledger": "l.sqlite"}, {"labels": np.array(["a"])}], ids=str)
def test_other_parts_of_a_site_are_checked(other: Any) -> None:
    with pytest.raises(InvalidParameter):
        Site("north", records(), **other)


def test_a_ledger_in_memory_has_no_lifetime() -> None:
    with pytest.raises(InvalidParameter, match="file"):
        Site("north", records(), policy=Policy(lifetime_epsilon=2.0), ledger=SiteLedger())


# What a third look found


def test_a_grid_must_be_coarse_enough_for_its_features() -> None:
    """With 16384 features and 20 bits a squared distance came out below 0, and one record's kernel value at 10¹³ σ."""
    features = 16384
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3, features))
    own = Site("north", X, policy=Policy(), identity=Identity(b"n" * 32))
    members = tuple(type(each)(each.name, 3.0, 0.5, each.key) for each in contract(own).members)
    made = contract(own, features=features, members=members, extras={}, values=2 * features)
    grid = Grid(2.0**-20, 2**20)
    Y = grid.snap(np.vstack([X[0], X[0]]))
    too_fine = public(landmarks=2, features=features, grid=grid, kernel=Kernel.gaussian(1.0))
    assert "too fine" in refused(own.answer(asked(begun(own, made), public=too_fine, landmarks=Y)))
    assert Grid.of_norm(1.0, features).exact_for(features)


@given(features=st.integers(1, 10**6), bits=st.integers(0, 20))
def test_grids_that_are_made_here_are_coarse_enough(features: int, bits: int) -> None:
    for grid in (Grid.of_norm(2.0**bits, features), Grid.of_bounds(-1.0, 2.0**bits, features)):
        assert grid.exact_for(features)
    assert not Grid(1.0, 2**20).exact_for(4096)


@pytest.mark.parametrize("tau_x", [1e-3, 1e-6])
def test_an_empty_site_is_a_neighbour_where_a_site_is_the_unit(tau_x: float) -> None:
    """Thm 6 bounds how two records differ, and not how one differs from none."""
    chosen = GradientPerturbation(bound="theorem", tau_x=tau_x, tau_y=1e3, upsilon=10.0)
    grid = Grid.of_norm(10.0, FEATURES)
    made = public(grid=grid, kernel=Kernel.gaussian(0.01))
    plan = plan_run(Budget(1.0, 1e-5, unit="client"), chosen, 1, None, "seeded", {}, 100)
    own, _ = site_plans(plan, chosen, made, ["a", "b"], [1.0, 1.0], [0.5, 0.5])
    Y = grid.snap(np.full((LANDMARKS, FEATURES), 9 / math.sqrt(FEATURES)))
    one = chosen.total(PreparedRecords(np.zeros((1, FEATURES)), 1.0), Y, made, grid)
    cell = chosen.cell(made, grid)
    assert 0 < np.linalg.norm(one) * cell <= own.event(cell).sensitivity


@pytest.mark.parametrize("size", [1e16, 2.0**600, 1e300])
def test_landmarks_are_not_far_away(size: float) -> None:
    own = site()
    label = begun(own)
    Y = landmarks().astype(np.float64)
    Y[0, 0] = size
    assert "too large" in refused(own.answer(asked(label, public=public(grid=None), landmarks=Y)))
    assert isinstance(own.answer(asked(label)), Sent)


def test_no_member_has_weight_0() -> None:
    with pytest.raises(InvalidParameter, match="weight"):
        Member("north", 30.0, 0.0, "")


def test_contracts_that_were_agreed_on_before_a_release_do_not_release_twice() -> None:
    own = site()
    first, second = contract(own), contract(own, values=2 * LANDMARKS * FEATURES)
    for made in (first, second):
        assert isinstance(own.answer(Agree(made)), Signed)
    label = begun(own, first)
    for round in (1, 2, 3):
        assert isinstance(own.answer(asked(label, round=round)), Sent)
    own.answer(Forget(label))
    assert "another contract" in refused(own.answer(Agree(second)))


def test_runs_of_another_meaning_do_not_spoil_the_ledger(tmp_path: Path) -> None:
    own = site(tmp_path, unit=None, number_of_records="as asked")
    hiding = Budget(1.0, 1e-5, adjacency="add-remove")
    labels = [begun(own), begun(own, contract(own, run="run 2", budget=hiding))]
    assert isinstance(own.answer(asked(labels[0])), Sent)
    assert "budget" in refused(own.answer(asked(labels[1], public=public(adjacency="add-remove"))))
    assert isinstance(own.answer(asked(labels[0], round=2)), Sent)


def test_noise_that_does_not_fit_its_grid_does_not_stop_a_site() -> None:
    own = site()
    label = begun(own)
    coarse = Grid(2.0**60, 4)
    request = asked(label, public=public(grid=coarse), landmarks=np.zeros((LANDMARKS, FEATURES)))
    assert "cells of this grid" in refused(own.answer(request))
    assert isinstance(own.answer(asked(label)), Sent)
