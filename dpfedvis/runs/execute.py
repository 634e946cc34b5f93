"""A run from its settings to its folder: what `dpfedvis run` does.

    config.toml  provenance.json  ledger.sqlite  uploads/  public.json  landmarks.npz
    embedding.npz  embedding.csv  verdict.json  regions.csv  statement.md  statement.json  map.png
    density.npz  density.png  trace.csv  report.html  figures/  simulation/

The folder holds what the server has, and no record; with ``release="none"`` that is the published map, and the
places of records stay with the clients. Only a simulation, a run with seeded noise, may also have what clients keep to
themselves, in ``simulation/``. report.html is for people. An error before anything was released leaves no folder. One
after that, an interruption, or a kill at any moment leaves a run that can go on: the ledger, because a spend must not
be forgotten, and what `dpfedvis.runs.resume` keeps next to the folder.

A run with real noise on a file of the user's is also written into the ledger of these records, which outlives it
(`dpfedvis.site.ledger`).
"""

from __future__ import annotations

import secrets
import shlex
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from accounting.statement import Statement
from dpfedvis.data import Dataset, FederatedData
from dpfedvis.estimators.base import FederatedEstimator
from dpfedvis.estimators.private_map import PrivateMapEstimator
from dpfedvis.evaluation.bootstrap import drawn_again
from dpfedvis.numerics.files import write_text
from dpfedvis.numerics.layouts import Progress
from dpfedvis.runs.account import Account
from dpfedvis.runs.federation import link_of
from dpfedvis.runs.folder import (
    CONFIG,
    FolderTaken,
    FolderUnusable,
    clear,
    make,
    refuse_taken,
    refuse_views,
    set_aside,
    spent,
    sweep,
)
from dpfedvis.runs.provenance import PROVENANCE, changes, identity, provenance, read_provenance, write_provenance
from dpfedvis.runs.results import published_arrays, write_results
from dpfedvis.runs.resume import ResumeFolder, RunInterrupted, same_settings
from dpfedvis.runs.settings import RunConfig
from dpfedvis.runs.statement_file import write_statement
from dpfedvis.runs.traces import Released, released_before
from dpfedvis.runs.upload_writer import LEDGER, Recorder
from dpfedvis.server.feddl import Callback
from dpfedvis.server.forecast import Forecast

__all__ = ["CONFIG", "PROVENANCE", "FolderTaken", "FolderUnusable", "Run", "execute", "provenance"]


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run.

    Parameters
    ----------
    folder : Path
    config : RunConfig
        With all choices made.
    statement : Statement
    estimator : FederatedEstimator
        Fitted.
    fed : FederatedData
        The records, which are not in the folder.
    views : Path, optional
        Where each client's private view is to be drawn.
    seconds : float
        Since it was started or resumed.
    warnings : tuple of str
        What a reader of the results should know.
    """

    folder: Path
    config: RunConfig
    statement: Statement
    estimator: FederatedEstimator
    fed: FederatedData
    views: Path | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        """Return the main facts, ready for JSON."""
        statement = self.statement.to_dict()
        return {
            "folder": str(self.folder),
            "data": self.config.data,
            "clients": [client.name for client in self.fed.clients],
            "simulated_clients": self.fed.dealt is not None,
            "map": self.config.map,
            "mechanism": self.config.mechanism,
            "release": self.config.release,
            "verdict": self.estimator.verdict_.summary(),
            "headline": statement["headline"],
            "simulation": statement["simulation"],
            "one_machine": statement["one_machine"],
            "epsilon_end_to_end": statement["epsilon_end_to_end"],
            "epsilon_in_scope": statement["epsilon_in_scope"],
            "delta": statement["delta"],
            "guarantee": statement["words"]["guarantee"],
            "risk": statement["risk"],
            "all_runs": statement["all_runs"],
            "seconds": round(self.seconds, 3),
            "warnings": list(self.warnings),
            "files": sorted(path.name for path in self.folder.iterdir()),
        }


def execute(
    config: RunConfig,
    folder: str | Path,
    callbacks: Sequence[Callback] = (),
    *,
    views: str | Path | None = None,
    progress: Progress | None = None,
    show: Callable[[Run], None] | None = None,
    resume: bool = False,
    changed: Collection[str] | None = None,
    ledger: str | Path | None = None,
    lifetime_epsilon: float | None = None,
    tell: Callable[[Sequence[str]], None] | None = None,
    foresee: Callable[[Forecast], None] | None = None,
    replace_old: bool = False,
) -> Run:
    """Carry out a run, and write its ledger, statement and results to a folder.

    Parameters
    ----------
    config : RunConfig
    folder : path-like
        Must be empty or not there yet, unless `resume` is set.
    callbacks : sequence of callables
        Called with (Round, Y) after each round.
    views : path-like, optional
        Where to write each client's private view, as a table, a picture and a page: outside of `folder`, for views show
        records.
    progress : callable, optional
        Called with (stage, done, total) in the stages after the rounds.
    show : callable, optional
        Called with the run when its data are written, such as `dpfedvis.reporting.run_report.show`. Only then is the
        run marked as finished, so that an interruption while pages are drawn loses nothing.
    resume : bool
        Resume the interrupted run in `folder`, with its settings and the same data. `config` may change only what is
        drawn. What was released is sent again, the same bytes, and nothing is spent twice.
    changed : collection of str, optional
        With `resume`, names of the settings in `config` that count as given; by default those that are not at their
        defaults.
    ledger : path-like, optional
        Ledger of these records, for all runs with real noise on them. By default, for a file of the user's, one in the
        state folder; see `dpfedvis.site.ledger`.
    lifetime_epsilon : float, optional
        ε that all runs on these records may spend together, at the δ of the first run that says it. It stays with the
        ledger, and a run without room in it is refused before anything is released.
    tell : callable, optional
        Called with what was found while the data were read, before anything is released. It tells of the records: for
        their owner alone.
    foresee : callable, optional
        Called with the forecast of a new run with a private map, before anything is released; it may raise. Not for
        real sites: how many records they have is known to them and their server.
    replace_old : bool
        Set a run in `folder`, and its views, aside to NAME.before, once this one is known to begin.

    Notes
    -----
    A run may go on with another version of the code, with a warning. What was released before is kept, and each site
    charges whatever follows on top of what it has spent, refuses what does not fit, and answers no release and round a
    second time with other bytes. So the guarantee holds; only the result is of two versions.
    """
    folder, views = Path(folder), None if views is None else Path(views)
    account = Account(() if ledger is None else (Path(ledger),), lifetime_epsilon)
    resume_folder = ResumeFolder(folder)
    if resume:
        config = same_settings(folder, config, changed)
        with resume_folder.held():
            order = _resumed(config, resume_folder, views, account)
            if tell is not None:
                tell(order.dataset.notes)
            return _carry_out(order, resume_folder, callbacks, progress, show)
    order = _started(config, resume_folder, views, account, replace_old)
    if foresee is not None and order.config.release == "none" and order.fed.origin != "federation":
        foresee(_foreseen(order))
    if tell is not None:
        tell(order.dataset.notes)
    with resume_folder.held():
        resume_folder.forget()
        if replace_old:
            for old in (folder, views):
                if old is not None:
                    set_aside(old)
        return _carry_out(order, resume_folder, callbacks, progress, show)


@dataclass(frozen=True, eq=False)
class _Order:
    """A run that may be carried out: all that can be refused before anything is released has been."""

    config: RunConfig
    dataset: Dataset
    fed: FederatedData
    estimator: FederatedEstimator
    views: Path | None
    account: Account
    facts: dict[str, Any]
    resumed: bool
    order: int | None = None
    released: Released = field(default_factory=Released)
    warnings: tuple[str, ...] = ()


def _started(
    config: RunConfig, resume_folder: ResumeFolder, views: Path | None, account: Account, replace_old: bool
) -> _Order:
    resume_folder.refuse_taken()
    refuse_taken(resume_folder.run, replace_old)
    if views is not None:
        refuse_views(views, resume_folder.run, replace_old)
    return _ordered(config, views, account, secrets.randbits(64))


def _foreseen(order: _Order) -> Forecast:
    assert isinstance(order.estimator, PrivateMapEstimator)
    return order.estimator.plan(order.fed)


def _resumed(config: RunConfig, resume_folder: ResumeFolder, views: Path | None, account: Account) -> _Order:
    facts = read_provenance(resume_folder.run)
    resume_folder.refuse_to_resume(facts)
    account = replace(account, ledgers=resume_folder.ledgers(account.ledgers))
    order = _ordered(config, resume_folder.views(views), account, resume_folder.order())
    resume_folder.same_data(identity(order.dataset))
    facts.setdefault("run", order.facts["run"])
    released = released_before(resume_folder, order.account.ledgers, facts["run"])
    others = changes(facts, order.facts)
    warning = f"{resume_folder.run} went on with other code than it began with: {', '.join(others)}"
    now = {key: order.facts[key] for key in ("started", "commit", "packages")}
    facts["resumed"] = [*facts.get("resumed", ()), now]
    return replace(order, facts=facts, resumed=True, released=released, warnings=(warning,) if others else ())


def _ordered(config: RunConfig, views: Path | None, account: Account, secret: int | None) -> _Order:
    dataset = config.dataset()
    # The order of clients must tell nothing of them where the noise is real.
    order = secret if config.noise_for(dataset) == "discrete" else None
    fed = config.federated(dataset, order)
    config = config.resolved(fed)
    facts = {"run": uuid.uuid4().hex, **provenance(config, dataset, datetime.now(UTC))}
    account = account.chosen(config, dataset)
    return _Order(config, dataset, fed, config.estimator(), views, account, facts, resumed=False, order=order)


def _carry_out(
    order: _Order,
    resume_folder: ResumeFolder,
    callbacks: Sequence[Callback],
    progress: Progress | None,
    show: Callable[[Run], None] | None,
) -> Run:
    folder, config, views = resume_folder.run, order.config, order.views
    existed, viewed, clock = folder.exists(), views is not None and views.exists(), time.perf_counter()
    try:
        make(folder)
        if views is not None:
            make(views, 0o700)  # they show records
        sweep(folder)
        resume_folder.remember(views, identity(order.dataset), order.account.ledgers, order.order)
        write_provenance(folder, order.facts)
        if not order.resumed:
            write_text(folder / CONFIG, config.to_toml())  # last: from here on the run can be resumed
        statement, problems = _fit(order, resume_folder, callbacks, progress)
        # A resumed run may be drawn otherwise; only now is it known that it can be.
        write_text(folder / CONFIG, config.to_toml())
        warnings = (*order.warnings, *statement.warnings, *problems)
        done = Run(folder, config, statement, order.estimator, order.fed, views, warnings=warnings)
        if show is not None:
            if progress is not None:
                progress("pages", 0, 1)
            show(done)
            if progress is not None:
                progress("pages", 1, 1)
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        write_provenance(folder, {**order.facts, "finished": finished})
    except BaseException as error:
        left = order.resumed or spent(folder / LEDGER) or resume_folder.released
        if not left:
            resume_folder.remove()
            clear(folder, existed)
            if views is not None and not viewed and views.is_dir():
                views.rmdir()
        if isinstance(error, KeyboardInterrupt):
            raise RunInterrupted(
                f"go on with: dpfedvis run --out {shlex.quote(str(folder))} --resume"
                if left
                else "nothing was released, and nothing is left of the run"
            ) from None
        raise
    resume_folder.remove()
    return replace(done, seconds=time.perf_counter() - clock)


def _fit(
    order: _Order, resume_folder: ResumeFolder, callbacks: Sequence[Callback], progress: Progress | None
) -> tuple[Statement, list[str]]:
    """Fit, and write what comes of it; return the statement, and what went wrong after all was released."""
    folder, config, estimator = resume_folder.run, order.config, order.estimator
    account, released = order.account, order.released
    with account.open(folder / LEDGER, config, order.dataset, order.fed, order.facts, released) as (ledger, own):
        recorder = Recorder(folder, rounds=config.recorded_rounds, resume=ledger if order.resumed else None)
        estimator.watch(
            witness=recorder,
            callbacks=(recorder.landmarks, *callbacks),
            ledger=ledger,
            checkpoint=resume_folder.checkpoint,
            progress=progress,
            site_ledger=None if own is None else own.for_sites,
            run=order.facts["run"],
            link=link_of(config, callbacks),
            warns=False,
        )
        try:
            estimator.fit(order.fed)
        finally:
            recorder.close()
        if isinstance(estimator, PrivateMapEstimator) and config.release == "none":
            estimator.verdict_ = drawn_again(estimator, progress)
        problems = write_results(folder, estimator, order.fed, order.dataset, config, progress)
        statement = estimator.statement_
        # What its folder tells anyway: name of the data; and when it began, but for a simulation, which is repeatable.
        origin = {"data": order.facts["data"]["name"]}
        if config.noise == "discrete":
            origin["started"] = order.facts["started"]
        statement = replace(statement, facts={**statement.facts, **origin})
        if own is not None:
            statement = replace(statement, all_runs=own.all_runs(statement.delta))
        write_statement(folder, statement)
        facts = {
            "release": config.release,
            "bounds": config.feddl_for(order.fed).get("bounds"),
            "image_shape": order.fed.image_shape,
        }
        recorder.finish(estimator.feddl_, config.made_mechanism(), facts, published_arrays(estimator))
        return statement, problems
