"""A network of hospitals, made up: files as hospitals have them, for a first try, the demo and tests.

Patients are of five kinds, which the hospitals share in different numbers. Nothing in it is of a real person.
"""

import csv
import io
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np

from dpfedvis.data.columns import Column
from dpfedvis.data.schema import Schema

EXAMPLES = ("hospitals",)
HOSPITALS = ("aachen", "bremen", "coburg", "dresden", "essen")
KINDS = ("cardiac", "diabetes", "trauma", "infection", "renal")
_WARDS = ("surgery", "medicine", "intensive", "emergency")
_PAIN = ("none", "mild", "strong", "severe")
PATIENTS = 2000  # of a hospital, on average


@dataclass(frozen=True)
class Kind:
    """What patients of one kind are like: means of numbers, and chances of categories."""

    age: float
    pressure: float
    glucose: float
    creatinine: float
    crp: float
    temperature: float
    rate: float
    wards: tuple[float, ...]
    pain: tuple[float, ...]
    smokers: float


_OF = {
    "cardiac": Kind(70, 168, 112, 1.2, 6, 36.7, 96, (0.05, 0.55, 0.3, 0.1), (0.3, 0.4, 0.2, 0.1), 0.55),
    "diabetes": Kind(58, 138, 265, 1.1, 5, 36.6, 78, (0.05, 0.8, 0.05, 0.1), (0.7, 0.2, 0.07, 0.03), 0.3),
    "trauma": Kind(32, 118, 105, 0.9, 25, 36.9, 102, (0.6, 0.02, 0.13, 0.25), (0.02, 0.13, 0.45, 0.4), 0.4),
    "infection": Kind(48, 102, 128, 1.0, 180, 39.2, 114, (0.03, 0.57, 0.25, 0.15), (0.2, 0.45, 0.25, 0.1), 0.3),
    "renal": Kind(63, 152, 118, 6.5, 14, 36.7, 84, (0.06, 0.74, 0.15, 0.05), (0.5, 0.3, 0.15, 0.05), 0.25),
}  # fmt: skip
# Shares of the kinds at each hospital.
_MIX = np.array(
    [
        [0.40, 0.20, 0.10, 0.15, 0.15],
        [0.15, 0.35, 0.15, 0.20, 0.15],
        [0.15, 0.15, 0.45, 0.15, 0.10],
        [0.20, 0.15, 0.15, 0.35, 0.15],
        [0.15, 0.20, 0.15, 0.15, 0.35],
    ]
)


def schema() -> Schema:
    """Return the public schema: ranges from what can be measured at all, lists as the hospitals agreed on them.

    Two categories are as far apart as the ends of a range, and patients seldom are: so categories weigh less here.
    """
    number: dict[str, Any] = {"kind": "number"}
    return Schema(
        (
            Column("patient", role="person"),
            Column("case", role="id"),
            Column("age", **number, range=(0, 110), unit="years"),
            Column("sex", kind="category", values=("f", "m", "d"), weight=0.2),
            Column("admitted", kind="date", range=(date(2024, 1, 1), date(2025, 12, 31)), weight=0.1),
            Column("ward", kind="category", values=_WARDS, weight=0.4),
            Column("pressure", **number, range=(60, 240), unit="mmHg", fill=125),
            Column("glucose", **number, range=(40, 600), unit="mg/dl", log=True, weight=2),
            Column("creatinine", **number, range=(0.3, 15), unit="mg/dl", log=True, weight=2, fill=1.0),
            Column("crp", **number, range=(0.5, 400), unit="mg/l", log=True, weight=2),
            Column("temperature", **number, range=(34, 42), unit="C", weight=2),
            Column("rate", **number, range=(30, 200), unit="1/min"),
            Column("pain", kind="ordered", values=_PAIN, weight=0.4),
            Column("smoker", kind="category", values=("yes", "no"), weight=0.2),
            Column("diagnosis", role="label", kind="category", values=KINDS),
            Column("remarks", role="drop"),
        )
    )


def hospitals(patients: int = PATIENTS, seed: int = 0) -> dict[str, str]:
    """Return the network as files: one CSV for each hospital, and schema.toml.

    Parameters
    ----------
    patients : int
        Of a hospital, on average. Some come twice.
    seed : int

    Returns
    -------
    dict of str to str
        Content by file name.
    """
    rng = np.random.default_rng(seed)
    files: dict[str, str] = {}
    for number, hospital in enumerate(HOSPITALS):
        size = int(patients * (0.6 + 0.2 * number))
        files[f"{hospital}.csv"] = _csv(hospital, size, _MIX[number], rng)
    head = "# Public description of the example's columns. Nothing in it was measured on the files.\n"
    return {**files, "schema.toml": head + schema().to_toml()}


def _csv(hospital: str, size: int, mix: np.ndarray, rng: np.random.Generator) -> str:
    kinds = rng.choice(len(KINDS), size=size, p=mix)
    columns = _values(kinds, rng)
    # One patient in ten comes a second time: the same person, another case.
    patients = np.arange(size)
    again = rng.random(size) < 0.1
    patients[again] = rng.integers(0, size, size=int(again.sum()))
    gaps = {name: rng.random(size) < share for name, share in (("pressure", 0.03), ("crp", 0.08), ("smoker", 0.05))}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    headers = {"pressure": "pressure [mmHg]"}
    writer.writerow(["patient", "case", *(headers.get(name, name) for name in columns), "remarks"])
    for row in range(size):
        values = ["" if name in gaps and gaps[name][row] else column[row] for name, column in columns.items()]
        remark = "seen again" if again[row] else ""
        writer.writerow([f"{hospital[0].upper()}{patients[row]:05d}", f"{hospital[:2]}-{row + 1:06d}", *values, remark])
    return text.getvalue()


def _values(kinds: np.ndarray, rng: np.random.Generator) -> dict[str, list[Any]]:
    """Columns of patients of these kinds, as they are written."""
    of = [_OF[KINDS[kind]] for kind in kinds]
    size = len(of)

    def normal(name: str, spread: float, low: float, high: float) -> np.ndarray:
        means = np.array([getattr(each, name) for each in of])
        return np.clip(means + spread * rng.standard_normal(size), low, high)

    def skewed(name: str, spread: float, low: float, high: float) -> np.ndarray:
        means = np.array([getattr(each, name) for each in of])
        drawn: np.ndarray = np.clip(means * np.exp(spread * rng.standard_normal(size)), low, high)
        return drawn

    def chosen(values: tuple[str, ...], chances: np.ndarray) -> list[str]:
        places = (np.cumsum(chances, axis=1) < rng.random(size)[:, None]).sum(axis=1)
        return [values[min(int(place), len(values) - 1)] for place in places]

    days = rng.integers(0, 730, size=size).tolist()
    halves = np.tile([0.49, 0.49, 0.02], (size, 1))
    return {
        "age": normal("age", 11, 0, 105).astype(int).tolist(),
        "sex": chosen(("f", "m", "d"), halves),
        "admitted": [(date(2024, 1, 1) + timedelta(days=day)).isoformat() for day in days],
        "ward": chosen(_WARDS, np.array([each.wards for each in of])),
        "pressure": normal("pressure", 14, 65, 235).astype(int).tolist(),
        "glucose": skewed("glucose", 0.18, 42, 590).astype(int).tolist(),
        "creatinine": np.round(skewed("creatinine", 0.22, 0.4, 14.5), 2).tolist(),
        "crp": np.round(skewed("crp", 0.45, 0.6, 395), 1).tolist(),
        "temperature": np.round(normal("temperature", 0.4, 34.5, 41.9), 1).tolist(),
        "rate": normal("rate", 11, 35, 190).astype(int).tolist(),
        "pain": chosen(_PAIN, np.array([each.pain for each in of])),
        "smoker": chosen(("yes", "no"), np.array([[each.smokers, 1 - each.smokers] for each in of])),
        "diagnosis": [KINDS[kind] for kind in kinds],
    }
