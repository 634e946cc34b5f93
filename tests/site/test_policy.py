"""The policy of a site, as its owner writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from accounting.errors import InvalidParameter
from dpfedvis.site import Policy, Site, SiteLedger
from tests.site.test_lying_server import OTHER, contract, records, site


def test_a_policy_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    policies = [
        Policy(),
        Policy(epsilon=None, unit=None, releases=("gradient",), members={"south": "ab" * 32}, unprotected=True),
        Policy(lifetime_epsilon=3.0, trusts=("local",), rounds=7, receipts="unsigned"),
    ]
    for policy in policies:
        (tmp_path / "policy.toml").write_text(policy.to_toml())
        assert Policy.read(tmp_path / "policy.toml") == policy


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("epsilon = 0", "epsilon"),
        ("epsilon = -1", "epsilon"),
        ("delta = 2", "delta"),
        ("noise = 'system'", "noise"),
        ("trusts = ['nobody']", "trust"),
        ("unprotected = 'yes'", "unprotected"),
        ("epsilom = 1", "epsilom"),
        ("rounds = 0", "rounds"),
        ("threshold = 0", "threshold"),
        ("epsilon = ", "policy"),
    ],
)
def test_a_policy_that_makes_no_sense_is_named(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(InvalidParameter, match=word):
        Policy.read(tmp_path / "policy.toml")


def test_there_is_no_policy_in_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="policy"):
        Policy.read(tmp_path / "nowhere.toml")


def test_only_known_members_with_their_keys_take_part() -> None:
    own = site(members={"north": site().identity.public, "south": OTHER.public})
    own.policy.check(contract(own), "north")
    other = site(members={"north": site().identity.public, "south": "00" * 32})
    with pytest.raises(Exception, match="south is not a known member"):
        other.policy.check(contract(other), "north")


def test_only_releases_on_the_list_are_made() -> None:
    own = site(releases=("gradient",))
    with pytest.raises(Exception, match="does not release moments"):
        own.policy.check(contract(own), "north")
    own.policy.check(contract(own, extras={}), "north")


def test_a_lifetime_budget_needs_a_ledger_that_outlives_runs(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="lifetime"):
        Site("north", records(), policy=Policy(lifetime_epsilon=2.0))
    with SiteLedger(tmp_path / "ledger.sqlite", limit=(2.0, 1e-5)) as ledger:
        Site("north", records(), policy=Policy(lifetime_epsilon=2.0), ledger=ledger)
        with pytest.raises(InvalidParameter, match="as it was set before"):
            Site("north", records(), policy=Policy(lifetime_epsilon=3.0), ledger=ledger)
