"""The exact objective of a run, from the records: for simulations and studies, never for the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dpfedvis.data import FederatedData
from dpfedvis.numerics.kernels import Array, Kernel
from dpfedvis.numerics.mmd import Estimator, self_similarity, similarity
from dpfedvis.server.feddl import FedDLResult


class ExactObjective:
    """F(Y) = Σ_p ω_p f_p(Y)."""

    def __init__(
        self, fed: FederatedData, weights: Sequence[float], kernel: Kernel, estimator: Estimator = "unbiased"
    ) -> None:
        self._clients = [client.X for client in fed.clients]
        self._weights, self._kernel, self._estimator = weights, kernel, estimator
        # The terms in X alone never change. A single record has no pair: its unbiased term is set to 0.
        self._own = [
            self_similarity(X, kernel, estimator=estimator) if len(X) > 1 or estimator == "biased" else 0.0
            for X in self._clients
        ]

    def __call__(self, Y: Array) -> float:
        """Return F(Y)."""
        landmarks = self_similarity(Y, self._kernel, estimator=self._estimator)
        cross = [similarity(X, Y, self._kernel) for X in self._clients]
        return sum(
            weight * (own - 2 * both + landmarks)
            for weight, own, both in zip(self._weights, self._own, cross, strict=True)
        )


def exact_trace(fed: FederatedData, result: FedDLResult, landmarks: Mapping[int, Array]) -> dict[int, float]:
    """Return F(Y) after each round.

    Parameters
    ----------
    fed : FederatedData
        The records of the run.
    result : FedDLResult
    landmarks : mapping of int to array of shape (n_y, m)
        Y after each round, as `dpfedvis.server.callbacks.KeepLandmarks` keeps them.
    """
    weights = [member.weight for member in result.contract.members]
    objective = ExactObjective(fed, weights, result.public.kernel, result.public.estimator)
    return {number: objective(Y) for number, Y in landmarks.items()}
