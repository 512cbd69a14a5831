"""Prints the table and the verdict of a comparison report; computes nothing."""

from __future__ import annotations

import shlex
from pathlib import Path

from seqwise.cli import console
from seqwise.compare.report.formatting import NONE, join_names
from seqwise.compare.report.schema import Family, Rank, Report

RANKS: dict[Rank, str] = {"best": "best", "tied": "≈", "unsure": "?", "worse": "", "failed": "failed"}
LEGEND: dict[Rank, str] = {"tied": "≈: no significant difference from the best", "unsure": "?: probably worse"}
TEXT_COLUMNS = ("mean", "interval", "parameters", "tokens_per_second", "seconds", "memory", "latency")


def show(report: Report, folder: Path) -> None:
    """Print the table, the verdict, failures, and the paths of the report."""
    console.write("")
    for line in table(report):
        console.write(line)
    console.write("")
    for sentence in report.verdict.sentences if report.verdict else ():
        console.write(sentence)
    for family in report.families:
        if family.reason:
            console.warn(f"{family.name}: {family.reason}")
    console.log(f"\nreport: {folder / 'report.html'} (open it in a browser), {folder / 'report.json'}")
    if report.verdict and report.verdict.best:
        run = f"{shlex.quote(str(folder))}/{report.family(report.verdict.best).run}"
        console.log(f"the best model: seqwise evaluate {run} {shlex.quote(report.data)}")


def table(report: Report) -> list[str]:
    """Aligned lines: one per family, one per baseline in brackets, and a legend."""
    measured = ("parameters", f"{report.unit}/s", "training", "memory", "one prediction")
    head = ["", "family", report.metric.name, "95 % interval", *measured]
    rows = [head, *map(_row, report.families)]
    rows += [["", f"({each.name})", each.value_text, *[""] * (len(head) - 3)] for each in report.baselines]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = ["  ".join(_cell(row[at], widths[at], at) for at in range(len(head))).rstrip() for row in rows]
    about = [f"({each.name}) needs no model: {each.about[:1].lower()}{each.about[1:]}" for each in report.baselines]
    return [*lines, _legend(report), *about]


def _legend(report: Report) -> str:
    """A sentence about the metric, the seeds and the marks in the table."""
    metric, families = report.metric, report.families
    direction = "lower is better" if metric.lower_is_better else "higher is better"
    seeds = len(report.rules.seeds)
    source = f"mean over {seeds} seeds" if seeds > 1 else "one seed: the interval is over test examples"
    single = [each.name for each in families if each.text and each.text.interval_source == "examples"]
    if seeds > 1 and single:
        source += f" ({join_names(single)}: one training, the interval is over test examples)"
    ranks = {family.rank for family in families}
    marks = "; ".join(words for rank, words in LEGEND.items() if rank in ranks)
    return f"{metric.name} on the test split, {source}; {direction}." + (f" {marks}." if marks else "")


def _cell(text: str, width: int, column: int) -> str:
    return f"{text:<{width}}" if column < 2 else f"{text:>{width}}"


def _row(family: Family) -> list[str]:
    texts = [str(getattr(family.text, column, NONE)) for column in TEXT_COLUMNS]
    return [RANKS[family.rank], family.name, *texts]
