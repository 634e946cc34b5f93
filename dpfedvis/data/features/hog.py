"""Histograms of oriented gradients (Dalal and Triggs 2005), in integers, so that every machine finds the same bits.

Each image is mapped by itself, in these steps:

1. Pixels become integers from 0 to 255 by their public range. The right and lower edges are repeated until both sides
   are multiples of a cell.
2. Gradients are differences of the two neighbours of a pixel, with the edges repeated once more.
3. A gradient, up to its sign, lies between two of 8 directions. It is written as a sum of these two, and its two parts
   are its votes.
4. A vote counts for the cells around its pixel, less with distance: the weights form a tent over two cells.
5. The histogram of a cell is divided by the length of the histograms of the 3×3 cells around it.
6. Square roots even out what many and few votes weigh. They are rounded down to 256ths.

Steps 2 to 4 are sums and products of integers. Steps 5 and 6 are single divisions and square roots, which IEEE 754
rounds correctly. Floats are never added up, so that neither other records, nor a BLAS, nor threads can change a bit.
"""

import hashlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from accounting.checks import whole
from accounting.errors import InvalidParameter
from dpfedvis.data.checks import as_matrix, check_bounds, refuse_bad
from dpfedvis.data.errors import InvalidData, NotFinite

# 0, 22.6, 45, 67.4, … degrees, of length 77 to 78. Neighbours all span the same area, 2310, so that the vote of a
# direction falls evenly to both of its sides. Products with gradients stay below 2**15.
DIRECTIONS = ((77, 0), (72, 30), (55, 55), (30, 72), (0, 77), (-30, 72), (-55, 55), (-72, 30))
# The vote of a slope of one grey level a pixel. Fainter ones, such as the noise of a camera, are not blown up.
FAINT = 60
LEVELS = 256  # the values are multiples of 1/256, exact in float32
LARGEST_CELL = 16  # squares of histograms, summed over 3×3 cells, stay below 2**53
SMALL = 16  # pixels: images with a shorter side get cells of 2
BLOCK = 256  # records at a time, for memory
VERSION = 1  # of the function; to be raised when any of its values change


@dataclass(frozen=True)
class Hog:
    """Histograms of oriented gradients of grey images.

    Parameters
    ----------
    shape : (int, int)
        Height and width of the images, whose rows of pixels make up a record.
    pixels : (float, float)
        Public range of the pixels; values outside are clipped.
    cell : int
        Side of a cell, in pixels.
    """

    shape: tuple[int, int]
    pixels: tuple[float, float] = (0.0, 1.0)
    cell: int = 4

    def __post_init__(self) -> None:
        if len(self.shape) != 2:
            raise InvalidData(f"hog needs height and width of grey images, got the shape {self.shape}")
        height, width = (whole("side of an image", side, 1) for side in self.shape)
        low_high = check_bounds(self.pixels)
        if low_high is None or not math.isfinite(low_high[1] - low_high[0]):
            raise InvalidData(f"hog needs the public range of the pixels, such as (0, 1), got {self.pixels!r}")
        object.__setattr__(self, "shape", (height, width))
        object.__setattr__(self, "pixels", low_high)
        object.__setattr__(self, "cell", whole("cell", self.cell, 1, LARGEST_CELL))

    @classmethod
    def choose(cls, setting: str, image_shape: tuple[int, ...] | None, bounds: tuple[float, float] | None) -> Self:
        """Return the feature for data of this shape and public range; a setting such as 28x28 goes before the shape.

        Cells have 4 pixels a side, and 2 in images with a side below 16, which would have too few of them.
        """
        written = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})", setting)
        if setting and written is None:
            raise InvalidParameter("features", f"hog:{setting}", "hog:HEIGHTxWIDTH, such as hog:28x28")
        if written is None and image_shape is None:
            raise InvalidData("hog needs the height and width of the images, and the data have none; write hog:28x28")
        if bounds is None:
            raise InvalidData("hog needs the public range of the pixels, such as (0, 1), and the data have none")
        shape: Any = image_shape if written is None else (int(written[1]), int(written[2]))
        return cls(shape, bounds, 2 if min(shape, default=0) < SMALL else 4)

    @property
    def name(self) -> str:
        """Return what it is called, for people."""
        height, width = self.shape
        return f"hog {height}x{width}" + (f", cells of {self.cell}" if self.cell != 4 else "")

    @property
    def digest(self) -> str:
        """Return the SHA-256 that identifies the function and its settings."""
        facts = ("hog", VERSION, self.shape, self.pixels, self.cell)
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the range of every value."""
        return 0.0, 1.0

    @property
    def cells(self) -> tuple[int, int]:
        """Return how many cells an image has, down and across."""
        height, width = self.shape
        return -(-height // self.cell), -(-width // self.cell)

    @property
    def spatial_shape(self) -> tuple[int, int, int]:
        """Return cells down and across, and values of a cell: neighbouring cells are alike."""
        return (*self.cells, len(DIRECTIONS))

    @property
    def norm(self) -> float:
        """Return a bound on the norm of every output row.

        Proof. Let h be the histogram of a cell, e = ‖h‖², and N at least the sum of e over the 3×3 cells around it.
        The square of an output value is at most h_b/√N, and Σ_b h_b ≤ √8·√e, so that ‖row‖² ≤ √8·Σ√(e/N) over all
        cells. Cut the cells into tiles of 2×2, and of what is left at the ends. Cells of a tile are neighbours of each
        other, so that N ≥ E, the sum of e over the tile. A tile of k cells then adds at most Σ√(e/E) ≤ √k. A tile has
        k = (its rows)·(its columns), so that the sum of √k is that over rows times that over columns. ∎

        Values are rounded down, which adds nothing. Divisions and square roots before that, and those of the bound
        itself, are off by less than 2⁻⁴⁸ of it in all.
        """
        down, across = (side // 2 * math.sqrt(2) + side % 2 for side in self.cells)
        return math.sqrt(math.sqrt(8) * down * across) * (1 + 2**-48)

    def __call__(self, X: ArrayLike) -> NDArray[np.float32]:
        """Return the features of images.

        Parameters
        ----------
        X : array of shape (n, height * width)

        Returns
        -------
        float32 array of shape (n, m')
            With m' = cells down * cells across * 8, in this order.
        """
        images = as_matrix(X, "the array of images", least=0)
        height, width = self.shape
        if images.shape[1] != height * width:
            raise InvalidData(
                f"{self.name} needs records of {height * width} values ({height} times {width} pixels), "
                f"got {images.shape[1]}"
            )
        refuse_bad(~np.isfinite(images), f"the array of images for {self.name}", "not finite", NotFinite)
        down, across = self.cells
        out = np.empty((len(images), down * across * len(DIRECTIONS)), dtype=np.float32)
        for start in range(0, len(images), BLOCK):
            part = slice(start, start + BLOCK)
            out[part] = self._values(self._grey(images[part]))
        return out

    def _grey(self, images: NDArray[Any]) -> NDArray[np.int16]:
        """Return pixels from 0 to 255, shape (n, rows + 2, columns + 2): whole cells, one more pixel at each edge."""
        low, high = self.pixels
        # Elementwise operations only, each rounded correctly.
        levels = np.rint((np.clip(images.astype(np.float64), low, high) - low) / (high - low) * 255)
        height, width = self.shape
        down, across = self.cells
        ends = ((0, 0), (1, 1 + down * self.cell - height), (1, 1 + across * self.cell - width))
        return np.pad(levels.astype(np.int16).reshape(-1, height, width), ends, mode="edge")

    def _values(self, grey: NDArray[np.int16]) -> NDArray[np.float64]:
        """Return the features, shape (n, m'), of padded images."""
        h = np.stack([_pooled(_pooled(each, self.cell), self.cell) for each in _votes(grey)], axis=-1)
        h //= self.cell**2
        n, down, across, _ = h.shape
        energy = np.pad((h * h).sum(axis=-1), ((0, 0), (1, 1), (1, 1)))
        around = np.full((n, down, across), (4 * self.cell**2 * FAINT) ** 2)
        for i in range(3):
            for j in range(3):
                around += energy[:, i : i + down, j : j + across]
        shares = np.sqrt(h / np.sqrt(around)[..., None])
        values: NDArray[np.float64] = np.floor(shares * LEVELS) / LEVELS
        return values.reshape(n, -1)


def _votes(grey: NDArray[np.int16]) -> Iterator[NDArray[np.int16]]:
    """Yield the votes for each direction, shape (n, rows, columns), of images of shape (n, rows + 2, columns + 2).

    Neighbouring directions span the area 2310 = d × d'. A gradient between them is g = ((g × d')·d + (d × g)·d')/2310,
    so that its votes are g × d' for d and d × g for d'. All others are 0.
    """
    right = grey[:, 1:-1, 2:] - grey[:, 1:-1, :-2]
    down = grey[:, 2:, 1:-1] - grey[:, :-2, 1:-1]
    crossed = [x * down - y * right for x, y in DIRECTIONS]  # d × g
    # Orientations have no sign: after the last direction comes the first one, turned round.
    crossed = [-crossed[-1], *crossed, -crossed[0]]
    for before, after in zip(crossed[:-2], crossed[2:], strict=True):
        # Both are above 0 if g lies between the two neighbours of this direction, both below 0 if −g does. The smaller
        # one is that of the neighbour on the side of g.
        yield np.maximum(np.minimum(before, -after), 0) - np.minimum(np.maximum(before, -after), 0)


def _pooled(votes: NDArray[Any], cell: int) -> NDArray[np.int64]:
    """Sum votes of shape (n, rows, columns) over rows, and return shape (n, columns, cells).

    The weights of a cell are a tent of width 2·cell about its middle, in whole numbers: 1, 3, 5, 7, 7, 5, 3, 1 for 4
    pixels. Called twice, it pools over rows and columns and returns shape (n, cells down, cells across).
    """
    n, rows, columns = votes.shape
    padded = np.zeros((n, rows + 2 * cell, columns), dtype=np.int64)
    padded[:, cell:-cell] = votes
    total = np.zeros((n, rows // cell, columns), dtype=np.int64)
    for j in range(3 * cell):
        weight = 2 * cell - abs(2 * (j - cell) + 1 - cell)
        if weight > 0:
            total += weight * padded[:, j : j + rows - cell + 1 : cell]
    return total.swapaxes(1, 2)
