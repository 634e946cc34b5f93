"""Secure sum: any number of sites, any names, sizes and values, any drop-outs."""

from __future__ import annotations

from itertools import chain

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.sum_world import STAGES, World, carry_out, slow_sum, some_values

EXTREMES = [-(2**63), -(2**62), -1, 0, 1, 2**62, 2**63 - 1]


@given(st.data())
def test_sums_of_any_size_with_any_drop_outs(data: st.DataObject) -> None:
    sites = data.draw(st.integers(1, 7), label="sites")
    threshold = data.draw(st.integers(sites // 2 + 1, sites), label="threshold")
    size = data.draw(st.one_of(st.integers(1, 9), st.sampled_from([1000, 99_999, 100_000])), label="size")
    names = data.draw(st.lists(st.text(min_size=1), min_size=sites, max_size=sites, unique=True), label="names")
    world = World.of(
        [name.encode("utf-8", "replace").decode() + str(place) for place, name in enumerate(names)], threshold
    )
    names = list(world.members)
    values = some_values(names, size, data.draw(st.integers(0, 99)))
    for name in names:
        few = data.draw(st.lists(st.one_of(st.sampled_from(EXTREMES), st.integers(-(2**63), 2**63 - 1)), max_size=size))
        values[name][: len(few)] = few
    gone: list[frozenset[str]] = []
    spare = list(data.draw(st.permutations(names)))[: sites - threshold]
    for _ in STAGES:
        cut = data.draw(st.integers(0, len(spare)))
        gone, spare = [*gone, frozenset(spare[:cut])], spare[cut:]
    total = carry_out(world, values, tuple(gone))
    assert total.values.dtype == np.int64
    assert set(total.survivors) == set(names) - set(chain(*gone[:3]))
    assert total.values[:9].tolist() == slow_sum({name: each[:9] for name, each in values.items()}, total.survivors)
    np.testing.assert_array_equal(total.values, np.sum([values[name] for name in total.survivors], axis=0))
