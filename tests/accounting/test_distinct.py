"""Equal compositions are read once, and nothing else changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from accounting import GaussianRelease, Unprotected, accountant, compare
from accounting.accountants import distinct
from accounting.composition import Composition

SIGMAS = st.lists(st.sampled_from([0.5, 1.0, 3.0]), max_size=3)


def composed(sigmas: list[float], *, bare: bool) -> Composition:
    events = [GaussianRelease(what="g", client="c", sensitivity=1.0, sigma=sigma) for sigma in sigmas]
    return Composition([*events, *([Unprotected(what="u", client="c", why="a test")] if bare else [])])


@given(st.lists(st.tuples(SIGMAS, st.booleans()), min_size=1, max_size=6))
def test_the_largest_over_distinct_compositions_is_the_largest_over_all(
    clients: list[tuple[list[float], bool]],
) -> None:
    compositions = [composed(sigmas, bare=bare) for sigmas, bare in clients]
    assert len(distinct(compositions)) == len({(tuple(sorted(sigmas)), bare) for sigmas, bare in clients})
    slow = max(accountant("gdp").epsilon(each, 1e-5) for each in compositions)
    fast = compare(compositions, 1e-5, ["gdp"])["gdp"].epsilon
    assert fast is not None
    assert fast == slow or abs(fast - slow) < 1e-9
