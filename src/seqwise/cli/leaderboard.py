"""The table and the verdict of a comparison on the terminal. It only reads the report."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from seqwise.cli import console
from seqwise.compare.numbers import NONE, shown, shown_bytes, shown_interval, shown_seconds
from seqwise.compare.standing import interval_of, spread

RANKS = {"best": "best", "tied": "=", "unsure": "?", "worse": "", "failed": "failed"}
LEGEND = {"tied": "=: no significant difference from the best", "unsure": "?: probably worse"}


def show(report: dict[str, Any], folder: Path) -> None:
    """Table, reasons of failures, verdict, and where the report lies."""
    console.write("")
    for line in table(report):
        console.write(line)
    console.write("")
    for sentence in report["verdict"]["sentences"]:
        console.write(sentence)
    for family in report["families"]:
        if family["reason"]:
            console.warn(f"{family['name']}: {family['reason']}")
    place = shlex.quote(str(folder))
    console.say(f"\nreport: {folder / 'report.html'} (open it in a browser), {folder / 'report.json'}")
    if best := report["verdict"]["best"]:
        run = next(family["run"] for family in report["families"] if family["name"] == best)
        console.say(f"the best model: seqwise evaluate {place}/{run} {shlex.quote(report['data'])}")


def table(report: dict[str, Any]) -> list[str]:
    """One line per family, aligned."""
    metric, unit = report["metric"], report["unit"]
    arrow = "less is better" if metric["lower_is_better"] else "more is better"
    measured = ("parameters", f"{unit}/s", "training", "memory", "one prediction")
    head = ["", "family", metric["name"], "95 % interval", *measured]
    rows = [head, *(_row(family, metric["key"]) for family in report["families"])]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    lines = ["  ".join(_cell(row[at], widths[at], at) for at in range(len(head))).rstrip() for row in rows]
    many = len(report["rules"]["seeds"]) > 1
    of = f"mean over {len(report['rules']['seeds'])} seeds" if many else "one seed: the interval is over test examples"
    ranks = {family["rank"] for family in report["families"]}
    legend = "; ".join(words for rank, words in LEGEND.items() if rank in ranks)
    return [*lines, f"{metric['name']} on the test split, {of}; {arrow}." + (f" {legend}." if legend else "")]


def _cell(text: str, width: int, at: int) -> str:
    return f"{text:<{width}}" if at < 2 else f"{text:>{width}}"


def _row(family: dict[str, Any], metric: str) -> list[str]:
    training = family["training"] or {}
    speed, count = training.get("tokens_per_second"), family["parameters"]
    return [
        RANKS.get(family["rank"], ""),
        family["name"],
        shown(metric, family["mean"], spread(family)),
        _interval(family, metric),
        f"{count:,}" if count else NONE,
        f"{speed:,.0f}" if speed and not family["baseline"] else NONE,
        shown_seconds(training.get("seconds")),
        shown_bytes(family["memory"]),
        shown_seconds(family["answer"]),
    ]


def _interval(family: dict[str, Any], metric: str) -> str:
    found = interval_of(family)
    if found is None:
        return NONE
    low, high, over = found
    ends = shown_interval(metric, low, high)
    return f"all {over} alike" if ends == NONE else ends
