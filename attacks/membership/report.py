"""Membership inference on a recorded run: from gradients, from the landmarks, and from the map."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attacks.membership.rates import Game, Membership, membership
from attacks.membership.scores import gradient_scores, insider_scores, landmark_scores, list_scores
from attacks.membership.sums import sum_scores, sums_of
from attacks.shared.gradients import Float64, as_learned, contribution_of, gradients_of
from attacks.shared.registry import NothingToAttack, Truth
from attacks.shared.statistics import Limit
from dpfedvis.numerics.kernels import Array
from dpfedvis.reporting.drawing import save_png
from dpfedvis.runs.upload_reader import Recording

DELTA = 1e-5
REFERENCE, CANDIDATES, CLIENTS, ROUNDS = 500, 400, 5, 50
MOST_ASKED = 5000  # records of one sum
OUT = "fresh records of the same data set"
LISTED = Game(
    "gradients, with a list of candidates",
    "records of the client",
    OUT,
    "a list that holds all records of the client and others, the landmarks of each round, and the gradients",
    independent=False,
)
UNLISTED = Game(
    "gradients",
    "records of the client",
    OUT,
    "the landmarks of each round, the gradients, and other records of the same data set",
    independent=False,
)
LANDMARKS = Game("the landmarks alone", "records of all clients", OUT, "the last landmarks", independent=False)
CONTROL = Game(
    "the landmarks before the first round (control)",
    "records of all clients",
    OUT,
    "landmarks that have seen no record, or a private map's noisy second moments alone: a finding here says that fresh "
    "records differ from those of the run",
    independent=False,
)
SUMS = Game(
    "the noisy sums of all rounds",
    "records of the clients in a sum",
    OUT,
    "the landmarks and the sums of each round, and other records of the same data set",
    independent=False,
)
ANCHORS = Game(
    "the published map's anchors",
    "records of all clients",
    OUT,
    "what everybody sees: anchors, subspace, and their places on the map",
    independent=False,
)
MAP = Game(
    "the published map",
    "records of all clients but one",
    OUT,
    "the map, and as one of the clients its own records and where they lie in it",
    independent=False,
)


@dataclass(frozen=True, eq=False)
class MembershipReport:
    """All games that can be played on the run.

    Parameters
    ----------
    games : tuple of Membership
    missing : tuple of str
        Why the other games were not played.
    caution : str
        See `attacks.shared.registry.Truth`.
    """

    games: tuple[Membership, ...]
    missing: tuple[str, ...]
    caution: str = ""

    @property
    def summary(self) -> Mapping[str, float | None]:
        """AUC of each game beside the most that is allowed."""
        values: dict[str, float | None] = {}
        for each in self.games:
            values[f"AUC from {each.game.name}"] = each.auc.value
            values[f"AUC from {each.game.name}, at most"] = each.limit.auc()
        return values

    def to_json(self) -> str:
        """Return all games, without the scores of single records."""
        games = [each.to_dict() for each in self.games]
        values = {"kind": "membership", "games": games, "missing": self.missing, "caution": self.caution}
        return json.dumps(values, indent=2, allow_nan=False)

    def markdown(self) -> str:
        """Return a page."""
        lines = [
            "# Membership inference",
            "",
            "Was a record among those of the run? Neighbours replace one record. Thresholds come from fresh records",
            "that are not counted; AUC has DeLong's interval, rates have Clopper & Pearson's.",
            *([self.caution] if self.caution else []),
            "",
            "![ROC curves](membership.png)",
            "",
        ]
        return "\n".join(lines) + "\n" + "\n".join([*(each.markdown() for each in self.games), *self.missing, ""])

    def figure(self, path: Path) -> None:
        """Draw the ROC curve of each game, and the most that its guarantee allows, dashed."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.5, 5), layout="constrained")
        axes = figure.add_subplot()
        grid = np.geomspace(1e-3, 1, 200)
        for number, each in enumerate(self.games):
            thresholds = np.sort(each.others)[::-1]
            fpr = np.arange(1, len(thresholds) + 1) / len(thresholds)
            tpr = 1 - np.searchsorted(np.sort(each.members), thresholds, side="left") / len(each.members)
            axes.plot(fpr, np.maximum(tpr, 1e-4), color=f"C{number}", label=each.game.name)
            allowed = [each.limit.tpr(float(x)) for x in grid[:-1]]
            axes.plot(grid[:-1], allowed, color=f"C{number}", linestyle="--", linewidth=1)
        axes.plot(grid, grid, color="0.7", zorder=0)
        axes.set(
            xscale="log", yscale="log", xlabel="false positive rate", ylabel="true positive rate", ylim=(1e-3, 1.1)
        )
        axes.legend(fontsize=8, frameon=False, loc="lower right")
        save_png(figure, path)


def attack(recording: Recording, truth: Truth, rng: np.random.Generator) -> MembershipReport:
    """Play every game that can be played on the run, against fresh records."""
    if truth.fresh is None or len(truth.fresh) < 8:
        raise NothingToAttack(
            "membership needs records of the data set that took no part in the run, and there are few"
        )
    fresh = truth.fresh[rng.permutation(len(truth.fresh))]
    with recording.ledger() as ledger:
        landmarks, everything = (Limit.of_ledger(ledger, DELTA, rows=rows) for rows in (False, True))
    games: list[Membership] = []
    missing: list[str] = []
    plays: tuple[Callable[[], Membership], ...] = (
        lambda: _listed(recording, truth, fresh, landmarks, rng),
        lambda: _unlisted(recording, truth, fresh, landmarks, rng),
        lambda: _from_landmarks(recording.landmarks, LANDMARKS, truth, fresh, landmarks),
        lambda: _from_landmarks(recording.trajectory[0], CONTROL, truth, fresh, landmarks),
        lambda: _from_map(recording, truth, fresh, everything),
    )
    if "anchors" in recording.published:  # of a private map
        plays += (
            lambda: _from_sums(recording, truth, fresh, everything, rng),
            lambda: _from_anchors(recording, truth, fresh, everything),
        )
    for play in plays:
        try:
            games.append(play())
        except NothingToAttack as error:
            missing.append(f"Not played: {error}.")
    return MembershipReport(tuple(games), tuple(dict.fromkeys(missing)), truth.caution)


def _listed(recording: Recording, truth: Truth, fresh: Array, limit: Limit, rng: np.random.Generator) -> Membership:
    """Clients small enough for a list; half of the fresh records on it set the threshold and are not counted."""
    parts: list[tuple[Float64, Float64, Float64]] = []
    for client in recording.clients:
        records = truth.client(client.name)
        size = min(len(records), len(fresh) // 2)
        if len(records) > CANDIDATES or len(parts) == CLIENTS or size < 2:
            continue
        seen = gradients_of(recording, client.name, rounds=ROUNDS)
        out = fresh[rng.permutation(len(fresh))[: 2 * size]]
        asked = as_learned(recording, np.concatenate([records, out]))
        scores = list_scores(seen, contribution_of(recording), asked, client.stated_denominator)
        others, calibration = np.split(scores[len(records) :], 2)
        parts.append((scores[: len(records)], others, calibration))
    if not parts:
        raise NothingToAttack(f"a list of candidates is for clients of at most {CANDIDATES} records, and there is none")
    return _pooled(parts, LISTED, limit)


def _unlisted(recording: Recording, truth: Truth, fresh: Array, limit: Limit, rng: np.random.Generator) -> Membership:
    third = len(fresh) // 3
    reference, out = as_learned(recording, fresh[:third][:REFERENCE]), fresh[third : 3 * third]
    parts: list[tuple[Float64, Float64, Float64]] = []
    for client in recording.clients[:CLIENTS]:
        seen, records = gradients_of(recording, client.name, rounds=ROUNDS), truth.client(client.name)
        chosen = records[rng.permutation(len(records))[:CANDIDATES]]
        away = out[rng.permutation(len(out))[: 2 * CANDIDATES]]
        asked = as_learned(recording, np.concatenate([chosen, away]))
        scores = gradient_scores(seen, contribution_of(recording), asked, reference, client.stated_denominator)
        half = len(chosen) + len(away) // 2
        parts.append((scores[: len(chosen)], scores[len(chosen) : half], scores[half:]))
    return _pooled(parts, UNLISTED, limit)


def _pooled(parts: list[tuple[Float64, Float64, Float64]], game: Game, limit: Limit) -> Membership:
    members, others, calibration = (np.concatenate(each) for each in zip(*parts, strict=True))
    return membership(members, others, calibration=calibration, game=game, limit=limit)


def _from_sums(recording: Recording, truth: Truth, fresh: Array, limit: Limit, rng: np.random.Generator) -> Membership:
    """A third of the fresh records stands for those behind the sums."""
    third = len(fresh) // 3
    if third < 2:
        raise NothingToAttack("sums need more fresh records, as a reference")
    reference, out = fresh[:third], fresh[third:]
    whole = recording.mechanism.trust != "local"
    names = [each.name for each in recording.clients]
    parts: list[tuple[Float64, Float64, Float64]] = []
    for behind in [names] if whole else [[name] for name in names[:CLIENTS]]:
        seen = sums_of(recording, behind)
        records = np.concatenate([truth.client(name) for name in behind])
        chosen = records[rng.permutation(len(records))[:MOST_ASKED]]
        away = out[rng.permutation(len(out))[:MOST_ASKED]]
        scores = sum_scores(recording, seen, np.concatenate([chosen, away]), reference)
        others, calibration = np.array_split(scores[len(chosen) :], 2)
        parts.append((scores[: len(chosen)], others, calibration))
    return _pooled(parts, SUMS, limit)


def _from_anchors(recording: Recording, truth: Truth, fresh: Array, limit: Limit) -> Membership:
    anchors = recording.published["anchors"]
    members, out = (landmark_scores(as_learned(recording, each), anchors) for each in (truth.pooled, fresh))
    others, calibration = np.array_split(out, 2)
    return membership(members, others, calibration=calibration, game=ANCHORS, limit=limit)


def _from_landmarks(Y: Array, game: Game, truth: Truth, fresh: Array, limit: Limit) -> Membership:
    members, out = (landmark_scores(each, Y) for each in (truth.pooled, fresh))
    others, calibration = np.array_split(out, 2)
    return membership(members, others, calibration=calibration, game=game, limit=limit)


def _from_map(recording: Recording, truth: Truth, fresh: Array, limit: Limit) -> Membership:
    places = recording.embedding
    if places is None or len(places) != len(truth.pooled):
        raise NothingToAttack("the run published no map of records")
    if len(truth.fed.clients) < 2:
        raise NothingToAttack("a run of one client has no insider")
    insider = truth.fed.index.slices[0]
    inside = np.zeros(len(places), dtype=bool)
    inside[insider] = True
    own = (truth.pooled[inside], places[inside], places[~inside])
    members, out = (insider_scores(each, *own) for each in (truth.pooled[~inside], fresh))
    others, calibration = np.array_split(out, 2)
    return membership(members, others, calibration=calibration, game=MAP, limit=limit)
