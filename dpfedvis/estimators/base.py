"""What all estimators share: settings, the learning of landmarks, the release of rows, the statement."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from accounting import Budget, Ledger, UnprotectedReleaseError
from accounting.errors import InvalidParameter
from accounting.statement import Statement, state
from dpfedvis.data import FederatedData, Schema
from dpfedvis.data.features import Vectors, with_features
from dpfedvis.errors import DpfedvisError
from dpfedvis.estimators.given_data import federated, new_records, public_facts
from dpfedvis.estimators.known_tables import CLUSTERS, FEDDL, OF_ESTIMATOR, PRIVATE_MAP
from dpfedvis.estimators.settings import LANDMARKS, EstimatorSettings, draws
from dpfedvis.estimators.simulation import simulated, started
from dpfedvis.links import InProcess, Link, NVFlare
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.layouts import Progress
from dpfedvis.protocol.contract import Contract, Member
from dpfedvis.protocol.uploads import Witness
from dpfedvis.server import Program, ProgramSettings, Published
from dpfedvis.server.checkpoint import claim, digest
from dpfedvis.server.feddl import Callback, FedDLResult
from dpfedvis.server.mirror import Mirror
from dpfedvis.server.preparation import refuse_unprotected
from dpfedvis.server.program import RowKind
from dpfedvis.server.session import Session
from dpfedvis.server.verdict import Verdict, unjudged, verdict_of_rows
from dpfedvis.site import SiteLedger

_OF_THIS_PROCESS = ("_watched", "_checkpoint", "_progress", "_site_ledger", "_run", "_processes", "_real", "_warns")
_WAYS_OUT = (
    "Ways out: release='noisy', which adds calibrated noise to every row; mechanism='input', which perturbs the "
    "records themselves, so that everything after is post-processing; release='none', where each client places its "
    "own records. Or ask for the paper's narrower claim by name: Budget(..., scope='landmarks'), with ε end to end "
    "stated as ∞"
)


class ReleaseUnavailable(DpfedvisError):
    """A way of releasing that does not exist here."""


class FederatedEstimator(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base of the estimators. `__init__` of each only stores; fitted names end in an underscore.

    Attributes
    ----------
    landmarks_ : array of shape (n_y, m)
    feddl_ : FedDLResult
    ledger_ : Ledger
    statement_ : Statement
        What may be said about privacy, as Markdown (``str(statement_)``) and JSON.
    verdict_ : Verdict
        What of the map is signal; see `dpfedvis.server.verdict`.
    """

    random_state: int
    # Parameters of the constructor that the settings call by another name, that belong to a table, or that are none.
    _names: ClassVar[Mapping[str, str | tuple[str, str] | None]] = {
        "n_landmarks": "landmarks",
        "random_state": "seed",
        "n_jobs": "jobs",
    }
    _map: ClassVar[str]
    _watched: Mapping[str, Any] = MappingProxyType({})
    _checkpoint: Path | None = None
    _progress: Progress | None = None
    _site_ledger: SiteLedger | Mapping[str, SiteLedger] | None = None
    _run: str | None = None
    _processes: Path | None = None
    _real: NVFlare | None = None
    _receipts: tuple[str, ...] = ()
    _between_machines: bool = False
    _warns: bool = True
    _heads: Mapping[str, Sequence[Any]] = MappingProxyType({})
    _data_facts: dict[str, Any]
    _remarks: tuple[str, ...] = ()

    def watch(
        self,
        *,
        witness: Witness | None = None,
        callbacks: Sequence[Callback] = (),
        ledger: Ledger | None = None,
        checkpoint: str | Path | None = None,
        progress: Progress | None = None,
        site_ledger: SiteLedger | Mapping[str, SiteLedger] | None = None,
        run: str | None = None,
        processes: str | Path | None = None,
        link: NVFlare | None = None,
        warns: bool = True,
    ) -> Self:
        """Let others look on when this estimator fits; a clone of it has nobody who does.

        Parameters
        ----------
        witness : Witness, optional
            Sees what the server sees, such as `dpfedvis.runs.upload_reader.Recorder`.
        callbacks : sequence of callables
            Called with (Round, Y) after each round.
        ledger : Ledger, optional
            Where the server mirrors the sites' ledgers, such as a file; by default one in memory, or in the folder of
            the checkpoint.
        checkpoint : path-like, optional
            Folder to keep what a fit needs to go on after an interruption, with the same settings and data: nothing is
            drawn or spent twice, whatever the source of noise. It holds uploads that are not released yet and records
            perturbed at home, so it belongs to the clients. Delete it when the fit is done.
        progress : callable, optional
            Called with (stage, done, total) in the stages after the rounds.
        site_ledger : SiteLedger or mapping of str to SiteLedger, optional
            One ledger for all sites: that of the records, which outlives the fit; or one for each, by its name. By
            default each site has its own, in memory or in the folder of the checkpoint.
        run : str, optional
            Name of the run in that ledger; by default a new one.
        processes : path-like, optional
            Make each site a process of its own, with its files in this folder. Places of records then stay there.
        link : NVFlare, optional
            Real sites; the data that are fitted to then have their names and schema, and no records.
        warns : bool
            Whether to raise `NoSignalWarning` where the map shows nothing but noise. Not where who looks on says it.
        """
        self._warns = warns
        self._checkpoint, self._progress = None if checkpoint is None else Path(checkpoint), progress
        self._site_ledger, self._run = site_ledger, run
        self._processes, self._real = None if processes is None else Path(processes), link
        self._watched = {"witness": witness, "callbacks": tuple(callbacks), "ledger": ledger}
        return self

    def settings(self) -> EstimatorSettings:
        """Return what this estimator was told, checked, with open choices still open."""
        values: dict[str, Any] = {"map": getattr(self, "_map", None)}
        tables: dict[str, dict[str, Any]] = {}
        for name, value in self.get_params(deep=False).items():
            target = self._names.get(name, name)
            if target is None:
                continue
            if name == "budget":
                values |= _spread(value, getattr(self, "epsilon", None))
            elif name == "epsilon":
                values |= {} if value is None else {"epsilon": value}
            elif name == "layout":
                values["map"] = value if isinstance(value, str) else value.name
                tables[values["map"]] = {} if isinstance(value, str) else dict(vars(value))
            elif isinstance(target, tuple):
                # A mapping of further settings that was not given is an empty one.
                tables.setdefault(target[0], {})[target[1]] = {} if value is None and target[1] == "further" else value
            elif target in (FEDDL, PRIVATE_MAP):
                tables[target] = self._table(target, value)
            else:
                values[target] = value
        try:
            return EstimatorSettings(**values, **tables)
        except InvalidParameter as error:
            raise InvalidParameter(self._parameter(error.name), error.value, error.expected) from None

    def _table(self, name: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping | None):
            raise InvalidParameter(name, value, "a mapping of settings")
        given = dict(value or {})
        # Sensitivities and the statement rest on the estimator's own parameters: they must be the ones that hold.
        if clash := sorted(given.keys() & set(OF_ESTIMATOR)):
            raise InvalidParameter(name, clash, "without what the estimator has parameters of its own for")
        return given

    def _parameter(self, setting: str) -> str:
        """Return the name of a constructor's parameter, as scikit-learn's users know it."""
        for name, target in self._names.items():
            if setting == (target[1] if isinstance(target, tuple) else target):
                return name
        return setting

    def _resolve(self, X: Any, y: Any = None, groups: Any = None) -> FederatedData:
        """Make all open choices, and check the data, before anything is released; return the data as they take part."""
        fed, self._rows = federated(X, y, groups)
        self.n_features_in_, self._schema = fed.n_features, fed.schema
        if isinstance(names := getattr(X, "columns", None), Iterable):
            self.feature_names_in_ = np.array([str(name) for name in names], dtype=object)
        settings = self.settings()
        fed = with_features(fed, settings.features, settings.feddl.get("bounds"))
        self.settings_ = settings.resolved(fed)
        self._mechanism = self.settings_.made_mechanism()
        budget = self.settings_.budget
        # Where the unit is a whole client, a name in the ledger would tell that it took part.
        return fed.with_neutral_names() if budget is not None and budget.unit == "client" else fed

    @classmethod
    def of(cls, settings: EstimatorSettings) -> Self:
        """Return the estimator with these settings."""
        values: dict[str, Any] = {}
        for name in inspect.signature(cls).parameters:
            target = cls._names.get(name, name)
            if name == "budget":
                values[name] = settings.budget
            elif name == "epsilon":
                values[name] = None  # it is in the budget
            elif name == "layout":
                values[name] = settings.layout
            elif isinstance(target, tuple):
                made = settings.spectral if target[0] == CLUSTERS else settings.layout
                values[name] = getattr(made, target[1])
            elif target in (FEDDL, PRIVATE_MAP):
                values[name] = dict(settings.tables.get(target, {})) or None
            elif target == "mechanism":
                values[name] = settings.made_mechanism()
            else:
                values[name] = getattr(settings, target or name)
        return cls(**values)

    def _claim(self, fed: FederatedData) -> None:
        """Make the checkpoint that of these settings, or refuse one of others before anything in it is used."""
        if self._checkpoint is not None:
            settings = self.settings_
            own = {
                name: value for name, value in settings.fields_set_to().items() if not draws(EstimatorSettings, name)
            }
            # Placement at home reaches nothing that is released.
            made = vars(settings.recipe) if settings.release == "none" else {}
            recipe = {name: value for name, value in made.items() if name != "placement"}
            # Exact kernel rows depend on the affinity.
            rows = settings.spectral if settings.map == CLUSTERS and settings.release == "exact" else None
            affinity = None if rows is None else (rows.affinity, rows.affinity_gamma)
            facts = {
                **own,
                "affinity": affinity,
                "mechanism": self._mechanism,
                "recipe": recipe,
                FEDDL: dict(sorted(settings.feddl.items())),
            }
            mark = digest(type(self).__name__, facts, fed.n_clients, fed.n_features, fed.preparation)
            self._run = claim(self._checkpoint, mark, self._run)

    def _tick(self, stage: str, done: int, total: int) -> None:
        """Tell that so many parts of a stage are done; 0 when it begins."""
        if self._progress is not None:
            self._progress(stage, done, total)

    def _program(self, fed: FederatedData, rows: RowKind = "distance", **further: Any) -> Program:
        """Return the server's program of these settings."""
        settings = self.settings_
        assert settings.release is not None
        landmarks = settings.landmarks
        return Program(
            ProgramSettings(
                mechanism=self._mechanism,
                budget=settings.budget,
                release=settings.release,
                landmarks=landmarks if settings.release == "none" else landmarks or LANDMARKS,
                rounds=settings.rounds,
                noise=settings.chosen_noise(fed),
                seed=settings.seed,
                tau_x=settings.tau_x,
                image=fed.spatial_shape,
                threshold=settings.threshold,
                colluders=settings.colluders,
                retries=settings.retries,
                feddl=settings.feddl_for(fed),
                rows=rows,
                release_share=settings.release_share,
                **further,
            )
        )

    def _carry_out(self, fed: FederatedData, program: Program) -> tuple[Published, Link]:
        """Run a program on sites made of these data; keep what it published."""
        self._claim(fed)
        self.program_ = program
        checkpoint = self._checkpoint
        link = self._link(fed, program.settings.noise)
        try:
            published = link.run(
                program, **self._watched, run=self._run, checkpoint=checkpoint, progress=self._progress
            )
        finally:
            link.close()
        self._keep(fed, published.feddl)
        self._between_machines = self._real is not None
        # A simulation has nothing to sign; and a name tells who took part where that is the unit.
        budget = self.settings_.budget
        named = program.settings.noise == "discrete" and (budget is None or budget.unit != "client")
        self._heads = {each.site: [each.sequence, each.head] for each in published.receipts if named and each.sequence}
        if self._real is not None:
            self._receipts = tuple(sorted(receipt.site for receipt in published.receipts))
            self._data_facts["records"] = round(sum(each.denominator for each in published.contract.members))
        self._remarks, self.landmarks_ = published.remarks, published.landmarks
        self.verdict_ = published.verdict or self._verdict_of(published)
        return published, link

    def _verdict_of(self, published: Published) -> Verdict:
        """Judge rows by their noise; where that is in the records themselves, by coordinates of the rows."""
        if self._mechanism.protection == "home":
            return unjudged("the noise is in the records, and no coordinates were made of them")
        if not published.rows:
            return unjudged("nothing but landmarks was released")
        return verdict_of_rows(np.concatenate(published.rows), published.row_noise)

    @property
    def schema_of_landmarks(self) -> Schema | None:
        """The schema by which a landmark's values are those of columns; None after public features, or without one."""
        return None if self._joined or self._features is not None else self._schema

    def _link(self, fed: FederatedData, noise: str) -> Link:
        """Return the link to real sites, or to sites made of these data."""
        if self._real is not None:
            return self._real
        common: dict[str, Any] = {
            "budget": self.settings_.budget,
            "noise": noise,
            "compare": self.settings_.compare_features,
        }
        if self._processes is not None:
            return started(fed, **common, folder=self._processes)
        folder = None if self._checkpoint is None else self._checkpoint / "sites"
        return simulated(fed, **common, ledger=self._site_ledger, folder=folder, jobs=self._site_jobs)

    @property
    def _site_jobs(self) -> int:
        """Sites that work at the same time; with one, BLAS has all cores."""
        return 1

    def _keep(self, fed: FederatedData, result: FedDLResult) -> None:
        self.feddl_, self.landmarks_, self.ledger_ = result, result.landmarks, result.ledger
        self._clients = [client.own_name for client in fed.clients]
        self._data_facts = public_facts(fed, self.settings_)
        # Vectors of a file are those of the records: a pickle must not have them.
        self._slices, self._joined = fed.index.slices, isinstance(fed.features, Vectors)
        self._features = None if self._joined else fed.features
        self._remarks = ()

    def _check_release(self) -> None:
        """Refuse a release of rows that the budget does not allow."""
        release, budget, tau_x = self.settings_.release, self.settings_.budget, self.settings_.tau_x
        whole = budget is not None and budget.scope == "end-to-end"
        refuse_unprotected(self._mechanism, budget)
        if release == "exact" and budget is not None and whole and self._mechanism.protection != "home":
            raise UnprotectedReleaseError(
                what="release='exact'",
                why="exact rows determine the records",
                spent=0.0,
                budget=budget,
                client="every client",
                hint=_WAYS_OUT,
            )
        if budget is not None and budget.unit != "record":
            raise InvalidParameter("unit of the budget", budget.unit, "record where each record has a row")
        if release != "noisy":
            return
        if budget is None or not whole:
            raise InvalidParameter("budget", budget, "given, with scope 'end-to-end', for release='noisy'")
        if budget.adjacency != "replace-one":
            raise InvalidParameter("adjacency", budget.adjacency, "replace-one for one row a record")
        if tau_x is None:
            raise InvalidParameter(
                "tau_x", None, "given, as a public bound on the norm of records, for release='noisy'"
            )

    def _newcomer(self, X: Array, name: str, program: Program) -> Array:
        """Return the rows of a client that joins after the landmarks are learned: it releases them and nothing else."""
        result = self.feddl_
        if name in result.ledger.clients:
            raise InvalidParameter("name", name, "new: a client of this name has released before")
        if self._mechanism.protection == "home":
            raise ReleaseUnavailable("a client cannot join after input perturbation: its records were not perturbed")
        fed = FederatedData([X], names=[name])
        link = simulated(fed, budget=self.settings_.budget, noise=program.settings.noise)
        # The same plan, for it alone, and random streams of its own.
        member = Member(name, float(len(X)), 1.0, link.members[0].identity.public)
        contract = replace(
            result.contract,
            run=f"{result.contract.run} {name}",
            members=(member,),
            seed=result.contract.seed + len(result.ledger.clients),
            derived="",
        )
        return _joined(link, contract, result, program)

    @property
    def statement_(self) -> Statement:
        """What may be said about privacy, as things stand in the ledger now."""
        simulation = self.settings_.noise == "seeded"
        return state(
            self.ledger_,
            facts=self._facts(),
            remarks=self._remarks,
            simulation=simulation,
            one_machine=not self._between_machines,
        )

    def _facts(self) -> dict[str, Any]:
        """Public facts of the run that are not in the ledger."""
        result = self.feddl_
        return {
            "estimator": type(self).__name__,
            "mechanism": self._mechanism.name,
            "release": self.settings_.release,
            "clients": len(self._clients),
            "ledger": "the server's mirror of the sites' ledgers",
            **self._data_facts,
            **(self._signed_by() if self._between_machines else {}),
            **({"heads": self._heads} if self._heads else {}),
            "landmarks": len(self.landmarks_),
            "rounds": len(result.trace),
            "bandwidth": list(result.public.kernel.gammas),
            "sampling_rate": result.public.sampling_rate,
            "verdict": {**self.verdict_.summary(), "words": self.verdict_.sentence},
        }

    def _signed_by(self) -> dict[str, Any]:
        """Which real sites have signed for all events that are stated of them, and which have not."""
        others = [name for name in self._clients if name not in self._receipts]
        signed = f"signed by sites {', '.join(self._receipts)}" if self._receipts else "signed by no site"
        return {"receipts": signed, **({"unsigned": others} if others else {})}

    def _by_client(self, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return the part of each client, by name, of values in the order of the result."""
        pooled = values if self._rows is None else values[self._rows]
        return {name: pooled[part] for name, part in zip(self._clients, self._slices, strict=True)}

    def _ordered(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values in the order of the clients as the caller has its records: for an array, by its rows."""
        if self._rows is None:
            return values
        placed = np.empty_like(values)
        placed[self._rows] = values
        return placed

    def new_records(self, X: Any, name: str) -> Array:
        """Return records of a client that joins later as they take part: prepared by the schema and the features.

        Parameters
        ----------
        X : array of shape (n, m), or a data frame where there is a schema
        name : str
        """
        if self._joined:
            raise ReleaseUnavailable("new records have no vectors: those of this fit came from a file")
        names = getattr(self, "feature_names_in_", None)
        return new_records(X, name, self.n_features_in_, self._schema, self._features, names)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out who looks on, and where files are: they are of the process that has fitted."""
        state: dict[str, Any] = super().__getstate__()
        kept = {name: value for name, value in state.items() if name not in _OF_THIS_PROCESS}
        settings = kept.get("settings_")
        if settings is not None and settings.epsilon is not None and settings.unit == "client" and "_clients" in kept:
            kept["_clients"] = [
                f"client-{number}" for number in range(len(kept["_clients"]))
            ]  # a name tells who took part
        return kept

    def fit(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:
        """Fit to federated data, or to an array or data frame of numbers. Each estimator has its own.

        Parameters
        ----------
        X : FederatedData, or array or data frame of shape (n, m)
        y : array of shape (n,), optional
            Labels of an array's records, for a density by class; with federated data it is ignored.
        groups : array of shape (n,), optional
            The client of each record of an array; by default there is one.
        """
        raise NotImplementedError


def _spread(budget: Any, epsilon: Any) -> dict[str, Any]:
    if budget is None:
        return {}
    if epsilon is not None:
        raise InvalidParameter("epsilon", epsilon, "left out where there is a budget, which has its own")
    if not isinstance(budget, Budget):
        raise InvalidParameter("budget", budget, "a Budget, such as Budget(2, 1e-5)")
    return budget.to_dict()


def _joined(link: InProcess, contract: Contract, result: FedDLResult, program: Program) -> Array:
    """Ask the last member of a contract, the only one of a link, for its rows."""
    session = Session(link, contract, Mirror(result.ledger))
    session.open()
    noise = program.row_noise(result)
    return session.rows(program.rows_of(result, noise), result.landmarks)[0]
