"""Colours of groups that are told apart with any colour vision, on light and on dark ground.

Up to eight groups: Okabe & Ito (2008). Nine and ten: Paul Tol's "muted" with black. Beyond ten the ten come again with
another marker, so that a group is always a colour *and* a shape; after sixty, names on hovering must do. On dark ground
the darkest shades are lifted. A test holds every two colours of a set apart for normal, protanopic, deuteranopic and
tritanopic sight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_OKABE_ITO = (
    *("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#F0E442"),
)  # fmt: skip
_OKABE_ITO_DARK = (*_OKABE_ITO[:6], "#FFFFFF", "#F0E442")
_MUTED = (
    *("#332288", "#DDCC77", "#117733", "#CC6677", "#88CCEE", "#882255", "#44AA99", "#AA4499", "#999933", "#000000"),
)  # fmt: skip
_MUTED_DARK = (
    *("#6A5BD6", "#EEDD88", "#2E9950", "#E07A87", "#99DDFF", "#A83E66", "#55C4B0", "#C77DD0", "#8F8F20", "#FFFFFF"),
)  # fmt: skip
# Names in shapes.js, letters in matplotlib, and characters for a legend in text.
SYMBOLS = (
    ("circle", "o", "●"),
    ("square", "s", "■"),
    ("diamond", "D", "◆"),
    ("triangle-up", "^", "▲"),
    ("cross", "P", "✚"),
    ("x", "X", "✖"),
)


@dataclass(frozen=True)
class Look:
    """How a group is drawn.

    Parameters
    ----------
    light, dark : str
        Colours on light and on dark ground.
    symbol, marker, glyph : str
        The shape for maps in a browser, for matplotlib and in text.
    """

    light: str
    dark: str
    symbol: str
    marker: str
    glyph: str

    @property
    def first(self) -> bool:
        """Whether its shape is the first one; lines of the others are broken."""
        return self.symbol == SYMBOLS[0][0]


# Groups without a colour of their own: many records, and the least to look at.
REST = Look("#7d8790", "#7d8790", *SYMBOLS[2])
ALL = Look("#0b5f94", "#6db5ea", *SYMBOLS[0])  # all groups together: the accent of the page


def looks(count: int) -> tuple[Look, ...]:
    """Return a look for each of `count` groups."""
    light, dark = (_OKABE_ITO, _OKABE_ITO_DARK) if count <= len(_OKABE_ITO) else (_MUTED, _MUTED_DARK)
    return tuple(
        Look(light[number % len(light)], dark[number % len(light)], *SYMBOLS[number // len(light) % len(SYMBOLS)])
        for number in range(count)
    )


def paired(groups: Sequence[str], families: Sequence[str]) -> dict[str, Look]:
    """Return a look for each group, of one colour within a family, where there are colours and shapes enough.

    Parameters
    ----------
    groups, families : sequences of str
        Names of the groups, distinct, and the family of each.
    """
    colours = dict(zip(dict.fromkeys(families), looks(len(set(families))), strict=True))
    if len(colours) > len(_MUTED) or max(Counter(families).values(), default=0) > len(SYMBOLS):
        return dict(zip(groups, looks(len(groups)), strict=True))
    found, members = {}, Counter[str]()
    for group, family in zip(groups, families, strict=True):
        found[group] = Look(colours[family].light, colours[family].dark, *SYMBOLS[members[family]])
        members[family] += 1
    return found


def shades(groups: Sequence[object]) -> dict[object, str]:
    """Return the colour of each group on light ground."""
    return {group: look.light for group, look in zip(groups, looks(len(groups)), strict=True)}
