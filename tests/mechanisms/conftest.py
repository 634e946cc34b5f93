"""The checker that every protected mechanism must pass, and that planted faults must not."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import chi2

from accounting import Budget, PostProcessing
from dpfedvis.data import FederatedData
from dpfedvis.estimators.feddl import FedDL
from dpfedvis.estimators.simulation import simulated
from dpfedvis.mechanisms import (
    ClippedGradientPerturbation,
    GradientPerturbation,
    InputPerturbation,
    KMeans,
    MeanEmbedding,
    VariablePerturbation,
    mechanism,
)
from dpfedvis.mechanisms.base import PreparedRecords
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.numerics.mmd import max_clip
from dpfedvis.numerics.random_streams import Streams
from dpfedvis.protocol.messages import ShowEvents
from dpfedvis.protocol.uploads import in_units
from dpfedvis.server.callbacks import KeepLandmarks
from tests.makers import federation

SIZES = (20, 35, 60)
FEATURES, LANDMARKS, ROUNDS = 6, 12, 30
GAMMA = 0.2
# Chance that a correct run falls outside the interval of any one estimate; some hundred estimates are made in all.
LEVEL = 1e-10


@dataclass
class Passed:
    """One thing that the server saw."""

    events: tuple
    values: np.ndarray


def small_federation(sizes=SIZES, *, seed=5, dtype=np.float32) -> FederatedData:
    return federation(sizes, FEATURES, seed=seed, dtype=dtype)


def configured(chosen, *, adjacency="replace-one", **settings) -> FedDL:
    """Return a run of one mechanism at a budget, small enough for tests."""
    start = np.random.default_rng(3).normal(size=(LANDMARKS, FEATURES)) * 0.5
    values = {
        "landmarks": LANDMARKS,
        "mechanism": chosen,
        "budget": Budget(2.0, 1e-5, adjacency=adjacency),
        "rounds": ROUNDS,
        "gamma": GAMMA,
        "start": start,
        "tau_x": 20.0,  # a stated bound, which no record reaches: so no histogram of scales is released
        "public_records": 40 if adjacency == "add-remove" else None,
        "seed": 11,
    }
    return FedDL(**{**values, **settings})


def stated_sensitivity(chosen, public, records):
    """Δ of a mechanism, written out once more from the theory: single bandwidth."""
    (gamma,), n_y = public.kernel.gammas, public.landmarks
    half = 0.5 if public.adjacency == "add-remove" else 1.0
    tight = half * 8 * math.sqrt(gamma / (2 * math.e)) / (records * math.sqrt(n_y))
    if isinstance(chosen, InputPerturbation):
        return 2 * chosen.tau_x
    if isinstance(chosen, MeanEmbedding):
        return half * 2 / records
    if isinstance(chosen, KMeans):
        return (math.sqrt(2) if public.adjacency == "add-remove" else 2.0) / records
    if isinstance(chosen, ClippedGradientPerturbation):
        return half * 8 * gamma * chosen.clip * max_clip(Kernel((gamma,)), n_y) / (records * n_y)
    if isinstance(chosen, VariablePerturbation):
        growth = public.step_size * 4 * gamma * (2 * math.exp(-1.5) / n_y + 1 / (n_y - 1))
        moved = public.step_size * tight
        if public.local_steps > 1:
            # Each step rounds kernels of both parts to 16 bits, and Y to 2⁻⁸ of a cell.
            kernel = 2.0**-16 * (1 + 2.0**-20) * math.sqrt(17 * math.log(2) / gamma)
            moved += public.step_size * 2 * (1 + n_y / (n_y - 1)) * 4 * gamma / math.sqrt(n_y) * kernel
            moved += public.grid.step * 2.0**-8 * math.sqrt(n_y * public.features)
        return moved * sum((1 + growth) ** q for q in range(public.local_steps))
    if isinstance(chosen, GradientPerturbation) and chosen.bound == "theorem":
        if public.adjacency == "add-remove":
            return 4 * gamma * chosen.upsilon / (records * math.sqrt(n_y))
        spread = (chosen.tau_x + chosen.tau_y) * (chosen.tau_x + chosen.upsilon)
        # The kernel is rounded down to 16 bits, for either of the two records.
        rounding = 2 * (2.0**-16 + 2.0**-40) * chosen.upsilon * math.sqrt(n_y) * 4 * gamma / (records * n_y)
        return 8 * math.sqrt(n_y) * gamma * chosen.tau_x / (records * n_y) * (1 + 2 * gamma * spread) + rounding
    assert isinstance(chosen, GradientPerturbation)
    return tight


def quiet_message(chosen, client, public, denominator, Y, round, streams, index):
    """What the mechanism would upload without any noise."""
    local = PreparedRecords(chosen.prepare(client.X), denominator)
    if public.sampling_rate is not None:
        local = local.sample(public.sampling_rate, streams.generator("sample", chosen.what, index, round))
    generator = streams.generator("message", chosen.what, index, round)
    return chosen.message(local, Y, public, generator).values.astype(np.float64)


def check_variance(name, standardised):
    """The noise has the stated scale: its sum of squares is inside the chi-square interval."""
    values = np.concatenate([np.ravel(each) for each in standardised])
    total, count = float(values @ values), values.size
    low, high = chi2.ppf([LEVEL / 2, 1 - LEVEL / 2], count)
    assert low <= total <= high, f"noise of {name}: variance {total / count:.3f} of what the ledger says"
    mean = math.sqrt(count) * float(values.mean())
    assert abs(mean) < 6.5, f"noise of {name}: mean {mean:.2f} standard errors off"


def check_fresh(name, standardised):
    """The noise is drawn anew each time: the products of different draws cancel, whatever their scale."""
    draws = np.stack([np.ravel(each) for each in standardised])
    power = float(np.sum(draws**2))
    if len(draws) == 1 or power < 1e-3 * draws.size:
        return  # a single draw, or none to speak of, which is for `check_variance` to object to
    excess = float(np.sum(draws.sum(axis=0) ** 2)) / power - 1
    # Its standard deviation is √(2/d); the same noise in all R draws gives R − 1.
    assert abs(excess) < 10 * math.sqrt(2 / draws.shape[1]), f"noise of {name} is not fresh: {excess:.2f}"


def check(config: FedDL, fed: FederatedData, *, tolerance: float = 1e-6):
    """Run once and hold what left the sites against their ledgers, the server's mirror, the theory and the budget.

    Parameters
    ----------
    config : FedDL
        With a mechanism that protects, one bandwidth and a given start.
    tolerance : float
        How far below the budget ε may end, relative.
    """
    chosen, seen, landmarks = mechanism(config.mechanism), [], KeepLandmarks()
    link = simulated(fed, budget=config.budget, noise=config.noise)
    result, session = config.learn(
        link,
        callbacks=[landmarks],
        witness=lambda events, values: seen.append(Passed(tuple(events), in_units(values, events[0]))),
    )
    home = [site.perturbed(session.label) for site in link.members] if chosen.protection == "home" else []
    public, names = result.public, [client.name for client in fed.clients]
    rate = config.sampling_rate or 1.0
    if public.adjacency == "add-remove":
        denominators = [rate * config.public_records] * len(names)
    else:
        denominators = [rate * n for n in fed.records]
    weights = [1 / len(names)] * len(names) if config.weights == "equal" else np.divide(denominators, sum(denominators))
    uploads = chosen.uploads(config.rounds)

    # Every upload that left has one event, and every event one upload; records perturbed at home have one each.
    mirror = Counter(event.to_json() for event in result.ledger.events())
    accounts = link.each(ShowEvents(session.label))
    own = Counter(event.to_json() for account in accounts for event in account.events)
    passed = Counter(event.to_json() for each in seen for event in each.events)
    passed.update(upload.event.to_json() for upload in home)
    assert own == passed, "what the sites' ledgers have is not what passed"
    assert mirror == passed, "what the mirror has is not what passed"
    assert set(mirror.values()) == {1}, "an event is in the ledger twice"
    expected = Counter((name, s) for name in names for s in range(1, uploads + 1))
    rounds = Counter((event.client, event.round) for each in seen for event in each.events)
    assert rounds == expected, "not one event for each client and round"

    # The sensitivity in the events is that of the theory, for this client's own denominator.
    protected = {event.client: event for event in result.ledger.events() if not isinstance(event, PostProcessing)}
    deltas = {n: stated_sensitivity(chosen, public, d) for n, d in zip(names, denominators, strict=True)}
    if chosen.trust != "local":
        deltas = {name: weight * deltas[name] for name, weight in zip(names, weights, strict=True)}
    for name in names:
        # Iterates that are weighted for a sum are rounded once more: a cell for each value.
        again = chosen.trust != "local" and not chosen.additive(public) and len(set(weights)) > 1
        cells = protected[name].grid * math.sqrt(math.prod(chosen.shape(public))) if again else 0.0
        assert protected[name].sensitivity == pytest.approx(deltas[name] + cells, rel=1e-9), f"Δ of {name}"
        assert protected[name].trust == chosen.trust
        assert protected[name].adjacency == public.adjacency

    # The noise that was drawn is the noise in the ledger, round by round and client by client.
    streams, draws = Streams(config.seed), defaultdict(list)
    if chosen.protection == "home":
        for upload, client in zip(home, fed.clients, strict=True):
            noise = upload.values - chosen.at_home(client.X, public)
            draws[client.name].append(noise * upload.event.grid / protected[client.name].sigma)
    else:
        starts = {1: result.start, **{s + 1: Y for s, Y in landmarks.kept.items()}}
        quiet = {
            (client.name, s): quiet_message(chosen, client, public, denominators[p], starts[s], s, streams, p)
            for p, client in enumerate(fed.clients)
            for s in range(1, uploads + 1)
        }
        for each in seen:
            event = each.events[0]
            if chosen.trust == "local":
                assert len(each.events) == 1, "more than one client in what should be one upload"
                exact, name = quiet[event.client, event.round], event.client
            else:
                assert [e.client for e in each.events] == names, "not all clients are in the sum"
                assert len({e.sigma for e in each.events}) == 1
                pairs = zip(names, weights, strict=True)
                exact, name = sum(w * quiet[n, event.round] for n, w in pairs), "the sum"
            assert each.values.shape == chosen.shape(public)
            # Of all clients, a sum has more noise than ε needs: √(P/(t − c)) times.
            more = 1.0 if event.threshold is None else math.sqrt(len(names) / (event.threshold - event.colluders))
            draws[name].append((each.values.astype(np.float64) - exact) / (more * event.sigma))
    for name, standardised in draws.items():
        check_fresh(f"{name} in different rounds", standardised)
    if len(draws) > 1 and chosen.protection != "home":
        check_fresh("different clients", [np.concatenate(list(map(np.ravel, each))) for each in draws.values()])
    for name, standardised in draws.items():
        check_variance(name, standardised)

    # What was spent is the budget: by the client that spends most, and never more.
    spent = {name: result.ledger.spent(client=name) for name in names}
    most, epsilon = max(spent.values()), config.budget.epsilon
    assert most <= epsilon, f"ε = {most} is over the budget"
    assert most >= epsilon * (1 - tolerance), f"ε = {most} leaves some of the budget of {epsilon}"
    if chosen.trust == "local":
        assert min(spent.values()) == pytest.approx(most, rel=tolerance)
    return result


@pytest.fixture
def fed():
    return small_federation()


@pytest.fixture
def configure():
    return configured


@pytest.fixture
def verify():
    return check


@pytest.fixture
def federation_of():
    return small_federation


@pytest.fixture
def state_sensitivity():
    return stated_sensitivity
