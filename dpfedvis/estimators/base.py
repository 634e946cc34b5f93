"""What all estimators over `FederatedData` share: learn the landmarks, then release rows through the door."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from accounting import Budget, Ledger, UnprotectedReleaseError, checks
from accounting.errors import InvalidParameter
from accounting.statement import Statement, state
from dpfedvis.data import FederatedData
from dpfedvis.errors import DpfedvisError
from dpfedvis.federation import Client, ClientPlan, Outbox, Streams, Upload, Witness
from dpfedvis.federation.checkpoint import claim, digest
from dpfedvis.federation.feddl import Callback, FedDL, FedDLResult
from dpfedvis.mechanisms import Mechanism, mechanism
from dpfedvis.mechanisms.rows import Rows
from dpfedvis.numerics.kernels import Array

# Called with the name of a stage, how many parts of it are done, and how many there are.
Progress = Callable[[str, int, int], None]
ReleaseMode = Literal["exact", "noisy", "none"]

_WAYS_OUT = (
    "Ways out: release='noisy', which adds calibrated noise to every row; mechanism='input', which perturbs the "
    "records themselves, so that everything after is post-processing; release='none', where each client places its "
    "own records. Or ask for the paper's narrower claim by name: Budget(..., scope='landmarks'), with ε end to end "
    "stated as ∞"
)


DEFAULT_LANDMARKS = 500


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

    n_landmarks: int | None
    mechanism: Mechanism | str | None
    budget: Budget | None
    release: ReleaseMode | None
    rounds: int
    release_share: float
    tau_x: float | None
    random_state: int
    feddl: Mapping[str, Any] | None
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
            drawn or spent twice, whatever the source of noise. Uploads that have not passed the door yet and records
            perturbed at home are in it: it belongs to the clients, and is to be deleted when the fit is done.
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

    def _claim(self, fed: FederatedData) -> None:
        """Make the checkpoint that of these settings, or refuse one of others before anything in it is used."""
        if self._checkpoint is not None:
            settings = {name: value for name, value in self.get_params(deep=False).items() if name != "n_jobs"}
            claim(self._checkpoint, digest(type(self).__name__, settings, fed.n_clients, fed.n_features))

    def _tick(self, stage: str, done: int, total: int) -> None:
        """Tell that so many parts of a stage are done; 0 when it begins."""
        if self._progress is not None:
            self._progress(stage, done, total)

    def _learn(self, fed: FederatedData, rows: Rows) -> FedDLResult:
        """Run FedDL with room in the budget for the rows, if they are to be noisy."""
        self._check_data(fed)
        chosen = self._chosen
        self._check_release(chosen)
        reserve = {rows.what: (checks.probability("release_share", self.release_share), "release")}
        settings: dict[str, Any] = {
            "landmarks": DEFAULT_LANDMARKS if self.n_landmarks is None else self.n_landmarks,
            "mechanism": chosen,
            "budget": self.budget,
            "rounds": self.rounds,
            "tau_x": self.tau_x,
            "seed": self.random_state,
            "reserve": reserve if self._mode == "noisy" else {},
        }
        further = dict(self.feddl or {})
        # Sensitivities and the statement rest on the estimator's own parameters: they must be the ones that hold.
        if clash := sorted(settings.keys() & further.keys()):
            raise InvalidParameter("feddl", clash, "without what the estimator has parameters of its own for")
        learner = FedDL(**settings, **further)
        self._claim(fed)
        result = learner.run(fed, **self._watched)
        self._keep(fed, result)
        return result

    def _keep(self, fed: FederatedData, result: FedDLResult) -> None:
        self.feddl_, self.landmarks_, self.ledger_ = result, result.landmarks, result.ledger
        self._clients = [client.name for client in fed.clients]
        self._slices = fed.index.slices
        self._remarks = ()

    @property
    def _mode(self) -> ReleaseMode:
        """How rows are released."""
        return "exact" if self.release is None else self.release

    @property
    def _chosen(self) -> Mechanism:
        """How landmarks are learned."""
        return mechanism("gradient" if self.mechanism is None else self.mechanism)

    def _check_data(self, fed: FederatedData) -> None:
        if not isinstance(fed, FederatedData):
            raise InvalidParameter("data", type(fed).__name__, "FederatedData (see FederatedData.split)")

    def _check_release(self, chosen: Mechanism) -> None:
        release, budget = checks.one_of("release", self._mode, ("exact", "noisy", "none")), self.budget
        if release == "none":
            raise ReleaseUnavailable("release='none' is for maps, in which clients can place their own records")
        if release == "exact" and budget is not None and budget.scope == "end-to-end" and chosen.protection != "home":
            raise UnprotectedReleaseError(
                what="release='exact'",
                why="exact rows determine the records",
                spent=0.0,
                budget=budget,
                client="every client",
                hint=_WAYS_OUT,
            )
        if release == "noisy" and (budget is None or budget.scope != "end-to-end"):
            raise InvalidParameter("budget", budget, "given, with scope 'end-to-end', for release='noisy'")
        if release == "noisy" and budget is not None and budget.adjacency != "replace-one":
            raise InvalidParameter("adjacency", budget.adjacency, "replace-one for one row a record")
        if release == "noisy" and budget is not None and budget.unit != "record":
            raise InvalidParameter("unit of the budget", budget.unit, "record for one row a record")
        if release == "noisy" and self.tau_x is None:
            raise InvalidParameter(
                "tau_x", None, "given, as a public bound on the norm of records, for release='noisy'"
            )

    @property
    def _outbox(self) -> Outbox | None:
        """Where the clients of the run keep their rows."""
        return None if self._checkpoint is None else Outbox(self._checkpoint / "outbox")

    def _release(self, rows: Rows, clients: Sequence[Client], outbox: Outbox | None = None) -> list[Array]:
        """Let every client's rows through the door; if an outbox has them already, those."""

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
        result, event = self.feddl_, None
        if self._mode == "noisy" and result.plan is not None and self.tau_x is not None:
            delta = rows.sensitivity(self.tau_x, len(self.landmarks_), result.public.adjacency)
            # Neighbours differ in one row, so that rounding counts for its values only.
            event = result.plan.event(rows.what, client.plan.name, sensitivity=delta, size=rows.width(self.landmarks_))
        return client.rows(rows, self.landmarks_, event, self.tau_x)

    def _row_noise(self, rows: Rows) -> float:
        """Standard deviation of the noise that the rows will carry."""
        plan = self.feddl_.plan
        if self._mode != "noisy" or plan is None or self.tau_x is None:
            return 0.0
        delta = rows.sensitivity(self.tau_x, len(self.landmarks_), self.feddl_.public.adjacency)
        return plan.multipliers[rows.what].sigma * delta

    def _newcomer(self, X: Array, name: str) -> Client:
        """Return a client that joins after the landmarks are learned: it releases rows and nothing else."""
        result = self.feddl_
        if name in result.ledger.clients:
            raise InvalidParameter("name", name, "new: a client of this name has released before")
        plan = ClientPlan(len(result.ledger.clients), name, float(len(X)), 0.0, 1, None)
        if self._chosen.protection == "home":
            raise ReleaseUnavailable("a client cannot join after input perturbation: its records were not perturbed")
        streams = Streams(self.random_state)
        noise = result.plan.noise if result.plan is not None else "seeded"
        return Client(X, plan, mechanism("none"), result.public, streams, noise)

    @property
    def statement_(self) -> Statement:
        """What may be said about privacy, as things stand in the ledger now."""
        return state(self.ledger_, facts=self._facts(), remarks=self._remarks)

    def _facts(self) -> dict[str, Any]:
        """Public facts of the run that are not in the ledger."""
        result = self.feddl_
        return {
            "estimator": type(self).__name__,
            "mechanism": self._chosen.name,
            "release": self._mode,
            "clients": len(self._clients),
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
