"""Shared noise: what is left of it when sites drop out and others work together."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.errors import InvalidParameter
from accounting.sharing import Sharing


@pytest.mark.parametrize(
    ("parties", "threshold", "colluders"),
    [
        (1, 1, 0),
        (2, 2, 1),
        (3, 3, 1),
        (4, 4, 1),
        (5, 4, 1),
        (9, 8, 1),
        (10, 9, 1),
        (20, 18, 1),
        (25, 23, 1),
        (50, 45, 1),
    ],
)
def test_defaults(parties, threshold, colluders):
    assert Sharing.of(parties) == Sharing(parties, threshold, colluders)


@pytest.mark.parametrize(
    ("parties", "threshold", "colluders", "factor"), [(10, 10, 1, 1.05), (10, 8, 2, 1.29), (3, 3, 1, 1.22)]
)
def test_the_price_with_all_present(parties, threshold, colluders, factor):
    assert Sharing(parties, threshold, colluders).factor == pytest.approx(factor, abs=0.005)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 60))
def test_at_least_the_claimed_noise_is_left(parties, threshold, colluders):
    """With any number of survivors from t on, any c of whom collude; and no sum could be opened twice."""
    try:
        sharing = Sharing(parties, threshold, colluders)
    except InvalidParameter:
        assert threshold > parties or colluders >= threshold or 2 * threshold <= parties + colluders
        return
    for survivors in range(threshold, parties + 1):
        left = (survivors - colluders) / sharing.shares
        assert left >= 1
    assert sharing.factor == pytest.approx(math.sqrt(parties / (threshold - colluders)))
    # Two lists of t sites share more than c of them: one at least is honest, and signs one list only.
    assert 2 * threshold - parties > colluders


def test_a_threshold_that_is_too_low_names_the_ways_out():
    with pytest.raises(InvalidParameter, match=r"at least 7, so that 2t > P \+ c = 10 \+ 2; or take at most 1"):
        Sharing(10, 6, 2)
    with pytest.raises(InvalidParameter, match="colluders must be below the threshold, 3"):
        Sharing(3, 3, 3)
