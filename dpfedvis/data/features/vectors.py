"""Vectors that were computed elsewhere, such as by a public encoder, joined to records by their ids."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpfedvis.data.checks import as_labels, as_matrix, read_only, refuse_bad
from dpfedvis.data.csv_files import read_csv
from dpfedvis.data.errors import InvalidData, NotFinite, UnreadableFile
from dpfedvis.data.files import read_npz

ENDINGS = (".csv", ".csv.gz", ".npz")


class UnmatchedIds(InvalidData):
    """Ids that cannot be joined: they occur twice, are empty, or have no vector. The message counts them."""


@dataclass(frozen=True, eq=False)
class Vectors:
    """One vector for each id.

    It has what `PublicFeatures` asks for, but it is no function of the records: see `for_ids`.

    Parameters
    ----------
    ids : array of shape (k,)
        Text or whole numbers, each once.
    values : array of shape (k, m')
    name : str
        For people.
    digest : str, optional
        SHA-256 of the file; of ids and values if there is none. The content is private, so that this is for its
        owner only.
    """

    ids: NDArray[Any]
    values: NDArray[Any]
    name: str = "vectors"
    digest: str = ""

    bounds: ClassVar[None] = None
    norm: ClassVar[None] = None
    taken_on_trust: ClassVar[str] = "nobody here can check that each vector was made from its own record alone"

    def __post_init__(self) -> None:
        found = as_matrix(self.values, self.name)
        ids = _as_text(self.ids, len(found), self.name)
        with np.errstate(over="ignore"):
            values = found.astype(np.float32)
        refuse_bad(~np.isfinite(values), self.name, "not finite in float32", NotFinite)
        # Sorted, so that a record is found by bisection.
        order = np.argsort(ids, kind="stable")
        ids = ids[order]
        twice = int((ids[1:] == ids[:-1]).sum())
        if twice:
            raise UnmatchedIds(f"{self.name}: {_counted(twice, 'row')} with an id that an earlier row has")
        if ids[0] == "":  # the smallest text there is
            raise UnmatchedIds(f"{self.name}: 1 row without an id")
        object.__setattr__(self, "ids", read_only(ids))
        object.__setattr__(self, "values", read_only(values[order]))
        object.__setattr__(self, "digest", self.digest or _hashed(ids, self.values))

    @classmethod
    def read(cls, path: str | Path, id_column: str) -> Self:
        """Read vectors from a file.

        Parameters
        ----------
        path : path-like
            A CSV file with a header row, or an NPZ file with the arrays ``ids``, shape (k,), and ``X``, shape (k, m').
        id_column : str
            The column of a CSV file that holds the ids; all others are numbers. Not used for NPZ.
        """
        path = Path(path).expanduser()
        if not path.is_file():
            raise UnreadableFile(f"there is no file {path} with vectors")
        name = path.name.lower()
        if not name.endswith(ENDINGS):
            raise UnreadableFile(f"{path.name}: files with vectors must end in {', '.join(ENDINGS)}")
        npz = name.endswith(".npz")
        table = read_npz(path, label_column="ids") if npz else read_csv(path, label_column=id_column)
        if table.labels is None:
            raise UnreadableFile(f"{path.name} has no ids")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        return cls(table.labels, table.X, f"vectors {path.name}", digest)

    def __call__(self, X: NDArray[Any]) -> NDArray[np.float32]:
        """Refuse: records alone do not tell which vectors are theirs."""
        raise UnmatchedIds(f"{self.name} are joined by ids and cannot be computed from records")

    def for_ids(self, ids: NDArray[Any], what: str) -> NDArray[np.float32]:
        """Return the vectors of one client's records.

        Parameters
        ----------
        ids : array of shape (n,)
            Of the records, in their order.
        what : str
            The client's name, for messages.

        Returns
        -------
        read-only float32 array of shape (n, m')
        """
        wanted = _as_text(ids, len(ids), what)
        at = np.minimum(np.searchsorted(self.ids, wanted), len(self.ids) - 1)
        missing = int((self.ids[at] != wanted).sum())
        if missing:
            raise UnmatchedIds(f"{what} has {_counted(missing, 'record')} whose id has no vector in {self.name}")
        return read_only(self.values[at])

    def __repr__(self) -> str:
        k, width = self.values.shape
        return f"Vectors({self.name!r}, {k} vectors of {width} values)"


def _as_text(ids: NDArray[Any], n: int, what: str) -> NDArray[np.str_]:
    """Return ids, shape (n,), as text. Other kinds of values could be written in several ways."""
    found = as_labels(ids, n, what, noun="ids")
    if found.dtype.kind not in "iuU" and len(found):
        raise InvalidData(f"the ids of {what} are of type {found.dtype}; they must be text or whole numbers")
    return found.astype(np.str_)


def _hashed(ids: NDArray[np.str_], values: NDArray[np.float32]) -> str:
    digest = hashlib.sha256(repr((ids.tolist(), values.shape)).encode())
    digest.update(values.astype("<f4").tobytes())
    return digest.hexdigest()


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")
