"""Test vectors of the secure sum: every step worked out with the primitives alone."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpfedvis.protocol import shamir
from dpfedvis.protocol import sum_group as both
from tests.protocol.sum_world import ASKED, World, exchanged, stream


def hkdf(secret: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), 32, None, info).derive(secret)


def keystream(key: bytes, words: int) -> list[int]:
    stream = Cipher(ChaCha20(key, bytes(16)), None).encryptor().update(bytes(8 * words))
    return [int.from_bytes(stream[8 * place : 8 * place + 8], "little") for place in range(words)]


@pytest.mark.parametrize("size", [1, 7, 8, 2**15 - 1, 2**15, 2**15 + 1, 3 * 2**15 + 5])
def test_a_long_keystream_is_that_of_one_call(size: int) -> None:
    """It is made in pieces of 2¹⁵ words."""
    assert both.keystream(bytes(range(32)), size).tolist() == keystream(bytes(range(32)), size)


VECTOR = {
    "group": "2823f33b0ff14932ac534f6026a5258815ada446a45a1cf144ced453e2d1557c",
    "asked": "32303716b88fbfeb9506b016968e94ab395ab39e24ea2571d91d971f84e97861",
    "channel": "0837d115950009e67a26e068b97f35cd10cd234331dbeab33c58a8a3db9f1ca3",
    "mask seed": "649d35289163312eae56e2275d8da2fd09b0a1fd01c521636dc88608650c9166",
    "key seed": "643e8e617aadcd43929b9212df6d5933a74d15efd2c072cb03af028554ab80b4",
    "mask key": "5e0ee987a462a492981407f3f4e2958b8e4ac249a4b9264f5054d83afae04164",
    "commitment": "6cd616acaf46967827860e6c9d528a92633f4e49408c68e652e9634a481796ce",
    "advert": "37d523b24ac4e948e4ad23d009a815b68f8e5ec130da622beb4a6b132877def7"
    "a0996361b0f89f31254470909cb08d604a87e6dc2924c21befd34dc0bb85790c",
    "share of mask seed for b": "5297be0145d2c345de5f1254f8bbe656fc47626342b65441810ce054ee6c39d4",
    "share of key seed for b": "688ce779a821bbe44c229efae2a93092b2ca86285cc744b5fc52123f07435755",
    "ciphertext a to b": "1de26d1e925118385a54b11c17f6fe0a",
    "self mask": "21d8fd37ca045af72cfaa2d87928e7afce035edec59ace3a",
    "pair mask": "068e084d411fb6fb92284e82e7c36c640dac72bdb8cb256c",
    "masked": "161167cc60113a0cc5dda1d3c597604323e7de70153d7c46",
    "survivors": "c9985b213cb417657579613e1a6b6666b2ef0297bca90e75c556084d4d8e9506"
    "11046a6449f3ed0a44cef310aa89a3c8681131442b035f0907766f09437b6702",
}


def test_vectors() -> None:
    """Sites a, b and ü, t = 2; of a everything for the first label of two, with b, after ü dropped out."""
    names, labels, values = ("a", "b", "ü"), ("sum 1", "sum 2"), np.array([-1, 2**62, 0], dtype=np.int64)
    world = World.of(names, 2, "vectors")
    world.collector.begin(labels)
    world.advertise(names, labels)
    adverts = {advert.name: advert for advert in world.collector.adverts(labels)}
    a = world.members["a"]
    asked = hashlib.sha256(b"a question").hexdigest()
    found = {"channel": a._batches[labels].channel, "asked": asked}
    found["mask seed"], found["key seed"] = a._sums["sum 1"].seeds
    world.share(names, labels)
    ciphertexts = {name: world.collector.shares(labels, name) for name in names}
    masked = a.masked("sum 1", values, ciphertexts["a"], ASKED)
    held = a._sums["sum 1"].shares["b"]
    world.masked("ab", "sum 1", labels, {"a": values, "b": values})
    world.confirm("ab", "sum 1")

    # The group, and the words that begin everything.
    secrets = {name: hashlib.sha256(f"identity {name}".encode()).digest() for name in names}
    identities = {name: Ed25519PrivateKey.from_private_bytes(secret) for name, secret in secrets.items()}
    public = {name: identity.public_key().public_bytes_raw().hex() for name, identity in identities.items()}
    listed = ",".join(f'["{name}","{public[name]}"]' for name in names)
    found["group"] = hashlib.sha256(f"[2,[{listed}]]".encode()).hexdigest()
    batch = hashlib.sha256(b'["sum 1","sum 2"]').hexdigest()

    def said(purpose: str, rest: str) -> bytes:
        return f'["dpfedvis secure sum",1,"{purpose}","c0ffee","{found["group"]}",{rest}]'.encode()

    # Entropy in order: channel; mask and key seed of each label; then one coefficient for each of them.
    drawn = stream("vectors c0ffee a")
    numbers = [drawn(32) for _ in range(9)]
    seeds = [int.from_bytes(number, "big") % 2**255 for number in numbers]
    assert max(seeds[1:]) < 2**255 - 19
    channel = X25519PrivateKey.from_private_bytes(numbers[0])
    assert found["channel"] == numbers[0].hex()
    assert [found["mask seed"], found["key seed"]] == [f"{seed:064x}" for seed in seeds[1:3]]

    # The advert.
    mask_seeds, key_seeds = seeds[1:5:2], seeds[2:5:2]
    mask_keys = [
        X25519PrivateKey.from_private_bytes(hkdf(seed.to_bytes(32, "big"), said("mask key", f'"{label}","a"')))
        for seed, label in zip(key_seeds, labels, strict=True)
    ]
    commitments = [
        hkdf(seed.to_bytes(32, "big"), said("commitment", f'"{label}","a"')).hex()
        for seed, label in zip(mask_seeds, labels, strict=True)
    ]
    keys = [key.public_key().public_bytes_raw().hex() for key in mask_keys]
    assert (adverts["a"].keys, adverts["a"].commitments) == (tuple(keys), tuple(commitments))
    assert adverts["a"].channel == channel.public_key().public_bytes_raw().hex()
    found["mask key"], found["commitment"], found["advert"] = keys[0], commitments[0], adverts["a"].signature
    facts = ["a", labels, adverts["a"].channel, keys, commitments]
    text = said("advert", json.dumps(facts, separators=(",", ":"))[1:-1])
    assert identities["a"].sign(text).hex() == found["advert"]

    # Shares for b, whose place is 2, and their ciphertext.
    prime, place = 2**255 - 19, 2
    dealt = [f"{(seed + place * slope) % prime:064x}" for seed, slope in zip(seeds[1:5], seeds[5:9], strict=True)]
    found["share of mask seed for b"], found["share of key seed for b"] = dealt[:2]
    agreed = exchanged(numbers[0], adverts["b"].channel)
    key = hkdf(agreed, said("channel", f'"{batch}","a","b"'))
    associated = said("shares", f'"{batch}","a","b"')
    sealed = ChaCha20Poly1305(key).encrypt(bytes(12), bytes.fromhex("".join(dealt)), associated)
    assert sealed.hex() == ciphertexts["b"]["a"]
    found["ciphertext a to b"] = sealed[-16:].hex()
    back = hkdf(agreed, said("channel", f'"{batch}","b","a"'))  # the other way, another key
    plain = ChaCha20Poly1305(back).decrypt(
        bytes(12), bytes.fromhex(ciphertexts["a"]["b"]), said("shares", f'"{batch}","b","a"')
    )
    assert [plain[:32].hex(), plain[32:64].hex()] == list(held)

    # Masks. The first of two names adds, so a adds for both.
    own = keystream(hkdf(seeds[1].to_bytes(32, "big"), said("self mask", '"sum 1","a"')), 3)
    pairs = {}
    for peer in ("b", "ü"):
        agreed = mask_keys[0].exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(adverts[peer].keys[0])))
        pairs[peer] = keystream(hkdf(agreed, said("pair mask", f'"sum 1",["a","{peer}"],"{asked}"')), 3)
    found["self mask"] = "".join(f"{word:016x}" for word in own)
    found["pair mask"] = "".join(f"{word:016x}" for word in pairs["b"])
    expected = [sum(words) % 2**64 for words in zip((-1, 2**62, 0), own, pairs["b"], pairs["ü"], strict=True)]
    found["masked"] = "".join(f"{word:016x}" for word in expected)
    assert [int(word) % 2**64 for word in masked] == expected

    # The list of survivors, and what b opens of a and ü.
    signatures = world.collector.signatures("sum 1")
    found["survivors"] = signatures["a"]
    assert identities["a"].sign(said("survivors", f'"sum 1",["a","b"],"{asked}"')).hex() == found["survivors"]
    opened = world.members["b"].unmask("sum 1", signatures)
    assert opened.masks["a"] == dealt[0]
    assert set(opened.masks) == {"a", "b"}
    assert set(opened.keys) == {"ü"}
    assert found == VECTOR


def test_the_agreed_constants() -> None:
    assert (both.PROTOCOL, both.VERSION) == ("dpfedvis secure sum", 1)
    assert shamir.PRIME == 2**255 - 19
