"""A site's own table: site.toml, the public schema, and records as they take part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from accounting.errors import InvalidParameter
from dpfedvis.data.example import hospitals
from dpfedvis.data.loaders import load
from dpfedvis.protocol.messages import Describe, Description
from dpfedvis.protocol.signatures import Identity
from dpfedvis.site import Policy, SiteLedger, open_site
from dpfedvis.site.ledger_report import report_of
from dpfedvis.site.own_table import OwnTable


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of a site with everything but records."""
    found = tmp_path / "home"
    found.mkdir()
    for name, text in hospitals(30, 0).items():
        (tmp_path / name).write_text(text)
    (found / "schema.toml").write_text((tmp_path / "schema.toml").read_text())
    (found / "site.toml").write_text('data = "../aachen.csv"\n')
    (found / "policy.toml").write_text(Policy().to_toml())
    Identity.kept(found / "identity.key")
    SiteLedger.make(found / "ledger.sqlite")
    return found


def test_records_are_those_of_the_file_prepared_by_the_schema(home: Path) -> None:
    table = OwnTable.read(home)
    table.prepare("aachen")
    site = open_site(home)
    expected = load(home.parent / "aachen.csv", schema=home / "schema.toml")
    np.testing.assert_array_equal(np.load(home / "records.npz")["records"], expected.X)
    described = site.answer(Describe())
    assert isinstance(described, Description)
    assert (described.site, described.records, described.labels) == ("aachen", len(expected.X), True)
    assert described.preparation.startswith("schema ")
    site.ledger.close()


def test_a_changed_file_is_read_again_and_the_ledger_stays(home: Path) -> None:
    OwnTable.read(home).prepare("aachen")
    head = (home / "ledger.sqlite").read_bytes()
    lines = (home.parent / "aachen.csv").read_text().splitlines()
    (home.parent / "aachen.csv").write_text("\n".join(lines[:11]) + "\n")
    OwnTable.read(home).prepare("aachen")
    assert len(np.load(home / "records.npz")["records"]) == 10
    assert (home / "ledger.sqlite").read_bytes() == head
    assert report_of(home / "ledger.sqlite", Policy()).left == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "the file with the records"), ("data = 3\n", "data"), ('file = "x.csv"\n', "file"), ("data = ", "TOML")],
)
def test_a_bad_site_toml_is_refused_by_name(text: str, words: str, home: Path) -> None:
    (home / "site.toml").write_text(text)
    with pytest.raises(InvalidParameter, match=words):
        OwnTable.read(home)
