"""What a site computes: its share of the noise, under events that say what the server will see."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accounting import Budget, PostProcessing
from accounting.gdp import gaussian_mu
from dpfedvis.mechanisms import GradientPerturbation, InputPerturbation, NoPerturbation, PreparedRecords
from dpfedvis.mechanisms.public_parameters import PublicParameters
from dpfedvis.numerics.kernels import Kernel
from dpfedvis.protocol.messages import NOT_PLANNED, Perturb, Perturbed, Refused, Send, Sent
from tests.site.agreed import agreed, contract_of, sites_of

ROUNDS = 300
SETTING = PublicParameters(Kernel((0.2,)), landmarks=3, features=4, rounds=ROUNDS, local_steps=1, step_size=0.5)
Y = np.zeros((3, 4))


def run_of(mechanism, values=12, **settings):
    """Four sites of ten records, and the hash of their contract."""
    parts = [np.random.default_rng(p).normal(size=(10, 4)) for p in range(4)]
    sites = sites_of(parts)
    contract = contract_of(sites, [10] * 4, mechanism, rounds=ROUNDS, values=values, **settings)
    return sites, parts, agreed(sites, contract)


@pytest.mark.parametrize(
    ("trust", "sharing", "share"),
    [
        ("local", {}, 1.0),
        ("aggregate", {"threshold": 4, "colluders": 0}, 1 / 2),
        ("aggregate", {}, 1 / math.sqrt(3)),  # all four, one of whom may collude
        ("aggregate", {"threshold": 3, "colluders": 1}, 1 / math.sqrt(2)),
        ("central", {}, 0.0),
    ],
)
def test_a_site_adds_its_share_of_the_noise(trust, sharing, share):
    """σ alone, σ/√(t − c) of a sum, nothing where the server is trusted; and the event always says σ."""
    mechanism = GradientPerturbation(trust=trust)
    sites, parts, label = run_of(mechanism, 12 * (4 if trust == "aggregate" else 1), **sharing)
    uploads = [sites[0].answer(Send(label, mechanism, SETTING, round, Y)) for round in range(1, ROUNDS + 1)]
    # What a record moves the sum by is a quarter of what it moves the one upload by, in both.
    weight = 1.0 if trust == "local" else 0.25
    delta = weight * mechanism.sensitivity(SETTING, 10.0)
    sigma = delta * math.sqrt(ROUNDS) / gaussian_mu(2.0, 1e-5)
    for upload in uploads:
        assert isinstance(upload, Sent)
        assert upload.event.sensitivity == pytest.approx(delta, rel=1e-12)
        assert upload.event.sigma == pytest.approx(sigma, rel=1e-6)
    exact = mechanism.total(PreparedRecords(parts[0], 10.0), Y, SETTING, mechanism.grid(SETTING, Y))
    noise = np.stack([(upload.values - exact) * upload.event.grid for upload in uploads])
    assert noise.std() == pytest.approx(share * sigma, rel=6 / math.sqrt(2 * noise.size))
    assert abs(noise.mean()) <= 6 * share * sigma / math.sqrt(noise.size)


def test_sites_draw_noise_of_their_own():
    mechanism = GradientPerturbation()
    sites, parts, label = run_of(mechanism)
    noise = []
    for site, X in zip(sites, parts, strict=True):
        upload = site.answer(Send(label, mechanism, SETTING, 1, Y))
        noise.append(upload.values - mechanism.total(PreparedRecords(X, 10.0), Y, SETTING, mechanism.grid(SETTING, Y)))
    assert len({each.tobytes() for each in noise}) == 4


def test_a_site_without_a_plan_uploads_nothing():
    """Where nothing is protected there is no noise to add, so that a protected upload is refused."""
    sites, _, label = run_of(NoPerturbation(), budget=None, unprotected=("gradient",))
    reply = sites[0].answer(Send(label, GradientPerturbation(), SETTING, 1, Y))
    assert isinstance(reply, Refused)
    assert reply.code == NOT_PLANNED
    assert isinstance(sites[0].answer(Send(label, NoPerturbation(), SETTING, 1, Y)), Sent)


def test_records_are_perturbed_once_and_what_follows_is_made_of_them():
    """Asked again, a site keeps the records that it has perturbed: fresh noise would be a second release."""
    chosen = InputPerturbation(tau_x=5.0)
    sites, parts, label = run_of(chosen, 4, budget=Budget(2.0, 1e-5), noise="seeded")
    assert isinstance(sites[0].answer(Send(label, chosen, SETTING, 1, Y)), Refused), "nothing is perturbed yet"
    first = sites[0].answer(Perturb(label, chosen, SETTING))
    assert isinstance(first, Perturbed)
    kept = sites[0].perturbed(label)
    assert sites[0].answer(Perturb(label, chosen, SETTING)) == first
    np.testing.assert_array_equal(sites[0].perturbed(label).values, kept.values)
    sent = sites[0].answer(Send(label, chosen, SETTING, 1, Y))
    assert isinstance(sent.event, PostProcessing)
    assert sent.event.of == first.event.what
    generator = np.random.default_rng(0)
    local = PreparedRecords(kept.floats.astype(parts[0].dtype), 10.0)
    np.testing.assert_array_equal(sent.values, chosen.message(local, Y, SETTING, generator).values)
    assert (
        sent.values.tobytes() != chosen.message(PreparedRecords(parts[0], 10.0), Y, SETTING, generator).values.tobytes()
    )
