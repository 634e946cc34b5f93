"""What the owner of a site should know before it starts: a list of checks, each with a sentence."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from cryptography.x509 import load_pem_x509_certificate

from accounting.errors import AccountingError
from accounting.sharing import Sharing
from dpfedvis.errors import DpfedvisError
from dpfedvis.links.kits import Kit
from dpfedvis.links.provisioning import SITE_CLASSES
from dpfedvis.protocol.signatures import Identity
from dpfedvis.site.folder import KEY, LEDGER, POLICY
from dpfedvis.site.ledger import SiteLedger
from dpfedvis.site.own_table import OwnTable
from dpfedvis.site.policy import Policy

_SECONDS = 5.0


@dataclass(frozen=True)
class Check:
    """One check.

    Parameters
    ----------
    name : str
    passed : bool
    words : str
        What was found, for the owner of the site.
    """

    name: str
    passed: bool
    words: str


class CheckFailed(DpfedvisError):
    """What a check found."""


def check_site(kit: Kit, *, offline: bool = False) -> Iterator[Check]:
    """Look at data, policy, keys, ledger, rules for jobs, clock and connection of a site, one after the other.

    `offline` leaves the connection out.
    """
    looked: dict[str, Callable[[Kit], str]] = {
        "engine": _engine,
        "data": _data,
        "policy": _policy,
        "keys": _keys,
        "ledger": _ledger,
        "jobs": _jobs,
        "clock": _clock,
        "connection": _connection,
    }
    if offline:
        del looked["connection"]
    for name, look in looked.items():
        try:
            yield Check(name, True, look(kit))
        except (DpfedvisError, AccountingError, OSError, ValueError, KeyError) as error:
            yield Check(name, False, str(error))


def _engine(kit: Kit) -> str:
    try:
        found = version("nvflare")
    except PackageNotFoundError:
        raise CheckFailed('NVIDIA FLARE is not installed: pip install "dpfedvis[nvflare]"') from None
    if not found.startswith("2.9."):
        raise CheckFailed(f"NVIDIA FLARE {found} is installed; dpfedvis was tested with 2.9")
    return f"NVIDIA FLARE {found}"


def _data(kit: Kit) -> str:
    table = OwnTable.read(kit.home)
    dataset = table.load()
    fed = table.federated(dataset)
    notes = "".join(f"; {note}" for note in dataset.notes)
    return f"{table.data.name}: {fed.n_records} records, {fed.n_features} features{notes}"


def _policy(kit: Kit) -> str:
    policy = Policy.read(kit.home / POLICY)
    usual = Sharing.of(len(kit.sites))
    if policy.threshold > usual.threshold:
        raise CheckFailed(
            f"policy.toml: threshold {policy.threshold} is above {usual.threshold}, which sums of {len(kit.sites)} "
            "sites have by default"
        )
    if not policy.least_colluders <= usual.colluders <= policy.colluders:
        raise CheckFailed(f"policy.toml: {usual.colluders} colluders, the default, are not within its limits")
    limit = "any number" if policy.epsilon is None else f"{policy.epsilon:g}"
    total = "without a limit" if policy.lifetime_epsilon is None else f"at most {policy.lifetime_epsilon:g}"
    return f"ε at most {limit} a run, {total} over all runs; approve: {policy.approve}"


def _keys(kit: Kit) -> str:
    if not (kit.home / KEY).is_file():  # reading it would make a new one, that nobody has pinned
        raise CheckFailed(f"{kit.home / KEY} is missing; put it back from a copy")
    own, members = Identity.kept(kit.home / KEY).public, Policy.read(kit.home / POLICY).members
    if members.get(kit.name) != own:
        raise CheckFailed(f"the identity of {kit.name} is not the one that policy.toml has under members")
    if dict(members) != dict(kit.members):
        raise CheckFailed("policy.toml has other members than the kit was made for")
    mode = (kit.home / KEY).stat().st_mode & 0o777
    if mode & 0o077:
        raise CheckFailed(f"{kit.home / KEY} can be read by others (mode {mode:o}): chmod 600")
    return f"{len(members)} members are pinned; compare members.txt with them by telephone"


def _ledger(kit: Kit) -> str:
    policy = Policy.read(kit.home / POLICY)
    with SiteLedger.read(kit.home / LEDGER) as ledger:
        runs, limit = ledger.all_runs(policy.lifetime_delta), ledger.limit
    if limit is not None and limit != (policy.lifetime_epsilon, policy.lifetime_delta):
        raise CheckFailed(
            f"lifetime_epsilon was {limit[0]:g} in the first run, and stays with the ledger; policy.toml has another"
        )
    return f"runs so far: {runs.runs}, ε {runs.epsilon:.3g} together"


def _jobs(kit: Kit) -> str:
    resources, rights = _settings(kit, "resources.json"), _settings(kit, "authorization.json").get("permissions")
    if resources.get("class_allow_list") != SITE_CLASSES or resources.get("class_list_enforcement_mode") != "enforce":
        raise CheckFailed("local/resources.json lets jobs use other classes than those of dpfedvis")
    if resources.get("allow_log_streaming", True) or "log_streamer" in str(resources.get("components")):
        raise CheckFailed("local/resources.json lets logs be sent to the server")
    if not isinstance(rights, dict) or not rights:
        raise CheckFailed("local/authorization.json does not say what may be done here; put it back from a copy")
    for role, own in rights.items():
        if not isinstance(own, dict) or {own.get(name, "none") for name in ("byoc", "shell_commands")} != {"none"}:
            raise CheckFailed(f"local/authorization.json lets {role} ship code or run commands here")
    if "dpfedvis.links.engine" not in kit.command:
        raise CheckFailed("the engine would run without the guard of dpfedvis")
    return "only jobs of dpfedvis, no code, no commands, no logs"


def _settings(kit: Kit, name: str) -> dict[str, Any]:
    """Return one of the engine's own files of settings."""
    try:
        found = json.loads((kit.folder / "local" / name).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckFailed(f"local/{name} cannot be read ({error}); put it back from a copy") from None
    if not isinstance(found, dict):
        raise CheckFailed(f"local/{name} is no table of settings; put it back from a copy")
    return found


def _clock(kit: Kit) -> str:
    try:
        found = load_pem_x509_certificate((kit.folder / "startup" / "client.crt").read_bytes())
    except (OSError, ValueError):
        raise CheckFailed("startup/client.crt cannot be read; put it back from a copy") from None
    now = datetime.now(UTC)
    if not found.not_valid_before_utc <= now <= found.not_valid_after_utc:
        raise CheckFailed(
            f"it is {now:%Y-%m-%d %H:%M} UTC here, and the certificate is valid from "
            f"{found.not_valid_before_utc:%Y-%m-%d %H:%M} to {found.not_valid_after_utc:%Y-%m-%d}: clock or kit is old"
        )
    return f"{now:%Y-%m-%d %H:%M} UTC, certificate valid until {found.not_valid_after_utc:%Y-%m-%d}"


def _connection(kit: Kit) -> str:
    startup, where = kit.folder / "startup", f"{kit.server}:{kit.port}"
    try:
        context = ssl.create_default_context(cafile=startup / "rootCA.pem")
        context.load_cert_chain(startup / "client.crt", startup / "client.key")
    except OSError:  # also of SSL
        raise CheckFailed(
            "startup/rootCA.pem, client.crt and client.key cannot be read, or do not fit; put them back from a copy"
        ) from None
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((kit.server, kit.port), timeout=_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=kit.server) as secured,
        ):
            # In TLS 1.3 a client is done before the server has looked at its certificate: only then does it speak.
            if secured.recv(1):
                return f"{where} answers, with the certificate of this federation"
            raise ConnectionResetError
    except ssl.SSLCertVerificationError as error:
        raise CheckFailed(f"{where} is not the server of this federation ({error.verify_message})") from None
    except (ssl.SSLError, ConnectionResetError) as error:
        why = f" ({error.reason})" if isinstance(error, ssl.SSLError) else ""
        raise CheckFailed(f"{where} does not accept the certificate of this kit{why}") from None
    except OSError as error:
        raise CheckFailed(f"{where} does not answer ({error}); sites only dial out, to this port") from None
