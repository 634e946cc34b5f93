"""Secure sum: exact for every drop-out at every stage, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations

import pytest

from dpfedvis.protocol.secure_sum import OutOfOrder, TooFewMembers
from tests.protocol.sum_world import STAGES, Gone, World, carry_out, slow_sum, some_values


def plans(names: tuple[str, ...], threshold: int, stages: int = len(STAGES)) -> Iterator[Gone]:
    """Every way to drop out at every stage, up to the stage at which too few are left."""
    if stages == 0:
        yield ()
        return
    for size in range(len(names) + 1):
        for gone in map(frozenset, combinations(names, size)):
            left = tuple(name for name in names if name not in gone)
            if len(left) < threshold:
                yield (gone,)
            else:
                yield from ((gone, *rest) for rest in plans(left, threshold, stages - 1))


def test_every_drop_out_at_every_stage_gives_the_exact_sum_or_a_clean_refusal() -> None:
    names = ("a", "b", "c", "d")
    values, seen = some_values(names, 3), 0
    for gone in plans(names, threshold=3):
        world, seen = World.of(names, 3), seen + 1
        left = frozenset(names) - frozenset(chain(*gone))
        if len(left) >= 3:
            total = carry_out(world, values, gone)
            # Who drops out after the masked values came is still in the sum.
            assert set(total.survivors) == frozenset(names) - frozenset(chain(*gone[:3]))
            assert total.values.tolist() == slow_sum(values, total.survivors)
        else:
            with pytest.raises(TooFewMembers) as refused:
                carry_out(world, values, gone)
            assert (refused.value.found, refused.value.needed) == (len(left), 3)
            assert str(len(left)) in str(refused.value)
    assert seen == 5 * 11 + 4 * (7 * 10 + 5) + 1


def test_a_sum_goes_on_when_the_missing_come_back() -> None:
    names = ("a", "b", "c", "d")
    values = some_values(names, 3)
    for gone in plans(names, threshold=3):
        if len(frozenset(names) - frozenset(chain(*gone))) < 3:
            earlier, back = frozenset(chain(*gone[:-1])), gone[-1]
            total = carry_out(World.of(names, 3), values, gone, comeback=True)
            assert back <= set(total.survivors)
            assert set(total.survivors) == frozenset(names) - (
                earlier if len(gone) <= 3 else frozenset(chain(*gone[:3]))
            )
            assert total.values.tolist() == slow_sum(values, total.survivors)


def test_a_batch_of_labels_shares_its_first_two_exchanges() -> None:
    """Every label is a sum of its own, with its own survivors and size."""
    names, sizes = ("a", "b", "c"), {f"round {number}": number for number in (1, 2, 3)}
    world = World.of(names, 2)
    labels = tuple(sizes)
    world.collector.begin(labels)
    world.advertise(names, labels)
    world.share(names, labels)
    for left_out, (label, size) in zip(("b", "", "c"), sizes.items(), strict=True):
        values, alive = some_values(names, size, size), [name for name in names if name != left_out]
        world.masked(alive, label, labels, values)
        world.confirm(alive, label)
        world.unmask(alive, label)
        total = world.collector.total(label)
        assert total.survivors == tuple(alive)
        assert total.values.tolist() == slow_sum(values, alive)
        for name in names:
            world.members[name].close(label)
        world.collector.close(label)
    with pytest.raises(OutOfOrder, match="no such label"):
        world.collector.total("round 1")
    with pytest.raises(OutOfOrder, match="no such batch"):
        world.collector.adverts(labels)
