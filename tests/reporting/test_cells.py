"""Cells of a report and the tables that are made of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpfedvis import FederatedData
from dpfedvis.evaluation import cross_client_accuracy
from dpfedvis.reporting.cells import MAP_SCORES, codes, keep, kept, map_scores, markdown, span, spread


def test_what_is_kept_is_found_by_its_name(tmp_path: Path) -> None:
    keep(tmp_path / "cells" / "b-0.json", {"cross": 0.5, "code": "2"})
    keep(tmp_path / "cells" / "a-0.json", {"cross": 0.25})
    found = kept(tmp_path / "cells")
    assert list(found) == ["a-0", "b-0"]
    assert found["b-0"] == {"cross": 0.5, "code": "2"}
    assert [path.suffix for path in (tmp_path / "cells").iterdir()] == [".json", ".json"]  # no draft is left
    assert codes(found.values(), "1 or before") == "1 or before, 2"


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.94], "0.940"),
        ([0.9, 1.0], "0.950 ± 0.071"),  # of one seed, so with n − 1
        ([0.9, None], "0.900"),
        ([None, None], "-"),
    ],
)
def test_spread(values: list[float | None], text: str) -> None:
    assert spread(values) == text


def test_span_and_table() -> None:
    assert (span([202, 202]), span([202, 198, 200])) == ("202", "198–202")
    assert markdown(["a", "ε"], [[1, 0.5], ["x", None]]) == [
        "| a | ε |",
        "| --- | --- |",
        "| 1 | 0.5 |",
        "| x | None |",
    ]


def test_scores_of_maps_have_a_meaning_or_are_none() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 60)
    places = (y[:, None] + 0.01 * rng.normal(size=(120, 2))).astype(np.float32)
    X = np.concatenate([places, places], axis=1)
    dealt = FederatedData.split(X, y, clients=2, seed=0)
    order = np.concatenate([client.X[:, :2] for client in dealt.clients])
    scores = map_scores(dealt, order)
    assert set(scores) == set(MAP_SCORES)
    assert scores["purity_10"] == scores["ca_cross_10"] == 1
    assert scores["ca_cross_10"] == cross_client_accuracy(
        [client.X[:, :2] for client in dealt.clients], [client.y for client in dealt.clients]
    )
    alone = FederatedData.split(X, y, clients=2, partition="by-class", seed=0)
    apart = map_scores(alone, np.concatenate([client.X[:, :2] for client in alone.clients]))
    assert apart["ca_cross_10"] is None
    assert apart["ca_shared_10"] is None
    assert apart["purity_10"] == 1
