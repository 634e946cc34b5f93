"""Random streams without state: each follows from the seed and its purpose alone."""

from __future__ import annotations

import numpy as np

from dpfedvis.numerics.random_streams import Streams


def test_a_stream_depends_on_seed_and_purpose_alone():
    streams = Streams(1)
    first = streams.generator("noise", "gradient", 0, 1).normal(size=5)
    streams.generator("sample", "gradient", 0, 1).normal(size=7)
    np.testing.assert_array_equal(first, Streams(1).generator("noise", "gradient", 0, 1).normal(size=5))


def test_streams_of_different_purposes_are_different():
    purposes = [(kind, what, p, s) for kind in ("noise", "sample", "message") for what in "ab" for p in range(3)
                for s in range(4)]  # fmt: skip
    purposes += [("start",), ("noise", "a", "curator", 1)]
    values = {Streams(seed).generator(*purpose).random() for purpose in purposes for seed in (0, 1)}
    assert len(values) == 2 * len(purposes)


def test_streams_look_independent():
    draws = np.stack([Streams(0).generator("noise", "gradient", p, s).normal(size=2000) for p in range(4)
                      for s in range(4)])  # fmt: skip
    correlations = np.corrcoef(draws)[np.triu_indices(16, k=1)]
    assert np.abs(correlations).max() < 6 / np.sqrt(2000)
