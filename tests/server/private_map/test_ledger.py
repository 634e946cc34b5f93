"""Everything that leaves a client is in the ledger, and the ledger adds up to the budget."""

from __future__ import annotations

import math
import shutil
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2

from accounting import Budget, InvalidParameter, Ledger
from dpfedvis.mechanisms import (
    ClippedGradientPerturbation,
    GradientPerturbation,
    InputPerturbation,
    KMeans,
    MeanEmbedding,
    VariablePerturbation,
)
from dpfedvis.mechanisms.second_moments import SecondMoments
from dpfedvis.numerics.files import write_arrays
from dpfedvis.protocol.density import Density
from dpfedvis.protocol.noise_plan import MEAN_CELLS
from dpfedvis.server.checkpoint import SnapshotMismatch
from dpfedvis.server.frame import Frame
from dpfedvis.server.private_map import Learner
from dpfedvis.server.recipe import Recipe
from dpfedvis.server.session import SiteFailed
from dpfedvis.site.computation import Computation
from dpfedvis.site.placement import ByWeights

KINDS = {
    "k-means": KMeans,
    "gradient": GradientPerturbation,
    "clipped": ClippedGradientPerturbation,
    "mean-embedding": MeanEmbedding,
}
ADD_REMOVE = Budget(1.0, 1e-5, adjacency="add-remove")
CLIENT = Budget(1.0, 1e-5, unit="client")
DENSITY = {"density": True}
UPLOADS = {"k-means": 3, "gradient": 3, "clipped": 3, "mean-embedding": 1}


def stages(ledger, client=None):
    return Counter((event.what, event.stage) for event in ledger.events(client=client))


# All stages, and the whole budget


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("tau_x", [None, 12.0])
@pytest.mark.parametrize("trust", ["local", "aggregate", "central"])
def test_every_stage_of_every_client_is_in_the_ledger(trust, tau_x, density, fed, map_of, watching):
    seen = watching()
    estimator = map_of(mechanism=KMeans(trust=trust), tau_x=tau_x, private_map={"density": density})
    ledger = estimator.watch(witness=seen).fit(fed).ledger_
    expected = {("moments", "scale"): 1, ("second moments", "subspace"): 1, ("cluster sums", "landmarks"): 3}
    expected |= {("scale histogram", "scale"): 1} if tau_x is None else {}
    expected |= {("density", "density"): 1} if density else {}
    for client in fed.clients:
        assert stages(ledger, client.name) == expected
    passed = Counter(event.to_json() for events in seen.events for event in events)
    assert passed == Counter(event.to_json() for event in ledger.events())
    assert {event.trust for event in ledger.events()} == {trust}
    assert len(seen.values) == sum(expected.values()) * (3 if trust == "local" else 1), "sums show nobody's part"


@pytest.mark.parametrize("options", [{}, {"tau_x": 12.0, "private_map": DENSITY}], ids=["bare", "bound and density"])
@pytest.mark.parametrize("trust", ["local", "aggregate"])
@pytest.mark.parametrize("kind", KINDS)
def test_epsilon_end_to_end_is_the_budget(kind, trust, options, fed, map_of):
    budget = Budget(0.7, 1e-6)
    estimator = map_of(budget, mechanism=KINDS[kind](trust=trust), **options).fit(fed)
    spent = [estimator.ledger_.spent(client=client.name, end_to_end=True) for client in fed.clients]
    assert max(spent) == pytest.approx(0.7, rel=1e-6)
    assert max(spent) <= 0.7
    if trust == "local":
        assert min(spent) == pytest.approx(0.7, rel=1e-6)
    whats = [event.what for event in estimator.ledger_.events(client="client-0")]
    assert Counter(whats)[KINDS[kind].what] == UPLOADS[kind]


@pytest.mark.parametrize("trust", ["local", "aggregate"])
@pytest.mark.parametrize(
    ("budget", "options"),
    [(ADD_REMOVE, {"tau_x": 12.0, "feddl": {"public_records": 45}}), (CLIENT, {})],
    ids=["add-remove", "client"],
)
def test_epsilon_is_the_budget_for_other_meanings_of_it(budget, options, trust, fed, map_of):
    estimator = map_of(budget, mechanism=KMeans(trust=trust), private_map=DENSITY, **options).fit(fed)
    assert estimator.ledger_.spent(end_to_end=True) == pytest.approx(1.0, rel=1e-6)
    assert {(event.adjacency, event.unit) for event in estimator.ledger_.events()} == {(budget.adjacency, budget.unit)}
    if trust == "local":
        said = f"ε = 1 end to end at δ = 1e-05, for one {budget.unit}, {budget.adjacency}"
        assert said in estimator.statement_.headline


@pytest.mark.parametrize("trust", ["local", "aggregate", "central"])
def test_epsilon_is_the_budget_with_noise_that_is_no_simulation(trust, fed, map_of):
    estimator = map_of(mechanism=KMeans(trust=trust), noise="discrete", private_map=DENSITY).fit(fed)
    assert {event.noise for event in estimator.ledger_.events()} == {"discrete"}
    assert estimator.ledger_.spent(end_to_end=True) == pytest.approx(1.0, rel=1e-6)


def test_shares_are_shares_of_mu_squared(fed, map_of):
    shares = {"scale": 0.05, "moments": 0.1, "subspace": 0.3, "density": 0.2}
    ledger = map_of(private_map={**DENSITY, "shares": shares}).fit(fed).ledger_
    spent = Counter()
    for event in ledger.events(client="client-1"):
        spent[event.what] += event.mu**2
    total = spent.total()
    found = {what: value / total for what, value in spent.items()}
    assert found == pytest.approx(
        {"scale histogram": 0.05, "moments": 0.1, "second moments": 0.3, "density": 0.2, "cluster sums": 0.35}
    )


@pytest.mark.parametrize(("unit", "trust"), [("record", "local"), ("record", "aggregate"), ("client", "local")])
def test_sensitivities_in_the_ledger_are_those_of_the_theory(unit, trust, fed, map_of):
    """And a cell more for each value that is rounded by itself: the mean square, and all values of a client's means.

    The mean square of a client's records is rounded twice: in cells of the sum, and in those of the mean.
    """
    budget = Budget(1.0, 1e-5, unit=unit)
    ledger = map_of(budget, mechanism=KMeans(trust=trust), private_map=DENSITY).fit(fed).ledger_
    theory = {"scale histogram": 2, "moments": 2, "second moments": math.sqrt(2), "density": math.sqrt(2)}
    for client in fed.clients:
        records = len(client.X) if unit == "record" else 1
        weight = 1.0 if trust == "local" else len(client.X) / fed.n_records
        for event in ledger.events(client=client.name):
            cells = math.sqrt(event.values) if unit == "client" else 0.0
            if event.what == "moments":
                cells += MEAN_CELLS if unit == "client" else 1
            exact = weight * theory.get(event.what, 2) / records
            assert event.sensitivity == pytest.approx(exact + event.grid * cells, rel=1e-12)
            assert event.sensitivity == pytest.approx(exact, rel=1e-4)


# The noise that is drawn


def drawn(estimator, fed):
    """Noise of every upload over what the ledger says it is, by stage: measured at the site, before it leaves."""
    upload, found = Computation.upload, defaultdict(list)

    def spy(self, request):
        made, mechanism, public = upload(self, request), request.mechanism, request.public
        Y = np.zeros((1, public.features)) if request.landmarks is None else request.landmarks
        plan = self._contract.site_plans(mechanism, public)[self._place]
        quiet = mechanism.total(self._local(request, plan), Y, public, mechanism.grid(public, Y), plan.factor)
        relative = mechanism.relative_noise(public)
        noise = (made.values - quiet) * made.event.grid / (1.0 if relative is None else relative)
        event = made.event
        parties = 1 if mechanism.trust == "local" else event.threshold - event.colluders
        found[made.event.what].append(noise.ravel() / made.event.sigma * math.sqrt(parties))
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Computation, "upload", spy)
        estimator.fit(fed)
    return found


def check_noise(found):
    for what, parts in found.items():
        values = np.concatenate(parts)
        low, high = chi2.ppf([5e-11, 1 - 5e-11], values.size)
        assert low <= values @ values <= high, f"noise of {what}: variance {values @ values / values.size:.3f}"
        for i, one in enumerate(parts):
            for other in parts[:i]:
                limit = 7 * np.linalg.norm(one) * np.linalg.norm(other) / math.sqrt(one.size)
                assert abs(one @ other) < limit, f"noise of {what} is used twice"


@pytest.mark.parametrize("trust", ["local", "aggregate"])
def test_every_stage_carries_the_noise_of_the_ledger(trust, federation_of, map_of):
    fed = federation_of(features=20)
    found = drawn(map_of(mechanism=KMeans(trust=trust), private_map=DENSITY), fed)
    assert found.keys() == {"scale histogram", "moments", "second moments", "cluster sums", "density"}
    check_noise(found)


@pytest.mark.parametrize("what", ["scale histogram", "moments", "second moments", "cluster sums", "density"])
def test_a_stage_without_noise_would_be_noticed(what, federation_of, map_of, monkeypatch):
    noisy = Computation._noisy

    def forgetful(self, values, event, parties=1, relative=None):
        smaller = replace(event, sigma=event.sigma / (3 if event.what == what else 1))
        return noisy(self, values, smaller, parties, relative)

    monkeypatch.setattr(Computation, "_noisy", forgetful)
    with pytest.raises(AssertionError, match=f"noise of {what}"):
        check_noise(drawn(map_of(private_map=DENSITY), federation_of(features=20)))


# Nothing beside the uploads


@pytest.mark.parametrize("trust", ["local", "aggregate", "central"])
@pytest.mark.parametrize("kind", KINDS)
def test_all_that_the_server_has_is_made_from_the_uploads_alone(kind, trust, federation_of, map_of, replay):
    estimator = map_of(Budget(20.0, 1e-5), mechanism=KINDS[kind](trust=trust), private_map=DENSITY)
    replay(estimator, federation_of(), federation_of(seed=9))


@pytest.mark.parametrize(
    ("budget", "options"),
    [
        (Budget(20.0, 1e-5, adjacency="add-remove"), {"tau_x": 12.0, "feddl": {"public_records": 45}}),
        (Budget(20.0, 1e-5, unit="client"), {}),
    ],
    ids=["add-remove", "client"],
)
@pytest.mark.parametrize("trust", ["local", "aggregate"])
def test_it_does_not_know_private_numbers_of_records_either(budget, options, trust, federation_of, map_of, replay):
    estimator = map_of(budget, mechanism=KMeans(trust=trust), private_map=DENSITY, **options)
    replay(estimator, federation_of(), federation_of((35, 80, 9), seed=9))


def records_behind(ask):
    """All records, as a server could only take them from a link within its own process."""
    return np.concatenate([site._records for site in ask.members])


def centre_of_the_data(patch):
    subspace = Frame.learn

    def peek(self, session):
        found = subspace(self, session)
        return replace(found, centre=records_behind(session._ask).mean(axis=0, dtype=np.float64))

    patch.setattr(Frame, "learn", peek)


def number_of_components_of_the_data(patch):
    subspace = Frame.learn

    def peek(self, session):
        most = 3 if float(records_behind(session._ask)[0, 0]) > 3 else 2
        return subspace(replace(self, components=most), session)

    patch.setattr(Frame, "learn", peek)


def anchors_near_a_record(patch):
    anchored = Recipe.anchored_points

    def peek(self, learned, records, seed):
        points = anchored(self, learned, records, seed)
        points += learned.subspace.coordinates(records_behind(learned.session._ask)[:1])
        return points

    patch.setattr(Recipe, "anchored_points", peek)


def density_beside_the_uploads(patch):
    count = Recipe.count

    def peek(self, learner, learned, published):
        density, X = count(self, learner, learned, published), records_behind(learned.session._ask)
        numbers = density.grid.cell(ByWeights()(published, X))
        exact = np.bincount(numbers, minlength=density.grid.cells**2) / len(X)
        return Density(density.grid, exact.reshape(density.shares.shape), density.noise)

    patch.setattr(Recipe, "count", peek)


def size_of_the_map_from_the_records(patch):
    run, size = Learner.run, []

    def peek(self, ask, **watched):
        size.append(float(np.abs(records_behind(ask)).max()))
        return run(self, ask, **watched)

    patch.setattr(Learner, "run", peek)
    patch.setattr(Learner, "records_a_client", lambda self, contract: size[-1])


@pytest.mark.parametrize(
    "fault",
    [
        centre_of_the_data,
        number_of_components_of_the_data,
        anchors_near_a_record,
        density_beside_the_uploads,
        size_of_the_map_from_the_records,
    ],
)
def test_a_planted_statistic_that_no_event_accounts_for_is_caught(fault, federation_of, map_of, replay, monkeypatch):
    fault(monkeypatch)
    with pytest.raises(AssertionError, match="was not made from the uploads alone"):
        replay(map_of(Budget(20.0, 1e-5), private_map=DENSITY), federation_of(), federation_of(seed=9))


@pytest.mark.parametrize("budget", [Budget(1.0, 1e-5), None], ids=["mirror with the budget", "mirror without"])
def test_an_unprotected_stage_does_not_leave_a_site(budget, fed, map_of, monkeypatch, watching):
    """A stage that has lost its protection goes to a site's ledger as such, and an end-to-end budget refuses it.

    Whatever the ledger of the server would allow.
    """
    seen, ledger = watching(), Ledger(budget=budget)
    monkeypatch.setattr(SecondMoments, "protection", "none")
    monkeypatch.setattr(SecondMoments, "why", "planted")
    with pytest.raises(SiteFailed, match="client-0 failed in round 0: a budget of this site has no room for it"):
        map_of().watch(witness=seen, ledger=ledger).fit(fed)
    assert "second moments" not in {event.what for events in seen.events for event in events}
    assert "second moments" not in {event.what for event in ledger.events()}
    assert {event.what for event in ledger.events()} == {"scale histogram", "moments"}


# Refused before anything is released


@pytest.mark.parametrize(
    ("name", "budget", "options"),
    [
        ("public_records", ADD_REMOVE, {"tau_x": 12.0}),
        ("adjacency", ADD_REMOVE, {"feddl": {"public_records": 45}}),
        (
            "unit of the budget",
            replace(CLIENT, adjacency="add-remove"),
            {"tau_x": 12.0, "feddl": {"public_records": 45}},
        ),
        (
            "adjacency",
            ADD_REMOVE,
            {"tau_x": 12.0, "feddl": {"public_records": 45}, "mechanism": VariablePerturbation()},
        ),
        ("the budget's epsilon", Budget(501, 1e-5), {}),
        ("the budget's delta", Budget(1.0, 1e-70), {}),
        ("mechanism", None, {"mechanism": "none", "release": "none"}),
        ("mechanism", None, {"mechanism": "heuristic", "release": "none"}),
        ("mechanism", None, {"mechanism": InputPerturbation(), "release": "none"}),
        ("scope", Budget(1, 1e-5, scope="landmarks"), {"release": "none"}),
        ("landmarks", None, {"n_landmarks": 1}),
        ("n_landmarks", None, {"n_landmarks": 0}),
        ("n_landmarks", None, {"n_landmarks": 2.5}),
        ("rounds", None, {"rounds": 0}),
        ("tau_x", None, {"tau_x": -1.0}),
        ("random_state", None, {"random_state": -1}),
        ("noise", None, {"noise": "none"}),
        ("noise", None, {"noise": "system"}),
        ("start", None, {"feddl": {"start": "normal"}}),
        ("public_records", None, {"feddl": {"public_records": 0}}),
        ("placement", None, {"private_map": {"placement": "magic"}}),
    ],
)
def test_what_cannot_work_is_named_before_anything_is_released(name, budget, options, fed, map_of):
    estimator = map_of(budget, **options)
    ledger = Ledger(budget=estimator.budget)
    with pytest.raises(InvalidParameter) as caught:
        estimator.watch(ledger=ledger).fit(fed)
    assert caught.value.name == name
    assert len(ledger) == 0


def test_a_budget_is_needed(fed, map_of):
    estimator = map_of(release="none").set_params(budget=None)
    with pytest.raises(InvalidParameter, match="budget"):
        estimator.fit(fed)


def test_a_class_of_its_own_needs_labels(fed, map_of):
    bare = type(fed)([client.X for client in fed.clients])
    ledger = Ledger(budget=Budget(1.0, 1e-5))
    with pytest.raises(InvalidParameter, match="labels"):
        map_of(private_map={**DENSITY, "classes": (0, 1)}).watch(ledger=ledger).fit(bare)
    assert len(ledger) == 0


def test_a_private_map_goes_on_from_its_checkpoint(fed, map_of, watching, tmp_path):
    """With fresh noise: every stage sends the bytes that it sent before, and nothing is spent twice."""
    runs, settings = [], {"noise": "discrete", "private_map": DENSITY}
    for _ in range(2):
        seen = watching()
        estimator = map_of(**settings).watch(witness=seen, checkpoint=tmp_path).fit(fed)
        runs.append((estimator, seen))
    (first, before), (second, after) = runs
    assert len(second.ledger_) == len(first.ledger_)
    sent = dict(zip(before.events, before.values, strict=True))
    for events, values in zip(after.events, after.values, strict=True):
        np.testing.assert_array_equal(values, sent[events])
    assert {events[0].what for events in after.events} == {"scale histogram", "moments", "second moments", "density"}
    for name in ("centre", "axes", "variances"):
        np.testing.assert_array_equal(
            getattr(second.published_map_.subspace, name), getattr(first.published_map_.subspace, name)
        )
    np.testing.assert_array_equal(second.published_map_.places, first.published_map_.places)
    np.testing.assert_array_equal(second.density_.shares, first.density_.shares)
    with pytest.raises(SnapshotMismatch):
        map_of(n_landmarks=21, **settings).watch(checkpoint=tmp_path).fit(fed)
    with pytest.raises(InvalidParameter, match="ledger must be a file with a checkpoint"):
        map_of().watch(checkpoint=tmp_path / "other", ledger=Ledger(None, Budget(1.0, 1e-5))).fit(fed)
    for estimator, _ in runs:
        estimator.ledger_.close()


def test_uploads_that_were_lost_are_not_made_a_second_time(fed, map_of, tmp_path):
    before = [event.to_json() for event in map_of().watch(checkpoint=tmp_path).fit(fed).ledger_.events()]
    outboxes = list(tmp_path.glob("sites/*/outbox"))
    assert len(outboxes) == 3
    for path in outboxes:
        shutil.rmtree(path)
    with pytest.raises(SiteFailed, match="client-0 failed in round 0: scale histogram was released already"):
        map_of().watch(checkpoint=tmp_path).fit(fed)
    assert [event.to_json() for event in Ledger(tmp_path / "landmarks" / "ledger.sqlite").events()] == before


def test_a_run_goes_on_in_the_subspace_that_it_began_with(fed, map_of, tmp_path):
    first = map_of().watch(checkpoint=tmp_path).fit(fed).published_map_.subspace
    # As another machine would have rounded it.
    rounded = {**first.arrays(), "centre": np.nextafter(first.centre, np.inf)}
    write_arrays(tmp_path / "landmarks" / "subspace.npz", rounded)
    again = map_of().watch(checkpoint=tmp_path).fit(fed).published_map_.subspace
    np.testing.assert_array_equal(again.centre, rounded["centre"])
