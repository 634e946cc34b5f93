"""The private map (billboard model): the server publishes a map, and each client places its own records.

One budget covers all uploads: scale, moments, second moments, landmarks and, if asked for, a density. Placing records
in the published map happens at the client and costs nothing.
"""

from dpfedvis.federation.private_map.density import Density, DensityGrid
from dpfedvis.federation.private_map.learner import Learned, Learner, Shares, landmarks_for
from dpfedvis.federation.private_map.placement import Anchored, ByTransform, ByWeights, Diffused, Placement, placement
from dpfedvis.federation.private_map.published_map import PublishedMap
from dpfedvis.federation.private_map.recipe import Recipe
from dpfedvis.federation.private_map.subspace import Subspace

__all__ = [
    "Anchored",
    "ByTransform",
    "ByWeights",
    "Density",
    "DensityGrid",
    "Diffused",
    "Learned",
    "Learner",
    "Placement",
    "PublishedMap",
    "Recipe",
    "Shares",
    "Subspace",
    "landmarks_for",
    "placement",
]
