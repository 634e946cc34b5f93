"""Federated data from arrays: names, types, labels, and what is refused with the client's name."""

import dataclasses

import numpy as np
import pytest

from dpfedvis.data import FederatedData, InvalidData, MissingValues, NotFinite
from dpfedvis.errors import DpfedvisError


def test_counts_and_default_names():
    fed = FederatedData([np.zeros((3, 2)), np.ones((5, 2))], [[0, 1, 1], [2] * 5])
    assert (fed.n_clients, fed.n_records, fed.n_features, fed.records) == (2, 8, 2, (3, 5))
    assert [client.name for client in fed.clients] == ["client-0", "client-1"]
    assert fed.clients[1].y.tolist() == [2] * 5
    assert fed.index.slices == (slice(0, 3), slice(3, 8))
    assert fed.index.rows.tolist() == list(range(8))


def test_names_are_kept_and_must_differ():
    parts = [np.zeros((1, 1)), np.zeros((2, 1))]
    assert [c.name for c in FederatedData(parts, names=["a", "b"]).clients] == ["a", "b"]
    with pytest.raises(InvalidData, match="two clients are named 'a'"):
        FederatedData(parts, names=["a", "a"])
    with pytest.raises(InvalidData, match="2 clients and 3 names"):
        FederatedData(parts, names=["a", "b", "c"])


def test_arrays_are_float32_contiguous_and_read_only_by_default():
    X = np.asfortranarray(np.arange(12.0).reshape(4, 3))
    fed = FederatedData([X], [np.zeros(4)])
    (client,) = fed.clients
    assert client.X.dtype == np.float32
    assert client.X.flags.c_contiguous
    with pytest.raises(ValueError, match="read-only"):
        client.X[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        client.y[0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        client.name = "other"


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_array_of_the_right_kind_is_not_copied_and_stays_writable(dtype):
    X = np.ones((4, 3), dtype=dtype)
    fed = FederatedData([X], dtype=dtype)
    assert np.shares_memory(fed.clients[0].X, X)
    X[0, 0] = 2.0


@pytest.mark.parametrize("dtype", [np.float16, np.int64, "U3"])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(InvalidData, match="float32 or float64"):
        FederatedData([np.ones((2, 2))], dtype=dtype)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "at least one client"),
        ([np.zeros(3)], r"client-0 must be 2-D .* shape \(3,\)"),
        ([np.zeros((2, 2)), np.zeros((2, 3))], "client-1 has 3 features and client-0 has 2"),
        ([np.zeros((2, 0))], "client-0 has no features"),
        ([np.array([["a", "b"]])], "client-0 holds values of type <U1"),
        ([np.zeros((2, 2), dtype=complex)], "client-0 holds values of type complex128"),
        ([[[1, 2], [3]]], "client-0 is not a rectangular array"),
    ],
)
def test_bad_arrays_are_refused_with_the_client(parts, message):
    with pytest.raises(InvalidData, match=message):
        FederatedData(parts)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[0, 1]], "2 clients and 1 label arrays"),
        ([[0, 1], [0, 1, 2]], "client-1 has 2 records and 3 labels"),
        ([[0, 1], [[0], [1]]], "labels of client-1 must be 1-D"),
        ([[0, 1], [0.0, np.nan]], "client-1 has 1 labels that are not finite"),
        ([[0, 1], np.array(["a", None])], "labels of client-1 mix types or hold None"),
    ],
)
def test_bad_labels_are_refused_with_the_client(labels, message):
    with pytest.raises(InvalidData, match=message):
        FederatedData([np.zeros((2, 2))] * 2, labels)


def test_nan_is_refused_with_client_count_and_column():
    X = np.zeros((4, 6))
    X[[1, 2], 5] = np.nan
    parts = [np.zeros((4, 6))] * 3 + [X]
    with pytest.raises(MissingValues, match="client-3 has 2 NaN values in column 5"):
        FederatedData(parts)
    X[0, 1] = np.nan
    with pytest.raises(MissingValues, match="client-3 has 3 NaN values in 2 columns, first 1"):
        FederatedData(parts)


@pytest.mark.parametrize("missing", ["refuse", "client-mean", "public-value"])
def test_infinity_is_refused_under_every_rule(missing):
    X = np.zeros((2, 2))
    X[0, 1] = -np.inf
    with pytest.raises(NotFinite, match="client-0 has 1 infinite value in column 1"):
        FederatedData([X], missing=missing)


def test_a_number_beyond_float32_is_refused_instead_of_becoming_infinite():
    X = np.array([[1.0, 1e300]])
    with pytest.raises(NotFinite, match="client-0 has 1 value too large for float32"):
        FederatedData([X])
    assert FederatedData([X], dtype=np.float64).clients[0].X[0, 1] == 1e300


def test_errors_are_value_errors_of_the_library():
    assert issubclass(MissingValues, DpfedvisError)
    assert issubclass(DpfedvisError, ValueError)


def test_repr_is_short_and_shows_no_records():
    text = repr(FederatedData([np.full((3, 2), 0.125), np.zeros((5, 2))]))
    assert text == "FederatedData(2 clients, 3–5 records each, 2 features, float32)"
    assert "0.125" not in repr(FederatedData([np.full((3, 2), 0.125)]).clients)


def test_a_client_may_have_no_record():
    """Whether it may take part is decided where it is known whether n_p is public."""
    fed = FederatedData([np.zeros((2, 2)), np.zeros((0, 2))], [[0, 1], []])
    assert fed.records == (2, 0)
    assert fed.pooled()[0].shape == (2, 2)
    assert fed.clip(1.0).records == (2, 0)
    assert sorted(fed.shuffled(0).records) == [0, 2]


def test_labels_have_public_names_or_their_own():
    X = [np.zeros((3, 2))]
    named = FederatedData(X, [[1, 0, 5]], class_names=["cat", "dog"])
    assert named.labels_of(named.clients[0]).tolist() == ["dog", "cat", "5"]
    bare = FederatedData(X, [[1, 0, 5]])
    assert bare.labels_of(bare.clients[0]).tolist() == ["1", "0", "5"]
    none = FederatedData(X)
    assert none.labels_of(none.clients[0]) is None
