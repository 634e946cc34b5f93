"""A statement as a draft for the registry of deployments of differential privacy, in its YAML form."""

from __future__ import annotations

import json
from typing import Any

from accounting.statement import Statement
from accounting.wording import templates

_ACCOUNTED = (
    "Gaussian releases compose by their sum of squared ratios of sensitivity to noise, in closed form; sampled ones "
    "numerically, by privacy loss distributions.",
    "Clients hold disjoint records, so that the loss of a run is the largest over clients.",
)
_POST = (
    "The server moves landmarks, lays them out and publishes the map, all from what has left with noise. Each site "
    "places its own records at home, and nothing of that comes back."
)
_TUNING = ("Choosing settings by results on the same records (tuning) costs privacy that no ledger sees.",)


def registry(statement: Statement) -> str:
    """Return the draft; what only the curators of the data know is marked "to be filled in"."""
    values = statement.to_dict()
    bare = [f"{line.what}: {line.note}." for line in statement.lines if line.kind == "unprotected"]
    arithmetic = values["not_covered"][-1]
    released = [
        f"- {line.what}: {line.per_client} a client, {line.kind} ({line.noise} noise), trust {line.trust}"
        for line in statement.lines
    ]
    room = templates()
    room.filters["quoted"] = _quoted
    return room.get_template("registry.yaml").render(
        values,
        unprotected=bare,
        accounted=list(_ACCOUNTED),
        post_processing=_POST,
        tuning=list(_TUNING),
        mechanisms=[*released, arithmetic],
    )


def _quoted(value: Any) -> str:
    """Return a scalar as JSON has it, which YAML reads too; no text can end it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    # To YAML 1.1 a number without a point, 1e-05, is text.
    return text.replace("e", ".0e") if isinstance(value, float) and "." not in text else text
