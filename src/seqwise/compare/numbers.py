"""Numbers as people read them: as many digits as the noise allows, ratios in per cent, times and sizes with a unit.

The terminal, the page and the sentences of the verdict show the same number in the same way. This module knows
nothing of families and reports; a number that does not exist is shown as a dash.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

NONE = "–"
_RATIOS = frozenset({"accuracy", "exact_match", "f1", "precision", "recall"})  # the last word of a metric's key
_HUNDREDS = frozenset({"bleu", "chrf"})  # from 0 to 100 by their definition
_DIGITS = 4  # significant ones, where no noise says how many


def named(metric: str) -> str:
    """A metric as people call it: span_f1 → span F1."""
    words = {"bleu": "BLEU", "mse": "MSE", "f1": "F1"}
    return " ".join(words.get(word, word) for word in metric.split("_"))


def is_ratio(metric: str) -> bool:
    """Whether a metric is a share from 0 to 1: accuracy, span_f1, exact_match, …"""
    return any(metric == name or metric.endswith(f"_{name}") for name in _RATIOS)


def bounds(metric: str) -> tuple[float, float]:
    """What a metric can be at least and at most; an interval goes no further."""
    return (0.0, 1.0) if is_ratio(metric) else (0.0, 100.0) if metric in _HUNDREDS else (0.0, math.inf)


def noticeable(metric: str, difference: float, value: float) -> bool:
    """Whether a difference is worth a word: half a per cent of the answers, half a point of BLEU, 1 % of an error."""
    least = 0.005 if is_ratio(metric) else 0.5 if metric in _HUNDREDS else 0.01 * abs(value)
    return difference > least


def shown(metric: str, value: float | None, spread: float | None = None) -> str:
    """A value of a metric: 84.2 %, 36.9, 3.12. `spread` is half of its interval, and says how many digits mean much."""
    number = _number(metric, value, spread)
    return f"{number} %" if is_ratio(metric) and number != NONE else number


def shown_interval(metric: str, low: float | None, high: float | None) -> str:
    """Both ends with the digits that their distance allows: "3.05 to 3.19", "83.1 to 85.3 %".

    Ends that read the same say nothing ("100.0 to 100.0 %"): no interval.
    """
    if low is None or high is None:
        return NONE
    spread = (high - low) / 2
    ends = _number(metric, low, spread), _number(metric, high, spread)
    return NONE if ends[0] == ends[1] else f"{ends[0]} to {shown(metric, high, spread)}"


def shown_difference(metric: str, difference: float | None, spread: float | None = None) -> str:
    """The size of a difference, without its sign: per cents differ by percentage points."""
    number = _number(metric, None if difference is None else abs(difference), spread)
    return f"{number} percentage points" if is_ratio(metric) and number != NONE else number


def shown_probability(p: float | None) -> str:
    """ "p = 0.012", "p < 0.001". What is below 0.05 never reads as 0.05."""
    if p is None:
        return f"p = {NONE}"
    rounded = f"{p:.2g}"
    return "p < 0.001" if p < 0.001 else "p < 0.05" if p < 0.05 <= float(rounded) else f"p = {rounded}"


def shown_seconds(seconds: float | None) -> str:
    """ "80 µs", "2.1 ms", "15 s", "2 min 5 s", "1 h 3 min"."""
    if seconds is None or not math.isfinite(seconds):
        return NONE
    if seconds < 59.95:
        size, unit = next(pair for pair in ((1e-6, "µs"), (1e-3, "ms"), (1.0, "s")) if seconds < 999.5 * pair[0])
        return f"{_plain(seconds / size, 2)} {unit}"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if rest else f"{minutes} min"


def shown_bytes(count: float | None) -> str:
    """ "512 MB"; a megabyte is a million bytes."""
    if count is None:
        return NONE
    size, unit = next(
        (pair for pair in ((1, "B"), (1e3, "kB"), (1e6, "MB")) if count < 999.5 * pair[0]), (1e9, "GB")
    )  # fmt: skip
    return f"{_plain(count / size, 2)} {unit}"


def shown_times(ratio: float) -> str:
    """How many times: "1.3", "4.2", "15"."""
    return _plain(ratio, 2)


def listed(names: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _number(metric: str, value: float | None, spread: float | None) -> str:
    if value is None or not math.isfinite(value):
        return NONE
    scale = 100 if is_ratio(metric) else 1
    value *= scale
    if spread is None or not spread > 0 or not math.isfinite(spread):
        return f"{value:.1f}" if scale == 100 or metric in _HUNDREDS else _plain(value, _DIGITS)
    if not _readable(value):
        return _plain(value, 2)
    decimals = min(_decimals(spread * scale), _after_point(value, _DIGITS + 1))
    return f"{value:,.{max(0, decimals)}f}"


def _decimals(spread: float) -> int:
    """Two digits of the spread where it begins with 1, 2 or 3, otherwise one: ±0.21 and ±0.07 both give hundredths."""
    place = math.floor(math.log10(spread))
    return -place + (spread / 10**place < 3.55)


def _after_point(value: float, digits: int) -> int:
    """Decimals that show so many significant digits."""
    return digits - 1 - math.floor(math.log10(abs(value))) if value else digits


def _readable(value: float) -> bool:
    """Whether a number has few enough zeros to be written out."""
    return not value or 1e-4 <= abs(value) < 1e9


def _plain(value: float, digits: int) -> str:
    """So many significant digits, but whole numbers in full; powers of ten only where nothing else is readable."""
    if not value:
        return "0"
    if not _readable(value):
        return f"{value:.{digits - 1}e}"
    rounded = round(value, _after_point(value, digits)) if abs(value) < 10**digits else value  # 9.96 → 10.0
    return f"{value:,.{max(0, _after_point(rounded, digits))}f}"
