"""Records dealt to clients: labels go along, groups stay whole, and the deal can be undone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfedvis.data import FederatedData, InvalidData, LabelsNeeded, PartitionError, TooManyClients, load
from tests.makers import as_dataset

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
    before = np.random.get_state()[1].copy()  # noqa: NPY002  # it is what is tested
    FederatedData.split(*table, partition="dirichlet:1")
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002  # as above


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


def test_one_client_a_group_takes_the_groups_names_in_their_order():
    groups = np.array(["m9", "m1", "m9", "m4"])
    data = as_dataset(np.arange(4.0)[:, None], groups=groups)
    fed = FederatedData.from_dataset(data, partition="groups")
    assert [(c.name, c.X[:, 0].tolist()) for c in fed.clients] == [("m1", [1]), ("m4", [3]), ("m9", [0, 2])]
    with pytest.raises(PartitionError, match="each of 3 groups, not 2"):
        FederatedData.from_dataset(data, clients=2, partition="groups")


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
    assert fed.clients[0].name == "18899"  # in the order of their names


def test_fewer_groups_than_the_usual_clients_give_a_client_each():
    groups = np.repeat(["a", "b", "c", "d"], 5)
    fed = FederatedData.split(np.arange(40.0).reshape(20, 2), partition="iid", groups=groups)
    assert fed.records == (5, 5, 5, 5)
