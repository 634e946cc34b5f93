"""Masks of a secure sum: those from a short seed come off, ours do not."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

import numpy as np
import pytest

from attacks.masks import first_masks, recover, seconds_for_all
from dpfedvis.protocol.secure_sum import Member
from dpfedvis.protocol.signatures import Identity
from dpfedvis.protocol.sum_group import Group, exchange

SIZE, BOUND = 50, 2**40
VALUES = np.random.default_rng(1).integers(-BOUND, BOUND + 1, size=SIZE)
ASKED = hashlib.sha256(b"a question").hexdigest()
SEEDS = range(2**20)  # of 2³² that the weak engine has


def weak_mask(seed: int, size: int) -> np.ndarray:
    """The broken path: NumPy's Mersenne Twister from a seed of 32 bits."""
    return np.random.RandomState(seed).randint(0, 2**64, size=size, dtype=np.uint64)


def weak_seed(key: bytes) -> int:
    """The broken path: a key of 32 bytes, folded into 32 bits; here into 20, so that the test is short."""
    folded = 0
    for place in range(0, len(key), 4):
        folded ^= int.from_bytes(key[place : place + 4], "little")
    return folded % len(SEEDS)


def key_of(*names: str) -> bytes:
    """A key that sites agreed on, or that a site has for itself."""
    return hashlib.sha256("|".join(names).encode()).digest()


def weakly_masked(name: str, values: np.ndarray, peers: str) -> np.ndarray:
    """The broken path's upload: a self mask, and one with each peer; the first of two names adds."""
    total = values.view(np.uint64) + weak_mask(weak_seed(key_of(name)), values.size)
    for peer in peers:
        mask = weak_mask(weak_seed(key_of(*sorted((name, peer)))), values.size)
        total = total + mask if name < peer else total - mask
    return total.view(np.int64)


def test_first_masks_are_those_of_numpy() -> None:
    seeds = np.array([0, 1, 2, 12345, 2**31, 2**32 - 1], dtype=np.uint32)
    assert first_masks(seeds).tolist() == [int(weak_mask(int(seed), 1)[0]) for seed in seeds]


@pytest.mark.parametrize(("name", "peer", "sign"), [("a", "b", 1), ("b", "a", -1)])
def test_integers_behind_a_weak_mask_are_recovered(name: str, peer: str, sign: int) -> None:
    """P = 3, c colludes: the server opened the self mask, as it does for every survivor, and c gives its own key."""
    seen = weakly_masked(name, VALUES, {"a": "bc", "b": "ac"}[name]).view(np.uint64)
    seen = seen - weak_mask(weak_seed(key_of(name)), SIZE) - weak_mask(weak_seed(key_of(name, "c")), SIZE)
    found = recover(seen.view(np.int64), BOUND, SEEDS, weak_mask, sign=sign)
    assert found is not None
    assert found.seed == weak_seed(key_of(*sorted((name, peer))))
    assert found.tried == found.seed + 1
    np.testing.assert_array_equal(found.values, VALUES)
    # With the wrong sign no seed explains the upload.
    assert recover(seen.view(np.int64), BOUND, SEEDS, weak_mask, sign=-sign) is None


def test_all_seeds_take_minutes() -> None:
    """What 2²⁰ seeds take, times 2¹²: some 20 minutes on one quiet core, and four hours are allowed for a busy one."""
    start = time.perf_counter()
    assert recover(VALUES ^ (1 << 62), BOUND, SEEDS, weak_mask) is None
    seconds = time.perf_counter() - start
    assert seconds_for_all(len(SEEDS), seconds) == pytest.approx(2**12 * seconds)
    assert seconds_for_all(len(SEEDS), seconds) < 4 * 3600
    assert seconds_for_all(len(SEEDS), seconds, bits=255) > 1e60


def masked_by_ours(entropy: Callable[[str], Callable[[int], bytes]]) -> tuple[np.ndarray, Group, str, int]:
    """The same three sites with our masks: what is left of a's upload for server and c; its mask with b; b's key."""
    label, labels, names = "sum", ("sum",), "abc"
    identities = {name: Identity(hashlib.sha256(name.encode()).digest()) for name in names}
    roster = {name: identity.public for name, identity in identities.items()}
    members = {name: Member(name, identities[name], roster, 2, "context", entropy(name)) for name in names}
    adverts = {name: members[name].advertise(labels) for name in names}
    seeds = {name: tuple(members[name]._sums[label].seeds) for name in names}
    shares = {name: members[name].share(list(adverts.values())).to for name in names}
    seen = members["a"].masked(label, VALUES, {peer: shares[peer]["a"] for peer in "bc"}, ASKED).view(np.uint64)
    group = Group(roster, 2, "context")
    seen = seen - group.self_mask(seeds["a"][0], label, "a", SIZE)  # opened, for a survivor
    key = group.mask_key(seeds["c"][1], label, "c")  # of the one that colludes
    seen = seen + group.pair_mask(exchange(key, adverts["a"].keys[0], "peer"), label, "c", "a", SIZE, ASKED)
    return seen.view(np.int64), group, adverts["b"].keys[0], int(seeds["a"][1], 16)


def strong(name: str) -> Callable[[int], bytes]:
    return np.random.default_rng(list(name.encode())).bytes


def weak(name: str) -> Callable[[int], bytes]:
    """Entropy of ten bits, in each number that is drawn; the channel's key does not matter here."""
    generator = np.random.default_rng(list(name.encode()))
    return lambda size: int(generator.integers(2**10)).to_bytes(size, "big")


def test_the_same_attack_finds_nothing_behind_our_masks() -> None:
    seen, _, _, _ = masked_by_ours(strong)
    for sign in (1, -1):
        assert recover(seen, BOUND, SEEDS, weak_mask, sign=sign) is None


def test_trying_seeds_of_our_own_derivation_finds_only_what_has_no_entropy() -> None:
    """The attacker knows our code and tries key seeds from 0 on: ten bits of entropy are found, 255 are not."""
    for entropy, weak_one in ((weak, True), (strong, False)):
        seen, group, public, secret = masked_by_ours(entropy)

        def whole(seed: int, size: int, group: Group = group, public: str = public) -> np.ndarray:
            key = group.mask_key(f"{seed:064x}", "sum", "a")
            return group.pair_mask(exchange(key, public, "peer"), "sum", "a", "b", size, ASKED)

        def first(seeds: np.ndarray, whole: Callable[[int, int], np.ndarray] = whole) -> np.ndarray:
            return np.array([whole(int(seed), 1)[0] for seed in seeds])

        found = recover(seen, BOUND, range(2**10), whole, first)
        assert (found is not None) == weak_one == (secret < 2**10)
        if found is not None:
            assert found.seed == secret
            np.testing.assert_array_equal(found.values, VALUES)
