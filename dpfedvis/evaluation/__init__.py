"""How good a map, a clustering or the landmarks are: `metrics` has the registry, `scores` the table of a result."""

from dpfedvis.evaluation.metrics import METRICS, Evaluated, Metric, cross_client_accuracy

__all__ = ["METRICS", "Evaluated", "Metric", "cross_client_accuracy"]
