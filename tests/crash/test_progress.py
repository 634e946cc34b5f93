"""How far a run is, for people who wait."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from dpfedvis.runs.settings import RunConfig
from dpfedvis.server import callbacks


def test_each_stage_has_a_bar_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for terminal in (False, True):
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        bars = callbacks.StageBars()
        for stage in ("rows", "placement at home"):
            for done in (1, 2, 3):
                bars(stage, done, 3)
        said = capsys.readouterr().err
        assert (said == "") is not terminal
        assert all(stage in said for stage in ("rows", "placement at home")) is terminal


def test_the_stage_of_a_private_map_is_told() -> None:
    config = RunConfig(data="digits", records=60, clients=3, landmarks=8, perplexity=5.0, epsilon=2.0)
    fed, seen = config.federated(), []
    config.resolved(fed).estimator().watch(progress=lambda *stage: seen.append(stage)).fit(fed)
    assert [stage for stage in seen if stage[0] == "placement at home"] == [
        ("placement at home", 0, 3),
        ("placement at home", 3, 3),
    ]


def test_looking_on_changes_no_map() -> None:
    config = RunConfig(data="digits", records=60, clients=3, landmarks=8, rounds=3, perplexity=5.0, jobs=1)
    fed, seen = config.federated(), []
    config = config.resolved(fed)
    watched = config.estimator().watch(progress=lambda *stage: seen.append(stage)).fit(fed)
    np.testing.assert_array_equal(watched.embedding_, config.estimator().fit(fed).embedding_)
    assert seen == [("rows", number, 1) for number in range(2)] + [("layout", part, 15) for part in range(16)]
    seen.clear()
    watched.transform(np.zeros((2, 64)))
    assert not seen  # newcomers are placed in the map as it is
