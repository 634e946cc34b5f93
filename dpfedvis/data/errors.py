"""Errors about data: each message names the client, column, count or file that it is about."""

from dpfedvis.errors import DpfedvisError


class DataError(DpfedvisError):
    """Base of all errors about data."""


class InvalidData(DataError):
    """Arrays of the wrong kind, shape or length."""


class NotFinite(InvalidData):
    """NaN or infinite values where numbers are needed."""


class MissingValues(NotFinite):
    """NaN values, and no rule was chosen for filling them."""


class PartitionError(DataError):
    """A way of dealing records to clients that is unknown or cannot be carried out."""


class LabelsNeeded(PartitionError):
    """A partition by class was asked for, and the data have no labels."""


class TooManyClients(PartitionError):
    """More clients than records (or than groups) to deal to them."""


class UnknownDataset(DataError):
    """Neither a name in the catalogue nor a file."""


class DataUnavailable(DataError):
    """A known data set that is neither on this machine nor to be fetched."""


class UnreadableFile(DataError):
    """A file whose content is not what its format promises."""


class UnknownColumn(UnreadableFile):
    """A column (or key) was asked for by a name that the file does not have."""


class NotNumeric(UnreadableFile):
    """A feature column that holds something other than numbers."""


class MissingDependency(DataError):
    """An optional package is needed for this format."""
