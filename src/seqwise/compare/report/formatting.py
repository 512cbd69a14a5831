"""Numbers as people read them: as many digits as the noise allows, ratios in per cent, times and sizes with a unit.

The terminal, the page and the sentences of the verdict show the same number in the same way. This module knows
nothing of families and reports; a number that does not exist is shown as a dash.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

NONE = "–"
_RATIOS = frozenset({"accuracy", "exact_match", "f1", "precision", "recall"})  # the last word of a metric's key
_HUNDREDS = frozenset({"bleu", "chrf"})  # from 0 to 100 by their definition
_DIGITS = 4  # significant ones, where no noise says how many
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_WHOLE = 1e9  # counts below it are written out


def plain(value: Any) -> Any:
    """As JSON knows it: numbers that it cannot hold, as an infinite perplexity, become null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def named(metric: str) -> str:
    """A metric as people call it: span_f1 → span F1."""
    words = {"bleu": "BLEU", "mse": "MSE", "f1": "F1"}
    return " ".join(words.get(word, word) for word in metric.split("_"))


def is_ratio(metric: str) -> bool:
    """Whether a metric is a share from 0 to 1: accuracy, span_f1, exact_match, …"""
    return any(metric == name or metric.endswith(f"_{name}") for name in _RATIOS)


def is_perplexity(metric: str) -> bool:
    """Whether it is e to the power of a loss: such numbers grow and shrink by factors."""
    return metric == "perplexity" or metric.endswith("_perplexity")


def bounds(metric: str) -> tuple[float, float]:
    """What a metric can be at least and at most; an interval goes no further."""
    if is_ratio(metric):
        return 0.0, 1.0
    return (0.0, 100.0) if metric in _HUNDREDS else (1.0 if is_perplexity(metric) else 0.0, math.inf)


def on_scale(metric: str, value: float) -> float:
    """The metric where equal steps mean equal progress: perplexities by their logarithm, all others as they are."""
    return math.log(value) if is_perplexity(metric) and value > 0 else value


def noticeable(metric: str, step: float, value: float) -> bool:
    """Whether a step on the scale of a metric is worth a word.

    Half a per cent of the answers, half a point of BLEU, 1 % of an error or of a perplexity.
    """
    fixed = 0.005 if is_ratio(metric) else 0.5 if metric in _HUNDREDS else 0.01 if is_perplexity(metric) else None
    return step > (0.01 * abs(value) if fixed is None else fixed)


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


def shown_step(metric: str, step: float) -> str:
    """A step on the scale of a metric, with two digits, as it is a guess: a perplexity falls by so many per cent."""
    step = max(0.0, step)
    if is_perplexity(metric):
        return f"{_plain(-100 * math.expm1(-step), 2)} %"
    return shown_difference(metric, step, step / 3 or None)


def shown_signed(metric: str, difference: float | None, spread: float | None = None) -> str:
    """A difference with its sign and without a unit: "−0.21", "+2.1", "0.00"."""
    if difference is None or not math.isfinite(difference):
        return NONE
    number = _number(metric, abs(difference), spread)
    nothing = not any(digit in number for digit in "123456789")
    return number if nothing else f"{'+' if difference > 0 else '−'}{number}"


def digits_of_difference(difference: float, half: float | None) -> float | None:
    """What says how many digits a difference has: half of its interval, unless it is smaller than that itself.

    Within its noise it still needs a digit that is not zero.
    """
    return (min(half, abs(difference)) or half) if half else None


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
    if seconds >= 3599.5:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{hours:,} h {minutes} min" if minutes else f"{hours:,} h"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def shown_range(low: float | None, high: float | None) -> str:
    """Two times: "1.9 to 2.4 ms"; nothing to show where they read the same."""
    ends = shown_seconds(low), shown_seconds(high)
    if NONE in ends or ends[0] == ends[1]:
        return NONE
    (first, *unit), (_, *other) = ends[0].split(), ends[1].split()
    return f"{first if unit == other and len(unit) == 1 else ends[0]} to {ends[1]}"


def shown_count(count: float | None) -> str:
    """ "412,001" in full, or "24.3 B" where that is long."""
    if count is None or not math.isfinite(count):
        return NONE
    if abs(count) < _WHOLE:
        return f"{count:,.0f}" if count >= 10 or count == round(count) else _plain(count, 2)
    size, unit = (1e9, "B") if abs(count) < 999.5e9 else (1e12, "T")
    return f"{_plain(count / size, 3)} {unit}"


def shown_rate(rate: float | None) -> str:
    """A learning rate: three digits at most, and no zeros at the end that say nothing."""
    if rate is None or not math.isfinite(rate):
        return NONE
    return f"{float(f'{rate:.3g}'):.9f}".rstrip("0").rstrip(".") if 1e-5 <= rate < 1e7 else _power(rate, 2)


def shown_bytes(count: float | None) -> str:
    """ "512 MB"; a megabyte is a million bytes."""
    if count is None:
        return NONE
    sizes = (1, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")
    size, unit = next((pair for pair in sizes if count < 999.5 * pair[0]), (1e12, "TB"))
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
        return _power(value, digits)
    rounded = round(value, _after_point(value, digits)) if abs(value) < 10**digits else value  # 9.96 → 10.0
    return f"{value:,.{max(0, _after_point(rounded, digits))}f}"


def _power(value: float, digits: int) -> str:
    """ "3.1 × 10⁻⁹"."""
    number, power = f"{value:.{digits - 1}e}".split("e")
    return f"{number} × 10{str(int(power)).translate(_RAISED)}"
