"""Names and numbers as figures show them: special characters visible, long names shortened, lines wrapped.

A width is in columns of a terminal or in pixels; the caller passes the function that measures it. This module knows
nothing of figures.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache

from rich.cells import cell_len

from seqwise.printable import make_printable, show_code_point

Measure = Callable[[str], float]

JOINERS = "\u200c\u200d"  # format characters that change how their neighbours look
LEFT_TO_RIGHT_MARK = "\u200e"
FIRST_FLAG_LETTER, LAST_FLAG_LETTER = 0x1F1E6, 0x1F1FF
SKIN_TONES = range(0x1F3FB, 0x1F400)


def show_text(text: str) -> str:
    """Returns a text on one line: control characters as symbols, and what no font may have as its code point."""
    return "".join(map(_show_character, make_printable(text, is_line=True)))


def show_name(text: str) -> str:
    """Returns the name of a token or unit on one line, with spaces at its ends as symbols."""
    shown = show_text(text)
    if not shown:
        return text.encode("unicode_escape").decode() or "''"
    inner = shown.strip(" ")
    num_before = len(shown) - len(shown.lstrip(" "))
    return "␣" * num_before + inner + "␣" * (len(shown) - num_before - len(inner))


def _show_character(character: str) -> str:
    match unicodedata.category(character):
        case "Co" | "Cn":
            return show_code_point(character)
        case "Cf":
            return character if character in JOINERS else ""
        case "Zs":
            return " "
    return character


def simplify_clusters(text: str) -> str:
    """Returns a text whose width all terminals agree on: emoji without modifiers, flags as letters."""
    return "".join(map(_simplify_cluster, split_clusters(text)))


def _simplify_cluster(cluster: str) -> str:
    if FIRST_FLAG_LETTER <= ord(cluster[0]) <= LAST_FLAG_LETTER:
        return chr(ord("A") + ord(cluster[0]) - FIRST_FLAG_LETTER)
    marks = [each for each in cluster[1:].partition("\u200d")[0] if unicodedata.combining(each)]
    return cluster[0] + "".join(marks)


def split_clusters(text: str) -> list[str]:
    """Returns the characters of a text, each with its combining marks and joined emoji."""
    clusters: list[str] = []
    for character in text:
        is_mark = unicodedata.category(character) in ("Mn", "Me", "Mc", "Cf") or ord(character) in SKIN_TONES
        if clusters and (is_mark or clusters[-1].endswith("\u200d")):
            clusters[-1] += character
        else:
            clusters.append(character)
    return clusters


def measure_cells(text: str) -> int:
    """Returns the columns that a text takes in a terminal."""
    return cell_len(text)


def measure_pixels(text: str, size: float = 12) -> float:
    """Returns an estimate of the width of a text in a sans-serif font, on the large side."""
    return size * sum(map(_measure_character, text))


@lru_cache(maxsize=4096)
def _measure_character(character: str) -> float:
    """Returns the width of a character in units of the font size; the widths are those of Helvetica plus 8 %."""
    if unicodedata.east_asian_width(character) in "WF":
        return 1.08
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0.0
    if character in "ijl'|.,;:!":
        return 0.29
    if character in "frt()[]/- ":
        return 0.37
    if character in "mwMW%@…→":
        return 0.97
    return 0.74 if character.isupper() else 0.6


def shorten(text: str, limit: float, measure: Measure = measure_cells) -> str:
    """Returns a text that is at most `limit` wide; a longer one ends with an ellipsis."""
    if measure(text) <= limit:
        return text
    width, start = measure("…"), ""
    for cluster in split_clusters(text):
        width += measure(cluster)
        if width > limit:
            break
        start += cluster
    return start + "…"


def shorten_all(names: Sequence[str], limit: float, measure: Measure = measure_cells) -> list[str]:
    """Returns names of tokens or units on one line each, at most `limit` wide."""
    return [shorten(show_name(name), limit, measure) for name in names]


def wrap(text: str, limit: float, measure: Measure = measure_cells) -> list[str]:
    """Returns the lines of a text, broken at spaces; a word wider than a line is broken inside."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if measure(joined) <= limit:
            lines[-1] = joined
            continue
        first, *others = _break_word(word, limit, measure)
        lines = [*lines, first] if lines[-1] else [first]
        lines += others
    return lines


def _break_word(word: str, limit: float, measure: Measure) -> list[str]:
    pieces = [""]
    for cluster in split_clusters(word):
        if pieces[-1] and measure(pieces[-1] + cluster) > limit:
            pieces.append("")
        pieces[-1] += cluster
    return pieces


def isolate(text: str) -> str:
    """Returns a text after which a line continues from left to right."""
    is_right_to_left = any(unicodedata.bidirectional(character) in ("R", "AL") for character in text)
    return text + LEFT_TO_RIGHT_MARK if is_right_to_left else text


def format_number(value: float | int | None) -> str:
    """Returns a number with three significant digits; whole numbers in full; no value as a dash."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return "–" if math.isnan(value) else ("∞" if value > 0 else "-∞")
    if isinstance(value, int) or float(value).is_integer():
        return format_tick(value)
    rounded = float(f"{value:.3g}")
    exponent = math.floor(math.log10(abs(rounded)))
    if not -4 <= exponent < 6:
        return _trim_exponent(f"{rounded:.2e}")
    return f"{rounded:,.{max(0, 2 - exponent)}f}"


def format_tick(value: float) -> str:
    """Returns a round number as short as possible."""
    if value == 0 or 1e-4 <= abs(value) < 1e6 or (isinstance(value, int) and abs(value) < 1e15):
        return f"{value:,.10g}" if abs(value) < 1e10 else f"{value:,}"
    return _trim_exponent(f"{value:.6g}")


def _trim_exponent(text: str) -> str:
    return re.sub(r"e([+-])0*(\d+)", lambda match: f"e{match[1].replace('+', '')}{match[2]}", text)


def are_numbered(names: Sequence[str]) -> bool:
    """Returns whether the names differ only in a number, as in "unit 7"; then some of them stand for all."""
    return all(any(map(str.isdigit, name)) for name in names) and len({re.sub(r"\d+", "", name) for name in names}) <= 1
