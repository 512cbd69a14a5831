"""Colours of values: from white to a dark colour, or from one colour over white to another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqwise.page.figures import Scale
from seqwise.page.palette import ROLES

MISSING = "#e3e3e3"  # of a cell without a value
WHITE = (255, 255, 255)
NUM_LEVELS = 255  # different colours of a scale
MIDDLE = 0.72  # share of the way from white at which a scale has the colour of its role; beyond, it becomes darker


@dataclass(frozen=True)
class Ramp:
    """Colours for fractions from 0 to 1, interpolated between stops."""

    positions: tuple[float, ...]
    colours: tuple[tuple[int, ...], ...]

    def build_palette(self) -> np.ndarray:
        """Returns (256, 3) bytes: the colours of the scale and, last, that of missing values."""
        fractions = np.linspace(0, 1, NUM_LEVELS)
        channels = [np.interp(fractions, self.positions, channel) for channel in zip(*self.colours)]
        colours = np.rint(np.stack(channels, axis=-1))
        return np.concatenate([colours, [parse_colour(MISSING)]]).astype(np.uint8)

    def sample(self, fractions: np.ndarray) -> np.ndarray:
        """Returns the colours of fractions, (…, 3) bytes; NaN is grey."""
        return self.build_palette()[find_levels(fractions)]


def find_levels(fractions: np.ndarray) -> np.ndarray:
    """Returns the indices of fractions in the palette of `Ramp.build_palette`."""
    levels = np.rint(np.nan_to_num(fractions) * (NUM_LEVELS - 1))
    return np.where(np.isnan(fractions), NUM_LEVELS, levels).astype(np.uint8)


def make_ramp(scale: Scale, role: str = "") -> Ramp:
    """Returns the colours of a scale; a sequential one ends in the colour of a role."""
    if scale == "sequential":
        colour = parse_colour(ROLES.get(role, ROLES["input"])[0])
        return Ramp((0.0, MIDDLE, 1.0), (WHITE, colour, _darken(colour)))
    negative, positive = (parse_colour(ROLES[name][0]) for name in ("negative", "positive"))
    low, high = (1 - MIDDLE) / 2, (1 + MIDDLE) / 2
    return Ramp((0.0, low, 0.5, high, 1.0), (_darken(negative), negative, WHITE, positive, _darken(positive)))


def parse_colour(text: str) -> tuple[int, ...]:
    """Returns red, green and blue of a colour such as "#0072b2"."""
    return tuple(int(text[index : index + 2], 16) for index in (1, 3, 5))


def format_colour(colour: np.ndarray) -> str:
    return "#" + "".join(f"{int(channel):02x}" for channel in colour)


def choose_ink(colour: np.ndarray) -> str:
    """Returns white or black, whichever is easier to read on a colour."""
    red, green, blue = (float(channel) / 255 for channel in colour)
    return "#ffffff" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else "#111111"


def lighten(colour: str) -> str:
    """Returns a colour on which black lines can be seen."""
    return format_colour(255 - 0.6 * (255 - np.array(parse_colour(colour))))


def _darken(colour: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(round(0.55 * channel) for channel in colour)
