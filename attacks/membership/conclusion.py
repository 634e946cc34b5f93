"""What the attacks on a private run come to: what could be tried, what was, and one sentence for who must sign."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accounting.risk import right_guesses
from accounting.rounding import rounded_up
from accounting.statement import AllRuns
from attacks.membership.rates import Membership
from attacks.shared.statistics import Limit
from dpfedvis.runs.upload_reader import Recording

_COULD = {
    "reconstruction": "Records from rows: needs one row a record, exact or noisy.",
    "inversion": "Records from gradients: needs the gradients of few records.",
    "membership": "Was this person among the records? From sums, landmarks and the published map.",
    "exposure": "Records that landmarks lie close to: needs landmarks that stand for single records.",
}
_CONTROL = "control"


@dataclass(frozen=True)
class Conclusion:
    """What came of all attacks on a run with an end-to-end guarantee.

    Parameters
    ----------
    tried : tuple of (str, str)
        What an adversary could try, and what came of it or why it could not be tried.
    sentence : str
        For a data protection officer.
    """

    tried: tuple[tuple[str, str], ...]
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        tried = [{"could": could, "outcome": outcome} for could, outcome in self.tried]
        return {"tried": tried, "sentence": self.sentence}

    def markdown(self) -> str:
        """Return a page."""
        lines = ["# What an adversary could try", "", "| what | outcome |", "|---|---|"]
        lines += [f"| {could} | {outcome} |" for could, outcome in self.tried]
        return "\n".join([*lines, "", f"**{self.sentence}**"]) + "\n"


def conclusion(
    recording: Recording,
    games: Sequence[Membership],
    skipped: Mapping[str, str],
    delta: float,
    *,
    recognised: float | None = None,
    all_runs: AllRuns | None = None,
) -> Conclusion | None:
    """Return what the attacks come to; None where the run has no end-to-end guarantee.

    Parameters
    ----------
    recording : Recording
    games : sequence of Membership
        Those that were played.
    skipped : mapping of str to str
        Attack → why it could not be tried.
    delta : float
    recognised : float, optional
        Share of records that were recognised in what came back from rows, where that was tried.
    all_runs : AllRuns, optional
        What the ledger of these records knows of all runs on them: an adversary sees them all.
    """
    with recording.ledger() as ledger:
        limit = Limit.of_ledger(ledger, delta, rows=True)
        events = list(ledger.events())
    simulated = any(event.noise == "seeded" for event in events)
    if not math.isfinite(limit.epsilon):
        return None
    played = [each for each in games if _CONTROL not in each.game.name]
    tried = []
    for name, could in _COULD.items():
        if name in skipped:
            tried.append((could, f"not possible here: {skipped[name]}"))
        elif name == "membership":
            tried += [(f"{could} By {each.game.name}.", _rates(each)) for each in played]
        else:
            tried.append((could, "tried; see its page"))
    twice = any(event.adjacency == "add-remove" for event in events)
    bound = _bound(limit, all_runs, twice=twice)
    return Conclusion(tuple(tried), _sentence(played, skipped, bound, recognised, simulated=simulated))


def _rates(each: Membership) -> str:
    found = f"AUC {each.auc.value:.3f} ({each.auc.low:.3f} to {each.auc.high:.3f}); the guarantee allows at most "
    rates = [
        f"{100 * point.tpr.value:.2g} % found at {100 * point.target:g} % false alarms, at most "
        f"{rounded_up(100 * point.allowed, 3)} % allowed"
        for point in each.points
        if point.tpr is not None
    ]
    return "; ".join([f"{found}{rounded_up(each.limit.auc(), 3)}", *rates])


def _bound(limit: Limit, all_runs: AllRuns | None, *, twice: bool) -> str:
    """Say how many guesses are right at most; `twice` says that replacing a record is two steps between neighbours."""
    right, seen = 100 * limit.accuracy(), ""
    if all_runs is not None and all_runs.runs > 1 and (risk := all_runs.risk) is not None:
        together = risk.right_guesses
        if twice:
            together = 100.0 if risk.mu is None else right_guesses(2 * risk.mu)
        right, seen = max(right, together), f" by whoever sees all {all_runs.runs} runs on these records"
    return f"at most {rounded_up(right, 3)} of 100 guesses are right{seen}"


def _sentence(
    played: Sequence[Membership],
    skipped: Mapping[str, str],
    bound: str,
    recognised: float | None,
    *,
    simulated: bool,
) -> str:
    head = "In this simulation, with noise as a real run has it, " if simulated else ""
    tried = [name for name in _COULD if name not in skipped and name != "membership"]
    if not tried and not played:
        reasons = "; ".join(dict.fromkeys(each.rstrip(".") for each in skipped.values()))
        why = f": {reasons}" if reasons else ""
        return _capital(f"{head}no attack could be tried on this run{why}; what holds is the bound alone: {bound}.")
    if recognised is not None:
        back = f"{recognised:.1%} of the records were recognised in rows"
    else:
        back = f"{' and '.join(tried)} {'were' if len(tried) > 1 else 'was'} tried (see the pages)" if tried else ""
    if not played:
        why = f" ({skipped['membership']})" if "membership" in skipped else ""
        return _capital(
            f"{head}{back}; who took part could not be tried{why}, and what holds of it is the bound alone: {bound}."
        )
    best = max(played, key=lambda each: each.auc.value)
    beyond = [each for each in played if each.auc.low > each.limit.auc()]
    if beyond:
        return _capital(
            f"{head}an attack told records of the run from others better than the guarantee allows (from "
            f"{beyond[0].game.name}, AUC {beyond[0].auc.value:.3f}, at most {rounded_up(beyond[0].limit.auc(), 3)}): "
            "do not publish before this is understood."
        )
    better = "no better than by blind guessing" if best.auc.low <= 0.5 else "better than by blind guessing"
    found = f"{back}, and " if back else ""
    return _capital(
        f"{head}{found}who took part was told {better} (best AUC {best.auc.value:.2f}, blind guessing 0.5, allowed "
        f"{rounded_up(best.limit.auc(), 2)}); of whoever knows all other records, {bound}."
    )


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
