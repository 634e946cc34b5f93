"""Mechanisms: what a client uploads, and how far one record can move it. One file each, by name in `MECHANISMS`."""

from __future__ import annotations

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.mechanisms.base import BaseMechanism, Mechanism, Message, PlainMechanism, PreparedRecords, Update
from dpfedvis.mechanisms.clipped import ClippedGradientPerturbation
from dpfedvis.mechanisms.gradient import GradientPerturbation, GradientUpload
from dpfedvis.mechanisms.input import InputPerturbation
from dpfedvis.mechanisms.k_means import KMeans
from dpfedvis.mechanisms.mean_embedding import MeanEmbedding
from dpfedvis.mechanisms.published import PublishedFedDL
from dpfedvis.mechanisms.unprotected import HeuristicNoise, LocalSteps, NoPerturbation
from dpfedvis.mechanisms.variable import VariablePerturbation, VariableUpload

MECHANISMS: dict[str, type[Mechanism]] = {
    "none": NoPerturbation,
    "local-steps": LocalSteps,
    "input": InputPerturbation,
    "variable": VariablePerturbation,
    "gradient": GradientPerturbation,
    "clipped": ClippedGradientPerturbation,
    "heuristic": HeuristicNoise,
    "mean-embedding": MeanEmbedding,
    "k-means": KMeans,
    "published": PublishedFedDL,
}


def mechanism(choice: str | Mechanism) -> Mechanism:
    """Return the mechanism of this short name, with default settings; a mechanism is returned as it is."""
    if isinstance(choice, str):
        return MECHANISMS[checks.one_of("mechanism", choice, MECHANISMS)]()
    if isinstance(choice, type) or not hasattr(choice, "message"):
        raise InvalidParameter("mechanism", choice, "a mechanism, such as GradientPerturbation(), or its short name")
    return choice


__all__ = [
    "MECHANISMS",
    "BaseMechanism",
    "ClippedGradientPerturbation",
    "GradientPerturbation",
    "GradientUpload",
    "HeuristicNoise",
    "InputPerturbation",
    "KMeans",
    "LocalSteps",
    "MeanEmbedding",
    "Mechanism",
    "Message",
    "NoPerturbation",
    "PlainMechanism",
    "PreparedRecords",
    "PublishedFedDL",
    "Update",
    "VariablePerturbation",
    "VariableUpload",
    "mechanism",
]
