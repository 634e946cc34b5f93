"""The private view that a real site has of its own records, from the files in its folder."""

from __future__ import annotations

from pathlib import Path

from dpfedvis.numerics.files import FileDamaged, read_arrays
from dpfedvis.numerics.kernels import Array
from dpfedvis.protocol import wire
from dpfedvis.protocol.messages import Place
from dpfedvis.reporting.private_views import OwnRecords, stems_of, write_view
from dpfedvis.site.own_table import OwnTable
from dpfedvis.site.site import PLACES, PUBLISHED

VIEWS = "views"
_CAPTION = (
    "For this site alone: no ε covers it, and nothing of it is sent.\ngrey dots: anchors, which stand for the landmarks"
)


def write_site_view(home: Path, name: str) -> list[Path]:
    """Write the places of a site's own records, with the ids that its schema names, into ``views/`` of its folder."""
    places = read_arrays(home / PLACES)["places"]
    (home / VIEWS).mkdir(mode=0o700, exist_ok=True)
    return write_own_view(home / VIEWS, name, OwnTable.read(home), None, places, published(home))


def write_own_view(
    folder: Path, name: str, table: OwnTable, file: Path | None, places: Array, request: Place
) -> list[Path]:
    """Write the places of the records of a file: the site's own (None), or another one of the same columns."""
    fed = table.federated(table.load(file))
    client = fed.clients[0]
    if len(places) != len(client.X):
        raise FileDamaged(f"{len(places)} places do not fit the {len(client.X)} records of {client.own_name}")
    clusters = None if request.published.centres is None else request.published.clusters_at(places)
    own = OwnRecords(name, places, client.ids, fed.labels_of(client), client.own, clusters)
    stem = stems_of([name if file is None else client.own_name])[0]
    title = f"private view of {name}: for this site alone"
    return write_view(folder, stem, own, anchors=request.published.places, density=None, title=title, caption=_CAPTION)


def published(home: Path) -> Place:
    """Return the request that published the last map at this site."""
    path = home / PUBLISHED
    try:
        request = wire.decode(path.read_bytes())
    except FileNotFoundError:
        raise FileDamaged(f"no map was published at this site yet: there is no {path}") from None
    if not isinstance(request, Place):
        raise FileDamaged(f"{path} is damaged: it publishes no map")
    return request
