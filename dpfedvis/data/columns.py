"""One column of a table: what is publicly said of it, and how its values become numbers.

A value is prepared by itself, from public facts alone: no other record, and nothing measured, has a part in it.
"""

import math
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import date, datetime
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from accounting import checks
from accounting.errors import InvalidParameter
from dpfedvis.data.errors import DataError
from dpfedvis.data.tables import MISSING_TOKENS, numbers_of

Role: TypeAlias = Literal["feature", "label", "client", "person", "id", "drop"]
Kind: TypeAlias = Literal["number", "category", "ordered", "date", "text"]
Numbers = NDArray[np.float64]

OTHER = "other"  # what labels outside their list are called
_BLOCK = 4096


class InvalidSchema(DataError):
    """A schema that does not say what is needed of a column."""


@dataclass(frozen=True)
class Column:
    """Public description of a column.

    Parameters
    ----------
    name : str
        As in the header, without a unit in brackets.
    role : {"feature", "label", "client", "person", "id", "drop"}
    kind : {"number", "category", "ordered", "date", "text"}
        Features are no text. An ordered category is a number: the place of the value in its list.
    range : (low, high), optional
        Public range of a number or date. Values outside count as its ends.
    log : bool
        Whether a number is scaled by its logarithm; the range must then be above 0.
    values : tuple of str
        Public list of categories, or of a label's classes.
    unit : str
        Such as "mmol/l". A header that names another unit in brackets is refused.
    fill : number, str or date, optional
        What stands for a missing value: by default the middle of the range, and for a category none of its list.
    weight : float
        How far apart the ends of the range, or two categories, are to be.
    format : str
        Of dates, as in `datetime.strptime`; by default ISO 8601.
    """

    name: str
    role: Role = "feature"
    kind: Kind = "text"
    range: tuple[Any, Any] | None = None
    log: bool = False
    values: tuple[str, ...] = ()
    unit: str = ""
    fill: Any = None
    weight: float = 1.0
    format: str = ""

    def __post_init__(self) -> None:
        try:
            self._check()
        except InvalidParameter as error:
            raise InvalidSchema(f"column {self.name!r}: {error}") from None

    @classmethod
    def of(cls, name: str, values: Mapping[str, Any]) -> "Column":
        """Return the column with these settings, as a TOML file has them."""
        known = [each.name for each in fields(cls) if each.name != "name"]
        if not isinstance(values, Mapping):
            raise InvalidSchema(f"column {name!r} must be a table of settings, not {values!r}")
        for key, value in values.items():
            if key not in known and isinstance(value, Mapping):
                raise InvalidSchema(f'a name with a point is quoted: [columns."{name}.{key}"]')
            if key not in known:
                raise InvalidSchema(f"column {name!r} has a setting {key!r}; known are {', '.join(known)}")
        own: dict[str, Any] = {key: tuple(each) if isinstance(each, list) else each for key, each in values.items()}
        return cls(name, **own)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings that are not at their defaults, as TOML can hold them."""
        own = {each.name: (getattr(self, each.name), each.default) for each in fields(self) if each.name != "name"}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, (value, default) in own.items()
            if value != default or name == "role"
        }

    # What a feature becomes

    @property
    def width(self) -> int:
        """Number of values that a record gets for this column."""
        if self.role != "feature":
            return 0
        return len(self.values) if self.kind == "category" else 1

    @property
    def feature_names(self) -> list[str]:
        """Names of these values."""
        return [f"{self.name} = {value}" for value in self.values] if self.kind == "category" else [self.name]

    @property
    def largest(self) -> float:
        """Largest of these values; the smallest is 0."""
        return self.weight / math.sqrt(2) if self.kind == "category" else self.weight

    def encoded(self, column: NDArray[Any]) -> tuple[NDArray[np.float32], int, int, int]:
        """Prepare a feature.

        Parameters
        ----------
        column : array of shape (n,)
            Numbers or text.

        Returns
        -------
        values : array of shape (n, width)
            From 0 to `largest`. Two categories are as far apart as the ends of a range.
        missing, unknown, beyond : int
            How many values are missing, and how many are not in the list or not of the kind, both of which are filled;
            and how many lie beyond the range, and count as its ends.
        """
        if self.kind == "category":
            codes, missing, unknown = self._codes(column)
            spread = np.zeros((len(codes), len(self.values) + 1), dtype=np.float32)
            spread[np.arange(len(codes)), codes] = self.largest
            return spread[:, :-1], missing, unknown, 0
        if self.kind == "ordered":
            codes, missing, unknown = self._codes(column)
            middle = (len(self.values) - 1) / 2
            places, low, high = np.where(codes < len(self.values), codes, middle), 0.0, len(self.values) - 1.0
        else:
            places, missing, unknown = self._places(column)
            low, high = self._ends
        beyond = int(((places < low) | (places > high)).sum())
        parts = np.clip((places - low) / (high - low), 0.0, 1.0) * self.weight
        return parts.astype(np.float32)[:, None], missing, unknown, beyond

    def classes_of(self, column: NDArray[Any]) -> NDArray[np.str_]:
        """Return labels, shape (n,): those of the list, if there is one; "other" for all else and for gaps."""
        texts = composed(as_text(column))
        known = np.isin(texts, self.values) if self.values else ~is_missing(texts)
        return np.where(known, texts, OTHER)

    def _codes(self, column: NDArray[Any]) -> tuple[NDArray[np.int64], int, int]:
        """Return the place of each value in the list, its length for none, and how many are missing or unknown."""
        texts, none = composed(as_text(column)), len(self.values)
        order = np.argsort(self.values)
        found = order[np.minimum(np.searchsorted(np.array(self.values)[order], texts), none - 1)]
        codes = np.where(np.array(self.values)[found] == texts, found, none)
        missing = is_missing(texts) & (codes == none)
        unknown = int((codes == none).sum() - missing.sum())
        if self.fill is not None:
            codes = np.where(codes == none, self.values.index(self.fill), codes)
        return codes, int(missing.sum()), unknown

    def _places(self, column: NDArray[Any]) -> tuple[Numbers, int, int]:
        """Return numbers or days, with gaps filled; and how many were missing, and how many were none."""
        if self.kind == "date":
            places, unknown = days_of(as_text(column), self.format)
        elif column.dtype.kind == "f":
            places, unknown = column.astype(np.float64), 0
        else:
            values, unknown = numbers_of(as_text(column).tolist())
            places = np.array(values, dtype=np.float64)
        gaps = np.isnan(places)
        low, high = self._ends
        if self.log:
            # What has no logarithm is far below the range.
            places = np.where(places > 0, _logarithms(np.maximum(places, 1e-300)), np.where(gaps, np.nan, -1e9))
        filled = np.where(gaps, (low + high) / 2 if self.fill is None else self._scaled(self.fill), places)
        return filled, int(gaps.sum()) - unknown, unknown

    @property
    def _ends(self) -> tuple[float, float]:
        if self.range is None:
            raise InvalidSchema(f"column {self.name!r} has no range")
        low, high = (self._scaled(end) for end in self.range)
        return low, high

    def _scaled(self, value: Any) -> float:
        if self.kind == "date":
            return float(_as_date(self.name, value).toordinal())
        return float(_logarithms(np.array([float(value)]))[0]) if self.log else float(value)

    # Checks

    def _check(self) -> None:
        if not self.name.strip():
            raise InvalidSchema("a column needs a name")
        object.__setattr__(self, "name", unicodedata.normalize("NFC", self.name))
        if not isinstance(self.values, tuple):
            raise InvalidParameter("values", self.values, "a list of different texts")
        checks.one_of("role", self.role, get_args(Role))
        checks.one_of("kind", self.kind, get_args(Kind))
        checks.between("weight", self.weight, 1e-3, 1e3)
        for name, kind in (("log", bool), ("unit", str), ("format", str)):
            if not isinstance(getattr(self, name), kind):
                raise InvalidParameter(name, getattr(self, name), "true or false" if kind is bool else "text")
        if not all(isinstance(value, str) for value in self.values) or len(set(self.values)) < len(self.values):
            raise InvalidParameter("values", list(self.values), "a list of different texts")
        object.__setattr__(self, "values", tuple(unicodedata.normalize("NFC", value) for value in self.values))
        if self.role == "feature":
            self._check_feature()

    def _check_feature(self) -> None:
        if self.kind == "text":
            raise InvalidSchema(
                f"column {self.name!r} is text, which is no feature; give it the role drop, or a kind: number, "
                "category, ordered or date"
            )
        for name, kinds in (("range", ("number", "date")), ("log", ("number",)), ("format", ("date",))):
            if getattr(self, name) and self.kind not in kinds:
                raise InvalidParameter(name, getattr(self, name), f"left out for a {self.kind}")
        if self.values and self.kind not in ("category", "ordered"):
            raise InvalidParameter("values", list(self.values), f"left out for a {self.kind}")
        if self.kind in ("category", "ordered"):
            least = 1 if self.kind == "category" else 2
            if len(self.values) < least:
                what = "open" if not self.values else list(self.values)
                raise InvalidSchema(
                    f"column {self.name!r}: its values are {what}; give the public list, {least} or more"
                )
            if self.fill is not None and self.fill not in self.values:
                raise InvalidParameter("fill", self.fill, "one of the values")
            return
        if self.range is None or len(self.range) != 2:
            what = "open" if self.range is None else list(self.range)
            raise InvalidSchema(f"column {self.name!r}: its range is {what}; give [low, high], from public knowledge")
        if self.kind == "number":
            low, high = (checks.between("end of the range", end, -1e30, 1e30) for end in self.range)
            if self.log and low <= 0:
                raise InvalidParameter("range", list(self.range), "above 0 for a logarithm")
            if self.fill is not None:
                checks.between("fill", self.fill, min(low, high), max(low, high))
        low, high = self._ends
        # Within what float32 can hold, and apart by more than its rounding.
        if not (low < high and max(abs(low), abs(high)) < 1e30 and high - low > 1e-6 * max(abs(low), abs(high))):
            raise InvalidParameter("range", [str(end) for end in self.range], "[low, high] with low below high")
        if self.kind == "date":
            if self.fill is not None and not low <= self._scaled(self.fill) <= high:
                raise InvalidParameter("fill", str(self.fill), "a date within the range")
            day = datetime(2001, 2, 3)
            if self.format and days_of(np.array([day.strftime(self.format)]), self.format)[0][0] != day.toordinal():
                raise InvalidParameter("format", self.format, "one that dates can be read by, such as %d.%m.%Y")


def as_text(column: NDArray[Any]) -> NDArray[np.str_]:
    """Return a column as text: whole numbers without a point, nothing for NaN."""
    if column.dtype.kind != "f":
        return column.astype(np.str_)
    whole = np.isfinite(column) & (column == np.rint(column)) & (np.abs(column) < 2**53)
    texts = np.where(whole, np.where(whole, column, 0).astype(np.int64).astype(np.str_), column.astype(np.str_))
    return np.where(np.isnan(column), "", texts)


def days_of(texts: NDArray[np.str_], format: str = "") -> tuple[Numbers, int]:
    """Return dates as days, NaN where nothing is, and how many texts are neither."""
    distinct, codes = np.unique(texts, return_inverse=True)
    days = np.array([_day(text, format) for text in distinct.tolist()], dtype=np.float64)[codes.reshape(-1)]
    return days, int((np.isnan(days) & ~is_missing(texts)).sum())


def _day(text: str, format: str) -> float:
    """Return the day of a date in a format, or as ISO 8601 has it, as typed columns come; NaN for what is none."""
    if format:
        try:
            return float(datetime.strptime(text, format).toordinal())
        except ValueError:
            pass
    try:
        return float(datetime.fromisoformat(text).toordinal())
    except ValueError:
        return math.nan


def composed(texts: NDArray[np.str_]) -> NDArray[np.str_]:
    """Return texts with accents and letters in one form (NFC): some systems write them apart."""
    if not texts.size or not texts.dtype.itemsize:
        return texts
    if np.ascontiguousarray(texts).view(np.uint32).max() < 0x300:  # marks that stand apart come after
        return texts
    distinct, codes = np.unique(texts, return_inverse=True)
    return np.array([unicodedata.normalize("NFC", text) for text in distinct.tolist()])[codes.reshape(-1)]


def is_missing(texts: NDArray[np.str_]) -> NDArray[np.bool_]:
    """Return where nothing is, shape (n,)."""
    return np.isin(np.char.lower(np.char.strip(texts)), list(MISSING_TOKENS))


def _as_date(name: str, value: Any) -> date:
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        raise InvalidSchema(f"column {name!r} needs a date such as 2024-01-31, not {value!r}") from None


def _logarithms(values: Numbers) -> Numbers:
    return in_blocks(np.log, values)


def in_blocks(function: Callable[[Numbers], Numbers], values: Numbers) -> Numbers:
    """Apply a function in blocks of one size: a library may compute the last few values of an array in another way."""
    padded = np.ones(-(-len(values) // _BLOCK) * _BLOCK)
    padded[: len(values)] = values
    return np.concatenate([function(block) for block in padded.reshape(-1, _BLOCK)] or [padded])[: len(values)]
