"""Data sets: loading, splitting among clients, and the records of each client."""

from dpfedvis.data.catalogue import CATALOGUE
from dpfedvis.data.columns import Column, InvalidSchema
from dpfedvis.data.errors import (
    DataError,
    DataUnavailable,
    InvalidData,
    LabelsNeeded,
    MissingDependency,
    MissingValues,
    NotFinite,
    NotNumeric,
    PartitionError,
    TooManyClients,
    UnknownColumn,
    UnknownDataset,
    UnreadableFile,
)
from dpfedvis.data.federated import FederatedData
from dpfedvis.data.loaders import load
from dpfedvis.data.partitions import Partition, partition
from dpfedvis.data.records import ClientRecords, Dataset, RecordIndex
from dpfedvis.data.schema import Schema

__all__ = [
    "CATALOGUE",
    "ClientRecords",
    "Column",
    "DataError",
    "DataUnavailable",
    "Dataset",
    "FederatedData",
    "InvalidData",
    "InvalidSchema",
    "LabelsNeeded",
    "MissingDependency",
    "MissingValues",
    "NotFinite",
    "NotNumeric",
    "Partition",
    "PartitionError",
    "RecordIndex",
    "Schema",
    "TooManyClients",
    "UnknownColumn",
    "UnknownDataset",
    "UnreadableFile",
    "load",
    "partition",
]
