"""Formats numbers: as many digits as the noise allows, ratios in per cent, times and sizes with a unit.

The terminal, the page and the verdict format the same number in the same way. A number that does not exist becomes a
dash. This module knows nothing of families and reports.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

DASH = "–"
_RATIOS = frozenset({"accuracy", "exact_match", "f1", "precision", "recall"})  # keys of metrics, or their ends
_PERCENT_SCORES = frozenset({"bleu", "bleu_lowercase", "chrf"})  # from 0 to 100 by their definition
_DIGITS = 4  # significant digits of a number without an interval
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_MAX_FULL_COUNT = 1e9  # counts below it are written out


def format_metric_name(metric: str) -> str:
    """Returns the usual name of a metric: span_f1 → span F1."""
    words = {"bleu": "BLEU", "mse": "MSE", "f1": "F1"}
    return " ".join(words.get(word, word) for word in metric.split("_"))


def is_ratio(metric: str) -> bool:
    """Returns whether a metric is a share from 0 to 1: accuracy, span_f1, exact_match, …"""
    return any(metric == name or metric.endswith(f"_{name}") for name in _RATIOS)


def is_perplexity(metric: str) -> bool:
    """Returns whether a metric is the exponential of a loss, which changes by factors."""
    return metric == "perplexity" or metric.endswith("_perplexity")


def get_bounds(metric: str) -> tuple[float, float]:
    """Returns the smallest and the largest possible value of a metric."""
    if is_ratio(metric):
        return 0.0, 1.0
    return (0.0, 100.0) if metric in _PERCENT_SCORES else (1.0 if is_perplexity(metric) else 0.0, math.inf)


def convert_to_progress_scale(metric: str, value: float) -> float:
    """Returns the value on the progress scale of a metric: the logarithm of a perplexity, other metrics unchanged."""
    return math.log(value) if is_perplexity(metric) and value > 0 else value


def is_noticeable(metric: str, difference: float, value: float) -> bool:
    """Returns whether a difference on the progress scale of a metric is large enough to mention; `value` is the metric.

    The thresholds are half a per cent of the answers, half a point of BLEU, 1 % of an error or of a perplexity.
    """
    fixed = 0.005 if is_ratio(metric) else 0.5 if metric in _PERCENT_SCORES else 0.01 if is_perplexity(metric) else None
    return difference > (0.01 * abs(value) if fixed is None else fixed)


def format_metric(metric: str, value: float | None, spread: float | None = None) -> str:
    """Formats a value of a metric: 84.2 %, 36.9, 3.12. `spread`, half of its interval, determines the digits."""
    number = _format_number(metric, value, spread)
    return f"{number} %" if is_ratio(metric) and number != DASH else number


def format_interval(metric: str, low: float | None, high: float | None) -> str:
    """Formats both ends with the digits that their distance allows: "3.05 to 3.19", "83.1 to 85.3 %".

    Ends with the same text ("100.0 to 100.0 %") become a dash.
    """
    if low is None or high is None:
        return DASH
    spread = (high - low) / 2
    ends = _format_number(metric, low, spread), _format_number(metric, high, spread)
    return DASH if ends[0] == ends[1] else f"{ends[0]} to {format_metric(metric, high, spread)}"


def format_difference(metric: str, difference: float | None, spread: float | None = None) -> str:
    """Formats the size of a difference, without its sign; ratios differ by percentage points."""
    number = _format_number(metric, None if difference is None else abs(difference), spread)
    return f"{number} percentage points" if is_ratio(metric) and number != DASH else number


def format_gaps(metric: str, values: Sequence[float], best: float) -> str:
    """Formats how far values are behind the best: "+54 %", "−1.2 to −4.5 percentage points"; errors in per cent."""
    if get_bounds(metric)[1] == math.inf:
        gaps, unit = [100 * (value - best) / max(abs(best), 1e-300) for value in values], " %"
        sizes = [_format_digits(abs(gap), 2) for gap in gaps]
    else:
        factor, unit = (100, " percentage points") if is_ratio(metric) else (1, f" {format_metric_name(metric)}")
        gaps = [factor * (value - best) for value in values]
        sizes = [f"{abs(gap):.1f}" for gap in gaps]
    texts = [("+" if gap > 0 else "−" if gap < 0 else "") + size for gap, size in zip(gaps, sizes)]
    return (texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}") + unit


def format_gain(metric: str, gain: float) -> str:
    """Formats a gain on the progress scale with two digits, since it is an estimate; of a perplexity in per cent."""
    gain = max(0.0, gain)
    if is_perplexity(metric):
        return f"{_format_digits(-100 * math.expm1(-gain), 2)} %"
    return format_difference(metric, gain, gain / 3 or None)


def format_signed(metric: str, difference: float | None, spread: float | None = None) -> str:
    """Formats a difference with its sign and without a unit: "−0.21", "+2.1", "0.00"."""
    if difference is None or not math.isfinite(difference):
        return DASH
    number = _format_number(metric, abs(difference), spread)
    is_zero = not any(digit in number for digit in "123456789")
    return number if is_zero else f"{'+' if difference > 0 else '−'}{number}"


def choose_difference_spread(difference: float, half_width: float | None) -> float | None:
    """Returns the `spread` for formatting a difference: half of its interval, or the difference if that is smaller.

    A difference within its noise still gets a digit that is not zero.
    """
    return (min(half_width, abs(difference)) or half_width) if half_width else None


def format_p(p: float | None) -> str:
    """Formats a p-value: "p = 0.012", "p < 0.001". A p below 0.05 is never rounded to 0.05."""
    if p is None:
        return f"p = {DASH}"
    rounded = f"{p:.2g}"
    return "p < 0.001" if p < 0.001 else "p < 0.05" if p < 0.05 <= float(rounded) else f"p = {rounded}"


def format_seconds(seconds: float | None) -> str:
    """Formats a duration: "80 µs", "2.1 ms", "15 s", "2 min 5 s", "1 h 3 min"."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    if seconds < 59.95:
        size, unit = next(pair for pair in ((1e-6, "µs"), (1e-3, "ms"), (1.0, "s")) if seconds < 999.5 * pair[0])
        return f"{_format_digits(seconds / size, 2)} {unit}"
    if seconds >= 3599.5:
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"{hours:,} h {minutes} min" if minutes else f"{hours:,} h"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def format_seconds_range(low: float | None, high: float | None) -> str:
    """Formats two durations: "1.9 to 2.4 ms"; a dash where both have the same text."""
    ends = format_seconds(low), format_seconds(high)
    if DASH in ends or ends[0] == ends[1]:
        return DASH
    (first, *unit), (_, *other) = ends[0].split(), ends[1].split()
    return f"{first if unit == other and len(unit) == 1 else ends[0]} to {ends[1]}"


def format_count(count: float | None) -> str:
    """Formats a count: "412,001" in full, or "24.3 B" from a billion on."""
    if count is None or not math.isfinite(count):
        return DASH
    if abs(count) < _MAX_FULL_COUNT:
        return f"{count:,.0f}" if count >= 10 or count == round(count) else _format_digits(count, 2)
    size, unit = (1e9, "B") if abs(count) < 999.5e9 else (1e12, "T")
    return f"{_format_digits(count / size, 3)} {unit}"


def format_rate(rate: float | None) -> str:
    """Formats a learning rate with at most three significant digits and no trailing zeros."""
    if rate is None or not math.isfinite(rate):
        return DASH
    return f"{float(f'{rate:.3g}'):.9f}".rstrip("0").rstrip(".") if 1e-5 <= rate < 1e7 else _format_power(rate, 2)


def format_bytes(count: float | None) -> str:
    """Formats a size: "512 MB"; a megabyte is a million bytes."""
    if count is None:
        return DASH
    sizes = (1, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB")
    size, unit = next((pair for pair in sizes if count < 999.5 * pair[0]), (1e12, "TB"))
    return f"{_format_digits(count / size, 2)} {unit}"


def format_factor(ratio: float) -> str:
    """Formats a factor: "1.3", "4.2", "15"."""
    return _format_digits(ratio, 2)


def join_names(names: Sequence[str]) -> str:
    """Joins names: "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _format_number(metric: str, value: float | None, spread: float | None) -> str:
    if value is None or not math.isfinite(value):
        return DASH
    scale = 100 if is_ratio(metric) else 1
    value *= scale
    if spread is None or not spread > 0 or not math.isfinite(spread):
        return f"{value:.1f}" if scale == 100 or metric in _PERCENT_SCORES else _format_digits(value, _DIGITS)
    if not _is_readable(value):
        return _format_digits(value, 2)
    decimals = min(_count_decimals_of_spread(spread * scale), _count_decimals(value, _DIGITS + 1))
    return f"{value:,.{max(0, decimals)}f}"


def _count_decimals_of_spread(spread: float) -> int:
    """Returns decimals for two digits of a spread up to 3.5 times a power of ten, else for one: 2 for 0.21 and 0.07."""
    exponent = math.floor(math.log10(spread))
    return -exponent + (spread / 10**exponent < 3.55)


def _count_decimals(value: float, digits: int) -> int:
    """Returns the decimals that show so many significant digits."""
    return digits - 1 - math.floor(math.log10(abs(value))) if value else digits


def _is_readable(value: float) -> bool:
    """Returns whether a number has few enough zeros to be written without a power of ten."""
    return not value or 1e-4 <= abs(value) < 1e9


def _format_digits(value: float, digits: int) -> str:
    """Formats so many significant digits; whole numbers in full, powers of ten only for very large or small numbers."""
    if not value:
        return "0"
    if not _is_readable(value):
        return _format_power(value, digits)
    rounded = round(value, _count_decimals(value, digits)) if abs(value) < 10**digits else value  # 9.96 → 10.0
    return f"{value:,.{max(0, _count_decimals(rounded, digits))}f}"


def _format_power(value: float, digits: int) -> str:
    """Formats a number with a power of ten: "3.1 × 10⁻⁹"."""
    number, power = f"{value:.{digits - 1}e}".split("e")
    return f"{number} × 10{str(int(power)).translate(_SUPERSCRIPTS)}"
