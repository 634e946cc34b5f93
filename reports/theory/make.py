"""bounds.md from the JSON that `dpfedvis bounds` (and large.py, if it was run) has left beside this file.

python reports/theory/make.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dpfedvis.reporting.cells import codes

HERE = Path(__file__).parent
DATA = ("digits", "mnist")
BEFORE = "30560cc or before"  # code of numbers that do not name theirs

HEAD = """\
# Bound, truth and certificate

How far the Nyström estimate K̂ is from the kernel matrix K of all records, and what can be said about it: by the paper's
theorems as printed and repaired ([errata](errata.md)), by two bounds of this project, and by measuring it. The page is
made by `python reports/theory/make.py` from the numbers of these commands, which also made the pages and figures they
link to:

- `{digits}` → [digits.md](digits.md), [digits.json](digits.json)
- `{mnist}` (with `DPFEDVIS_DATA` set) → [mnist.md](mnist.md), [mnist.json](mnist.json)

What the columns are:

- **truth**: ‖K̂ − K‖, by block Lanczos to a residual of 0.1 % (spectral) and blocked sums (Frobenius), never an n × n
  matrix.
- **MMD of k²**: at most n_x·MMD(X, Y) under k², for whoever knows the records (`mmd_bound`).
- **certificate**: tr(K − K̂), computable by the server from the uploads alone (`kernel_certificate`).
- **trivial**: n_x, which holds for any landmarks. A bound that is not below it says nothing.
- **corrected**, **printed**: Thm 2 for sampled landmarks, Thm 5 for learned ones, Thm 3 with noisy records.
  `≥`: its condition number is beyond float64. `†`: below the truth, so false.
"""
LARGE = """\
## 40,000 records

`python reports/theory/large.py` measures errors for 40,000 records of MNIST and 500 sampled landmarks. The certificate
of K̂ is {certificate:.4g}, without its allowance for rounding, and the trivial bound 40,000; for the distances no bound
of the paper holds. Times were taken beside other work. Code: {code}.

| error of | spectral | Frobenius | passes over all pairs | processor time | memory at most |
|---|---|---|---|---|---|
"""
READING = """\
## What follows

- Thm 3 and Thm 5 are above the trivial bound in every case, as they are for all data. The Frobenius bound of Thm 2 is
  below the truth.
- The MMD under k² does bound the error, and falls as landmarks are added: what Thm 3 and Thm 5, which also have an MMD
  in them, do not.
- The certificate needs nothing but the uploads, and pays for it: it adds up all eigenvalues of the error where the
  spectral norm is the largest one.
- With noisy records a large part of our bound is the noise term, which assumes the worst direction for every pair.
- Learned landmarks are not better than sampled records on MNIST: there the sampled ones, which are records and may not
  leave a client, have the smaller error for every n_y. On digits it is the other way round in the spectral norm.
- For distances no bound of the paper holds. With few landmarks the Gram estimate, which never lengthens a distance, is
  further from D than the Nyström one; from 50 on digits, and with 500 on MNIST without noise, it is closer in the
  Frobenius norm. It has its own certificate, which is 0 when the landmarks span the space: then the distances are
  known, and so are the records.
"""


def numbers(name: str) -> dict[str, Any]:
    """Read what the command left."""
    found: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text())
    return found


def table(found: dict[str, Any], norm: str) -> list[str]:
    """One line for each case."""
    lines = [
        f"| landmarks are | n_y | σ | truth, {norm} | MMD of k² | certificate | trivial | corrected | printed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for case in found["cases"]:
        bounds = [bound for bound in case["bounds"] if bound["norm"] == norm]
        truth = case["truth"][norm]
        ours = {bound["statement"]: bound for bound in bounds if bound["form"] == "ours"}
        shown = [ours["MMD of k²"], ours["certificate"]]
        rest = [next(bound for bound in bounds if bound["form"] == form) for form in ("corrected", "printed")]
        cells = [case["landmarks_are"], str(case["landmarks"]), f"{case['sigma']:g}", f"{truth:.4g}"]
        cells += [cell(bound) for bound in shown] + [f"{shown[0]['trivial']:.5g}"]
        lines.append("| " + " | ".join(cells + [cell(bound) for bound in rest]) + " |")
    return lines


def cell(bound: dict[str, Any]) -> str:
    """A value with its marks, bold when it says something."""
    if bound["value"] is None:
        return "∞" if bound["infinite"] else "no statement"
    text = f"{'≥ ' if bound['is_floor'] else ''}{bound['value']:.4g}"
    if bound["below_truth"]:
        return f"{text} †"
    return text if bound["vacuous"] else f"**{text}**"


def page() -> str:
    """Return the page."""
    every = {name: numbers(name) for name in DATA}
    parts = [HEAD.format(**{name: f"{found['command']} --out reports/theory" for name, found in every.items()})]
    for name, found in every.items():
        parts += [
            f"## {name}, {found['records']} records, γ = {found['gamma']:.4g}\n",
            f"Code: {found.get('code', BEFORE)}.\n",
            f"![{name}]({name}.svg)\n",
            *["\n".join(table(found, norm)) + "\n" for norm in ("spectral", "frobenius")],
            "\n".join(f"- {sentence}" for sentence in found["words"]) + "\n",
        ]
    if (HERE / "large.json").exists():
        found = numbers("large")
        lines = [
            f"| {name} | {each['spectral']:.4g} | {each['frobenius']:.4g} | {each['passes']} | {each['cpu_seconds']} s "
            f"| {each['peak_gib']} GiB |\n"
            for name, each in found.items()
        ]
        code = codes(found.values(), BEFORE)
        parts.append(LARGE.format(certificate=found["kernel"]["certificate"], code=code) + "".join(lines))
    parts.append(READING)
    return "\n".join(parts)


if __name__ == "__main__":
    (HERE / "bounds.md").write_text(page(), encoding="utf-8")
