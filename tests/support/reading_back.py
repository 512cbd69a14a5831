"""Parses the formatted numbers on the page of a report and compares them with those of the report.

A text is right if it is within half of its last digit of the number.
"""

from __future__ import annotations

import math
import re
from typing import Any

# JavaScript that returns (family or trial, key, number, text) of every number.
READ = """all => all.map(({ dataset, innerText }) =>
  [dataset.family ?? dataset.trial, dataset.key, dataset.value, innerText])"""
RANGES = "all => all.map(({ dataset, innerText }) => [dataset.family, dataset.range, innerText])"
NUMBER = re.compile(r"([-−+]?)([\d,.]+)(?: × 10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))? ?(µs|ms|min|[a-zA-Z]+|%)?")
RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
TIMES = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
BYTES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
COUNTS = {"": 1.0, "%": 0.01, "B": 1e9, "T": 1e12}


def read_back(text: str, units: dict[str, float]) -> tuple[float, float]:
    """Return the number in a text, and half of its last digit. "2 min 5 s" → 125, 0.5; "84.2 %" → 0.842, 0.0005."""
    value, half = 0.0, math.inf
    for sign, digits, power, unit in NUMBER.findall(text):
        size = units[unit] * 10 ** int(power.translate(RAISED) or 0)
        number = digits.replace(",", "")
        value += (-1 if sign in ("-", "−") else 1) * float(number) * size
        half = min(half, size / 2 * 10.0 ** -len(number.partition(".")[2]))
    assert half < math.inf, text
    return value, half


def misread(name: str, key: str, value: float, text: str, share: bool) -> str:
    """Return what is wrong with a number on the page; an empty string if it is right."""
    line = text.replace("\u00a0", " ").strip().splitlines()[0]
    wrong = f"{name} {key}: {line!r} is not {value}"
    if line in ("✓ right", "✗ wrong"):
        return "" if value == (line == "✓ right") else wrong
    last = key.rpartition(".")[2]
    in_points = share and last in ("difference", "low", "high")  # per cents differ by percentage points
    units = (
        BYTES
        if last in ("memory", "weights")
        else TIMES
        if last in ("seconds", "latency", "evaluation_seconds")
        else COUNTS
    )
    if line.startswith("<"):
        return "" if 0 <= value < float(line.removeprefix("<")) else wrong
    read, half = read_back(line.removesuffix("/s"), units)
    read, half = (read / 100, half / 100) if in_points else (read, half)
    return "" if abs(read - value) <= half * (1 + 1e-6) + 1e-12 * abs(value) else wrong


def all_misread(tab: Any, report: dict[str, Any]) -> list[str]:
    """Return what is wrong with the numbers in the tables of a page."""
    tab.eval_on_selector_all("details", "all => all.forEach(one => { one.open = true; })")
    share = report["metric"]["key"] == "accuracy"
    read = tab.eval_on_selector_all("[data-value]", READ)
    problems = [misread(name, key, float(value), text, share) for name, key, value, text in read]
    families = {family["name"]: family for family in report["families"]}
    for name, kind, text in tab.eval_on_selector_all("[data-range]", RANGES):
        problems += _misread_range(families[name], kind, text, share)
    return [each for each in problems if each]


def _misread_range(family: dict[str, Any], kind: str, text: str, share: bool) -> list[str]:
    """Check both ends of "1.9 to 2.4 ms"; the first may omit the unit."""
    over = family if family["low"] is not None else family["sampling"]
    low, high = over["low"], over["high"]
    if kind == "latencies":
        low, high = min(family["latencies"]), max(family["latencies"])
    if text.startswith("all "):
        return [] if high - low < 1e-4 * abs(high) else [f"{family['name']}: {text}, but {low} to {high}"]
    first, _, second = text.partition(" to ")
    if re.fullmatch(r"[\d,.]+", first) and " " in second and "×" not in second:
        first += second[second.index(" ") :]
    key = "latency" if kind == "latencies" else "mean"
    return [misread(family["name"], key, end, part, share) for end, part in ((low, first), (high, second))]
