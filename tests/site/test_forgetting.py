"""What a site forgets when a run is over, or another takes its place: nothing secret is left in its folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import numpy as np
import pytest

from dpfedvis.protocol.messages import Agree, Done, Forget, Refused, Signed
from dpfedvis.protocol.sum_messages import Masked, SendMasked
from dpfedvis.site import write_site
from dpfedvis.site.sums import SiteSums
from tests.site.agreed import agreed
from tests.site.test_sums import NAMES, contract, keyed, made, send, site_of


def secrets(tmp_path, name: str = "client-0") -> list[Path]:
    """Files of keys and of uploads."""
    return [path for folder in ("sums", "outbox") for path in (tmp_path / name / folder).rglob("*") if path.is_file()]


@pytest.fixture
def sites(tmp_path):
    found = made(tmp_path)
    yield found
    for site in found:
        site.ledger.close()


def restarted(sites, tmp_path) -> None:
    sites[0].ledger.close()
    sites[0] = site_of(tmp_path, "client-0")


@pytest.mark.parametrize("folder", ["sums", "outbox"])
def test_drafts_of_a_process_that_was_killed_are_forgotten(folder, tmp_path):
    """Killed by the signal that cannot be caught, between the draft and its place."""
    child = os.fork()
    if child == 0:
        try:
            sites = made(tmp_path)
            agreement = agreed(sites, contract(sites))
            shares = keyed(sites, agreement)
            honest = os.replace

            def dying(draft, path, **named):
                if {"client-0", folder} <= set(Path(path).parts):
                    os.kill(os.getpid(), 9)
                honest(draft, path, **named)

            os.replace = dying
            sites[0].answer(SendMasked(send(agreement), "gradient|1|0", shares["client-0"]))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9
    assert [path for path in secrets(tmp_path) if path.name.endswith(".tmp")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets(tmp_path)} == {0o600}
    sites = made(tmp_path)
    agreement = agreed(sites, contract(sites))
    assert isinstance(sites[0].answer(Forget(agreement)), Done)
    assert not secrets(tmp_path)
    for site in sites:
        site.ledger.close()


def test_a_site_forgets_a_run_that_it_has_not_opened_since_it_was_started(sites, tmp_path):
    agreement = agreed(sites, contract(sites))
    shares = keyed(sites, agreement)
    assert isinstance(sites[0].answer(SendMasked(send(agreement), "gradient|1|0", shares["client-0"])), Masked)
    restarted(sites, tmp_path)
    assert secrets(tmp_path)
    assert isinstance(sites[0].answer(Forget(agreement)), Done)
    assert not secrets(tmp_path)


def test_a_server_cannot_have_other_files_forgotten(sites, tmp_path):
    agreement = agreed(sites, contract(sites))
    keyed(sites, agreement)
    home = tmp_path / "client-0"
    (home / "identity.key").write_bytes(b"a key")
    before = sorted(path for path in home.rglob("*") if path.is_file())
    for label in (
        "../identity.key",
        "../ledger.sqlite",
        "",
        ".",
        "..",
        "*",
        agreement[:16],
        agreement.upper(),
        None,
        5,
    ):
        sites[0].answer(Forget(label))
    assert sorted(path for path in home.rglob("*") if path.is_file()) == before


def test_a_ledger_that_is_older_is_found_before_what_tells_of_it_is_deleted(sites, tmp_path, monkeypatch):
    """An upload that was kept says how far the ledger had come."""
    agreed_on = contract(sites, retries=1)
    agreement = agreed(sites, agreed_on)
    shares = keyed(sites, agreement, ("gradient|1|0", "gradient|2|0", "gradient|3|0"))["client-0"]
    ledger = tmp_path / "client-0" / "ledger.sqlite"
    for round in (1, 2):
        assert isinstance(sites[0].answer(SendMasked(send(agreement, round), f"gradient|{round}|0", shares)), Masked)
        if round == 1:
            older = ledger.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(SiteSums, "masked", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            sites[0].answer(SendMasked(send(agreement, 3), "gradient|3|0", shares))
    sites[0].ledger.close()
    ledger.write_bytes(older)
    (tmp_path / "client-0" / "anchors.json").unlink()
    sites[0] = site_of(tmp_path, "client-0")
    assert isinstance(sites[0].answer(Forget(agreement)), Done)
    assert not secrets(tmp_path)
    refused = sites[0].answer(Agree(agreed_on))
    assert isinstance(refused, Refused)
    assert "restored" in refused.words


def test_the_keys_of_a_contract_that_another_replaces_are_forgotten(sites, tmp_path):
    first, second = contract(sites), contract(sites, seed=1)
    keyed(sites, agreed(sites, first))
    assert secrets(tmp_path)
    agreement = agreed(sites, second)
    assert not secrets(tmp_path)
    keyed(sites, agreement)
    assert [path.name for path in secrets(tmp_path)] == [agreement]
    # It can come back, with new keys: nothing was released under it.
    assert isinstance(sites[0].answer(Agree(first)), Signed)


def test_a_folder_that_was_there_becomes_the_owners_alone(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    folder.chmod(0o755)
    write_site(folder, NAMES[0], np.random.default_rng(0).normal(size=(10, 4)))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
