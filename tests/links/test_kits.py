"""Kits: what federation.toml may say, what each machine gets, and what jobs may do there."""

from __future__ import annotations

import json
import shutil
import stat
import tomllib
from pathlib import Path

import pytest

from accounting.errors import InvalidParameter
from dpfedvis.data.example import schema
from dpfedvis.links.kits import Federation, Kit, NotAKit
from dpfedvis.links.provisioning import SITE_CLASSES, fingerprint, provision
from dpfedvis.links.site_checks import check_site
from dpfedvis.protocol.signatures import Identity
from dpfedvis.site import Policy
from tests.command_line import called, check_refused

pytestmark = pytest.mark.filterwarnings("ignore")  # of the engine's own packages

SITES = ("aachen", "bremen")


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("kits")
    (folder / "schema.toml").write_text(schema().to_toml())
    policy = {"epsilon": 0.5, "lifetime_epsilon": 2.0, "approve": "each run"}
    federation = Federation(name="trial", sites=SITES, server="fl.example.org", port=8003, policy=policy)
    return provision(federation, folder / "out", schema=folder / "schema.toml")


def test_each_machine_has_a_kit_that_only_its_owner_reads(kits: dict[str, Path]) -> None:
    assert set(kits) == {"server", "admin", *SITES}
    for name, folder in kits.items():
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert Kit.read(folder).role == (name if name in ("server", "admin") else "site")
    assert stat.S_IMODE((kits["aachen"] / "dpfedvis" / "identity.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((kits["server"].parent / "authority").stat().st_mode) == 0o700
    assert {path.name for path in kits["server"].parent.iterdir()} == {*kits, "authority"}


def test_sites_have_pinned_each_other_and_nobody_has_another_key(kits: dict[str, Path]) -> None:
    keys = {name: Identity.kept(kits[name] / "dpfedvis" / "identity.key").public for name in SITES}
    for name in SITES:
        policy = Policy.read(kits[name] / "dpfedvis" / "policy.toml")
        assert dict(policy.members) == keys
        assert (policy.epsilon, policy.lifetime_epsilon, policy.approve) == (0.5, 2.0, "each run")
        told = (kits[name] / "members.txt").read_text()
        assert all(fingerprint(key) in told for key in keys.values())
        assert fingerprint(keys[name]) in (kits[name] / "READ-ME-FIRST.md").read_text()
    for name in ("server", "admin"):
        assert not list(kits[name].rglob("identity.key"))
        assert dict(Kit.read(kits[name]).members) == keys


def test_jobs_have_no_rights_that_they_do_not_need(kits: dict[str, Path]) -> None:
    resources = json.loads((kits["aachen"] / "local" / "resources.json").read_text())
    assert resources["class_allow_list"] == SITE_CLASSES
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert resources["allow_log_streaming"] is False
    assert "treamer" not in json.dumps(resources["components"])
    rights = json.loads((kits["aachen"] / "local" / "authorization.json").read_text())["permissions"]
    assert list(rights) == ["project_admin"]
    assert {name for name, given in rights["project_admin"].items() if given != "none"} == {
        "submit_job",
        "manage_job",
        "view",
    }


def test_the_files_to_fill_in_can_be_read(kits: dict[str, Path]) -> None:
    home = kits["bremen"] / "dpfedvis"
    assert tomllib.loads((home / "site.toml").read_text()) == {"data": "patients.csv"}
    assert (home / "schema.toml").read_text() == schema().to_toml()
    words = (kits["bremen"] / "READ-ME-FIRST.md").read_text()
    assert "fl.example.org" in words
    assert "8003" in words


def test_a_check_says_what_is_missing(kits: dict[str, Path]) -> None:
    failed = {each.name: each.words for each in check_site(Kit.read(kits["aachen"])) if not each.passed}
    assert set(failed) == {"data", "connection"}
    assert "patients.csv" in failed["data"]


@pytest.mark.parametrize(
    ("file", "text", "check", "words"),
    [
        ("dpfedvis/identity.key", None, "keys", "identity.key is missing; put it back from a copy"),
        ("dpfedvis/ledger.sqlite", None, "ledger", "there is no ledger"),
        ("local/authorization.json", "{", "jobs", "local/authorization.json cannot be read"),
        ("local/authorization.json", '{"permissions": []}', "jobs", "does not say what may be done here"),
        ("local/authorization.json", '{"permissions": {"admin": ["byoc"]}}', "jobs", "lets admin ship code"),
        ("local/resources.json", None, "jobs", "local/resources.json cannot be read"),
        ("local/resources.json", "[]", "jobs", "local/resources.json is no table of settings"),
        ("local/resources.json", "{}", "jobs", "lets jobs use other classes"),
        ("startup/client.crt", "bad", "clock", "startup/client.crt cannot be read"),
        ("startup/client.key", "bad", "connection", "cannot be read, or do not fit"),
        ("startup/rootCA.pem", None, "connection", "cannot be read, or do not fit"),
    ],
)
def test_a_check_names_the_file_that_is_lost_or_damaged(
    kits: dict[str, Path], file: str, text: str | None, check: str, words: str, tmp_path: Path
) -> None:
    folder = tmp_path / "aachen"
    shutil.copytree(kits["aachen"], folder)
    if text is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(text)
    failed = {each.name: each.words for each in check_site(Kit.read(folder)) if not each.passed}
    assert words in failed[check]
    assert "Errno" not in failed[check] or text is None
    assert (folder / file).exists() == (text is not None)  # a check makes nothing, above all no key


def test_kits_are_never_overwritten(kits: dict[str, Path]) -> None:
    with pytest.raises(InvalidParameter, match="kits are never overwritten"):
        provision(Federation(name="trial", sites=SITES), kits["server"].parent)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sites": ("one",)}, "two names or more"),
        ({"sites": ("a", "A")}, "distinct"),
        ({"sites": ("a", "server")}, "none of server"),
        ({"sites": ("a", "../b")}, "a letter, then"),
        ({"sites": ("a", "b c")}, "a letter, then"),
        ({"name": "x/y"}, "a letter, then"),
        ({"server": "a b"}, "the name of a host"),
        ({"port": 0}, "port"),
        ({"port": 70000}, "port"),
        ({"policy": {"epsilon": -1}}, "epsilon"),
        ({"policy": {"members": {}}}, "without members"),
        ({"policy": {"colour": "red"}}, "colour"),
    ],
)
def test_bad_federations_are_refused_by_name(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidParameter, match=words):
        Federation(**{"name": "trial", "sites": SITES, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('name = "x"\n', "sites"),
        ('name = "x"\nsites = ["a", "b"]\nhost = "y"\n', "host"),
        ('name = "x"\nsites = ["a", "b"]\nschema = "none.toml"\n', "a file beside"),
        ("name = ", "readable TOML"),
    ],
)
def test_bad_files_are_one_sentence(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text(text)
    check_refused(called("federation", "init", str(tmp_path / "federation.toml"), "--out", str(tmp_path / "k")), words)
    assert not (tmp_path / "k").exists()


def test_a_kit_of_another_machine_is_refused(kits: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(NotAKit, match="is the kit of the server; that of a site is needed here"):
        Kit.read(kits["server"], "site")
    check_refused(called("site", "ledger", str(tmp_path)), "is not the kit of a site")
    check_refused(called("server", "start", str(kits["admin"])), "is the kit of the admin")
    done = called(
        "run", "--link", "nvflare", "--kit", str(kits["aachen"]), "--epsilon", "1", "--out", str(tmp_path / "r")
    )
    check_refused(done, "is the kit of site aachen")
    check_refused(called("run", "--link", "nvflare", "--epsilon", "1", "--out", str(tmp_path / "r")), "kit")
    done = called("run", "--data", "digits", "--kit", str(kits["admin"]), "--out", str(tmp_path / "r"))
    check_refused(done, "left out without --link nvflare")


def test_a_site_without_a_map_or_a_contract_says_so(kits: dict[str, Path], tmp_path: Path) -> None:
    kit = str(kits["aachen"])
    check_refused(called("site", "approve", kit, "--yes", "0" * 64), "no contract waits")
    (tmp_path / "new.csv").write_text("age\n3\n")
    check_refused(called("site", "place", kit, str(tmp_path / "new.csv"), "--out", str(tmp_path / "v")), "no map was")
    shown = called("site", "ledger", kit, "--json")
    assert json.loads(shown.stdout) == {
        "site": "aachen", "left": [], "epsilon": 0.0, "delta": 1e-5, "runs": 0, "lifetime_epsilon": 2.0,
    }  # fmt: skip
