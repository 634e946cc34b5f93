"""Every protected mechanism under every trust and adjacency: noise, sensitivity, ledger and budget agree."""

from __future__ import annotations

import numpy as np
import pytest

from accounting import InvalidParameter
from accounting.gate import Gate
from accounting.noise import SeededNoise
from dpfedvis.mechanisms import (
    MECHANISMS,
    ClippedGradientPerturbation,
    GradientPerturbation,
    InputPerturbation,
    KMeans,
    MeanEmbedding,
    VariablePerturbation,
)
from dpfedvis.numerics.random_streams import Streams
from dpfedvis.protocol import noise_plan as plan
from dpfedvis.server.mirror import Mirror
from dpfedvis.site.computation import Computation
from dpfedvis.site.run_account import RunAccount

TRUSTS = ("local", "aggregate", "central")
THEOREM = {"bound": "theorem", "tau_x": 3.0, "tau_y": 6.0, "upsilon": 5.5}
BUILDERS = {
    "gradient": lambda trust: GradientPerturbation(trust=trust),
    "theorem": lambda trust: GradientPerturbation(trust=trust, **THEOREM),
    "clipped": lambda trust: ClippedGradientPerturbation(trust=trust, clip=0.4),
    "variable": lambda trust: VariablePerturbation(trust=trust),
    "mean-embedding": lambda trust: MeanEmbedding(trust=trust, frequencies=1000, steps=5),
    "k-means": lambda trust: KMeans(trust=trust, sweeps=20),
}
REPLACE = [(name, trust, "replace-one") for name in BUILDERS for trust in TRUSTS]
ADD = [(name, trust, "add-remove") for name in BUILDERS if name != "variable" for trust in TRUSTS]


def build(name, trust):
    return BUILDERS[name](trust)


def test_the_cases_cover_all_protected_mechanisms():
    covered = {build(name, "local").name for name in BUILDERS} | {"input"}
    assert covered == {name for name, kind in MECHANISMS.items() if kind().protection != "none"}


@pytest.mark.parametrize(("name", "trust", "adjacency"), REPLACE + ADD)
def test_noise_sensitivity_ledger_and_budget_agree(name, trust, adjacency, configure, fed, verify):
    verify(configure(build(name, trust), adjacency=adjacency), fed)


@pytest.mark.parametrize("trust", TRUSTS)
def test_they_agree_with_equal_weights(trust, configure, fed, verify):
    verify(configure(build("gradient", trust), weights="equal"), fed)


@pytest.mark.parametrize("trust", TRUSTS)
def test_they_agree_with_several_local_steps(trust, configure, fed, verify):
    verify(configure(build("variable", trust), local_steps=3), fed)


@pytest.mark.parametrize("trust", TRUSTS)
def test_they_agree_with_real_noise(trust, configure, fed):
    """Noise that cannot be repeated, under every trust: the same Δ and σ as with a seed."""
    seen, seeded = [], []
    for noise, kept in (("discrete", seen), ("seeded", seeded)):
        config = configure(build("gradient", trust), noise=noise, rounds=5)
        result = config.run(fed, witness=lambda events, values, kept=kept: kept.append((events, values)))
        assert result.ledger.spent() == pytest.approx(2.0, rel=1e-6)
        assert result.ledger.spent() <= 2.0
    for (real, values), (simulated, others) in zip(seen, seeded, strict=True):
        assert values.dtype == others.dtype == np.int64
        assert not np.array_equal(values, others)
        for one, other in zip(real, simulated, strict=True):
            assert (one.noise, other.noise) == ("discrete", "seeded")
            assert (one.sensitivity, one.sigma, one.grid) == (other.sensitivity, other.sigma, other.grid)


def test_input_draws_its_noise_at_home_once(configure, federation_of, verify):
    verify(configure(InputPerturbation(tau_x=2.0), rounds=4), federation_of((250, 300, 400)))


@pytest.mark.parametrize("trust", ["local", "aggregate"])
def test_sampled_rounds_keep_to_the_budget(trust, configure, fed, verify):
    """Poisson samples: ε is numerical, so that a thousandth may stay unspent."""
    config = configure(build("gradient", trust), adjacency="add-remove", sampling_rate=0.5, rounds=20)
    result = verify(config, fed, tolerance=1e-3)
    assert {event.sampling_rate for event in result.ledger.events()} == {0.5}


def test_real_noise_samples_from_the_system_too(configure, fed):
    """Whoever knows the seed knows a seeded sample, and amplification needs it secret."""
    seen = []
    config = configure("none", adjacency="add-remove", sampling_rate=0.5, rounds=1, noise="discrete", budget=None)
    for _ in range(2):
        config.run(fed, witness=lambda events, values: seen.append(values.copy()))
    assert not np.array_equal(seen[0], seen[3])


def test_variable_refuses_what_its_smoothness_does_not_cover(configure, fed):
    with pytest.raises(InvalidParameter) as caught:
        configure("variable", adjacency="add-remove").run(fed)
    assert caught.value.value == "add-remove"


def test_input_refuses_what_it_cannot_mean(configure, fed):
    with pytest.raises(InvalidParameter) as caught:
        configure(InputPerturbation(tau_x=2.0), adjacency="add-remove").run(fed)
    assert caught.value.value == "add-remove"
    for trust in ("aggregate", "central"):
        with pytest.raises(InvalidParameter) as caught:
            InputPerturbation(trust=trust)
        assert caught.value.value == trust


# Planted faults: the checker must catch each of them, and for its own reason.


def noise_twice(patch):
    add = SeededNoise.add_integers
    patch.setattr(SeededNoise, "add_integers", lambda self, values, s: add(self, add(self, values, s), s))


def half_sigma(patch):
    add = SeededNoise.add_integers
    patch.setattr(SeededNoise, "add_integers", lambda self, values, s: add(self, values, s / 2))


def noise_forgotten_on_one_client(patch):
    noisy = Computation._noisy

    def forgetful(self, values, event, *facts):
        return values if event.client == "client-1" else noisy(self, values, event, *facts)

    patch.setattr(Computation, "_noisy", forgetful)


def curator_forgets(patch):
    patch.setattr(SeededNoise, "add_integers", lambda self, values, s: values)


def same_noise_every_round(patch):
    generator = Streams.generator

    def stuck(self, *purpose):
        return generator(self, *(purpose[:-1] if purpose[0] == "noise" else purpose))

    patch.setattr(Streams, "generator", stuck)


def same_noise_at_every_client(patch):
    generator = Streams.generator

    def shared(self, *purpose):
        return generator(self, *((purpose[0], purpose[1], purpose[-1]) if purpose[0] == "noise" else purpose))

    patch.setattr(Streams, "generator", shared)


def delta_of_another_client(patch):
    stated, other = plan._sensitivity, {20: 60, 60: 20}
    patch.setattr(plan, "_sensitivity", lambda chosen, public, n: stated(chosen, public, other.get(n, n)))


def _forgotten(event):
    return (event.client, event.round) == ("client-2", 1)


def release_missing_at_the_site(patch):
    record = RunAccount.record
    patch.setattr(RunAccount, "record", lambda self, event: None if _forgotten(event) else record(self, event))


def release_missing_in_the_mirror(patch):
    write = Mirror.write

    def careless(self, events, receipts):
        return write(self, [event for event in events if not _forgotten(event)], receipts)

    patch.setattr(Mirror, "write", careless)


def release_missing(patch):
    """Both ledgers agree with each other, and not with what left."""
    release_missing_at_the_site(patch)
    release_missing_in_the_mirror(patch)


def event_written_twice(patch):
    write = Mirror.write
    patch.setattr(Gate, "fits", lambda *_: True)  # so that the checker objects and not the ledger

    def twice(self, events, receipts):
        write(self, events, receipts)
        if events[0].round == 1:
            write(self, events[:1], receipts[:1])

    patch.setattr(Mirror, "write", twice)


def event_written_twice_at_the_site(patch):
    record = RunAccount.record
    patch.setattr(Gate, "fits", lambda *_: True)

    def twice(self, event):
        record(self, event)
        return record(self, event) if (event.client, event.round) == ("client-0", 1) else None

    patch.setattr(RunAccount, "record", twice)


LOCAL = ("gradient", "theorem", "clipped", "variable", "k-means", "mean-embedding")
NOISE, FRESH, DELTA = "variance", "not fresh", "Δ of client"
SITE, MIRROR = "sites' ledgers have is not what passed", "mirror has is not what passed"
FAULTS = [
    *((name, trust, noise_twice, NOISE) for name in LOCAL for trust in TRUSTS),
    *((name, trust, half_sigma, NOISE) for name in LOCAL for trust in TRUSTS),
    *((name, trust, noise_forgotten_on_one_client, NOISE) for name in LOCAL for trust in TRUSTS[:2]),
    *((name, "central", curator_forgets, NOISE) for name in LOCAL),
    *((name, trust, same_noise_every_round, FRESH) for name in LOCAL[:-1] for trust in TRUSTS),
    *((name, "local", same_noise_at_every_client, FRESH) for name in LOCAL),
    *((name, trust, delta_of_another_client, DELTA) for name in LOCAL for trust in TRUSTS),
    *((name, trust, release_missing, SITE) for name in LOCAL for trust in TRUSTS),
    *(("gradient", trust, release_missing_at_the_site, SITE) for trust in TRUSTS),
    *(("gradient", trust, release_missing_in_the_mirror, MIRROR) for trust in TRUSTS),
    *((name, "local", event_written_twice, MIRROR) for name in ("gradient", "mean-embedding")),
    *((name, "local", event_written_twice_at_the_site, SITE) for name in ("gradient", "mean-embedding")),
]


@pytest.mark.parametrize(
    ("name", "trust", "fault", "reason"), FAULTS, ids=[f"{f.__name__}-{name}-{trust}" for name, trust, f, _ in FAULTS]
)
def test_a_planted_fault_is_caught(name, trust, fault, reason, configure, fed, verify, monkeypatch):
    config = configure(build(name, trust))
    fault(monkeypatch)
    with pytest.raises(AssertionError, match=reason):
        verify(config, fed)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [(noise_twice, NOISE), (half_sigma, NOISE), (noise_forgotten_on_one_client, NOISE), (curator_forgets, NOISE)],
)
def test_a_fault_planted_at_home_is_caught(fault, reason, configure, federation_of, verify, monkeypatch):
    fault(monkeypatch)
    with pytest.raises(AssertionError, match=reason):
        verify(configure(InputPerturbation(tau_x=2.0), rounds=2), federation_of((250, 300, 400)))
