"""A site in a secure sum: one label for each release, written down before it leaves, and nothing in the clear."""

from __future__ import annotations

import stat
from dataclasses import replace

import numpy as np
import pytest

from dpfedvis.mechanisms import GradientPerturbation
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.files import FileDamaged
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.protocol import wire
from dpfedvis.protocol.messages import Agree, Done, Forget, Prepare, Refused, Send, Signed
from dpfedvis.protocol.signatures import Identity
from dpfedvis.protocol.subspace import Subspace
from dpfedvis.protocol.sum_messages import (
    Advertise,
    Advertised,
    Confirm,
    Masked,
    SendMasked,
    ShareKeys,
    Unmask,
    unreadable,
)
from dpfedvis.protocol.views import SubspaceView
from dpfedvis.site import Policy, Site, SiteLedger
from dpfedvis.site.outbox import Outbox
from dpfedvis.site.sums import SiteSums
from tests.site.agreed import agreed, contract_of

NAMES = ("client-0", "client-1", "client-2")
MECHANISM = GradientPerturbation(trust="aggregate")
PUBLIC = PublicParameters(Kernel((0.5,)), 3, 4, 2, 1, 0.5, grid=Grid.of_norm(8.0, 4))
Y = PUBLIC.grid.snap(np.zeros((3, 4)))
KEYS = {name: Identity(bytes([number + 1]) * 32) for number, name in enumerate(NAMES)}
POLICY = Policy(epsilon=2.0, members={name: key.public for name, key in KEYS.items()})


def site_of(tmp_path, name: str, policy=POLICY) -> Site:
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    records = np.random.default_rng(NAMES.index(name)).normal(size=(10, 4))
    ledger = SiteLedger(folder / "ledger.sqlite")
    return Site(name, records, policy=policy, ledger=ledger, identity=KEYS[name], folder=folder)


def made(tmp_path, policy=POLICY) -> list[Site]:
    return [site_of(tmp_path, name, policy) for name in NAMES]


@pytest.fixture
def sites(tmp_path):
    found = made(tmp_path)
    yield found
    for site in found:
        site.ledger.close()


def contract(sites, **changes):
    return contract_of(sites, [10] * 3, MECHANISM, rounds=2, noise="discrete", values=36, **changes)


def send(label: str, round: int = 1) -> Send:
    return Send(label, MECHANISM, PUBLIC, round, Y)


def keyed(sites, agreement: str, labels=("gradient|1|0", "gradient|2|0")):
    """Agree on keys; return the shares for each site, by sender."""
    adverts = tuple(site.answer(Advertise(agreement, labels)).advert for site in sites)
    sent = {site.name: site.answer(ShareKeys(agreement, adverts)).shares for site in sites}
    return {name: {peer: each.to[name] for peer, each in sent.items() if peer != name} for name in NAMES}


def test_an_upload_leaves_only_behind_masks(sites):
    agreement = agreed(sites, contract(sites))
    refused = sites[0].answer(send(agreement))
    assert isinstance(refused, Refused)
    assert refused.words == "under trust aggregate this site sends only masked uploads"
    assert sites[0].ledger.head is None, "nothing was charged"
    shares = keyed(sites, agreement)
    masked = sites[0].answer(SendMasked(send(agreement), "gradient|1|0", shares["client-0"]))
    assert isinstance(masked, Masked)
    assert masked.values.shape == (12,)
    # Around 2⁶³ on average, where the upload itself has some thousand cells.
    assert np.abs(masked.values.astype(np.float64)).mean() > 2.0**58
    again = sites[0].answer(SendMasked(send(agreement), "gradient|1|0", shares["client-0"]))
    np.testing.assert_array_equal(again.values, masked.values)
    assert len(list(sites[0].ledger._events())) == 1


@pytest.mark.parametrize(
    ("label", "words"),
    [
        ("gradient|2|0", "the label is of another release"),
        ("gradient|1|00", "the label is of no release"),
        ("gradient|01|0", "the label is of no release"),
        ("gradient|1", "the label is of no release"),
        ("moments|0|0", "not in the contract"),
        ("gradient|3|0", "not in the contract"),
        ("gradient|0|0", "not in the contract"),
        ("gradient|1|5", "the secure sum: the label is unknown"),
    ],
)
def test_a_label_is_that_of_its_release(label, words, sites):
    agreement = agreed(sites, contract(sites))
    shares = keyed(sites, agreement)
    refused = sites[0].answer(SendMasked(send(agreement), label, shares["client-0"]))
    assert words in refused.words
    assert sites[0].ledger.head is None, "nothing was charged"


def test_a_release_is_in_one_sum_only(sites):
    """The same noisy integers in a second sum, of other sites, would show one upload by subtraction."""
    agreement = agreed(sites, contract(sites))
    first = keyed(sites, agreement)
    second = keyed(sites, agreement, ("gradient|1|1", "gradient|2|1"))
    assert isinstance(sites[0].answer(SendMasked(send(agreement), "gradient|1|0", first["client-0"])), Masked)
    refused = sites[0].answer(SendMasked(send(agreement), "gradient|1|1", second["client-0"]))
    assert refused.words == "this release was masked under another label"
    refused = sites[0].answer(Advertise(agreement, ("gradient|1|2",)))
    assert refused.words == "this release was masked under another label"
    # The next round may come under either batch, once.
    assert isinstance(sites[0].answer(SendMasked(send(agreement, 2), "gradient|2|1", second["client-0"])), Masked)


def test_shares_that_cannot_be_used_cost_nothing(sites):
    agreement = agreed(sites, contract(sites))
    shares = keyed(sites, agreement)
    fewer = {"client-1": shares["client-0"]["client-1"]}
    swapped = dict(zip(shares["client-0"], reversed(shares["client-0"].values()), strict=True))
    for wrong in ({}, fewer, swapped):
        assert isinstance(sites[0].answer(SendMasked(send(agreement), "gradient|1|0", wrong)), Refused)
    assert sites[0].ledger.head is None
    for sender, other in (("client-1", "client-2"), ("client-2", "client-1")):
        wrong = {**shares["client-0"], sender: shares["client-0"][other]}
        refused = sites[0].answer(SendMasked(send(agreement), "gradient|1|0", wrong))
        assert refused.words == unreadable(sender), "the server learns whose they are"
    assert isinstance(sites[0].answer(SendMasked(send(agreement), "gradient|1|0", shares["client-0"])), Masked)


def opened(sites, agreement, shares, label="gradient|1|0", round=1):
    masked = [site.answer(SendMasked(send(agreement, round), label, shares[site.name])) for site in sites]
    signatures = {site.name: site.answer(Confirm(agreement, label, NAMES)).signature for site in sites}
    return masked, [site.answer(Unmask(agreement, label, signatures)) for site in sites]


def test_sites_that_were_asked_for_different_things_open_nothing(sites):
    """A site gives its shares for signatures of what it was asked for itself."""
    agreement = agreed(sites, contract(sites))
    shares = keyed(sites, agreement)
    other = replace(send(agreement), landmarks=PUBLIC.grid.snap(np.ones((3, 4))))
    label = "gradient|1|0"
    for site in sites:
        asked = other if site is sites[2] else send(agreement)
        assert isinstance(site.answer(SendMasked(asked, label, shares[site.name])), Masked)
    signatures = {site.name: site.answer(Confirm(agreement, label, NAMES)).signature for site in sites}
    for site in sites:
        refused = site.answer(Unmask(agreement, label, signatures))
        assert isinstance(refused, Refused)
        assert "signature" in refused.words


@pytest.mark.parametrize("step", ["masked", "drop"])
def test_a_crash_between_charge_and_answer_leaves_one_question(step, sites, tmp_path, monkeypatch):
    """What lies in the outbox answers the first question; behind masks of another it would be in a wrong sum."""
    agreed_on = contract(sites)
    agreement = agreed(sites, agreed_on)
    shares = keyed(sites, agreement)
    label, mine = "gradient|1|0", shares["client-0"]
    other = replace(send(agreement), landmarks=PUBLIC.grid.snap(np.ones((3, 4))))
    with monkeypatch.context() as patched:

        def crash(*args):
            raise KeyboardInterrupt

        patched.setattr(*((SiteSums, "masked") if step == "masked" else (Outbox, "drop")), crash)
        with pytest.raises(KeyboardInterrupt):
            sites[0].answer(SendMasked(send(agreement), label, mine))
    assert list((tmp_path / "client-0" / "outbox").rglob("*.npz"))
    sites[0].ledger.close()
    sites[0] = site_of(tmp_path, "client-0")
    agreed(sites, agreed_on)
    refused = sites[0].answer(SendMasked(other, label, mine))
    assert isinstance(refused, Refused)
    assert refused.words == "another question was asked for this release"
    assert isinstance(sites[0].answer(SendMasked(send(agreement), label, mine)), Masked)
    assert not list((tmp_path / "client-0" / "outbox").rglob("*.npz")), "it has left, and only masked"
    assert len(list(sites[0].ledger._events())) == 1


def test_a_request_without_bytes_of_its_own_is_refused(sites):
    """Its hash could be that of another request."""
    agreement = agreed(sites, contract(sites))
    shares = keyed(sites, agreement)
    odd = replace(send(agreement), public=replace(PUBLIC, noise={"!a": 1}))
    refused = sites[0].answer(SendMasked(odd, "gradient|1|0", shares["client-0"]))
    assert isinstance(refused, Refused)
    assert sites[0].ledger.head is None
    fine = wire.encode(
        SendMasked(replace(send(agreement), public=replace(PUBLIC, noise={"?a": 1})), "gradient|1|0", {})
    )
    with pytest.raises(wire.Malformed):
        wire.decode(fine.replace(b'"?a"', b'"!a"'))


def test_a_view_without_bytes_of_its_own_is_refused_and_the_one_before_it_stays(sites):
    """Set before its hash, it would be what uploads are computed from under the hash of the other."""
    agreement = agreed(sites, contract(sites))
    good = Subspace(np.zeros(4), np.eye(4)[:, :2], np.ones(2), PUBLIC.grid)
    assert isinstance(sites[0].answer(Prepare(agreement, SubspaceView(good))), Done)
    computation = sites[0]._runs[agreement].computation
    view, hashed = computation.views["subspace"], computation.view_hashes["subspace"]
    odd = replace(good, variances=np.ones(2, dtype=np.float16))
    refused = sites[0].answer(Prepare(agreement, SubspaceView(odd)))
    assert refused.words == "the request has no bytes of its own"
    assert computation.views["subspace"] is view
    assert computation.view_hashes["subspace"] == hashed == wire.digest(SubspaceView(good))


def test_a_sum_is_closed_when_the_next_is_masked(sites):
    """Whoever takes the state of a site later opens no sum of before."""
    agreement = agreed(sites, contract(sites))
    shares = keyed(sites, agreement)
    _, first = opened(sites, agreement, shares)
    assert not any(isinstance(each, Refused) for each in first)
    opened(sites, agreement, shares, "gradient|2|0", 2)
    refused = sites[0].answer(Confirm(agreement, "gradient|1|0", NAMES))
    assert isinstance(refused, Refused)
    assert "the label is closed" in refused.words


def test_an_upload_is_not_kept_as_it_was_before_its_masks(sites, tmp_path):
    """Alone it has only a share of the noise."""
    agreement = agreed(sites, contract(sites))
    opened(sites, agreement, keyed(sites, agreement))
    assert not list((tmp_path / "client-0" / "outbox").rglob("*.npz"))


def test_state_is_the_owners_and_goes_with_the_run(sites, tmp_path):
    agreement = agreed(sites, contract(sites))
    shares = keyed(sites, agreement)
    opened(sites, agreement, shares)
    (state,) = (tmp_path / "client-0" / "sums").iterdir()
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.parent.stat().st_mode) == 0o700
    sites[0].answer(Forget(agreement))
    assert not state.exists()


def test_files_bear_the_whole_hash_of_their_contract(sites, tmp_path, monkeypatch):
    """Whoever makes contracts finds two whose hashes begin alike: in one file, both secrets of a site would open."""
    agreement = agreed(sites, contract(sites))
    shares = keyed(sites, agreement)
    with monkeypatch.context() as patched:
        patched.setattr(Outbox, "drop", lambda *_: None)
        sites[0].answer(SendMasked(send(agreement), "gradient|1|0", shares["client-0"]))
    for folder in ("sums", "outbox"):
        assert [path.name for path in (tmp_path / "client-0" / folder).iterdir()] == [agreement]


def test_the_state_of_another_contract_is_refused(sites, tmp_path):
    first, second = contract(sites), contract(sites, run="another run")
    keyed(sites, agreed(sites, first))
    (state,) = (tmp_path / "client-0" / "sums").iterdir()
    agreement = agreed(sites, second)
    keyed(sites, agreement)
    (other,) = set((tmp_path / "client-0" / "sums").iterdir()) - {state}
    other.write_bytes(state.read_bytes())
    sites[0].ledger.close()
    sites[0] = site_of(tmp_path, "client-0")
    assert "files" in sites[0].answer(Agree(second)).words
    assert isinstance(sites[0].answer(Agree(first)), Signed)
    with pytest.raises(FileDamaged, match="is the state of client-0 under another contract"):
        SiteSums(second, agreement, "client-0", KEYS["client-0"], other)


def test_a_site_without_its_state_does_not_mask_a_release_again(sites, tmp_path):
    """Lost, or an older copy: under new keys the same upload would be in a second sum."""
    agreed_on = contract(sites)
    agreement = agreed(sites, agreed_on)
    shares = keyed(sites, agreement)
    (state,) = (tmp_path / "client-0" / "sums").iterdir()
    older = state.read_bytes()
    assert isinstance(sites[0].answer(SendMasked(send(agreement), "gradient|1|0", shares["client-0"])), Masked)
    for kept in (None, older):
        sites[0].ledger.close()
        state.unlink()
        if kept is not None:
            state.write_bytes(kept)
        sites[0] = site_of(tmp_path, "client-0")
        assert agreed(sites, agreed_on) == agreement
        label = "gradient|1|0" if kept is not None else "gradient|1|7"
        own = shares["client-0"]
        if kept is None:
            sites[0].answer(Advertise(agreement, (label,)))
        refused = sites[0].answer(SendMasked(send(agreement), label, own))
        assert refused.words == "this release was made before, and the label of its sum is not kept"


def test_a_site_whose_state_is_damaged_does_not_sign_however_often_it_is_asked(sites, tmp_path):
    agreed_on = contract(sites)
    keyed(sites, agreed(sites, agreed_on))
    (state,) = (tmp_path / "client-0" / "sums").iterdir()
    state.write_bytes(state.read_bytes()[:-1])
    sites[0].ledger.close()
    sites[0] = site_of(tmp_path, "client-0")
    for _ in range(2):
        assert "files" in sites[0].answer(Agree(agreed_on)).words


@pytest.mark.parametrize(
    ("changes", "sharing", "words"),
    [
        ({"threshold": 3}, {"threshold": 2, "colluders": 0}, "sums of 2 sites are below 3"),
        ({}, {"threshold": 3, "colluders": 0}, "the contract is made for 0 colluders, this site for 1 to 10"),
        (
            {"colluders": 1},
            {"threshold": 3, "colluders": 2},
            "the contract is made for 2 colluders, this site for 1 to 1",
        ),
    ],
)
def test_the_policy_says_how_many_sites_and_colluders(changes, sharing, words, tmp_path):
    sites = made(tmp_path, replace(POLICY, **changes))
    refused = sites[0].answer(Agree(contract(sites, **sharing)))
    assert refused.words == words
    for site in sites:
        site.ledger.close()


def test_keys_are_not_for_local_trust(sites):
    local = contract_of(sites, [10] * 3, GradientPerturbation(), rounds=2, noise="discrete", values=12)
    agreement = agreed(sites, local)
    assert sites[0].answer(Advertise(agreement, ("gradient|1|0",))).words == "the contract has no sums over sites"
    assert isinstance(sites[0].answer(Advertise("x", ("gradient|1|0",))), Refused)


def test_a_batch_has_a_bounded_number_of_labels(sites):
    agreement = agreed(sites, contract(sites))
    for labels in ((), tuple(f"gradient|1|{number}" for number in range(300))):
        assert "a batch has 1 to 256 labels" in sites[0].answer(Advertise(agreement, labels)).words
    assert isinstance(sites[0].answer(Advertise(agreement, ("gradient|1|0",))), Advertised)
