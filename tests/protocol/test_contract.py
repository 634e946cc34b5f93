"""The contract: whole numbers are of one type, so that what means the same has the same bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from accounting import Budget
from accounting.errors import InvalidParameter
from dpfedvis.mechanisms import GradientPerturbation
from dpfedvis.protocol import wire
from dpfedvis.protocol.contract import Contract, Member
from dpfedvis.protocol.messages import Agree
from dpfedvis.protocol.noise_plan import Extra

CONTRACT = Contract(
    run="r",
    budget=Budget(1.0, 1e-5, unit="person", rows_per_person=3),
    mechanism=GradientPerturbation(trust="aggregate"),
    rounds=13,
    noise="discrete",
    seed=11,
    features=7,
    members=tuple(Member(f"s{number}", 10.0, 0.2) for number in range(5)),
    extras={"moments": Extra(0.1, "scale", 17)},
    values=19,
    threshold=4,
    colluders=1,
    retries=2,
)
WHOLE = ("rounds", "seed", "features", "values", "threshold", "colluders", "retries", "version")


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_number_is_no_float_and_no_bool(name):
    value = getattr(CONTRACT, name)
    for wrong in (float(value), value + 0.5, True, str(value)):
        with pytest.raises(InvalidParameter, match=name):
            replace(CONTRACT, **{name: wrong})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *((f'"{name}":{getattr(CONTRACT, name)}'.encode(), f'"{name}":{getattr(CONTRACT, name)}.0'.encode())
          for name in WHOLE),
        (b'"rows_per_person":3', b'"rows_per_person":3.0'),
        (b'"values":17', b'"values":17.0'),
    ],
)  # fmt: skip
def test_bytes_with_a_float_for_a_whole_number_cannot_be_read(before, after):
    """A site would sign two hashes for one contract."""
    sent = wire.encode(Agree(CONTRACT))
    header = sent[len(wire.MAGIC) + 8 :]
    assert before in header
    changed = header.replace(before, after)
    assert wire.decode(wire.MAGIC + len(header).to_bytes(8, "big") + header).contract == CONTRACT
    with pytest.raises(wire.Malformed):
        wire.decode(wire.MAGIC + len(changed).to_bytes(8, "big") + changed)


def test_integers_of_numpy_are_integers():
    found = replace(CONTRACT, **{name: np.int64(getattr(CONTRACT, name)) for name in WHOLE})
    assert wire.label_of(found) == wire.label_of(CONTRACT)
    assert all(type(getattr(found, name)) is int for name in WHOLE)
