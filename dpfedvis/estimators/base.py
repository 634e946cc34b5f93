"""What all estimators share: settings, the learning of landmarks, the release of rows, the statement."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from accounting import Budget, Ledger, UnprotectedReleaseError, checks
from accounting.errors import InvalidParameter
from accounting.statement import Statement, state
from dpfedvis.data import FederatedData
from dpfedvis.errors import DpfedvisError
from dpfedvis.estimators.known_tables import CLUSTERS, FEDDL, OF_ESTIMATOR, PRIVATE_MAP
from dpfedvis.estimators.settings import LANDMARKS, EstimatorSettings, draws
from dpfedvis.federation import Client, ClientPlan, Outbox, Streams, Upload, Witness
from dpfedvis.federation.checkpoint import claim, digest
from dpfedvis.federation.feddl import Callback, FedDL, FedDLResult
from dpfedvis.federation.noise_plan import Extra
from dpfedvis.federation.preparation import refuse_unprotected
from dpfedvis.mechanisms import mechanism
from dpfedvis.mechanisms.rows import Rows, row_grid
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.layouts import Progress

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
    _remarks: tuple[str, ...] = ()

    def watch(
        self,
        *,
        witness: Witness | None = None,
        callbacks: Sequence[Callback] = (),
        ledger: Ledger | None = None,
        checkpoint: str | Path | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Let others look on when this estimator fits; a clone of it has nobody who does.

        Parameters
        ----------
        witness : Witness, optional
            Sees what the server sees, such as `dpfedvis.runs.upload_reader.Recorder`.
        callbacks : sequence of callables
            Called with (Round, Y) after each round.
        ledger : Ledger, optional
            Where to account, such as a file; by default one in memory, or in the folder of the checkpoint.
        checkpoint : path-like, optional
            Folder to keep what a fit needs to go on after an interruption, with the same settings and data: nothing is
            drawn or spent twice, whatever the source of noise. It holds uploads that are not released yet and records
            perturbed at home, so it belongs to the clients. Delete it when the fit is done.
        progress : callable, optional
            Called with (stage, done, total) in the stages after the rounds.
        """
        self._checkpoint, self._progress = None if checkpoint is None else Path(checkpoint), progress
        self._watched = {
            "witness": witness,
            "callbacks": tuple(callbacks),
            "ledger": ledger,
            "checkpoint": self._checkpoint and self._checkpoint / "landmarks",
        }
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
                values |= _spread(value)
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

    def _resolve(self, fed: FederatedData) -> FederatedData:
        """Make all open choices, and check the data, before anything is released; return the data as they take part."""
        if not isinstance(fed, FederatedData):
            raise InvalidParameter("data", type(fed).__name__, "FederatedData (see FederatedData.split)")
        self.settings_ = self.settings().resolved(fed)
        self._mechanism = self.settings_.made_mechanism()
        budget = self.settings_.budget
        # Where the unit is a whole client, a name in the ledger would tell that it took part.
        return fed if budget is None or budget.unit == "record" else fed.with_neutral_names()

    @classmethod
    def of(cls, settings: EstimatorSettings) -> Self:
        """Return the estimator with these settings."""
        values: dict[str, Any] = {}
        for name in inspect.signature(cls).parameters:
            target = cls._names.get(name, name)
            if name == "budget":
                values[name] = settings.budget
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
            claim(self._checkpoint, digest(type(self).__name__, facts, fed.n_clients, fed.n_features))

    def _tick(self, stage: str, done: int, total: int) -> None:
        """Tell that so many parts of a stage are done; 0 when it begins."""
        if self._progress is not None:
            self._progress(stage, done, total)

    def _learn(self, fed: FederatedData, rows: Rows) -> FedDLResult:
        """Run FedDL with room in the budget for the rows, if they are to be noisy."""
        self._check_release()
        settings = self.settings_
        learner = FedDL(
            landmarks=settings.landmarks or LANDMARKS,
            mechanism=self._mechanism,
            budget=settings.budget,
            rounds=settings.rounds,
            tau_x=settings.tau_x,
            seed=settings.seed,
            noise=settings.chosen_noise(fed),
            reserve=self._reserve(rows, fed),
            **settings.feddl,
        )
        self._claim(fed)
        result = learner.run(fed, **self._watched)
        self._keep(fed, result)
        return result

    def _reserve(self, rows: Rows, fed: FederatedData) -> dict[str, Extra]:
        """Return the release of noisy rows, which shares the budget. A record changes the values of its own row."""
        settings = self.settings_
        if settings.release != "noisy":
            return {}
        width = max(settings.landmarks or LANDMARKS, fed.n_features)
        return {rows.what: Extra(settings.release_share, "release", width)}

    def _keep(self, fed: FederatedData, result: FedDLResult) -> None:
        self.feddl_, self.landmarks_, self.ledger_ = result, result.landmarks, result.ledger
        self._clients = [client.own_name for client in fed.clients]
        self._public_records = self._size(fed)
        self._slices = fed.index.slices
        self._remarks = ()

    def _size(self, fed: FederatedData) -> int | None:
        """Public number of records under a budget for records; None where there is none."""
        budget = self.settings_.budget
        if budget is None or budget.unit == "client":
            return None
        return fed.n_clients * self.settings_.feddl["public_records"] if budget.hides_records else fed.n_records

    def _check_release(self) -> None:
        """Refuse a release of rows that the budget does not allow."""
        release, budget, tau_x = self.settings_.release, self.settings_.budget, self.settings_.tau_x
        if release == "none":
            raise ReleaseUnavailable("release='none' is for maps, in which clients can place their own records")
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
        if release != "noisy":
            return
        if budget is None or not whole:
            raise InvalidParameter("budget", budget, "given, with scope 'end-to-end', for release='noisy'")
        if budget.adjacency != "replace-one":
            raise InvalidParameter("adjacency", budget.adjacency, "replace-one for one row a record")
        if budget.unit != "record":
            raise InvalidParameter("unit of the budget", budget.unit, "record for one row a record")
        if tau_x is None:
            raise InvalidParameter(
                "tau_x", None, "given, as a public bound on the norm of records, for release='noisy'"
            )

    @property
    def _outbox(self) -> Outbox | None:
        """Where the clients of the run keep their rows."""
        return None if self._checkpoint is None else Outbox(self._checkpoint / "outbox")

    def _release(self, rows: Rows, clients: Sequence[Client], outbox: Outbox | None = None) -> list[Array]:
        """Release every client's rows: those in the outbox, or new ones."""

        def make() -> list[Upload]:
            uploads: list[Upload] = []
            self._tick("rows", 0, len(clients))
            for client in clients:
                uploads.append(self._row_upload(rows, client))
                self._tick("rows", len(uploads), len(clients))
            return uploads

        uploads = make() if outbox is None else outbox.get_or_create(rows.what, 0, make)
        return [self.feddl_.door.release([upload], upload.values.shape)[0] for upload in uploads]

    def _row_upload(self, rows: Rows, client: Client) -> Upload:
        event, tau_x = None, self.settings_.tau_x
        if (delta := self._row_sensitivity(rows)) is not None and (plan := self.feddl_.plan) is not None:
            event = plan.event(
                rows.what,
                client.plan.name,
                sensitivity=delta,
                grid=rows.cell(row_grid(checks.positive("tau_x", tau_x or 0.0), self.landmarks_)),
                values=rows.width(self.landmarks_),
            )
        # Exact rows are those of the records as they are.
        return client.rows(rows, self.landmarks_, event, None if event is None else tau_x)

    def _row_sensitivity(self, rows: Rows) -> float | None:
        """How far one record moves its row, with the rounding of each of its values; None if rows carry no noise."""
        tau_x, Y = self.settings_.tau_x, self.landmarks_
        if self.settings_.release != "noisy" or tau_x is None:
            return None
        exact = rows.sensitivity(tau_x, len(Y), self.feddl_.public.adjacency)
        return exact + rows.cell(row_grid(tau_x, Y)) * math.sqrt(rows.width(Y))

    def _row_noise(self, rows: Rows) -> float:
        """Standard deviation of the noise that the rows will carry."""
        delta, plan = self._row_sensitivity(rows), self.feddl_.plan
        return 0.0 if delta is None or plan is None else plan.multipliers[rows.what].sigma * delta

    def _newcomer(self, X: Array, name: str) -> Client:
        """Return a client that joins after the landmarks are learned: it releases rows and nothing else."""
        result = self.feddl_
        if name in result.ledger.clients:
            raise InvalidParameter("name", name, "new: a client of this name has released before")
        plan = ClientPlan(len(result.ledger.clients), name, float(len(X)), 0.0, 1)
        if self._mechanism.protection == "home":
            raise ReleaseUnavailable("a client cannot join after input perturbation: its records were not perturbed")
        streams = Streams(self.settings_.seed)
        noise = result.plan.noise if result.plan is not None else "seeded"
        return Client(X, plan, mechanism("none"), result.public, streams, noise)

    @property
    def statement_(self) -> Statement:
        """What may be said about privacy, as things stand in the ledger now."""
        simulation = self.settings_.noise == "seeded"
        return state(self.ledger_, facts=self._facts(), remarks=self._remarks, simulation=simulation)

    def _facts(self) -> dict[str, Any]:
        """Public facts of the run that are not in the ledger."""
        result = self.feddl_
        return {
            "estimator": type(self).__name__,
            "mechanism": self._mechanism.name,
            "release": self.settings_.release,
            "clients": len(self._clients),
            **({} if self._public_records is None else {"records": self._public_records}),
            "landmarks": len(self.landmarks_),
            "rounds": len(result.trace),
            "bandwidth": list(result.public.kernel.gammas),
            "sampling_rate": result.public.sampling_rate,
        }

    def _by_client(self, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
        return {name: values[part] for name, part in zip(self._clients, self._slices, strict=True)}

    def fit(self, fed: FederatedData, y: None = None) -> Self:
        """Fit to federated data; `y` is there for scikit-learn and ignored. Each estimator has its own."""
        raise NotImplementedError


def as_new_records(X: Any, features: int) -> Array:
    """Return records of a client that joins later, shape (n, m), float32; named errors for anything else."""
    records = np.asarray(X, dtype=np.float32)
    if records.ndim != 2 or records.shape[1] != features:
        raise InvalidParameter("shape of the new records", records.shape, f"(n, {features})")
    if not len(records):
        raise InvalidParameter("number of new records", 0, "at least 1")
    if not np.isfinite(records).all():
        raise InvalidParameter("the new records", "nan or inf", "finite")
    return records


def _spread(budget: Any) -> dict[str, Any]:
    if budget is None:
        return {}
    if not isinstance(budget, Budget):
        raise InvalidParameter("budget", budget, "a Budget, such as Budget(2, 1e-5)")
    return budget.to_dict()
