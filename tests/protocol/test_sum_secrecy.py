"""Secure sum: what server and colluders see is uniform, and knows nothing of the values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import combinations

import numpy as np
from scipy.stats import chi2

from dpfedvis.protocol import sum_group as both
from tests.protocol.sum_world import ASKED, World

LENGTH = 40_000
FALSE_ALARM = 1e-9


def uniform_bytes(words: np.ndarray) -> bool:
    """Chi-square of each of the eight bytes of a word, and of neighbours' lowest bytes against each other."""
    octets = words.astype("<i8").view(np.uint8).reshape(-1, 8)
    counts = [np.bincount(octets[:, place], minlength=256) for place in range(8)]
    pairs = octets[:-1, 0].astype(np.int64) // 16 * 16 + octets[1:, 0] // 16
    counts.append(np.bincount(pairs[::2], minlength=256))
    tests = [((found - found.sum() / 256) ** 2 / (found.sum() / 256)).sum() for found in counts]
    return bool(max(tests) < chi2.isf(FALSE_ALARM / len(tests), 255))


def left_of(world: World, label: str, name: str, labels: tuple[str, ...], colluders: Collection[str]) -> np.ndarray:
    """What is left of a site's masked values when server and colluders took off all masks that they can open."""
    group, members = world.collector._group, world.members
    survivors = world.collector.survivors(label)
    rest = members[name].masked(label, np.zeros(1, dtype=np.int64), {}, ASKED).view(np.uint64)
    public = {peer: members[peer].advertise(labels).keys[labels.index(label)] for peer in members}
    masks, keys = SEEDS[name, label], {peer: SEEDS[peer, label][1] for peer in members}
    rest = rest - group.self_mask(masks[0], label, name, rest.size)
    for peer in members:
        if peer in colluders or peer not in survivors:
            key = group.mask_key(keys[peer], label, peer)
            rest = rest + group.pair_mask(both.exchange(key, public[name], "peer"), label, peer, name, rest.size, ASKED)
    return rest.view(np.int64)


SEEDS: dict[tuple[str, str], tuple[str, str]] = {}


def attacked(values: Mapping[str, np.ndarray]) -> tuple[World, list[np.ndarray]]:
    """P = 5, t = 4, c = 1: e drops out, d colludes, two labels of one batch; what is left of a's two vectors."""
    names, labels = ("a", "b", "c", "d", "e"), ("one", "two")
    world = World.of(names, 4)
    world.collector.begin(labels)
    world.advertise(names, labels)
    SEEDS.update({(name, label): tuple(world.members[name]._sums[label].seeds) for name in names for label in labels})
    world.share(names, labels)
    for label in labels:
        world.masked("abcd", label, labels, values)
        world.confirm("abcd", label)
        world.unmask("abcd", label)
        expected = np.sum([values[name] for name in "abcd"], axis=0)
        np.testing.assert_array_equal(world.collector.total(label).values, expected)
    return world, [left_of(world, label, "a", labels, "d") for label in labels]


def test_a_masked_vector_is_uniform_to_server_and_colluders_and_independent_of_its_values() -> None:
    nothing = {name: np.zeros(LENGTH, dtype=np.int64) for name in "abcde"}
    something = nothing | {"a": np.arange(LENGTH) % 7 - 3 + 2**62}
    _, (one, two) = attacked(nothing)
    world, (other, _) = attacked(something)
    assert not uniform_bytes(nothing["a"])  # the test can tell
    assert not uniform_bytes(something["a"])
    for seen in (one, two, other):
        assert uniform_bytes(seen)
    assert uniform_bytes(one - two)  # no mask is used for two labels
    # The masks are the same whatever the values are: what is seen is values plus something uniform that knows nothing.
    np.testing.assert_array_equal(other - one, something["a"] - nothing["a"])
    assert uniform_bytes(world.members["a"].masked("one", something["a"], {}, ASKED))


def test_each_mask_is_another() -> None:
    """Between any two sites, for any two labels, and of a site with itself."""
    names, labels = ("a", "b", "c", "d"), ("one", "two")
    world, found = World.of(names, 3), []
    for name in names:
        world.members[name].advertise(labels)
    group = world.collector._group
    public = {name: world.members[name].advertise(labels).keys for name in names}
    for place, label in enumerate(labels):
        seeds = {name: world.members[name]._sums[label].seeds for name in names}
        found += [group.self_mask(seeds[name][0], label, name, 4) for name in names]
        for one, other in combinations(names, 2):
            key = group.mask_key(seeds[one][1], label, one)
            mask = group.pair_mask(both.exchange(key, public[other][place], "peer"), label, one, other, 4, ASKED)
            back = group.mask_key(seeds[other][1], label, other)
            inverse = group.pair_mask(both.exchange(back, public[one][place], "peer"), label, other, one, 4, ASKED)
            np.testing.assert_array_equal(inverse + mask, 0)
            found += [mask, np.negative(mask)]
    assert len({each.tobytes() for each in found}) == len(found) == 2 * (4 + 2 * 6)
    # The same secrets under another label or context make other masks.
    elsewhere = replace(group, context="another contract")
    seed = world.members["a"]._sums["one"].seeds[0]
    masks = [
        group.self_mask(seed, "one", "a", 4),
        group.self_mask(seed, "two", "a", 4),
        group.self_mask(seed, "one", "b", 4),
    ]
    masks.append(elsewhere.self_mask(seed, "one", "a", 4))
    assert len({each.tobytes() for each in masks}) == 4
