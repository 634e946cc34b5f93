"""How well clusters match the classes (NMI, ARI), and how well k-means separates a map (silhouette)."""

from __future__ import annotations

from dpfedvis.evaluation.metrics.base import SAMPLE, Evaluated


def nmi(evaluated: Evaluated) -> float:
    """Normalised mutual information of clusters and classes."""
    from sklearn.metrics import normalized_mutual_info_score

    return float(normalized_mutual_info_score(evaluated.classes, evaluated.clusters))


def ari(evaluated: Evaluated) -> float:
    """Adjusted Rand index of clusters and classes."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(evaluated.classes, evaluated.clusters))


def silhouette(evaluated: Evaluated) -> float:
    """Silhouette of the k-means labels, as in the paper: it rises as clusters collapse, so read it beside NMI."""
    from sklearn.metrics import silhouette_score

    size = SAMPLE if evaluated.fed.n_records > SAMPLE else None
    return float(silhouette_score(evaluated.places, evaluated.clusters, sample_size=size, random_state=evaluated.seed))


def agreement_by_chance(evaluated: Evaluated) -> float:
    """No agreement (exact for ARI; NMI of few records is a little above)."""
    return 0.0
