"""One site's own private view of a map: where each of its records lies, for that site alone.

    STEM.csv   id, place and cluster of each record
    STEM.png   the published map with the records on top
    STEM.html  the same as a page, coloured by any column of the site's own file

No ε covers these files, and nothing of them is sent. The table holds the ids of the site's file, so that both can be
joined, and no other text. An id that a spreadsheet would run as a formula begins with an
apostrophe; see `in_spreadsheet`.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accounting.errors import InvalidParameter
from dpfedvis.numerics.files import write_text
from dpfedvis.numerics.kernels import Array
from dpfedvis.numerics.plain_text import in_spreadsheet
from dpfedvis.protocol.density import Density
from dpfedvis.reporting import interactive_maps
from dpfedvis.reporting.density_figures import draw_private_view
from dpfedvis.reporting.drawing import plain, save_png
from dpfedvis.reporting.rendering import render_html
from dpfedvis.reporting.run_facts import Cloud, Grouping
from dpfedvis.reporting.run_figures import draw_map

HEAD = ("id", "x", "y", "cluster")
LONGEST, NAMELESS = 100, "site"  # bytes of a stem, which leaves room for endings; the stem of a name without letters


@dataclass(frozen=True, eq=False)
class OwnRecords:
    """What a site knows of its own records.

    Parameters
    ----------
    name : str
        Of the site.
    places : array of shape (n, 2)
        On the map; NaN for a record whose placement failed.
    ids : text array of shape (n,), optional
        Of the site's own file.
    labels : text array of shape (n,), optional
        Classes by name.
    columns : mapping of str to array of shape (n,)
        The site's own file: text, or numbers with NaN where one is missing.
    clusters : array of int of shape (n,), optional
    """

    name: str
    places: Array
    ids: NDArray[np.str_] | None
    labels: NDArray[np.str_] | None
    columns: Mapping[str, NDArray[Any]]
    clusters: NDArray[np.integer[Any]] | None = None

    def __post_init__(self) -> None:
        if self.places.ndim != 2 or self.places.shape[1] != 2:
            raise InvalidParameter("places", self.places.shape, "an array of shape (n, 2)")
        known = (("ids", self.ids), ("labels", self.labels), ("clusters", self.clusters), *self.columns.items())
        for name, each in known:
            if each is not None and each.shape != (len(self.places),):
                raise InvalidParameter(name, each.shape, f"one value for each of {len(self.places)} records")

    @property
    def placed(self) -> NDArray[np.bool_]:
        """Whether a record has a place, shape (n,)."""
        return np.asarray(np.isfinite(self.places).all(axis=1))


def write_view(
    folder: Path,
    stem: str,
    own: OwnRecords,
    *,
    anchors: Array | None,
    density: Density | None,
    title: str,
    caption: str,
) -> list[Path]:
    """Write the three files of a site's private view.

    Parameters
    ----------
    folder : Path
        Made if it is missing.
    stem : str
        Name of the files without their endings; see `stems_of`.
    own : OwnRecords
    anchors : array of shape (k, 2), optional
        Their places on the published map; None for a map that publishes none.
    density : Density, optional
        None if it was not released.
    title, caption : str
        The caption says what the public part costs.

    Returns
    -------
    list of Path
        The table, the picture and the page.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table, picture, page = (folder / f"{stem}.{ending}" for ending in ("csv", "png", "html"))
    write_text(table, _table(own))
    _draw(picture, own, anchors, density, title, caption)
    write_text(page, _page(stem, own, anchors, density, title, caption))
    return [table, picture, page]


def stems_of(names: Sequence[str]) -> list[str]:
    """Return a name for the files of each site: its own name, as far as a file can have it.

    Letters and digits of any alphabet, ``.``, ``_`` and ``-`` stay. All are distinct, also where a file system does not
    tell capitals apart, and at most 100 bytes long.
    """
    stems: list[str] = []
    taken: set[str] = set()
    for name in names:
        letters = (each if each.isalnum() or each in "._-" else "_" for each in unicodedata.normalize("NFC", name))
        clean = "".join(letters).lstrip(".") or NAMELESS
        stem, number = _cut(clean, LONGEST), 1
        while stem.casefold() in taken:
            number += 1
            stem = _cut(clean, LONGEST - len(f"-{number}")) + f"-{number}"
        stems.append(stem)
        taken.add(stem.casefold())
    return stems


def _cut(text: str, size: int) -> str:
    return text.encode()[:size].decode(errors="ignore")


def _table(own: OwnRecords) -> str:
    """Return the CSV; a record without a place has neither x nor y."""
    count = len(own.places)
    ids = range(count) if own.ids is None else map(in_spreadsheet, own.ids.tolist())
    clusters = [""] * count if own.clusters is None else own.clusters.tolist()  # a record without a place: -1
    places = own.places.astype(np.float64).tolist()
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEAD)
    for each, place, found, cluster in zip(ids, places, own.placed.tolist(), clusters, strict=True):
        writer.writerow([each, *(place if found else ("", "")), "" if cluster == -1 else cluster])
    return text.getvalue()


def _draw(
    path: Path, own: OwnRecords, anchors: Array | None, density: Density | None, title: str, caption: str
) -> None:
    if anchors is not None:
        # Where records have clusters, these are what the picture is for.
        name, groups = ("class", own.labels) if own.clusters is None else ("cluster", own.clusters.astype(np.str_))
        told = {"title": plain(title), "caption": plain(caption), "named": name}
        draw_private_view(anchors, density, own.places, groups, path, **told)
        return
    found = own.placed
    known = {"cluster": own.clusters, "class": own.labels}
    groupings = {name: Grouping.of(each[found]) for name, each in known.items() if each is not None}
    # A figure of no points still needs one, which lies nowhere.
    cloud = (
        Cloud(own.places[found], "record", groupings) if found.any() else Cloud(np.full((1, 2), np.nan), "record", {})
    )
    save_png(draw_map(cloud, title, caption=caption), path)


def _page(stem: str, own: OwnRecords, anchors: Array | None, density: Density | None, title: str, caption: str) -> str:
    made = [("class", own.labels), ("cluster", None if own.clusters is None else own.clusters.astype(np.str_))]
    columns = dict(own.columns)
    first: list[tuple[str, NDArray[Any]]] = []
    for name, values in made:
        if values is not None:
            # Classes mostly are a column of the file: shown once, under their own name, and first.
            same = _same(columns, values)
            first.append((name, values) if same is None else (same, columns.pop(same)))
    spec = interactive_maps.own(
        own.places,
        own.ids,
        [*first, *columns.items()],
        anchors,
        measured=density,
        first=len(first),
        noun=None if own.ids is None else _same(columns, own.ids),
        note=f"{title}; no ε covers it",
    )
    placed = int(own.placed.sum())
    return render_html(
        "view.html",
        title=title,
        caption=caption,
        name=own.name,
        stem=stem,
        records=len(own.places),
        placed=placed,
        anchors=None if anchors is None else len(anchors),
        has_ids=own.ids is not None,
        columns=len(own.columns),
        view=spec,
        figures={"map": spec} if placed else {},
    )


def _same(columns: Mapping[str, NDArray[Any]], values: NDArray[Any]) -> str | None:
    """Return the name of the text column that has these values."""
    for name, column in columns.items():
        if column.dtype.kind == "U" and np.array_equal(column, values):
            return name
    return None
