"""Persons as the privacy unit: all records of one person are exchanged for those of another, any number up to k."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import Budget
from accounting.errors import InvalidParameter
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.protocol.contract import Member
from dpfedvis.site.persons import Persons
from tests.properties.test_mechanism_properties import (
    CASES,
    KERNELS,
    MECHANISMS,
    N_Y,
    REPLACE_ONLY,
    SLACK,
    arrays,
    contract_of,
    exact,
    grids_of,
    landmarks,
    length,
    setting_for,
)

NAMES = [name for name, adjacency in CASES if adjacency == "add-remove"]


def contract_for(chosen, public, rows, denominator, epsilon=1.0):
    by_record = contract_of(chosen, public.adjacency, (Member("a", float(denominator), 1.0),), epsilon=epsilon)
    budget = Budget(epsilon, 1e-12, adjacency=public.adjacency, unit="person", rows_per_person=rows)
    return replace(by_record, budget=budget, derived="")


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_exchanging_a_person_moves_an_upload_by_at_most_delta(name, adjacency, data):
    chosen, rows = MECHANISMS[name], data.draw(st.integers(1, 4))
    others, Y = data.draw(arrays(data.draw(st.integers(1, 4)))), data.draw(arrays(N_Y))
    here = data.draw(arrays(data.draw(st.integers(1, rows))))
    there = data.draw(arrays(data.draw(st.integers(0 if adjacency == "add-remove" else 1, rows))))
    public = setting_for(data.draw(KERNELS), adjacency, grid=data.draw(grids_of(chosen, 1)))
    persons = len(others) + 1
    contract = contract_for(chosen, public, rows, persons * rows, data.draw(st.sampled_from([1.0, 1e-9])))
    Y = landmarks(chosen, Y, public)
    (one, event), (other, same) = (
        exact(chosen, np.vstack([others, own]), Y, public, contract) for own in (here, there)
    )
    assert event == same
    assert event.unit == "person"
    assert length(one - other) * event.grid / event.sensitivity <= SLACK


@pytest.mark.parametrize("name", REPLACE_ONLY)
def test_what_one_record_more_would_change_as_a_whole_is_refused(name):
    chosen = MECHANISMS[name]
    public = setting_for(Kernel((0.5,)), "replace-one")
    with pytest.raises(InvalidParameter, match="unit of the budget must be record"):
        contract_for(chosen, public, 2, 10).site_plans(chosen, public)


# Drawing


def slow_drawn(names, rows, drawn):
    """Whether at most so many records of each person were drawn, and as many as there are."""
    for name in set(names):
        own = [i for i, each in enumerate(names) if each == name]
        assert len(set(own) & set(drawn)) == min(rows, len(own))


texts = st.lists(st.text("ab", min_size=1, max_size=2), min_size=1, max_size=30)


@given(names=texts, rows=st.integers(1, 4), secret=st.text(max_size=5))
def test_at_most_so_many_records_of_each_person_are_drawn(names, rows, secret):
    drawn = Persons.of("a", np.array(names), len(names)).drawn(rows, secret).tolist()
    assert drawn == sorted(set(drawn))
    slow_drawn(names, rows, drawn)


@given(names=texts, rows=st.integers(1, 3), own=st.integers(0, 5), longer=st.sampled_from(["zz", "a much longer name"]))
def test_another_person_changes_nothing_for_the_others(names, rows, own, longer):
    """Neither how many records it has, nor where they stand, nor how long its name is."""
    before = Persons.of("a", np.array(names), len(names)).drawn(rows, "s").tolist()
    with_another = np.array([longer] * own + names)
    after = Persons.of("a", with_another, len(with_another)).drawn(rows, "s").tolist()
    assert [place - own for place in after if place >= own] == before


def test_which_records_are_drawn_is_random_and_even():
    names = np.repeat([f"person {i}" for i in range(4000)], 5)
    places = Persons.of("a", names, len(names)).drawn(2, "secret") % 5
    counts = np.bincount(places, minlength=5)
    # Each of five places is drawn with probability 2/5; the standard deviation is 31.
    assert np.abs(counts - 1600).max() < 6.5 * 31
    other = Persons.of("a", names, len(names)).drawn(2, "another secret") % 5
    # Of two drawn pairs the first, and the last, are the same with probability 0.3.
    assert 0.27 < np.mean(places == other) < 0.33
