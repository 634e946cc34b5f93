"""Is the noise what is stated? Tests of residuals, which in code that keeps its word are independent, of variance 1.

Every p-value is exact for Gaussian noise, or an upper bound. Of discrete Gaussians of at least 4 cells the variance is
the same to 10⁻⁶⁰; where single probabilities matter, a test allows for the grid.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtr, chdtrc, ndtr

from attacks.auditing.findings import Checked, Finding
from attacks.auditing.residuals import Key, Residual, by_key, stacked

Values = NDArray[np.float64]

_LAGS = 32  # places apart at which values are compared
_SHORT = 256  # values of an upload whose pairs are all compared
_LONG = 16  # values of an upload that is looked at by itself


def check_noise(noises: Sequence[Residual]) -> list[Checked]:
    """Run all tests on the noise of one audit."""
    groups = by_key(noises)
    return [
        scale(groups),
        shape(groups),
        coordinates(groups),
        single_uploads(noises),
        each_upload(noises),
        neighbours(groups),
        pairs(groups),
        shared_by_rounds(groups),
        shared_by_clients(groups),
        repeated(noises),
        low_bits(groups),
        slope(groups),
    ]


def scale(groups: dict[Key, list[Residual]]) -> Checked:
    """Σ (residual/σ)² of all values of one upload and round is χ²."""
    found = []
    for key, group in groups.items():
        squares = math.fsum(float(np.vdot(each.white, each.white)) for each in group)
        values = sum(each.cells.size for each in group)
        share = math.sqrt(squares / values)
        found.append(_finding("scale", key, _chi2(squares, values), f"has {share:.3g} times the stated noise"))
    return _oddest(found)


def shape(groups: dict[Key, list[Residual]]) -> Checked:
    """The distribution is normal: by the largest distance of distribution functions (Dvoretzky, Kiefer & Wolfowitz).

    That of n independent values is above D with probability at most 2e^{−2nD²} (Massart 1990). A discrete Gaussian is
    at most half of its largest probability, 1/(2√(2π) s), away from the normal one.
    """
    values: defaultdict[str, list[Values]] = defaultdict(list)
    least: defaultdict[str, float] = defaultdict(lambda: math.inf)
    for (what, _), group in groups.items():
        values[what] += [each.white for each in group]
        least[what] = min(least[what], *(float(each.parameter.min()) for each in group))
    found = []
    for what, parts in values.items():
        ordered = ndtr(np.sort(np.concatenate(parts)))
        steps = np.arange(len(ordered) + 1) / len(ordered)
        distance = float(max(np.max(steps[1:] - ordered), np.max(ordered - steps[:-1])))
        above = max(0.0, distance - 1 / (2 * math.sqrt(2 * math.pi) * least[what]) - 1e-12)
        p = min(1.0, 2 * math.exp(-2 * len(ordered) * above * above))
        found.append(_finding("shape", (what, 0), p, f"has noise {distance:.3g} away from the normal distribution"))
    return _oddest(found)


def coordinates(groups: dict[Key, list[Residual]]) -> Checked:
    """The same of each coordinate, over clients and rounds: a part without noise, or with noise of its own."""
    squares: dict[tuple[str, int], Values] = {}
    counts: defaultdict[tuple[str, int], int] = defaultdict(int)
    for (what, _), group in groups.items():
        for white in stacked(group):
            sized = (what, white.shape[1])
            squares[sized] = np.square(white).sum(axis=0) + squares.get(sized, 0.0)
            counts[sized] += len(white)
    tests, found = 0, []
    for sized, each in squares.items():
        what, values = sized[0], _chi2(each, counts[sized])
        tests += len(each)
        worst = int(np.argmin(values))
        share = math.sqrt(each[worst] / counts[sized])
        words = f"has {share:.3g} times the stated noise in value {worst}"
        found.append(_finding("coordinates", (what, 0), float(values[worst]), words))
    return Checked(tests, tuple(found))


def single_uploads(noises: Sequence[Residual]) -> Checked:
    """The same of each client: one whose noise is missing or weak."""
    squares: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for each in noises:
        entry = squares[each.key[0], each.unit]
        entry[0] += float(np.vdot(each.white, each.white))
        entry[1] += each.cells.size
    if not squares:
        return Checked()
    names = list(squares)
    sums, counts = np.array([squares[name] for name in names]).T
    values = _chi2(sums, counts)
    worst = int(np.argmin(values))
    what, unit = names[worst]
    share = math.sqrt(sums[worst] / counts[worst])
    words = f"of {unit} has {share:.3g} times the stated noise"
    return Checked(len(names), (_finding("clients", (what, 0), float(values[worst]), words),))


def each_upload(noises: Sequence[Residual]) -> Checked:
    """The same of each upload by itself: noise made of few draws has a norm that varies too much.

    Of long ones: a few integers can all be 0, which a sum of squares of continuous noise never is.
    """
    noises = [each for each in noises if each.cells.size >= _LONG]
    if not noises:
        return Checked()
    squares = np.array([float(np.vdot(each.white, each.white)) for each in noises])
    values = _chi2(squares, np.array([float(each.cells.size) for each in noises]))
    worst = int(np.argmin(values))
    odd = noises[worst]
    share = math.sqrt(squares[worst] / odd.cells.size)
    words = f"of {odd.unit} has {share:.3g} times the stated noise"
    return Checked(len(noises), (_finding("uploads", odd.key, float(values[worst]), words),))


def neighbours(groups: dict[Key, list[Residual]]) -> Checked:
    """Values of one upload do not share noise: products of values some places apart have mean 0.

    At lag l the values are cut into blocks of 2l, in which the first l meet the last l. So no value is in two products,
    and they are independent.
    """
    products: defaultdict[tuple[str, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for (what, _), group in groups.items():
        for white in stacked(group):
            for lag in range(1, min(_LAGS, white.shape[1] // 2) + 1):
                size = white.shape[1] // (2 * lag) * (2 * lag)
                blocks = white[:, :size].reshape(len(white), -1, 2, lag)
                entry = products[what, lag]
                entry[0] += float(np.vdot(blocks[:, :, 0], blocks[:, :, 1]))
                entry[1] += len(white) * size / 2
    found = []
    for (what, lag), (product, values) in products.items():
        words = f"has values {lag} apart that share noise: correlation {product / values:.3g}"
        found.append(_finding("neighbours", (what, 0), _products(product, values), words))
    return _oddest(found)


def pairs(groups: dict[Key, list[Residual]]) -> Checked:
    """The same of every pair of values of short uploads, over clients and rounds."""
    products: dict[tuple[str, int], Values] = {}
    counts: defaultdict[tuple[str, int], int] = defaultdict(int)
    for (what, _), group in groups.items():
        for white in stacked(group):
            if 1 < white.shape[1] <= _SHORT:
                sized = (what, white.shape[1])
                products[sized] = white.T @ white + products.get(sized, 0.0)
                counts[sized] += len(white)
    tests, found = 0, []
    for (what, size), each in products.items():
        np.fill_diagonal(each, 0.0)
        first, second = np.unravel_index(int(np.abs(each).argmax()), each.shape)
        tests += size * (size - 1) // 2
        product, values = float(each[first, second]), counts[what, size]
        words = f"has values {first} and {second} that share noise: correlation {product / values:.3g}"
        found.append(_finding("pairs", (what, 0), _products(product, values), words))
    return Checked(tests, tuple(found))


def shared_by_rounds(groups: dict[Key, list[Residual]]) -> Checked:
    """Products of one client's noise in two uploads have mean 0: rounds and stages must not share noise."""
    by_unit = {key: {each.unit: each.white for each in group} for key, group in groups.items()}
    found = []
    for first, second in combinations(by_unit, 2):
        product = values = 0.0
        for unit in by_unit[first].keys() & by_unit[second].keys():
            a, b = by_unit[first][unit], by_unit[second][unit]
            size = min(len(a), len(b))
            product += float(np.vdot(a[:size], b[:size]))
            values += size
        if values:
            words = f"shares noise with {_named(second)}: correlation {product / values:.3g}"
            found.append(_finding("rounds", first, _products(product, values), words))
    return _oddest(found)


def shared_by_clients(groups: dict[Key, list[Residual]]) -> Checked:
    """The sum over n clients, over √n, has variance 1: larger if clients share noise, smaller if it cancels."""
    found = []
    for key, white in ((key, white) for key, group in groups.items() for white in stacked(group)):
        summed = white.sum(axis=0) / math.sqrt(len(white))
        square = float(np.vdot(summed, summed))
        share = square / len(summed)
        words = (
            f"has noise whose sum over {len(white)} clients or runs has {share:.3g} times the variance it should have"
        )
        found.append(_finding("independence", key, _chi2(square, len(summed)), words))
    return _oddest(found)


def repeated(noises: Sequence[Residual]) -> Checked:
    """No two uploads have the same noise to the last cell.

    Two discrete Gaussians of parameter s are equal with probability at most 1/(2√π s), value by value.
    """
    by_size: defaultdict[int, list[Residual]] = defaultdict(list)
    for each in noises:
        by_size[each.cells.size].append(each)
    found = []
    for size, group in by_size.items():
        least = min(float(each.parameter.min()) for each in group)
        pairs = len(group) * (len(group) - 1) / 2
        chance = min(1.0, pairs * (2 * math.sqrt(math.pi) * least) ** -float(size)) if pairs else 1.0
        known: dict[bytes, Residual] = {}
        for each in group:
            other = known.setdefault(each.cells.tobytes(), each)
            if other is not each:
                words = f"of {each.unit} has the noise of {other.unit} in {_named(other.key)}, cell by cell"
                found.append(_finding("repeated", each.key, chance, words))
                break
    return Checked(len(by_size), tuple(found))


def low_bits(groups: dict[Key, list[Residual]]) -> Checked:
    """Half of all noise is odd: otherwise it lies on a coarser grid than the stated one (Hoeffding's bound)."""
    odd: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (what, _), group in groups.items():
        for each in group:
            odd[what][0] += int(np.count_nonzero(each.cells & 1))
            odd[what][1] += each.cells.size
    found = []
    for what, (count, values) in odd.items():
        p = min(1.0, 2 * math.exp(-2 * values * (count / values - 0.5) ** 2))
        found.append(_finding("low bits", (what, 0), p, f"has noise of which {count / values:.1%} is odd, not half"))
    return _oddest(found)


def slope(groups: dict[Key, list[Residual]]) -> Checked:
    """The noise has no part along the total: otherwise clients upload something else than is said.

    Discrete Gaussians are sub-Gaussian, so that the projection z has P[|z| ≥ t] ≤ 2e^{−t²/2}.
    """
    found = []
    for key, group in groups.items():
        along = square = 0.0
        for each in group:
            total = each.total / each.parameter
            along += float(np.vdot(each.white, total))
            square += float(np.vdot(total, total))
        if square > 0:
            p = min(1.0, 2 * math.exp(-along * along / square / 2))
            words = f"is {1 + along / square:.3g} times what its records give"
            found.append(_finding("slope", key, p, words))
    return _oddest(found)


def compare(first: Iterable[Residual], second: Iterable[Residual], said: str) -> Checked:
    """The noise of two runs has nothing in common, client by client and round by round."""
    known = {(each.unit, each.key): each for each in first}
    product = values = 0.0
    for each in second:
        other = known.get((each.unit, each.key))
        if other is not None:
            size = min(each.cells.size, other.cells.size)
            product += float(np.vdot(each.white[:size], other.white[:size]))
            values += size
    if not values:
        return Checked()
    words = f"Noise is fixed: {said} have noise of correlation {product / values:.3g}."
    return Checked(1, (Finding("seed", said, _products(product, values), words),))


def _chi2(squares: float | Values, values: float | Values) -> Values:
    """Two-sided p-value of a sum of squares."""
    p: Values = np.minimum(1.0, 2 * np.minimum(chdtr(values, squares), chdtrc(values, squares)))
    return p


def _products(total: float, values: float) -> float:
    """Bound of the two-sided p-value of a sum of products of independent standard normal numbers, by Chernoff.

    log E e^{tZZ′} = −½ log(1 − t²), so that P[sum ≥ x] ≤ exp(−tx − (n/2) log(1 − t²)), smallest at the t below.
    """
    x = abs(total)
    if x == 0:
        return 1.0
    t = (math.sqrt(values * values + 4 * x * x) - values) / (2 * x)
    return min(1.0, 2 * math.exp(max(-700.0, -t * x - values / 2 * math.log1p(-t * t))))


def _finding(check: str, key: Key, p: float | Values, words: str) -> Finding:
    return Finding(check, _named(key), float(p), f"Upload {_named(key)} {words}.")


def _oddest(found: list[Finding]) -> Checked:
    return Checked(len(found), tuple(sorted(found, key=lambda each: each.p_value)[:1]))


def _named(key: Key) -> str:
    what, number = key
    return f"{what}, round {number}" if number else what
