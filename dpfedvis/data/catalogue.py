"""The data sets known by name, and the folders where their files may be."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CatalogueEntry:
    """Public facts about one named data set.

    Attributes
    ----------
    name : str
    records, features, classes : int
    file : str or None
        File name in a data folder; None if scikit-learn carries the data.
    openml : int or None
        OpenML's number of the data set; None if OpenML does not serve it.
    scale : float
        Raw values are divided by this.
    feature_range : (float, float) or None
        Public range after scaling.
    image_shape : tuple of int or None
    group_size : int or None
        Number of consecutive rows that belong to one individual.
    licence : str
    """

    name: str
    records: int
    features: int
    classes: int
    file: str | None
    openml: int | None
    scale: float
    feature_range: tuple[float, float] | None
    image_shape: tuple[int, ...] | None
    licence: str
    group_size: int | None = None


_PIXELS = (0.0, 1.0)

CATALOGUE: dict[str, CatalogueEntry] = {
    entry.name: entry
    for entry in (
        CatalogueEntry("digits", 1797, 64, 10, None, None, 16, _PIXELS, (8, 8), "CC BY 4.0 (UCI 80), as far as known"),
        CatalogueEntry(
            "mnist",
            70000,
            784,
            10,
            "mnist.npz",
            554,
            255,
            _PIXELS,
            (28, 28),
            "CC BY-SA 3.0 (LeCun, Cortes), as far as known",
        ),
        CatalogueEntry(
            "fashion-mnist",
            70000,
            784,
            10,
            "fashion_mnist.npz",
            40996,
            255,
            _PIXELS,
            (28, 28),
            "MIT (Zalando SE)",
        ),
        # Not fetched: OpenML's copy of COIL-20 was never compared with the original.
        CatalogueEntry(
            "coil20",
            1440,
            1024,
            20,
            "coil20.npz",
            None,
            1,
            _PIXELS,
            (32, 32),
            "research use (Columbia); no formal licence found",
        ),
        CatalogueEntry(
            "mice-protein",
            1080,
            77,
            8,
            "mice_protein.npz",
            40966,
            1,
            None,
            None,
            "CC BY 4.0 (UCI 342), unconfirmed",
            group_size=15,
        ),
    )
}


def cache_dir() -> Path:
    """Folder of fetched files: ``$XDG_CACHE_HOME/dpfedvis``, else ``~/.cache/dpfedvis``."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore a relative path.
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "dpfedvis"


def data_folders() -> list[Path]:
    """Folders to search, in order: ``$DPFEDVIS_DATA`` if set, then the cache."""
    own = os.environ.get("DPFEDVIS_DATA", "")
    return ([Path(own).expanduser()] if own else []) + [cache_dir()]


def find_file(entry: CatalogueEntry) -> Path | None:
    """Return the file of a data set on this machine, or None."""
    if entry.file is None:
        return None
    return next((path for folder in data_folders() if (path := folder / entry.file).is_file()), None)
