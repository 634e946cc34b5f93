"""How good a map or a clustering is."""

from dpfedvis.evaluation.metrics import (
    MapScores,
    cluster_scores,
    cross_client_accuracy,
    map_scores,
    neighbor_preservation,
)

__all__ = ["MapScores", "cluster_scores", "cross_client_accuracy", "map_scores", "neighbor_preservation"]
