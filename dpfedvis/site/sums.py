"""A site's part in secure sums: one label for each release, and nothing leaves before it is written down."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from accounting.errors import InvalidParameter
from dpfedvis.numerics.exact import Integers
from dpfedvis.numerics.files import OWNERS, FileDamaged, draft_of, make_folder, write_bytes
from dpfedvis.protocol.contract import Contract
from dpfedvis.protocol.messages import ANSWERED, NOT_PLANNED
from dpfedvis.protocol.secure_sum import Advert, Member, Opened, SecureSumError, Shares
from dpfedvis.protocol.signatures import Identity
from dpfedvis.protocol.sum_messages import release_of
from dpfedvis.protocol.uploads import MOST_VALUE
from dpfedvis.site.policy import Refusal

STATE = "sums"  # folder of a site in which each run has a file
MOST_LABELS = 256  # of one batch


class SiteSums:
    """The secure sums of one run at one site.

    A release is masked under one label only: the same noisy integers in two sums of different sites would show one
    site's upload by subtraction.

    Parameters
    ----------
    contract : Contract
    label : str
        Hash of the contract.
    site : str
    identity : Identity
    path : Path, optional
        File of the state, readable by its owner only; None keeps it in memory.
    """

    def __init__(self, contract: Contract, label: str, site: str, identity: Identity, path: Path | None) -> None:
        self._contract, self._path = contract, path
        self._labels: dict[str, str] = {}  # the label that each release was masked under
        self._asked: dict[str, str] = {}  # and what it answers
        roster = {member.name: member.key for member in contract.members}
        self._member = Member(site, identity, roster, contract.threshold or len(roster), label)
        if path is not None and path.exists():
            self._labels, self._asked, kept = _read(path, identity)
            # Keys of one contract that answer under another would open both secrets of a label.
            if (kept.name, kept.group) != (site, self._member.group):
                raise FileDamaged(f"{path} is the state of {kept.name} under another contract, {kept.group.context}")
            self._member = kept

    def advertise(self, labels: tuple[str, ...]) -> Advert:
        """Return signed keys for sums of releases that are planned, and not masked yet."""
        if not 0 < len(labels) <= MOST_LABELS:
            raise Refusal(NOT_PLANNED, f"a batch has 1 to {MOST_LABELS} labels")
        for label in labels:
            release = self._release(label)
            if self._labels.get(release, label) != label:
                raise Refusal(NOT_PLANNED, "this release was masked under another label")
        advert = self._member.advertise(labels)
        self._keep()
        return advert

    def share(self, adverts: tuple[Advert, ...]) -> Shares:
        """Return encrypted shares of this site's secrets."""
        shares = self._member.share(adverts)
        self._keep()
        return shares

    def bind(self, label: str, what: str, round: int, shares: dict[str, str], asked: str, *, released: bool) -> None:
        """Bind a release to a label and a question, for good, before it is made; refuse shares that are of no use.

        Parameters
        ----------
        label, what, round, shares
        asked : str
            Hash of what the release answers.
        released : bool
            Whether the ledger has it. If its label is not kept, the state was lost, or is an older copy.
        """
        release = release_of(what, round)
        if self._release(label) != release:
            raise Refusal(NOT_PLANNED, "the label is of another release")
        if self._labels.get(release, label) != label:
            raise Refusal(NOT_PLANNED, "this release was masked under another label")
        if released and release not in self._labels:
            raise Refusal(ANSWERED, "this release was made before, and the label of its sum is not kept")
        if self._asked.get(release, asked) != asked:
            raise Refusal(NOT_PLANNED, "another question was asked for this release")
        self._member.check_shares(label, shares)
        if release not in self._labels:
            self._labels[release], self._asked[release] = label, asked
        self._keep()

    def answered(self, label: str) -> Integers | None:
        """Return the masked values that left under a label; None if none did."""
        return self._member.answered(label) if label in self._labels.values() else None

    def masked(self, label: str, values: Integers, shares: dict[str, str], asked: str) -> Integers:
        """Return an upload behind masks, shape (n,); the sums before it are closed, and their secrets forgotten."""
        # Far beyond what sums and noise can come to; to refuse would tell of the values.
        most = MOST_VALUE // len(self._contract.members)
        values = np.clip(values, -most, most)
        for other in [each for each in self._labels.values() if each != label]:
            self._member.close(other)
        found = self._member.masked(label, values.reshape(-1), shares, asked)
        self._keep()
        return found

    def confirm(self, label: str, survivors: tuple[str, ...]) -> str:
        """Return the signature of a list of survivors."""
        signature = self._member.confirm(label, survivors)
        self._keep()
        return signature

    def unmask(self, label: str, signatures: dict[str, str]) -> Opened:
        """Return the shares that open a sum."""
        opened = self._member.unmask(label, signatures)
        self._keep()
        return opened

    def _release(self, label: str) -> str:
        """Return the release of a label, or refuse one that is not in the contract."""
        what, _, rest = label.partition("|")
        round, _, batch = rest.partition("|")
        if not (round.isdecimal() and batch.isdecimal() and f"{what}|{int(round)}|{int(batch)}" == label):
            raise Refusal(NOT_PLANNED, "the label is of no release")
        single, number = what in self._contract.extras, int(round)
        first, last = (0, 0) if single else (1, self._contract.counts.get(what, 0))
        if not first <= number <= last:
            raise Refusal(NOT_PLANNED, "the label is of a release that is not in the contract")
        return release_of(what, number)

    def _keep(self) -> None:
        """Write the state: it is on disk when this returns, so that a site that was killed answers alike."""
        if self._path is None:
            return
        make_folder(self._path.parent)
        state = json.dumps([self._labels, self._asked]).encode() + b"\n" + self._member.to_bytes()
        write_bytes(self._path, state, OWNERS)


def forget(path: Path) -> None:
    """Delete the state of a run, and a draft of it that a process left when it was killed: the run is over."""
    for each in (path, draft_of(path)):
        each.unlink(missing_ok=True)


def _read(path: Path, identity: Identity) -> tuple[dict[str, str], dict[str, str], Member]:
    try:
        head, _, body = path.read_bytes().partition(b"\n")
        labels, asked = map(dict, json.loads(head))
        return labels, asked, Member.of_bytes(body, identity)
    except (OSError, ValueError, KeyError, TypeError, SecureSumError, InvalidParameter) as error:
        raise FileDamaged(f"{path} is damaged ({type(error).__name__}: {error})") from error
