"""Neighbouring data sets: the integers of a site, before their noise, differ by no more than the Δ in its event."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from accounting import Budget
from dpfedvis.mechanisms import (
    ClippedGradientPerturbation,
    GradientPerturbation,
    InputPerturbation,
    KMeans,
    MeanEmbedding,
    VariablePerturbation,
)
from dpfedvis.mechanisms.base import PreparedRecords
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.mechanisms.releases import SINGLE_RELEASES
from dpfedvis.mechanisms.scale import Moments, ScaleHistogram
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.numerics.exact import Grid
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.mmd import smoothness
from dpfedvis.numerics.projections import SpectralBall
from dpfedvis.protocol.contract import Contract, Member
from dpfedvis.protocol.messages import Perturb, Send
from dpfedvis.protocol.noise_plan import Extra
from dpfedvis.site.computation import Computation

N_Y, M = 5, 3
MECHANISMS = {
    "gradient": GradientPerturbation(),
    "theorem": GradientPerturbation(bound="theorem", tau_x=1.5, tau_y=2.0, upsilon=3.0),
    "theorem, narrow": GradientPerturbation(bound="theorem", tau_x=0.1, tau_y=1.0, upsilon=2.0),
    "clipped": ClippedGradientPerturbation(clip=0.3),
    "clipped, hardly": ClippedGradientPerturbation(clip=0.95),
    "variable": VariablePerturbation(),
    "mean-embedding": MeanEmbedding(frequencies=4),
    "k-means": KMeans(reach=0.3),
    "second moments": SecondMoments(centre=np.full(M, 0.2), clip=1.1),
    "moments": Moments(tau_x=1.3),
    "scale histogram": ScaleHistogram(),
    "input": InputPerturbation(tau_x=1.3),
}
REPLACE_ONLY = ("variable", "input", "scale histogram")
CASES = [(name, "replace-one") for name in MECHANISMS]
CASES += [(name, "add-remove") for name in MECHANISMS if name not in REPLACE_ONLY]
# Distances of integers are exact; only their square root and the product with the grid are rounded.
SLACK = 1 + 1e-12
GRIDS = (None, Grid.of_norm(8.0, M), Grid.of_bounds(-2.0, 2.0, M))


def setting_for(kernel, adjacency, local_steps=1, stride=1.0, grid=GRIDS[1]):
    L = smoothness(kernel, N_Y)
    return PublicParameters(kernel, N_Y, M, 3, local_steps, stride / L, adjacency=adjacency, grid=grid)


def grids_of(chosen, steps):
    """A run has no grid only where one around the landmarks will do."""
    return st.sampled_from(GRIDS[1:] if chosen.needs_norm or steps > 1 else GRIDS)


@cache
def contract_of(chosen, adjacency, members, unit="record", epsilon=1.0):
    """A run that releases it: in rounds, or once, beside gradients."""
    single = chosen.what in SINGLE_RELEASES
    return Contract(
        run="test",
        budget=Budget(epsilon, 1e-12, adjacency=adjacency, unit=unit),
        mechanism=GradientPerturbation(trust=chosen.trust) if single else chosen,
        rounds=3,
        noise="seeded",
        seed=0,
        features=M,
        members=members,
        extras={chosen.what: Extra(0.5, chosen.stage, 100)} if single else {},
        values=100,
    )


def contract_for(chosen, public, denominator, unit="record", epsilon=1.0):
    """The contract of one site; that of a whole site does not have its number of records."""
    known = 1.0 if unit == "client" else float(denominator)
    return contract_of(chosen, public.adjacency, (Member("a", known, 1.0),), unit, epsilon)


def plan_for(chosen, public, denominator, unit="record", epsilon=1.0):
    """The plan of one site."""
    (plan,) = contract_for(chosen, public, denominator, unit, epsilon).site_plans(chosen, public)
    return plan


class Quiet(Computation):
    """What a site computes, but for its noise."""

    def _noisy(self, values, *_):
        return values


def landmarks(chosen, Y, public):
    """Y as clients get it: in the mechanism's set, and on the grid."""
    grid = chosen.grid(public, Y)
    inside = chosen.projection
    if isinstance(inside, SpectralBall):
        inside = inside.shrunk(grid.step, Y.shape)
    return grid.snap(inside(Y))


def exact(chosen, X, Y, public, contract, site="a"):
    """The integers without their noise, and the event that accounts for them."""
    computation = Quiet(contract, site, X)
    if chosen.protection == "home":
        upload = computation.perturbed(Perturb("", chosen, public))
    else:
        upload = computation.upload(Send("", chosen, public, 0 if chosen.what in contract.extras else 1, Y))
    return upload.values, upload.event


def length(integers):
    return math.sqrt(sum(int(value) ** 2 for value in integers.ravel()))


def ratio(chosen, X, Y, record, public, contract=None, site="a"):
    """How far the upload moves when the last record is replaced, or removed, relative to what the event says."""
    other = X[:-1] if public.adjacency == "add-remove" else np.vstack([X[:-1], record])
    contract, Y = contract or contract_for(chosen, public, len(X)), landmarks(chosen, Y, public)
    (here, event), (there, same) = (exact(chosen, each, Y, public, contract, site) for each in (X, other))
    assert event == same, "the event depends on a record"
    assert here.dtype == there.dtype == np.int64
    return length(here - there) * event.grid / event.sensitivity


def arrays(rows):
    values = st.floats(-4, 4, width=32) | st.sampled_from([0.0, 1.0, -1.0, 30.0, -1e3])
    return npst.arrays(np.float64, (rows, M), elements=values)


KERNELS = st.sampled_from([Kernel((0.5,)), Kernel((0.01,)), Kernel((20.0,)), Kernel((0.1, 0.5, 2.0))])


@pytest.mark.parametrize(("name", "adjacency"), CASES)
@given(data=st.data())
def test_neighbours_differ_by_at_most_delta(name, adjacency, data):
    chosen = MECHANISMS[name]
    X = data.draw(arrays(data.draw(st.integers(2, 6))))
    Y, record = data.draw(arrays(N_Y)), data.draw(arrays(1))
    steps, stride = (data.draw(st.integers(1, 4)), data.draw(st.sampled_from([0.3, 1.0, 2.5])))
    steps = steps if chosen.local_steps else 1
    public = setting_for(data.draw(KERNELS), adjacency, steps, stride, data.draw(grids_of(chosen, steps)))
    # At a tiny budget low bits are dropped, to make room for the noise.
    contract = contract_for(chosen, public, len(X), epsilon=data.draw(st.sampled_from([1.0, 1e-9])))
    assert ratio(chosen, X, Y, record, public, contract) <= SLACK


@pytest.mark.parametrize("unit", ["record", "client"])
def test_noise_fits_the_sampler_at_any_budget(unit):
    """Low bits that the noise drowns are dropped, and charged."""
    chosen, public = GradientPerturbation(), setting_for(Kernel((0.5,)), "replace-one")
    cell = chosen.cell(public, public.grid)
    for epsilon in (500.0, 1.0, 1e-3, 1e-9):
        plan = plan_for(chosen, public, 10, unit, epsilon)
        event = plan.event(cell)
        assert 2**10 < event.sigma / event.grid <= 2**46 * (1 + 1e-9)
        rounded = 0 if unit == "record" and not plan.bits_dropped(cell) else N_Y * M
        stated = chosen.sensitivity(public, 10 if unit == "record" else 1)
        assert event.sensitivity == pytest.approx(stated + event.grid * math.sqrt(rounded), rel=1e-12)
    assert plan.bits_dropped(cell) > 0


ADDITIVE = [name for name, chosen in MECHANISMS.items() if chosen.protection == "upload" and name != "scale histogram"]


@pytest.mark.parametrize("name", ADDITIVE)
@given(data=st.data())
def test_an_upload_is_the_sum_of_what_its_records_add_by_themselves(name, data):
    """To the last bit, in any order: so a record cannot change how the others are rounded."""
    chosen, X, Y = MECHANISMS[name], data.draw(arrays(data.draw(st.integers(2, 6)))), data.draw(arrays(N_Y))
    factor = data.draw(st.sampled_from([1.0, 0.3, 1e-3]))
    public = setting_for(data.draw(KERNELS), "replace-one", grid=data.draw(grids_of(chosen, 1)))
    Y = landmarks(chosen, Y, public)
    grid = chosen.grid(public, Y)

    def total(records):
        return chosen.total(PreparedRecords(records, 7.0), Y, public, grid, factor)

    np.testing.assert_array_equal(total(X), sum(total(x[None]) for x in X))
    np.testing.assert_array_equal(total(X[::-1]), total(X))


@pytest.mark.parametrize(("name", "adjacency"), CASES)
def test_no_search_finds_more_than_delta(name, adjacency):
    """Random restarts and hill climbing on records and landmarks at once."""
    chosen, rng = MECHANISMS[name], np.random.default_rng(1)
    public, worst = setting_for(Kernel((0.5,)), adjacency, local_steps=2 if chosen.local_steps else 1), 0.0
    for restart in range(4):
        shapes = [(2, M), (N_Y, M), (1, M)]
        point = [rng.normal(0, (0.5, 1.0)[restart % 2], shape) for shape in shapes]
        if restart >= 2:
            point[1][:] = point[1][0]  # landmarks that coincide, where the bounds are attained
            point[2] = 2 * point[1][:1] - point[0][-1:]
        best, width = ratio(chosen, *point, public), 0.5
        for _ in range(60):
            trial = [part + width * rng.normal(size=part.shape) * (rng.random(part.shape) < 0.5) for part in point]
            value = ratio(chosen, *trial, public)
            if value > best:
                best, point = value, trial
            else:
                width = max(width * 0.97, 1e-3)
        worst = max(worst, best)
    assert worst <= SLACK
    floor = {
        "gradient": 0.8,
        "clipped": 0.9,
        "clipped, hardly": 0.8,
        "moments": 0.8,
        "input": 0.9,
        "scale histogram": 0.99,
        "k-means": 0.95,
        "second moments": 0.95,
    }
    assert worst >= floor.get(name, 0.0), "the search is too weak to mean anything"


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("gamma", [0.05, 0.5, 8.0])
def test_the_tight_bound_is_attained(gamma, adjacency):
    """Landmarks at 0 and records at ±1/√(2γ): nothing smaller than Δ would do."""
    record = np.zeros((1, M))
    record[0, 0] = 1 / math.sqrt(2 * gamma)
    X, Y = np.vstack([np.ones((4, M)), record]), np.zeros((N_Y, M))
    for chosen in (
        GradientPerturbation(),
        ClippedGradientPerturbation(clip=1.0),
        ClippedGradientPerturbation(clip=0.2),
    ):
        # Kernels are rounded down to 16 bits, so that the bound is attained up to those.
        public = setting_for(Kernel((gamma,)), adjacency, grid=None)
        assert 1 - 3e-4 < ratio(chosen, X, Y, -record, public) <= SLACK
    if adjacency == "replace-one":
        assert 1 - 1e-4 < ratio(VariablePerturbation(), X, Y, -record, public) <= SLACK
        scaled = X / np.abs(X).max() / 10
        opposite = np.zeros((1, M))
        opposite[0, 0] = 5.0
        worst = np.vstack([scaled[:-1], opposite])
        for chosen in (Moments(tau_x=1.3), InputPerturbation(tau_x=1.3)):
            assert 1 - 1e-4 < ratio(chosen, worst, Y, -opposite, public) <= SLACK


@pytest.mark.parametrize("name", [name for name, chosen in MECHANISMS.items() if chosen.protection == "upload"])
@given(data=st.data())
def test_whole_clients_differ_by_at_most_the_delta_of_one_record(name, data):
    """All records of a client give way to others, however many: each side divides by its own number."""
    chosen = MECHANISMS[name]
    X, other = (data.draw(arrays(data.draw(st.integers(1, 6)))) for _ in range(2))
    steps = data.draw(st.integers(1, 3)) if chosen.local_steps else 1
    public = setting_for(data.draw(KERNELS), "replace-one", steps, grid=data.draw(grids_of(chosen, steps)))
    Y = landmarks(chosen, data.draw(arrays(N_Y)), public)
    epsilon = data.draw(st.sampled_from([1.0, 1e-9]))
    contract = contract_for(chosen, public, None, "client", epsilon)
    (here, event), (there, same) = (exact(chosen, each, Y, public, contract) for each in (X, other))
    assert event == same, "the event depends on the number of records"
    assert length(here - there) * event.grid <= event.sensitivity * SLACK


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_float32_does_not_exceed_delta(adjacency):
    """Records and landmarks are put on the grid before anything is summed, so that their precision is no matter."""
    gamma, n = 0.5, 60
    record = np.zeros((1, M), np.float32)
    record[0, 0] = 1 / math.sqrt(2 * gamma)
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(n - 1, M)).astype(np.float32), record])
    Y, public = np.zeros((N_Y, M), np.float32), setting_for(Kernel((gamma,)), adjacency)
    assert 1 - 1e-4 < ratio(GradientPerturbation(), X, Y, -record, public) <= SLACK


@pytest.mark.parametrize("name", [name for name, chosen in MECHANISMS.items() if chosen.protection == "upload"])
@pytest.mark.parametrize("trust", ["local", "aggregate", "central"])
def test_events_of_weighted_sums_cover_every_client(name, trust):
    """Where only Σ ω_p m_p is seen, a record of client p moves it by ω_p Δ_p, which is what its event says."""
    chosen, rng = replace(MECHANISMS[name], trust=trust), np.random.default_rng(4)
    sizes, weights = [4, 7, 12], [0.5, 0.2, 0.3]
    public = setting_for(Kernel((0.5,)), "replace-one")
    members = tuple(Member(*facts) for facts in zip("abc", map(float, sizes), weights, strict=True))
    contract, events = contract_of(chosen, "replace-one", members), []
    for size, weight, site in zip(sizes, weights, contract.names, strict=True):
        for _ in range(20):
            X, Y = rng.normal(0, 2, (size, M)), rng.normal(0, 0.5, (N_Y, M))
            assert ratio(chosen, X, Y, rng.normal(0, 2, (1, M)), public, contract, site) <= SLACK
        Y = landmarks(chosen, np.zeros((N_Y, M)), public)
        events.append(exact(chosen, X, Y, public, contract, site)[1])
        scale = 1.0 if trust == "local" else weight
        stated = scale * chosen.sensitivity(public, size)
        assert stated <= events[-1].sensitivity <= stated * (1 + 1e-3)
    if trust != "local":
        assert len({(event.sigma, event.grid) for event in events}) == 1, "one noise and one grid for the sum"
        multiplier = min(event.noise_multiplier for event in events)
        assert multiplier == pytest.approx(contract.plan.multipliers[chosen.what].sigma)
