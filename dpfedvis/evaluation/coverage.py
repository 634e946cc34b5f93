"""Whether the anchors of a map lie where records are: the truth, which only a simulation knows."""

from __future__ import annotations

import numpy as np

from dpfedvis.numerics.kernels import Array

NEIGHBOURS = 5
MOST = 4000  # records that are compared


def anchor_coverage(anchors: Array, records: Array, generator: np.random.Generator) -> float:
    """Return the share of anchors that lie among the records.

    An anchor does if some record is nearer to it than to its own fifth nearest record: the precision of generated
    points of Kynkäänniemi et al. (2019). The radius falls as records get more, so at most `MOST` of them are compared,
    drawn at random.

    Parameters
    ----------
    anchors : array of shape (k, d)
    records : array of shape (n, d)
        Coordinates in the map's subspace.
    generator : numpy.random.Generator
    """
    from sklearn.metrics import pairwise_distances_chunked
    from sklearn.neighbors import NearestNeighbors

    if len(records) > MOST:
        records = records[generator.permutation(len(records))[:MOST]]
    k = min(NEIGHBOURS, len(records) - 1)
    if k < 1:
        return 0.0
    reach = NearestNeighbors(n_neighbors=k + 1).fit(records).kneighbors(records)[0][:, -1]
    covered = [(part <= reach).any(axis=1) for part in pairwise_distances_chunked(anchors, records)]
    return float(np.concatenate(covered).mean())
