"""Messages as bytes: each comes back as it was, and bytes of a stranger make nothing but known classes."""

from __future__ import annotations

import pickle
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import Budget, GaussianRelease, Unprotected
from dpfedvis.mechanisms import MECHANISMS, GradientPerturbation, InputPerturbation, PlainMechanism
from dpfedvis.mechanisms.density import GridCounts
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.rows import DistanceRows, GramRows, KernelRows
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.layouts import TSNELayout, UMAPLayout
from dpfedvis.protocol import messages, wire
from dpfedvis.protocol.contract import Contract, Member
from dpfedvis.protocol.density import DensityGrid
from dpfedvis.protocol.noise_plan import Extra
from dpfedvis.protocol.published_map import PublishedMap
from dpfedvis.protocol.subspace import Subspace
from dpfedvis.protocol.views import DensityView, SubspaceView

RNG = np.random.default_rng(0)
PUBLIC = PublicParameters(Kernel((0.1, 2.0)), 4, 3, 5, 1, 0.5, grid=Grid(0.25, 100), sampling_rate=0.1)
SUBSPACE = Subspace(RNG.normal(size=3), np.eye(3)[:, :2], np.ones(2), Grid(0.25, 100))
MAP = PublishedMap(SUBSPACE, RNG.normal(size=(5, 2)).astype(np.float32), RNG.normal(size=(5, 2)), 3)
CONTRACT = Contract(
    run="r",
    budget=Budget(1.0, 1e-5),
    mechanism=MECHANISMS["k-means"](sweeps=3),
    rounds=5,
    noise="seeded",
    seed=1,
    features=3,
    members=(Member("a", 10, 0.25, "ab"), Member("ü", 30.0, 0.75)),
    extras={"moments": Extra(0.1, "scale", 4)},
    values=12,
)
EVENT = GaussianRelease(what="gradient", client="ü", round=3, sensitivity=0.1, sigma=2.0, grid=2.0**-8, values=7)
RECEIPT = messages.Receipt("ü", "c", 3, "h", "s")
EVERY = [
    messages.Describe(True),
    messages.Agree(CONTRACT, (RECEIPT,)),
    messages.Begin("c", ("a", "b")),
    messages.Prepare("c", SubspaceView(SUBSPACE)),
    messages.Prepare("c", DensityView(MAP, DensityGrid(2.0, 8), ("x", "y"))),
    messages.Perturb("c", InputPerturbation(tau_x=2.0), PUBLIC),
    messages.Send("c", GradientPerturbation(), PUBLIC, 2, RNG.normal(size=(4, 3)).astype(np.float32)),
    messages.Send("c", SecondMoments(centre=RNG.normal(size=3), clip=2.0), PUBLIC),
    messages.Send("c", GridCounts(cells=9), PUBLIC, view="density"),
    messages.SendRows("c", DistanceRows(), RNG.normal(size=(4, 3))),
    messages.SendRows("c", GramRows(0.5), RNG.normal(size=(4, 3))),
    messages.SendRows("c", KernelRows(Kernel((0.3,))), RNG.normal(size=(4, 3))),
    messages.Place("c", MAP, TSNELayout(perplexity=5.0), "weights"),
    messages.Place("c", MAP, UMAPLayout()),
    messages.ShowEvents("c", 4),
    messages.Forget("c"),
    messages.Description("ü", "k", None, 3, "float32", True),
    messages.Signed("a", "c", "s"),
    messages.Done("a"),
    messages.Perturbed("a", EVENT, RECEIPT),
    messages.Sent("a", RNG.integers(-(2**62), 2**62, size=(4, 3)), EVENT, RECEIPT),
    messages.Sent("a", RNG.normal(size=4), Unprotected(what="mean", client="a", why="so"), RECEIPT),
    messages.Events("a", (EVENT, EVENT), RECEIPT),
    messages.Refused("a", "policy", "no"),
]


def same(one: Any, other: Any) -> bool:
    """Equal field by field, arrays bit by bit."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if is_dataclass(one):
        return type(one) is type(other) and all(
            same(getattr(one, each.name), getattr(other, each.name)) for each in fields(one)
        )
    return bool(one == other)


def test_every_message_is_here() -> None:
    kinds = {each for each in vars(messages).values() if is_dataclass(each) and each.__module__ == messages.__name__}
    assert kinds - {messages.Receipt} == {type(each) for each in EVERY}


@pytest.mark.parametrize("message", EVERY, ids=lambda each: type(each).__name__)
def test_a_message_comes_back_as_it_was(message: Any) -> None:
    data = wire.encode(message)
    assert same(wire.decode(data), message)
    assert wire.encode(wire.decode(data)) == data


def test_every_mechanism_of_the_registry_can_be_sent() -> None:
    for kind in MECHANISMS.values():
        assert same(wire.decode(wire.encode(kind())), kind())


def test_the_plan_that_a_site_derives_is_the_servers_to_the_last_bit() -> None:
    theirs = wire.decode(wire.encode(CONTRACT))
    assert theirs.plan == CONTRACT.plan
    assert wire.label_of(theirs) == wire.label_of(CONTRACT)


class Unregistered(PlainMechanism):
    """A mechanism that nobody else knows."""

    name = "unregistered"
    what = "unregistered"


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (messages.Place("c", MAP, TSNELayout(), lambda *_: None), "function"),
        (messages.Perturb("c", Unregistered(), PUBLIC), "unregistered"),
        (messages.SendRows("c", DistanceRows(), np.array(["text"])), "array"),
        (messages.ShowEvents("c", float("nan")), "nan"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_sent_is_named(value: Any, word: str) -> None:
    with pytest.raises(wire.NotPortable, match=word):
        wire.encode(value)


@dataclass(frozen=True, eq=False)
class Weighted(PlainMechanism):
    """A mechanism that nobody else knows, with an array."""

    weights: np.ndarray = field(kw_only=True)
    name = "weighted"
    what = "weighted"


def test_a_contract_that_cannot_be_sent_has_a_label_of_all_its_bytes() -> None:
    """A text would leave out the middle of a long array, and two contracts would have one label."""

    def label(weights: np.ndarray) -> str:
        return wire.label_of(replace(CONTRACT, budget=None, extras={}, mechanism=Weighted(weights=weights)))

    zeros = np.zeros(5000)
    assert label(zeros) == label(np.zeros(5000))
    assert label(zeros) != label(np.where(np.arange(5000) == 2500, 1.0, 0.0))
    assert label(zeros) != label(zeros.astype(np.float32))
    one, other = ValueError("one"), ValueError("other")
    assert label(one) == label(ValueError("one")) != label(other)  # type: ignore[arg-type]


class Bomb:
    def __reduce__(self) -> Any:
        return print, ("code of a stranger",)


def test_no_pickle_is_opened(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(wire.Malformed):
        wire.decode(pickle.dumps(Bomb()))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "header",
    [
        b'{"!":"Path","x":1}',
        b'{"!":"Describe","hides_records":true,"more":1}',
        b'{"!":"array","dtype":"|O","shape":[1]}',
        b'{"!":"array","dtype":"<f8","shape":[1000000]}',
        b'{"!":"array","dtype":"<f8","shape":[-1]}',
        b'{"!":"mechanism none of ours"}',
        b'{"!":"Grid","step":0.3,"most":4}',
        b'{"!":"ShowEvents","contract":"c","after":NaN}',
        b"[" * 100_000,
        b"\xff\xfe",
        b"",
    ],
)
def test_headers_that_lie_are_malformed(header: bytes) -> None:
    with pytest.raises(wire.Malformed):
        wire.decode(wire.MAGIC + len(header).to_bytes(8, "big") + header)


@pytest.mark.parametrize("cut", [0, 5, 12, 19, 40, -1])
def test_cut_and_longer_messages_are_malformed(cut: int) -> None:
    data = wire.encode(EVERY[6])
    for other in (data[:cut], data + b"x"):
        with pytest.raises(wire.Malformed):
            wire.decode(other)


@given(st.binary(max_size=200), st.integers(0, len(EVERY) - 1), st.integers(0, 10**6))
def test_changed_bytes_give_a_known_message_or_a_named_error(noise: bytes, number: int, place: int) -> None:
    data = bytearray(wire.encode(EVERY[number]))
    start = place % len(data)
    data[start : start + len(noise)] = noise
    with suppress(wire.Malformed):
        wire.encode(wire.decode(bytes(data)))
