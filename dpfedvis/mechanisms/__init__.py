"""Mechanisms: what a client uploads, and how far one record can move it. One file each, by name in `MECHANISMS`."""

from __future__ import annotations

from importlib.metadata import entry_points

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
BUILT_IN = dict(MECHANISMS)  # before others are registered


def mechanism(choice: str | Mechanism) -> Mechanism:
    """Return the mechanism of this short name, with default settings; a mechanism is returned as it is."""
    if isinstance(choice, str):
        return find_mechanism(choice)()
    if isinstance(choice, type) or not hasattr(choice, "message"):
        raise InvalidParameter("mechanism", choice, "a mechanism, such as GradientPerturbation(), or its short name")
    return choice


def find_mechanism(name: str) -> type[Mechanism]:
    """Return the class of this short name: of the registry, or installed as an entry point ``dpfedvis.mechanisms``."""
    if name not in MECHANISMS:
        for entry in entry_points(group="dpfedvis.mechanisms", name=name):
            MECHANISMS[name] = entry.load()
    return MECHANISMS[checks.one_of("mechanism", name, MECHANISMS)]


__all__ = [
    "BUILT_IN",
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
    "find_mechanism",
    "mechanism",
]
