"""Prints the table and the verdict of a comparison report; computes nothing."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from seqwise.cli import console
from seqwise.compare.report.formatting import listed

RANKS = {"best": "best", "tied": "≈", "unsure": "?", "worse": "", "failed": "failed"}
LEGEND = {"tied": "≈: no significant difference from the best", "unsure": "?: probably worse"}


def show(report: dict[str, Any], folder: Path) -> None:
    """Print the table, the verdict, failures, and the paths of the report."""
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
    console.log(f"\nreport: {folder / 'report.html'} (open it in a browser), {folder / 'report.json'}")
    if best := report["verdict"]["best"]:
        run = next(family["run"] for family in report["families"] if family["name"] == best)
        console.log(f"the best model: seqwise evaluate {place}/{run} {shlex.quote(report['data'])}")


def table(report: dict[str, Any]) -> list[str]:
    """Aligned lines: one per family, one per baseline in brackets, and a legend."""
    metric, unit = report["metric"], report["unit"]
    measured = ("parameters", f"{unit}/s", "training", "memory", "one prediction")
    head = ["", "family", metric["name"], "95 % interval", *measured]
    baselines = report.get("baselines") or []
    rows = [head, *map(_row, report["families"])]
    rows += [["", f"({each['name']})", each["shown"]["value"], *[""] * (len(head) - 3)] for each in baselines]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    lines = ["  ".join(_cell(row[at], widths[at], at) for at in range(len(head))).rstrip() for row in rows]
    about = [f"({each['name']}) needs no model: {each['about'][:1].lower()}{each['about'][1:]}" for each in baselines]
    return [*lines, _legend(report), *about]


def _legend(report: dict[str, Any]) -> str:
    """A sentence about the metric, the seeds and the marks in the table."""
    metric, families = report["metric"], report["families"]
    arrow = "less is better" if metric["lower_is_better"] else "more is better"
    seeds = len(report["rules"]["seeds"])
    of = f"mean over {seeds} seeds" if seeds > 1 else "one seed: the interval is over test examples"
    single = [family["name"] for family in families if family["shown"]["over"] == "examples"]
    if seeds > 1 and single:
        of += f" (of {listed(single)} one training, and the interval is over test examples)"
    ranks = {family["rank"] for family in families}
    marks = "; ".join(words for rank, words in LEGEND.items() if rank in ranks)
    return f"{metric['name']} on the test split, {of}; {arrow}." + (f" {marks}." if marks else "")


def _cell(text: str, width: int, at: int) -> str:
    return f"{text:<{width}}" if at < 2 else f"{text:>{width}}"


def _row(family: dict[str, Any]) -> list[str]:
    keys = ("mean", "interval", "parameters", "tokens_per_second", "seconds", "memory", "answer")
    return [RANKS.get(family["rank"], ""), family["name"], *(family["shown"][key] for key in keys)]
