"""A site's own table: the file that site.toml names, prepared by the public schema beside it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.data import Dataset, FederatedData, Schema, load
from dpfedvis.data.features import compared_by, with_features
from dpfedvis.site.folder import POLICY, write_records
from dpfedvis.site.policy import Policy

TABLE, SCHEMA = "site.toml", "schema.toml"
_SETTINGS = ("data", "features", "compare_features")


@dataclass(frozen=True)
class OwnTable:
    """What site.toml says.

    Parameters
    ----------
    folder : Path
        Of the site.
    data : Path
        The file; relative to the folder.
    features, compare_features : str, optional
        Public features by name: what takes part, and what records are compared by at home.
    """

    folder: Path
    data: Path
    features: str | None = None
    compare_features: str | None = None

    @classmethod
    def read(cls, folder: str | Path) -> OwnTable:
        """Read site.toml in the folder of a site."""
        folder = Path(folder)
        path = folder / TABLE
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise InvalidParameter("site", str(path), f"a readable TOML file ({error})") from None
        for name, value in values.items():
            checks.one_of(f"setting of {TABLE}", name, _SETTINGS)
            checks.text(f"{TABLE}: {name}", value)
        if not values.get("data"):
            raise InvalidParameter(f"{path}: data", values.get("data"), "the file with the records of this site")
        return cls(folder, folder / values.pop("data"), **values)

    def load(self, path: Path | None = None) -> Dataset:
        """Read the file, or another one of the same columns."""
        return load(self.data if path is None else path, schema=Schema.read(self.folder / SCHEMA))

    def federated(self, dataset: Dataset) -> FederatedData:
        """Return records as they take part: one client, with the public features."""
        return with_features(FederatedData.from_dataset(dataset), self.features, None)

    def prepare(self, name: str) -> Dataset:
        """Read the file, and keep its records as they take part in the folder of the site; return what was read."""
        dataset = self.load()
        fed = self.federated(dataset)
        if fed.n_clients != 1:
            raise InvalidParameter(f"clients of {self.data.name}", fed.n_clients, "1: a site is one client")
        client, compared = fed.clients[0], compared_by(fed, self.compare_features)
        write_records(
            self.folder,
            name,
            client.X,
            fed.labels_of(client),
            Policy.read(self.folder / POLICY),
            persons=client.persons,
            compared=None if compared is None else compared[0],
            preparation=fed.preparation,
        )
        return dataset
