"""What is publicly known of federated data: ranges, schema, features, and how records came to their clients."""

from dataclasses import dataclass

from dpfedvis.data.checks import Missing
from dpfedvis.data.records import Origin, PublicFeatures
from dpfedvis.data.schema import Schema


@dataclass(frozen=True)
class PublicFacts:
    """Public facts of federated data.

    Parameters
    ----------
    missing : {"refuse", "client-mean", "public-value"}
        The rule for missing values.
    bounds : (float, float), optional
        Range of every feature.
    norm : float, optional
        Bound on the norm of a record, where there is a sharper one than `bounds` gives.
    class_names : tuple of str
        Names of the labels 0, 1, …; empty if a label is its own name.
    origin : {"memory", "built-in", "file", "federation"}
    dealt : str, optional
        The partition, if rows of one table were dealt by their numbers: one row more then moves others.
    by_label : bool
        Whether labels decided who got which record; sizes of clients then tell of labels.
    image_shape : tuple of int, optional
        Of a record that is an image.
    schema : Schema, optional
        What prepared the records.
    features : PublicFeatures, optional
        What the records were mapped by.
    """

    missing: Missing = "refuse"
    bounds: tuple[float, float] | None = None
    norm: float | None = None
    class_names: tuple[str, ...] = ()
    origin: Origin = "memory"
    dealt: str | None = None
    by_label: bool = False
    image_shape: tuple[int, ...] | None = None
    schema: Schema | None = None
    features: PublicFeatures | None = None

    @property
    def ranges(self) -> str | None:
        """Where the scale of the user's own columns comes from: public or measured, by the schema, or the file."""
        if self.schema is not None:
            return self.schema.ranges
        return "of the file" if self.origin == "file" else None


class WithFacts:
    """Public facts as properties of the data that have them."""

    _facts: PublicFacts

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Public range of every feature, or None."""
        return self._facts.bounds

    @property
    def norm(self) -> float | None:
        """Public bound on the norm of a record; None where only `bounds`, or nothing, gives one."""
        return self._facts.norm

    @property
    def missing(self) -> Missing:
        """The rule for missing values."""
        return self._facts.missing

    @property
    def class_names(self) -> tuple[str, ...]:
        """Public names of the labels 0, 1, …; empty if a label is its own name."""
        return self._facts.class_names

    @property
    def origin(self) -> Origin:
        """Where the records come from: arrays in memory, the catalogue, or a file of the user's."""
        return self._facts.origin

    @property
    def dealt(self) -> str | None:
        """The partition, if rows of one table were dealt by their numbers: one row more then moves others."""
        return self._facts.dealt

    @property
    def dealt_by_label(self) -> str | None:
        """The partition, if labels decided who got which record; sizes of clients then tell of labels."""
        return self._facts.dealt if self._facts.by_label else None

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """Shape of a record that is an image, or None."""
        return self._facts.image_shape

    @property
    def spatial_shape(self) -> tuple[int, ...] | None:
        """Height and width of a record, and values at each place: of an image, or of public features of one; or None.

        Features that keep places say so by an attribute of this name.
        """
        if self._facts.features is None:
            return self._facts.image_shape
        shape: tuple[int, ...] | None = getattr(self._facts.features, "spatial_shape", None)
        return shape

    @property
    def schema(self) -> Schema | None:
        """The public schema that prepared the records, or None."""
        return self._facts.schema

    @property
    def features(self) -> PublicFeatures | None:
        """The public features that the records were mapped by, or None."""
        return self._facts.features

    @property
    def ranges(self) -> str | None:
        """Where the scale of the user's own columns comes from: public or measured, by the schema, or the file."""
        return self._facts.ranges

    @property
    def n_features(self) -> int:
        """Number of features m."""
        raise NotImplementedError

    @property
    def preparation(self) -> str:
        """How records became numbers: hashes of schema and features. It must be the same at all sites.

        Vectors from a file have none: their hash would tell of the records.
        """
        schema, features = self._facts.schema, self._facts.features
        parts = [] if schema is None else [f"schema {schema.sha256}"]
        if features is not None:
            joined = hasattr(features, "taken_on_trust")
            parts.append(f"{self.n_features} values of a file" if joined else f"features {features.digest}")
        return ", ".join(parts)
