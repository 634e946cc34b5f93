import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpfedvis.data import (
    Dataset,
    FederatedData,
    InvalidData,
    LabelsNeeded,
    MissingValues,
    NotFinite,
    PartitionError,
    TooManyClients,
    load,
)
from dpfedvis.data.checks import row_norms
from dpfedvis.errors import DpfedvisError


@pytest.fixture
def table():
    rng = np.random.default_rng(7)
    return rng.normal(size=(60, 5)), np.repeat(np.arange(6), 10)


def as_dataset(X, y=None, groups=None, missing="client-mean", feature_range=None):
    names = () if y is None else tuple(str(c) for c in range(int(np.max(y)) + 1))
    return Dataset("test", X, y, names, groups, feature_range, None, "memory", "0", missing)


# --- construction ---


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
        ([np.zeros((2, 2)), np.zeros((0, 2))], "client-1 has no records"),
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


# --- split ---


@pytest.mark.parametrize("spec", ["iid", "by-class", "classes:2", "dirichlet:0.5"])
def test_split_keeps_rows_and_labels_together_and_can_be_undone(table, spec):
    X, y = table
    fed = FederatedData.split(X, y, clients=4, partition=spec, seed=3, dtype=np.float64)
    pooled_X, pooled_y = fed.pooled()
    np.testing.assert_array_equal(X[fed.index.rows], pooled_X)
    np.testing.assert_array_equal(y[fed.index.rows], pooled_y)
    np.testing.assert_array_equal(fed.index.restore(pooled_X), X)
    np.testing.assert_array_equal(fed.index.restore(pooled_y), y)
    for client, part in zip(fed.clients, fed.index.slices, strict=True):
        np.testing.assert_array_equal(pooled_X[part], client.X)
        np.testing.assert_array_equal(pooled_y[part], client.y)


def test_split_defaults_to_ten_clients_and_is_seeded(table):
    X, y = table
    first, same, other = (FederatedData.split(X, y, seed=seed) for seed in (0, 0, 1))
    assert first.n_clients == 10
    np.testing.assert_array_equal(first.index.rows, same.index.rows)
    assert not np.array_equal(first.index.rows, other.index.rows)
    generator = FederatedData.split(X, y, seed=np.random.default_rng(0))
    np.testing.assert_array_equal(first.index.rows, generator.index.rows)


def test_split_does_not_touch_the_global_random_state(table):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    FederatedData.split(*table, partition="dirichlet:1")
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_split_without_labels_or_with_too_many_clients(table):
    X, y = table
    assert FederatedData.split(X, clients=3).pooled()[1] is None
    with pytest.raises(LabelsNeeded):
        FederatedData.split(X, partition="by-class")
    with pytest.raises(TooManyClients, match="61 clients cannot share 60 records"):
        FederatedData.split(X, y, clients=61)
    with pytest.raises(InvalidData, match="X has 60 records and 59 labels"):
        FederatedData.split(X, y[1:])
    with pytest.raises(PartitionError, match="client column"):
        FederatedData.split(X, y, partition="groups")


def test_restore_refuses_another_length(table):
    fed = FederatedData.split(*table, clients=3)
    with pytest.raises(InvalidData, match=r"expected 60 values .* shape \(59,\)"):
        fed.index.restore(np.zeros(59))


def test_pooled_is_the_callers_own_copy(table):
    fed = FederatedData.split(*table, clients=1)
    pooled, _ = fed.pooled()
    pooled[:] = 0
    assert fed.clients[0].X.any()


# --- groups ---


@given(
    groups=st.lists(st.integers(0, 8), min_size=5, max_size=50),
    spec=st.sampled_from(["iid", "by-class", "dirichlet:0.3"]),
    clients=st.integers(1, 3),
    seed=st.integers(0, 20),
)
def test_no_group_is_ever_split(groups, spec, clients, seed):
    groups = np.array(groups)
    if len(np.unique(groups)) < clients:
        with pytest.raises(TooManyClients, match="groups"):
            FederatedData.split(np.zeros((len(groups), 1)), groups % 2, clients, spec, seed, groups=groups)
        return
    X = np.arange(len(groups), dtype=float)[:, None]
    fed = FederatedData.split(X, groups % 2, clients, spec, seed, groups=groups)
    held = [set(groups[client.X[:, 0].astype(int)]) for client in fed.clients]
    assert sum(map(len, held)) == len(set(groups.tolist()))
    assert np.array_equal(np.sort(fed.index.rows), np.arange(len(groups)))


def test_partition_by_class_of_groups_goes_by_the_groups_own_class():
    # Groups appear in an order that is not sorted, so a mix-up of the two orders shows.
    groups = np.array(["z", "z", "b", "b", "m", "a"])
    y = np.array([1, 1, 0, 0, 1, 0])
    fed = FederatedData.split(np.zeros((6, 1)), y, 2, "by-class", groups=groups)
    assert [set(client.y.tolist()) for client in fed.clients] == [{0}, {1}]


def test_a_group_of_two_classes_is_refused_by_a_partition_by_class():
    with pytest.raises(PartitionError, match="group h1 has 2 classes"):
        FederatedData.split(np.zeros((3, 1)), [0, 1, 1], 2, "by-class", groups=["h1", "h1", "h2"])


def test_one_client_a_group_takes_the_groups_names_in_order_of_appearance():
    groups = np.array(["m9", "m1", "m9", "m4"])
    data = as_dataset(np.arange(4.0)[:, None], groups=groups)
    fed = FederatedData.from_dataset(data, partition="groups")
    assert [(c.name, c.X[:, 0].tolist()) for c in fed.clients] == [("m9", [0, 2]), ("m1", [1]), ("m4", [3])]
    with pytest.raises(PartitionError, match="each of 3 groups, not 2"):
        FederatedData.from_dataset(data, clients=2, partition="groups")


# --- missing values ---


def holes():
    """Return two clients' records, the second with no value at all in column 1."""
    return (
        np.array([[1.0, 10.0], [3.0, np.nan], [np.nan, 20.0]]),
        np.array([[100.0, np.nan], [np.nan, np.nan]]),
    )


def test_client_mean_uses_the_clients_own_values_and_the_public_value_where_it_has_none():
    fed = FederatedData(holes(), missing="client-mean", fill=-1.0)
    assert fed.clients[0].X.tolist() == [[1, 10], [3, 15], [2, 20]]
    assert fed.clients[1].X.tolist() == [[100, -1], [100, -1]]
    assert fed.imputed == (2, 3)
    assert fed.missing == "client-mean"


def test_no_client_learns_from_another_by_imputation():
    first, second = holes()
    before = FederatedData([first, second], missing="client-mean").clients[1].X
    after = FederatedData([first * 1e3, second], missing="client-mean").clients[1].X
    np.testing.assert_array_equal(before, after)


def test_public_value_keeps_records_independent():
    first, _ = holes()
    changed = first.copy()
    changed[0] = [50.0, 60.0]  # replacing one record must leave the others as they are
    a, b = (FederatedData([X], missing="public-value", fill=0.5).clients[0].X for X in (first, changed))
    np.testing.assert_array_equal(a[1:], b[1:])
    assert a.tolist() == [[1, 10], [3, 0.5], [0.5, 20]]


def test_imputation_leaves_the_callers_array_alone():
    first, _ = holes()
    FederatedData([first], missing="client-mean", dtype=np.float64)
    assert np.isnan(first).sum() == 2


def test_from_dataset_fills_after_dealing_with_the_middle_of_the_public_range():
    X = np.array([[0.2], [np.nan], [0.8], [np.nan]])
    y = np.array([0, 0, 1, 2])
    fed = FederatedData.from_dataset(as_dataset(X, y, feature_range=(0.0, 3.0)), 3, "by-class")
    np.testing.assert_allclose(fed.clients[0].X[:, 0], [0.2, 0.2])
    assert fed.clients[2].X.tolist() == [[1.5]]
    unknown = FederatedData.from_dataset(as_dataset(X, y), 3, "by-class")
    assert unknown.clients[2].X.tolist() == [[0.0]]


def test_unknown_rules_and_values_are_refused():
    with pytest.raises(InvalidData, match="refuse, client-mean, public-value, got 'mean'"):
        FederatedData([np.zeros((1, 1))], missing="mean")
    with pytest.raises(InvalidData, match="fill must be finite"):
        FederatedData([np.zeros((1, 1))], fill=np.nan)


# --- clipping ---


def true_norms(X):
    return np.sqrt((X.astype(np.longdouble) ** 2).sum(axis=1))


@given(
    X=hnp.arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(1, 40)), elements=st.floats(-1e6, 1e6, width=32)),
    tau=st.floats(1e-3, 1e4),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_clip_never_exceeds_tau_keeps_directions_and_changes_nothing_twice(X, tau, dtype):
    once = FederatedData([X], dtype=dtype).clip(tau)
    got = once.clients[0].X
    assert got.dtype == dtype
    assert (true_norms(got) <= tau).all()
    np.testing.assert_array_equal(once.clip(tau).clients[0].X, got)
    norms = true_norms(X)
    expected = X * np.minimum(1, tau / np.maximum(norms, 1e-30))[:, None]
    np.testing.assert_allclose(got, expected.astype(np.float64), rtol=2e-6, atol=1e-30)


def test_clip_leaves_short_records_alone_and_does_not_copy_for_them():
    X = np.array([[3.0, 4.0], [0.3, 0.4]], dtype=np.float32)
    fed = FederatedData([X, X[1:]], [[1, 2], [3]], names=["a", "b"])
    clipped = fed.clip(1.0)
    np.testing.assert_allclose(clipped.clients[0].X[0], [0.6, 0.8], rtol=1e-6)
    np.testing.assert_array_equal(clipped.clients[0].X[1], X[1])
    assert np.shares_memory(clipped.clients[1].X, fed.clients[1].X)
    assert not clipped.clients[0].X.flags.writeable
    assert X[0].tolist() == [3, 4]
    assert [client.name for client in clipped.clients] == ["a", "b"]
    assert clipped.clients[0].y.tolist() == [1, 2]


def test_a_public_function_of_the_records_keeps_everything_else(table):
    X, y = table
    fed = FederatedData.split(X, y, clients=4, seed=1, bounds=(-9, 9))
    made = fed.transformed(lambda own: own[:, :2] * 2)
    for before, after in zip(fed.clients, made.clients, strict=True):
        np.testing.assert_array_equal(after.X, before.X[:, :2] * 2)
        np.testing.assert_array_equal(after.y, before.y)
        assert after.name == before.name
        assert not after.X.flags.writeable
    assert (made.n_features, made.records) == (2, fed.records)
    assert made.index is fed.index
    assert made.missing == fed.missing
    assert made.bounds is None, "bounds of the old features say nothing of the new ones"
    assert fed.bounds == (-9, 9)


def test_clip_keeps_index_and_count_of_imputed_values(table):
    X = table[0].copy()
    X[0, 0] = np.nan
    fed = FederatedData.split(X, clients=4, missing="client-mean")
    clipped = fed.clip(0.5)
    assert clipped.index is fed.index
    assert clipped.imputed == fed.imputed
    assert sum(clipped.imputed) == 1
    assert clipped.missing == "client-mean"


def test_clip_of_huge_and_tiny_numbers():
    X = np.array([[1e200, 1e200], [1e-200, 0.0], [0.0, 0.0]])
    got = FederatedData([X], dtype=np.float64).clip(1.0).clients[0].X
    np.testing.assert_allclose(got[0], [2**-0.5] * 2)
    np.testing.assert_array_equal(got[1:], X[1:])
    np.testing.assert_allclose(row_norms(X), [np.sqrt(2) * 1e200, 1e-200, 0])
    extreme = np.full((1, 3), 3e38, dtype=np.float32)
    norm = float(true_norms(FederatedData([extreme]).clip(1e-3).clients[0].X)[0])
    assert norm == pytest.approx(1e-3, rel=1e-5)


@pytest.mark.parametrize("tau", [0.0, -1.0, np.nan, np.inf])
def test_clip_refuses_a_bad_bound(tau):
    with pytest.raises(InvalidData, match="tau must be positive and finite"):
        FederatedData([np.zeros((1, 1))]).clip(tau)


# --- real data ---


def test_digits_one_class_a_client():
    fed = FederatedData.from_dataset(load("digits"), clients=10, partition="by-class")
    assert fed.records == (178, 182, 177, 183, 181, 182, 181, 179, 174, 180)
    assert [set(client.y.tolist()) for client in fed.clients] == [{c} for c in range(10)]


def test_mice_stay_whole_and_are_filled_at_home(real_data):
    data = load("mice-protein", missing="client-mean")
    fed = FederatedData.from_dataset(data, clients=8, partition="iid", seed=1)
    mice = [set(data.groups[fed.index.rows[part]]) for part in fed.index.slices]
    assert sum(map(len, mice)) == len(set.union(*mice)) == 72
    assert sum(fed.imputed) == 1396
    assert all(np.isfinite(client.X).all() for client in fed.clients)
    # Against a slow reference: the first hole of the first client that has one.
    p = next(i for i, count in enumerate(fed.imputed) if count)
    raw = data.X[fed.index.rows[fed.index.slices[p]]]
    row, column = np.argwhere(np.isnan(raw))[0]
    present = [value for value in raw[:, column] if not np.isnan(value)]
    assert fed.clients[p].X[row, column] == pytest.approx(sum(present) / len(present), rel=1e-6)


def test_every_mouse_a_client(real_data):
    fed = FederatedData.from_dataset(load("mice-protein", missing="client-mean"), partition="groups")
    assert fed.records == (15,) * 72
    assert fed.clients[0].name == "309"


def test_fewer_groups_than_the_usual_clients_give_a_client_each():
    groups = np.repeat(["a", "b", "c", "d"], 5)
    fed = FederatedData.split(np.arange(40.0).reshape(20, 2), partition="iid", groups=groups)
    assert fed.records == (5, 5, 5, 5)
