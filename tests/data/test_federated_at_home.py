"""What clients do to their records at home: missing values filled, long records clipped, public functions applied."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpfedvis.data import FederatedData, InvalidData
from dpfedvis.data.checks import row_norms
from dpfedvis.data.features import with_features
from tests.makers import as_dataset

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


def test_public_features_of_the_records_keep_everything_else(table):
    X, y = table
    fed = FederatedData.split(X, y, clients=4, seed=1, bounds=(-9, 9))
    made = with_features(fed, lambda own: own[:, :2] * 2)
    for before, after in zip(fed.clients, made.clients, strict=True):
        np.testing.assert_array_equal(after.X, before.X[:, :2] * 2)
        np.testing.assert_array_equal(after.y, before.y)
        assert after.name == before.name
        assert not after.X.flags.writeable
    assert (made.n_features, made.records) == (2, fed.records)
    assert made.index is fed.index
    assert made.missing == fed.missing
    assert made.bounds is None, "bounds of the old features say nothing of the new ones"
    assert made.before_features is fed
    assert with_features(made, "none") is made
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
