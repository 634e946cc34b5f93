"""Metrics: how good a map, a clustering or the landmarks are. One line of `METRICS` each.

Tables, pages, sweeps and the comparison with the paper all use this registry.
"""

from __future__ import annotations

from functools import partial
from math import sqrt

from dpfedvis.evaluation.metrics import classes, clusters, landmarks, neighbors
from dpfedvis.evaluation.metrics.base import KS, Evaluated, Metric, Need, true_neighbors
from dpfedvis.evaluation.metrics.classes import cross_client_accuracy

_MAP: tuple[Need, ...] = ("map",)
_CLASSES: tuple[Need, ...] = ("map", "classes")
_CLUSTERS: tuple[Need, ...] = ("clusters", "classes")
_LANDMARKS: tuple[Need, ...] = ("landmarks",)

METRICS: dict[str, Metric] = {
    metric.key: metric
    for metric in (
        Metric("ca_cross_10", "CA across clients, 10-NN", "class accuracy of 10-NN among other clients' records",
               partial(classes.accuracy_across_clients, k=10), _CLASSES, chance=classes.largest_class, curve=True),
        Metric("ca_shared_10", "CA across clients, shared classes",
               "class accuracy of 10-NN among other clients' records, over classes that others hold",
               partial(classes.accuracy_of_shared_classes, k=10), _CLASSES,
               chance=classes.one_of_the_classes),
        Metric("purity_10", "purity, 10-NN", "share of a point's 10 nearest that are of its class, mean over classes",
               partial(classes.purity, k=10), _CLASSES, chance=classes.one_of_the_classes),
        *(
            Metric(f"ca_{k}", f"CA, {k}-NN", f"class accuracy of {k}-NN in the map (CA)",
                   partial(classes.accuracy, k=k), _CLASSES, chance=classes.largest_class, curve=k == 10,
                   paper=f"CA {k}-NN")
            for k in KS
        ),
        *(
            Metric(f"npa_{k}", f"NPA, {k}-NN", f"neighbours kept among {k} (NPA)",
                   partial(neighbors.preservation, k=k), _MAP, chance=partial(neighbors.preservation_by_chance, k=k),
                   curve=k == 10, paper=f"NPA {k}-NN")
            for k in KS
        ),
        Metric("npa_home_10", "NPA at home, 10-NN", "neighbours kept among 10, each client among its own records",
               partial(neighbors.preservation_at_home, k=10), _MAP,
               chance=partial(neighbors.preservation_at_home_by_chance, k=10)),
        Metric("nmi", "NMI", "NMI of k-means in the map",
               clusters.nmi, _CLUSTERS, chance=clusters.agreement_by_chance, curve=True, paper="NMI"),
        Metric("ari", "ARI", "ARI of k-means in the map",
               clusters.ari, _CLUSTERS, chance=clusters.agreement_by_chance, limits=(-0.5, 1.0), paper="ARI"),
        Metric("silhouette", "silhouette", "silhouette of the k-means labels",
               clusters.silhouette, _CLASSES, limits=(-1.0, 1.0), paper="SC"),
        Metric("trustworthiness", "trustworthiness", "trustworthiness",
               neighbors.trustworthiness, _MAP, chance=neighbors.trust_by_chance),
        Metric("continuity", "continuity", "continuity",
               neighbors.continuity, _MAP, chance=neighbors.trust_by_chance),
        Metric("mmd", "MMD at the run's kernel", "MMD between records and landmarks (lower is better)",
               landmarks.mmd, _LANDMARKS, higher=False, limits=(0.0, sqrt(2))),
        Metric("mmd_common", "MMD of the landmarks",
               "MMD, at one kernel for all runs on the same records (lower is better)",
               partial(landmarks.mmd, common=True), _LANDMARKS, higher=False, limits=(0.0, sqrt(2)), curve=True),
        Metric("certificate", "certificate at the run's kernel", "Nyström certificate by record (lower is better)",
               landmarks.certificate, _LANDMARKS, higher=False),
        Metric("certificate_common", "certificate per record",
               "Nyström certificate by record, at one kernel for all runs (lower is better)",
               partial(landmarks.certificate, common=True), _LANDMARKS, higher=False, curve=True),
    )
}  # fmt: skip

__all__ = ["KS", "METRICS", "Evaluated", "Metric", "Need", "cross_client_accuracy", "true_neighbors"]
