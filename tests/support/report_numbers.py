"""Parses the formatted numbers on the page of a report and compares them with those of the report.

A text is correct if it differs from the number by at most half of its last digit.
"""

from __future__ import annotations

import math
import re
from typing import Any

# JavaScript that returns (family or trial, key, number, text) of every number, and (family, kind, text) of every range.
READ_NUMBERS = """all => all.map(({ dataset, innerText }) =>
  [dataset.family ?? dataset.trial, dataset.key, dataset.value, innerText])"""
READ_RANGES = "all => all.map(({ dataset, innerText }) => [dataset.family, dataset.range, innerText])"
NUMBER = re.compile(r"([-−+]?)([\d,.]+)(?: × 10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))? ?(µs|ms|min|[a-zA-Z]+|%)?")
SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
TIMES = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
BYTES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
COUNTS = {"": 1.0, "%": 0.01, "B": 1e9, "T": 1e12}


def parse_number(text: str, units: dict[str, float]) -> tuple[float, float]:
    """Returns the number in a text, and half of its last digit. "2 min 5 s" → 125, 0.5; "84.2 %" → 0.842, 0.0005."""
    value, half_digit = 0.0, math.inf
    for sign, digits, power, unit in NUMBER.findall(text):
        size = units[unit] * 10 ** int(power.translate(SUPERSCRIPTS) or 0)
        number = digits.replace(",", "")
        value += (-1 if sign in ("-", "−") else 1) * float(number) * size
        half_digit = min(half_digit, size / 2 * 10.0 ** -len(number.partition(".")[2]))
    assert half_digit < math.inf, text
    return value, half_digit


def describe_mismatch(name: str, key: str, value: float, text: str, is_ratio: bool) -> str:
    """Returns what is wrong with a number on the page; an empty string if it is right."""
    line = text.replace("\u00a0", " ").strip().splitlines()[0]
    wrong = f"{name} {key}: {line!r} is not {value}"
    if line in ("✓ right", "✗ wrong"):
        return "" if value == (line == "✓ right") else wrong
    last = key.rpartition(".")[2]
    in_points = is_ratio and last in ("difference", "low", "high")  # for a ratio: in percentage points
    units = (
        BYTES
        if last in ("memory", "weights")
        else TIMES
        if last in ("seconds", "latency", "evaluation_seconds")
        else COUNTS
    )
    if line.startswith("<"):
        return "" if 0 <= value < float(line.removeprefix("<")) else wrong
    read, half_digit = parse_number(line.removesuffix("/s"), units)
    read, half_digit = (read / 100, half_digit / 100) if in_points else (read, half_digit)
    return "" if abs(read - value) <= half_digit * (1 + 1e-6) + 1e-12 * abs(value) else wrong


def find_mismatches(tab: Any, report: dict[str, Any]) -> list[str]:
    """Returns what is wrong with the numbers in the tables of a page."""
    tab.eval_on_selector_all("details", "all => all.forEach(one => { one.open = true; })")
    is_ratio = report["metric"]["key"] == "accuracy"
    read = tab.eval_on_selector_all("[data-value]", READ_NUMBERS)
    problems = [describe_mismatch(name, key, float(value), text, is_ratio) for name, key, value, text in read]
    families = {family["name"]: family for family in report["families"]}
    for name, kind, text in tab.eval_on_selector_all("[data-range]", READ_RANGES):
        problems += describe_range_mismatches(families[name], kind, text, is_ratio)
    return [each for each in problems if each]


def describe_range_mismatches(family: dict[str, Any], kind: str, text: str, is_ratio: bool) -> list[str]:
    """Checks both ends of "1.9 to 2.4 ms"; the first may omit the unit."""
    source = family if family["low"] is not None else family["sampling"]
    low, high = source["low"], source["high"]
    if kind == "latencies":
        low, high = min(family["latencies"]), max(family["latencies"])
    if text.startswith("the same "):
        return [] if high - low < 1e-4 * abs(high) else [f"{family['name']}: {text}, but {low} to {high}"]
    first, _, second = text.partition(" to ")
    if re.fullmatch(r"[\d,.]+", first) and " " in second and "×" not in second:
        first += second[second.index(" ") :]
    key = "latency" if kind == "latencies" else "mean"
    return [describe_mismatch(family["name"], key, end, part, is_ratio) for end, part in ((low, first), (high, second))]
