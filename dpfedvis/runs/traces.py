"""What releases leave beside a run's ledger: by it a lost ledger is found, before an empty one takes its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from accounting import Ledger
from dpfedvis.runs.resume import NotResumable, ResumeFolder
from dpfedvis.runs.upload_writer import INDEX, LEDGER, UPLOADS


@dataclass(frozen=True)
class Released:
    """What a resumed run has released before.

    Parameters
    ----------
    has_ledger : bool
        Whether it has its ledger. Not if it was interrupted before there was one.
    events : int
        Events in it.
    """

    has_ledger: bool = False
    events: int = 0


def released_before(resume: ResumeFolder, lifetimes: Sequence[Path], run: str) -> Released:
    """Return what an interrupted run has released; nothing is created.

    Parameters
    ----------
    resume : ResumeFolder
    lifetimes : sequence of Path
        Ledgers of the run's records.
    run : str
        Id of the run.

    Raises
    ------
    NotResumable
        If the run's ledger is missing or has fewer events than their traces tell of, or if that of its records is
        missing or empty although the run is charged to it: whoever goes on would spend a second time.
    """
    path = resume.run / LEDGER
    if not path.exists():
        trace = _of_ledger(resume) or next((each for each in lifetimes if _charged(each, run)), None)
        if trace is not None:
            if not resume.checkpoint.is_dir():
                resume.remove()  # made by asking
            raise NotResumable(f"{path}: the ledger is lost, for {trace} tells of it; put it back to resume the run")
        return Released()
    with Ledger(path, create=False) as ledger:
        places = {(event.what, event.round) for event in ledger.events()}
        events = len(ledger)
    trace = None if events else _of_release(resume)
    # A release is charged to its records first, so that a kill leaves them one call ahead and not more.
    if trace is None:
        trace = next((each for each in lifetimes if len(_charged(each, run) - places) > 1), None)
    if trace is not None:
        raise NotResumable(
            f"{path} has lost events, for {trace} tells of releases that it has not; put the complete ledger back to "
            "resume the run"
        )
    for lifetime in lifetimes if events else ():
        # Of several files one may not have released yet: its client is asked after the others.
        if not _count(lifetime) and (len(lifetimes) == 1 or not lifetime.exists()):
            raise NotResumable(f"{lifetime}: the ledger of the records is lost, for {path} tells of it; put it back")
    return Released(True, events)


def _of_ledger(resume: ResumeFolder) -> Path | None:
    """Return something that is made only after the ledger."""
    return next((trace for trace in (resume.run / UPLOADS, resume.checkpoint) if trace.exists()), None)


def _of_release(resume: ResumeFolder) -> Path | None:
    """Return something that is written only after a release; what waits in an outbox is from before."""
    index = resume.run / UPLOADS / INDEX
    if index.exists() and index.stat().st_size > 0:
        return index
    return next(resume.checkpoint.rglob("snapshot.npz"), None)


def _charged(lifetime: Path, run: str) -> set[tuple[str, int | None]]:
    """Return quantity and round of what the run is charged with in the ledger of its records."""
    if not lifetime.exists():
        return set()
    with Ledger(lifetime, create=False) as ledger:
        return {(event.what, event.round) for event in ledger.events() if event.client.startswith(f"{run}/")}


def _count(path: Path) -> int:
    if not path.exists():
        return 0
    with Ledger(path, create=False) as ledger:
        return len(ledger)
