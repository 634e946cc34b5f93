"""The billboard model: the server publishes a map of protected landmarks, and each client places its own records.

Everything that leaves a client is inside one budget: scale, moments, second moments, landmarks and, if asked for, a
density. What a client does with the published map at home costs nothing.
"""

from dpfedvis.billboard.board import Billboard
from dpfedvis.billboard.density import Density, Grid
from dpfedvis.billboard.learn import Learned, Learner, Shares, landmarks_for
from dpfedvis.billboard.placement import Anchored, ByWeights, Diffused, Placement, placement
from dpfedvis.billboard.recipe import Recipe
from dpfedvis.billboard.subspace import Subspace
from dpfedvis.billboard.transforms import ByTransform, ByUMAPTransform

__all__ = [
    "Anchored",
    "Billboard",
    "ByTransform",
    "ByUMAPTransform",
    "ByWeights",
    "Density",
    "Diffused",
    "Grid",
    "Learned",
    "Learner",
    "Placement",
    "Recipe",
    "Shares",
    "Subspace",
    "landmarks_for",
    "placement",
]
