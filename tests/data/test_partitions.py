import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpfedvis.data import LabelsNeeded, PartitionError, TooManyClients, partition
from dpfedvis.data.partitions import by_class, classes_per_client, dirichlet, iid

labels = st.lists(st.integers(-2, 4), min_size=1, max_size=60).map(np.array)
specs = st.sampled_from(["iid", "by-class", "classes:1", "classes:3", "dirichlet:0.01", "dirichlet:5"])


def rng(seed=0):
    return np.random.default_rng(seed)


def is_partition(parts, n):
    return np.array_equal(np.sort(np.concatenate(parts)), np.arange(n))


@given(y=labels, spec=specs, seed=st.integers(0, 99), data=st.data())
def test_every_partition_holds_each_record_once_and_leaves_no_client_empty(y, spec, seed, data):
    clients = data.draw(st.integers(1, len(y)))
    try:
        parts = partition(spec)(len(y), y, clients, rng(seed))
    except PartitionError:
        # Only "k classes a client" can be impossible.
        assert spec.startswith("classes")
        return
    assert len(parts) == clients
    assert min(map(len, parts)) >= 1
    assert is_partition(parts, len(y))
    assert all((np.diff(part) > 0).all() for part in parts)


@given(y=labels, spec=specs, seed=st.integers(0, 99))
def test_the_same_seed_deals_the_same_way(y, spec, seed):
    def deal():
        try:
            return [part.tolist() for part in partition(spec)(len(y), y, max(1, len(y) // 3), rng(seed))]
        except PartitionError as error:
            return str(error)

    assert deal() == deal()


@pytest.mark.parametrize("spec", ["iid", "classes:2", "dirichlet:1"])
def test_another_seed_deals_another_way(spec):
    y = np.arange(200) % 4
    first, second = (partition(spec)(200, y, 4, rng(seed)) for seed in (0, 1))
    assert any(not np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_iid_sizes_differ_by_at_most_one_and_mix_the_classes():
    y = np.repeat(np.arange(10), 100)
    parts = iid(1000, 7, rng())
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    assert all(len(np.unique(y[part])) == 10 for part in parts)


def test_by_class_with_as_many_clients_as_classes_gives_client_p_class_p():
    y = rng().permutation(np.repeat(np.arange(5), [3, 10, 7, 1, 20]))
    for p, part in enumerate(by_class(y, 5, rng())):
        assert set(y[part]) == {p}


@given(y=labels, data=st.data())
def test_by_class_with_fewer_clients_keeps_classes_whole_and_even(y, data):
    classes = np.unique(y)
    clients = data.draw(st.integers(1, len(classes)))
    held = [set(y[part]) for part in by_class(y, clients, rng())]
    assert sum(map(len, held)) == len(classes)  # a split class would be counted twice
    assert max(map(len, held)) - min(map(len, held)) <= 1


@given(y=labels, data=st.data())
def test_by_class_with_more_clients_gives_each_client_one_class(y, data):
    clients = data.draw(st.integers(len(np.unique(y)), len(y)))
    assert all(len(set(y[part])) == 1 for part in by_class(y, clients, rng()))


def test_by_class_shares_the_large_class_and_not_the_small_one():
    y = np.array([0] + [1] * 99)
    parts = by_class(y, 10, rng())
    assert [len(part) for part in parts] == [1] + [11] * 9


@given(n_classes=st.integers(1, 6), k=st.integers(1, 6), clients=st.integers(1, 12), seed=st.integers(0, 9))
def test_classes_gives_each_client_exactly_k_classes(n_classes, k, clients, seed):
    y = rng(seed).permutation(np.repeat(np.arange(n_classes), 30))
    if k > n_classes or k * clients < n_classes:
        with pytest.raises(PartitionError, match=r"classes"):
            classes_per_client(y, clients, rng(seed), k)
        return
    parts = classes_per_client(y, clients, rng(seed), k)
    assert all(len(set(y[part])) == k for part in parts)


def test_which_classes_meet_at_a_client_depends_on_the_seed():
    y = np.repeat(np.arange(6), 10)
    first = {tuple(np.unique(y[classes_per_client(y, 3, rng(seed), 2)[0]])) for seed in range(20)}
    assert len(first) > 5


def test_classes_says_which_class_is_too_small():
    y = np.array([0] * 50 + [7])
    with pytest.raises(PartitionError, match="class 7 to 4 clients, but it has 1 records"):
        classes_per_client(y, 4, rng(), 2)


def test_classes_that_cannot_cover_says_how_many_would():
    with pytest.raises(PartitionError, match="use classes:4 or more"):
        classes_per_client(np.arange(10), 3, rng(), 2)


def test_dirichlet_is_skewed_for_small_alpha_and_even_for_large():
    y = np.repeat(np.arange(10), 200)

    def largest_share(alpha):
        parts = dirichlet(y, 10, rng(3), alpha)
        return np.mean([np.bincount(y[part]).max() / len(part) for part in parts])

    assert largest_share(0.05) > 0.6
    assert largest_share(1000.0) < 0.15


def test_dirichlet_shares_have_the_variance_of_the_distribution():
    # Var(share) = (1/P)(1 - 1/P)/(P alpha + 1); a draw per record instead of per class would lack it.
    clients, alpha, repeats = 4, 0.5, 400
    y = np.zeros(400, dtype=int)
    shares = [len(dirichlet(y, clients, rng(seed), alpha)[0]) / 400 for seed in range(repeats)]
    expected = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    assert np.var(shares) == pytest.approx(expected, rel=0.25)
    assert np.mean(shares) == pytest.approx(1 / clients, abs=4 * np.sqrt(expected / repeats))


def test_dirichlet_fills_empty_clients_even_when_records_are_as_many_as_clients():
    # Two classes at two clients: both must give, so a giver's count has to be kept up to date.
    y = np.repeat([0, 1], 10)
    for seed in range(10):
        assert [len(part) for part in dirichlet(y, 20, rng(seed), 1e-3)] == [1] * 20


@pytest.mark.parametrize("alpha", [0.0, -1.0, np.nan, np.inf])
def test_dirichlet_refuses_a_bad_alpha(alpha):
    with pytest.raises(PartitionError, match="alpha"):
        dirichlet(np.arange(5), 2, rng(), alpha)


@pytest.mark.parametrize(
    "spec",
    ["", "IID", "iid:3", "by_class", "by-class:2", "classes", "classes:", "classes:2.5", "dirichlet", "dirichlet:x"],
)
def test_an_unknown_form_is_refused_with_the_valid_ones(spec):
    with pytest.raises(PartitionError, match=r"valid forms: iid, by-class, classes:K .*dirichlet:ALPHA"):
        partition(spec)


@pytest.mark.parametrize("spec", ["by-class", "classes:2", "dirichlet:0.5"])
def test_partitions_by_class_need_labels(spec):
    with pytest.raises(LabelsNeeded, match=spec):
        partition(spec)(10, None, 2, rng())


def test_iid_needs_no_labels():
    assert is_partition(partition("iid")(10, None, 3, rng()), 10)


@pytest.mark.parametrize("spec", ["iid", "by-class", "classes:1", "dirichlet:0.5"])
def test_more_clients_than_records_are_refused_with_both_numbers(spec):
    with pytest.raises(TooManyClients, match="4 clients cannot share 3 records"):
        partition(spec)(3, np.array([0, 1, 2]), 4, rng())


@pytest.mark.parametrize("clients", [0, -1, 2.0, True, "3"])
def test_a_senseless_number_of_clients_is_refused(clients):
    with pytest.raises(PartitionError, match="whole number"):
        iid(10, clients, rng())


def test_labels_may_be_text():
    y = np.array(["b", "a", "b", "a"])
    assert [y[part].tolist() for part in by_class(y, 2, rng())] == [["a", "a"], ["b", "b"]]
