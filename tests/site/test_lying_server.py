"""A site before a server that lies: nothing is released beyond its ledger, and every refusal is one public sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting import Budget, Ledger
from dpfedvis.mechanisms import GradientPerturbation, KMeans, NoPerturbation
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.rows import DistanceRows
from dpfedvis.mechanisms.scale import Moments
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.protocol import wire
from dpfedvis.protocol.contract import Contract, Member
from dpfedvis.protocol.messages import (
    Agree,
    Begin,
    Describe,
    Events,
    Forget,
    Prepare,
    Receipt,
    Refused,
    Send,
    SendRows,
    Sent,
    ShowEvents,
    Signed,
)  # fmt: skip
from dpfedvis.protocol.noise_plan import Extra
from dpfedvis.protocol.signatures import Identity
from dpfedvis.protocol.subspace import Subspace
from dpfedvis.protocol.views import SubspaceView
from dpfedvis.site import Policy, Site, SiteLedger

FEATURES, LANDMARKS, RECORDS = 3, 4, 30
GRID = Grid.of_norm(4.0, FEATURES)
KERNEL = Kernel.gaussian(0.5)
OTHER = Identity(b"o" * 32)
SECRET = 123456.789  # a value that must not be in any words


def records() -> np.ndarray:
    X = np.random.default_rng(0).normal(size=(RECORDS, FEATURES)).astype(np.float32)
    X[0, 0] = SECRET
    return X


def landmarks() -> np.ndarray:
    return GRID.snap(np.random.default_rng(1).normal(size=(LANDMARKS, FEATURES)).astype(np.float32))


OPENED: list[SiteLedger] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def site(tmp_path: Path | None = None, **policy: Any) -> Site:
    ledger = None if tmp_path is None else SiteLedger(tmp_path / "ledger.sqlite")
    if ledger is not None:
        OPENED.append(ledger)
    own = Policy(**policy)
    return Site("north", records(), policy=own, ledger=ledger, identity=Identity(b"n" * 32), folder=tmp_path)


def contract(own: Site, **changes: Any) -> Contract:
    settings: dict[str, Any] = {
        "run": "run 1",
        "budget": Budget(1.0, 1e-5),
        "mechanism": GradientPerturbation(),
        "rounds": 3,
        "noise": "discrete",
        "seed": 5,
        "features": FEATURES,
        "members": (
            Member("north", RECORDS, 0.5, own.identity.public),
            Member("south", RECORDS, 0.5, OTHER.public),
        ),
        "extras": {"moments": Extra(0.2, "scale", FEATURES + 1)},
        "values": LANDMARKS * FEATURES,
    }
    return Contract(**{**settings, **changes})


def begun(own: Site, made: Contract | None = None) -> str:
    """Sign and begin; return the label."""
    made = made or contract(own)
    signed = own.answer(Agree(made))
    assert isinstance(signed, Signed), signed
    others = [OTHER.sign(f"contract|{signed.contract}".encode()) for _ in made.members[1:]]
    reply = own.answer(Begin(signed.contract, (signed.signature, *others)))
    assert not isinstance(reply, Refused), reply
    return signed.contract


def public(**changes: Any) -> PublicParameters:
    made = PublicParameters(KERNEL, LANDMARKS, FEATURES, 3, 1, 0.5, grid=GRID, public_seed=5)
    return replace(made, **changes)


def asked(label: str, **changes: Any) -> Send:
    settings: dict[str, Any] = {
        "mechanism": GradientPerturbation(),
        "public": public(),
        "round": 1,
        "landmarks": landmarks(),
    }
    return Send(label, **{**settings, **changes})


def refused(reply: Any) -> str:
    """The words of a refusal: one line, without a record or the text of an exception."""
    assert isinstance(reply, Refused), reply
    assert "\n" not in reply.words
    assert len(reply.words) < 200
    assert str(SECRET)[:6] not in reply.words
    assert "Error" not in reply.words
    return reply.words


def spent(own: Site, label: str) -> int:
    reply = own.answer(ShowEvents(label))
    assert isinstance(reply, Events)
    return len(reply.events)


def test_a_site_computes_its_noise_itself() -> None:
    own = site()
    label = begun(own)
    reply = own.answer(asked(label))
    assert isinstance(reply, Sent)
    made = contract(own)
    assert made.plan is not None
    multiplier = made.plan.multipliers["gradient"].sigma
    assert reply.event.sigma / reply.event.sensitivity == pytest.approx(multiplier, rel=1e-12)
    # The noise is really there: two sites with the same records and contract draw different integers.
    twin = site()
    other = twin.answer(asked(begun(twin)))
    spread = np.std((reply.values - other.values) * reply.event.grid) / (np.sqrt(2) * reply.event.sigma)
    assert 0.3 < spread < 3
    assert spent(own, label) == 1


NOT_SIGNED: dict[str, Callable[[Site], dict[str, Any]]] = {
    "more ε than the policy": lambda own: {"budget": Budget(2.0, 1e-5)},
    "more δ than the policy": lambda own: {"budget": Budget(1.0, 1e-3)},
    "another unit": lambda own: {"budget": Budget(1.0, 1e-5, unit="client")},
    "only the landmarks": lambda own: {"budget": Budget(1.0, 1e-5, scope="landmarks")},
    "no budget": lambda own: {"budget": None, "mechanism": NoPerturbation(), "extras": {}},
    "something without noise": lambda own: {"unprotected": ("median distance",)},
    "seeded noise": lambda own: {"noise": "seeded"},
    "a trusted server": lambda own: {"mechanism": GradientPerturbation(trust="central")},
    "a sum with unknown members": lambda own: {"mechanism": GradientPerturbation(trust="aggregate")},
    "too many rounds": lambda own: {"rounds": 5000},
    "without this site": lambda own: {"members": (Member("south", RECORDS, 1.0, OTHER.public),)},
    "another key for this site": lambda own: {"members": (Member("north", RECORDS, 1.0, OTHER.public),)},
    "another number of records": lambda own: {"members": (Member("north", 3000.0, 1.0, own.identity.public),)},
    "other features": lambda own: {"features": 4},
    "other numbers from the seed": lambda own: {"derived": "0" * 64},
}


@pytest.mark.parametrize("name", NOT_SIGNED)
def test_a_contract_that_the_policy_does_not_allow_is_not_signed(name: str) -> None:
    own = site()
    refused(own.answer(Agree(contract(own, **NOT_SIGNED[name](own)))))


NOT_SENT: dict[str, Callable[[str], Send | SendRows]] = {
    "a round after the last": lambda label: asked(label, round=4),
    "round 0": lambda label: asked(label, round=0),
    "a negative round": lambda label: asked(label, round=-1),
    "another mechanism": lambda label: asked(label, mechanism=KMeans()),
    "other settings of the mechanism": lambda label: asked(
        label, mechanism=GradientPerturbation(bound="theorem", tau_x=1.0, tau_y=9.0, upsilon=9.0)
    ),
    "another trust": lambda label: asked(label, mechanism=GradientPerturbation(trust="central")),
    "no noise": lambda label: asked(label, mechanism=NoPerturbation()),
    "a release that is not planned": lambda label: Send(label, SecondMoments(), public(landmarks=1)),
    "rows": lambda label: SendRows(label, DistanceRows(), landmarks()),
    "another adjacency": lambda label: asked(label, public=public(adjacency="add-remove")),
    "sampling": lambda label: asked(label, public=public(sampling_rate=0.5)),
    "another seed": lambda label: asked(label, public=public(public_seed=6)),
    "landmarks off the grid": lambda label: asked(label, landmarks=landmarks() + np.float32(GRID.step / 3)),
    "landmarks that are not finite": lambda label: asked(label, landmarks=np.full_like(landmarks(), np.nan)),
    "landmarks of another shape": lambda label: asked(label, landmarks=landmarks()[:2]),
    "integers as landmarks": lambda label: asked(label, landmarks=np.zeros((LANDMARKS, FEATURES), dtype=np.int64)),
    "no landmarks": lambda label: asked(label, landmarks=None),
    "more values than are paid for": lambda label: asked(
        label, public=public(landmarks=40), landmarks=np.zeros((40, FEATURES), dtype=np.float32)
    ),
    "other features": lambda label: asked(label, public=public(features=2)),
    "a view that was not prepared": lambda label: asked(label, view="subspace"),
    "a foreign contract": lambda label: asked("0" * 64),
}


@pytest.mark.parametrize("name", NOT_SENT)
def test_what_is_not_in_the_contract_is_not_sent(name: str) -> None:
    own = site()
    label = begun(own)
    refused(own.answer(NOT_SENT[name](label)))
    assert spent(own, label) == 0


def test_landmarks_outside_the_projection_are_refused() -> None:
    own = site()
    theorem = GradientPerturbation(bound="theorem", tau_x=1.0, tau_y=2.0, upsilon=2.0)
    label = begun(own, contract(own, mechanism=theorem))
    inside = GRID.snap(landmarks() * np.float32(0.2))
    words = refused(own.answer(asked(label, mechanism=theorem, landmarks=GRID.snap(landmarks() * np.float32(2)))))
    assert "sensitivity" in words
    assert isinstance(own.answer(asked(label, mechanism=theorem, landmarks=inside)), Sent)


def test_a_subspace_that_stretches_is_refused() -> None:
    own = site()
    label = begun(own)
    axes = np.eye(FEATURES)[:, :2] * 1.5
    view = SubspaceView(Subspace(np.zeros(FEATURES), axes, np.ones(2), GRID))
    refused(own.answer(Prepare(label, view)))


def test_a_round_is_answered_once_and_then_with_the_same_bytes() -> None:
    own = site()
    label = begun(own)
    first, second = own.answer(asked(label)), own.answer(asked(label))
    assert np.array_equal(first.values, second.values)
    assert spent(own, label) == 1
    # Also when the server asks with other landmarks: fresh noise on other sums would be a second release.
    third = own.answer(asked(label, landmarks=np.zeros((LANDMARKS, FEATURES), dtype=np.float32)))
    assert np.array_equal(first.values, third.values)
    own.answer(asked(label, round=2))
    assert "already" in refused(own.answer(asked(label)))  # the bytes of round 1 are no longer kept
    assert spent(own, label) == 2


def test_nothing_is_sent_before_every_member_has_signed() -> None:
    own = site()
    signed = own.answer(Agree(contract(own)))
    refused(own.answer(asked(signed.contract)))
    forged = Identity(b"x" * 32).sign(f"contract|{signed.contract}".encode())
    refused(own.answer(Begin(signed.contract, (signed.signature, forged))))
    refused(own.answer(Begin(signed.contract, (signed.signature,))))
    refused(own.answer(asked(signed.contract)))
    assert spent(own, signed.contract) == 0


def test_a_signature_of_another_contract_does_not_count() -> None:
    own = site()
    first, second = contract(own), contract(own, run="run 2")
    label = own.answer(Agree(second)).contract
    own_signature = own.answer(Agree(first)).signature
    other = OTHER.sign(f"contract|{own.answer(Agree(first)).contract}".encode())
    refused(own.answer(Begin(label, (own_signature, other))))


def test_a_lifetime_budget_holds_whatever_the_server_says(tmp_path: Path) -> None:
    def again(number: int) -> Any:
        own = Site(
            "north",
            records(),
            policy=Policy(lifetime_epsilon=1.5),
            ledger=SiteLedger(tmp_path / "ledger.sqlite"),
            identity=Identity(b"n" * 32),
        )
        made = contract(own, run=f"run {number}", extras={}, rounds=1)
        reply = own.answer(Agree(made))
        if isinstance(reply, Signed):
            label = begun(own, made)
            assert isinstance(own.answer(asked(label)), Sent)
        own.ledger.close()
        return reply

    assert isinstance(again(1), Signed)
    assert isinstance(again(2), Signed)  # ε = 1.466 together
    assert "budget" in refused(again(3))


def test_an_old_copy_of_a_ledger_is_found_by_a_receipt(tmp_path: Path) -> None:
    own = site(tmp_path)
    label = begun(own)
    before = (tmp_path / "ledger.sqlite").read_bytes()
    receipt = own.answer(asked(label)).receipt
    assert receipt.signature
    own.ledger.close()
    (tmp_path / "ledger.sqlite").write_bytes(before)

    restored = site(tmp_path)
    assert "restored" in refused(restored.answer(Agree(contract(restored), (receipt,))))
    assert "restored" in refused(restored.answer(Agree(contract(restored))))  # it does not forget
    restored.accept_restored()
    assert isinstance(restored.answer(Agree(contract(restored))), Signed)
    # A forged receipt stops nobody.
    forged = Receipt("north", label, 999, "0" * 64, OTHER.sign(b"x"))
    assert isinstance(restored.answer(Agree(contract(restored), (forged,))), Signed)


def test_edited_bytes_do_not_leave(tmp_path: Path) -> None:
    own = site(tmp_path)
    label = begun(own)
    sent = own.answer(asked(label))
    (path,) = (tmp_path / "outbox").rglob("gradient-*.npz")
    with np.load(path) as stored:
        arrays = dict(stored)
    arrays["values"] = arrays["values"] + 1
    np.savez(path, **arrays)
    assert "files" in refused(own.answer(asked(label)))
    arrays["values"] = sent.values
    np.savez(path, **arrays)
    assert np.array_equal(own.answer(asked(label)).values, sent.values)


def test_an_exception_that_quotes_a_record_stays_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    own = site()
    label = begun(own)

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError(f"the record {SECRET} cannot be used")

    monkeypatch.setattr(GradientPerturbation, "total", broken)
    refused(own.answer(asked(label)))
    assert spent(own, label) == 1, "a failure counts: it may depend on records"


def test_a_full_disk_is_a_refusal_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = site(tmp_path)
    label = begun(own)
    record = Ledger.record

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Ledger, "record", full)
    assert "files" in refused(own.answer(asked(label)))
    monkeypatch.setattr(Ledger, "record", record)
    assert spent(own, label) == 0
    assert isinstance(own.answer(asked(label)), Sent)


@pytest.mark.parametrize("garbage", [b"", b"x", wire.MAGIC, wire.MAGIC + b"\xff" * 100, b"\x80\x04K\x01."])
def test_bytes_that_are_no_request_are_refused(garbage: bytes) -> None:
    refused(wire.decode(site().answer(garbage)))


def test_fuzzed_requests_release_nothing_beyond_the_ledger() -> None:
    """Half of them are whole requests with some bytes changed, half have fields of other types."""
    rng = np.random.default_rng(3)
    own = site()
    label = begun(own)
    good = [
        wire.encode(each)
        for each in (Describe(), Agree(contract(own)), asked(label), asked(label, round=2), ShowEvents(label),
                     Send(label, Moments(tau_x=2.0), public(landmarks=1)))
    ]  # fmt: skip
    odd: list[Any] = [None, -1, 2**70, 1e308, "x" * 50, (), {}, np.zeros((0, 3)), True]
    released = 0
    for number in range(500):
        if number % 2:
            data = bytearray(good[int(rng.integers(len(good)))])
            for place in rng.integers(len(data), size=int(rng.integers(1, 6))):
                data[place] = int(rng.integers(256))
            reply = wire.decode(own.answer(bytes(data)))
        else:
            value = odd[int(rng.integers(len(odd)))]
            request = asked(label)
            name = str(rng.choice(["mechanism", "public", "round", "landmarks", "view"]))
            object.__setattr__(request, name, value)
            reply = own.answer(request)
        if isinstance(reply, Refused):
            refused(reply)
        released += isinstance(reply, Sent)
    events = own.answer(ShowEvents(label)).events
    places = [(event.what, event.round) for event in events]
    assert len(set(places)) == len(places) <= 4
    assert set(places) <= {("gradient", 1), ("gradient", 2), ("gradient", 3), ("moments", 0)}
    assert released >= len(places)


def test_after_forget_the_run_is_over() -> None:
    own = site()
    label = begun(own)
    own.answer(asked(label))
    own.answer(Forget(label))
    refused(own.answer(asked(label)))


def test_unknown_requests_are_refused() -> None:
    refused(site().answer("give me everything"))  # type: ignore[arg-type]
