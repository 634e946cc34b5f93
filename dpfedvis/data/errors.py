"""Errors about data. Each message names the client, column, count or file."""

from dpfedvis.errors import DpfedvisError


class DataError(DpfedvisError):
    """Base of all errors about data."""


class InvalidData(DataError):
    """Arrays of the wrong kind, shape or length."""


class NotFinite(InvalidData):
    """NaN or infinite values where numbers are needed."""


class MissingValues(NotFinite):
    """NaN values without a rule for filling them."""


class PartitionError(DataError):
    """An unknown or impossible way of splitting records among clients."""


class LabelsNeeded(PartitionError):
    """A partition by class needs labels, and the data have none."""


class TooManyClients(PartitionError):
    """More clients than records (or groups)."""


class UnknownDataset(DataError):
    """Neither a name in the catalogue nor a file."""


class DataUnavailable(DataError):
    """A known data set that is not on this machine and cannot be fetched."""


class UnreadableFile(DataError):
    """A file whose content is not what its format promises."""


class UnknownColumn(UnreadableFile):
    """The file has no column (or key) of this name."""


class NotNumeric(UnreadableFile):
    """A feature column that holds something other than numbers."""


class MissingDependency(DataError):
    """An optional package is needed for this format."""
