"""Colours with a fixed meaning: a gate, queries, keys and values, and a model family look the same in every figure.

The hues are those of Okabe and Ito (2008), which colour-blind readers can tell apart. Their lightness differs too, so
that neighbours stay distinguishable in print; series also differ in mark and dash pattern. Pages, images, the terminal
and the comparison report all take these from `choose_styles`.

Colour scales are computed in OKLab (Ottosson 2020), in which equal distances look equally different: lightness changes
by the same amount from stop to stop, so that a scale can also be read in print and without colour vision.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

# Role → colour on a light page, colour on a dark page.
ROLES: dict[str, tuple[str, str]] = {
    "input": ("#0072b2", "#56b4e9"),
    "forget": ("#d55e00", "#ff9250"),
    "output": ("#00795c", "#2fc79c"),
    "candidate": ("#a84a86", "#ef8fcb"),
    "cell": ("#8a6400", "#e6bb48"),
    "update": ("#0072b2", "#56b4e9"),
    "reset": ("#d55e00", "#ff9250"),
    "state": ("#4a453f", "#cdc8c0"),
    "query": ("#0072b2", "#56b4e9"),
    "key": ("#d55e00", "#ff9250"),
    "value": ("#00795c", "#2fc79c"),
    "attention": ("#5a3fb0", "#b6a0fa"),
    "positive": ("#0072b2", "#56b4e9"),
    "negative": ("#d55e00", "#ff9250"),
}

# For series without a role, in this order: a colour on a light page and on a dark page, a mark and a dash pattern.
SERIES: tuple[tuple[str, str], ...] = (
    ("#0f62ac", "#6cb2f5"),
    ("#c94f0b", "#ff9250"),
    ("#0a8560", "#45cf9f"),
    ("#a83a86", "#ef8fcb"),
    ("#96690a", "#e6bb48"),
    ("#14799e", "#7fd9ee"),
    ("#6b4cc0", "#b6a0fa"),
    ("#6b645c", "#b3ada4"),
)
SHAPES = ("circle", "square", "diamond", "up", "down", "cross", "hexagon")
DASHES = ("", "8 3", "2 3", "10 3 2 3", "5 3", "1 4", "12 4 4 4")
# In every chart a series named after a family, such as "ptb-lstm" or "book (lstm)", has the style at its index.
FAMILIES = ("gru", "lstm", "transformer", "rnn", "attentive-rnn", "feedforward", "ngram")
_FAMILY = re.compile(rf"(?<![a-z0-9])(?:{'|'.join(sorted(FAMILIES, key=len, reverse=True))})(?![a-z0-9])")

NUM_STOPS = 17  # of a colour scale; colours between two stops are interpolated
# Lightness of the ends of a scale on a light page and on a dark page: the low end is close to the background.
SEQUENTIAL_LIGHTNESS = ((0.97, 0.31), (0.27, 0.93))
DIVERGING_LIGHTNESS = ((0.97, 0.42), (0.27, 0.84))  # of zero, and of both ends
LOW_CHROMA = 0.006  # of the end that is close to the background

Stops = tuple[str, ...]
Triple = tuple[float, float, float]


@dataclass(frozen=True)
class SeriesStyle:
    """How a line, or a group of points, looks. Marks and dashes differ too: nothing depends on colour alone."""

    colours: tuple[str, str]  # on light and dark pages
    variable: str  # the colour's name in the style sheet of a page
    shape: str
    dash: str

    def to_plain(self) -> dict[str, str]:
        """Returns the style as the components of a page read it."""
        return {"colour": f"var({self.variable})", "shape": self.shape, "dash": self.dash}


def choose_styles(names: Sequence[str], roles: Sequence[str] = ()) -> list[SeriesStyle]:
    """Returns a style for each series of a chart: the colour of its role, the style of its family, or an unused one."""
    return _make_styles(_choose_indices(names), roles)


def choose_bar_styles(names: Sequence[str], roles: Sequence[str] = ()) -> list[SeriesStyle]:
    """Returns a style for each bar: the colour of its role, that of its family if all have one, or the same for all."""
    indices = _choose_indices(names) if all(map(find_family, names)) else [0] * len(names)
    return _make_styles(indices, roles)


def choose_group_styles(groups: Sequence[str]) -> dict[str, SeriesStyle]:
    """Returns a style for each group of points, in the order of the points; those of families if all groups are some.

    groups: one per point
    """
    names = list(dict.fromkeys(groups))
    indices = _choose_indices(names) if all(map(find_family, names)) else range(len(names))
    return {name: make_style(index) for name, index in zip(names, indices)}


def _make_styles(indices: Sequence[int], roles: Sequence[str]) -> list[SeriesStyle]:
    return [make_style(index, role) for index, role in zip(indices, roles or [""] * len(indices), strict=True)]


def make_style(index: int, role: str = "") -> SeriesStyle:
    variant = index + index // len(SERIES)  # the same colour a second time has another mark
    colour = f"--role-{role}" if role in ROLES else f"--c{index % len(SERIES)}"
    return SeriesStyle(get_colours(role, index), colour, SHAPES[variant % len(SHAPES)], DASHES[variant % len(DASHES)])


def find_family(name: str) -> str | None:
    """Returns the model family that a series is named after, or None; one in brackets decides between several."""
    name = name.lower()
    found = set(_FAMILY.findall(name))
    in_brackets = {family for family in found if f"({family})" in name}
    return min(in_brackets or found) if len(in_brackets or found) == 1 else None


def _choose_indices(names: Sequence[str]) -> list[int]:
    """Returns a different index for each name: of the names of one family, the shortest has that of the family.

    A name that continues another, as "lstm: direct path" continues "lstm", has its colour with another mark and dash.
    """
    indices: dict[int, int] = {}
    families = list(map(find_family, names))
    for style, family in enumerate(FAMILIES):
        own = [position for position, each in enumerate(families) if each == family]
        if own:
            indices[min(own, key=lambda position: len(names[position]))] = style
    taken = set(indices.values())
    free = (index for index in range(len(names) + len(FAMILIES)) if index not in taken)
    for position, name in enumerate(names):
        base = next((number for number, other in enumerate(names) if name.startswith(f"{other}: ")), None)
        if position not in indices and base in indices:
            repeats = sum(index % len(SERIES) == indices[base] % len(SERIES) for index in indices.values())
            indices[position] = indices[base] + repeats * len(SERIES)
    return [indices[position] if position in indices else next(free) for position in range(len(names))]


def get_colours(role: str, index: int = 0) -> tuple[str, str]:
    """Returns the colours of a role on light and dark pages; of a series without a role, those of its index."""
    return ROLES.get(role) or SERIES[index % len(SERIES)]


@cache
def get_scale(scale: Literal["sequential", "diverging"], role: str = "") -> tuple[Stops, Stops]:
    """Returns the stops of a colour scale on light and dark pages, from the lowest value to the highest.

    A sequential scale has the hue of its role. A diverging scale runs from the colour of negative values through a
    neutral zero to that of positive values, whatever its role, so that a sign looks the same in all figures.
    """
    if scale == "diverging":
        light, dark = (
            (*_build_ramp(ROLES["negative"][mode], ends)[:0:-1], *_build_ramp(ROLES["positive"][mode], ends))
            for mode, ends in enumerate(DIVERGING_LIGHTNESS)
        )
    else:
        light, dark = (_build_ramp(get_colours(role)[mode], ends) for mode, ends in enumerate(SEQUENTIAL_LIGHTNESS))
    return light, dark


def _build_ramp(colour: str, ends: tuple[float, float]) -> Stops:
    """Returns colours of one hue whose lightness changes in equal steps."""
    own_lightness, a, b = to_oklab(colour)
    hue, chroma = math.atan2(b, a), math.hypot(a, b)
    peak = min(0.85, max(0.35, (own_lightness - ends[0]) / (ends[1] - ends[0])))  # where the chroma is that of the role
    stops = []
    for number in range(NUM_STOPS):
        share = number / (NUM_STOPS - 1)
        strength = share / peak if share < peak else 1 - 0.35 * (share - peak) / (1 - peak)
        lightness = ends[0] + share * (ends[1] - ends[0])
        stops.append(_fit_gamut(lightness, LOW_CHROMA + strength * max(0.0, chroma - LOW_CHROMA), hue))
    return tuple(stops)


def _fit_gamut(lightness: float, chroma: float, hue: float) -> str:
    """Returns the colour as hexadecimal digits, with less chroma where a screen cannot show that much."""
    for _ in range(100):
        red_green_blue = from_oklab((lightness, chroma * math.cos(hue), chroma * math.sin(hue)))
        if all(-1e-4 <= part <= 1 + 1e-4 for part in red_green_blue):
            break
        chroma *= 0.97
    return "#" + "".join(f"{round(255 * min(1.0, max(0.0, part))):02x}" for part in red_green_blue)


def to_oklab(colour: str) -> Triple:
    """Returns lightness, a and b of an sRGB colour such as `#0072b2`."""
    encoded = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in encoded)
    long = math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b)
    medium = math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b)
    short = math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b)
    return (
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    )


def from_oklab(colour: Triple) -> Triple:
    """Returns red, green and blue of sRGB; outside 0 … 1 where a screen cannot show the colour."""
    lightness, a, b = colour
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    red, green, blue = (12.92 * part if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055 for part in linear)
    return red, green, blue
