"""The output of a comparison on the terminal: live lines while it runs, then the table and the verdict of its report.

It reads events, the plan, the outcomes of the search and the report; it computes no results.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, TaskID, TaskProgressColumn
from rich.table import Column

from seqwise.cli import console
from seqwise.cli.progress import LiveDisplay, PlainColumn, format_duration
from seqwise.compare.plan.plan import Plan
from seqwise.compare.report.formatting import DASH, format_metric, format_metric_name, format_rate, join_names
from seqwise.compare.report.schema import Family, Rank, Report
from seqwise.compare.run.learning_rates import choose_rate
from seqwise.compare.run.remaining_time import RemainingTime

if TYPE_CHECKING:
    from seqwise.compare.run.jobs import Event, Job
    from seqwise.compare.run.stages import Stage

RANK_MARKS: dict[Rank, str] = {"best": "best", "tied": "≈", "unsure": "?", "worse": "", "failed": "failed"}
EQUAL = "="  # mark of a tied family with exactly the mean of the best
LEGEND = {EQUAL: "=: equal to the best", "≈": "≈: tied with the best", "?": "?: behind, but not certainly"}
TEXT_COLUMNS = ("mean", "interval", "parameters", "tokens_per_second", "seconds", "memory", "latency")
STAGES: dict[Stage, str] = {
    "speed": "measuring the speed of all families, in turns",
    "learning rates": "learning-rate search",
    "training": "training",
    "test": "evaluating on the test split, once",
    "latency": "measuring the latency of single predictions",
}
EVALUATION = "evaluating on the validation split"  # in place of the test, with --no-test


class TrialsDisplay(LiveDisplay):
    """One line per trial, on standard error."""

    def __init__(self, folder: Path, plan: Plan, count_workers: Callable[[], int] = lambda: 1) -> None:
        self.folder, self.plan = folder, plan
        self.remaining_time = RemainingTime(folder, plan, count_workers)
        self.width = max(len(trial.name) for trial in plan.list_trials())
        # The most important fields come first: a narrow terminal cuts off the others.
        details = PlainColumn("{task.fields[details]}", table_column=Column(no_wrap=True, ratio=1))
        bar = [BarColumn(bar_width=12), TaskProgressColumn()]
        super().__init__(PlainColumn("{task.description}"), *bar, details, expand=True)
        self.bars: dict[str, TaskID] = {}
        self.last_events: dict[str, Event] = {}
        self.printed_notes: set[tuple[str, str]] = set()
        self.num_left = self.num_jobs = 0

    def start_stage(self, stage: Stage, jobs: Sequence[Job]) -> None:
        """Prints the start of a stage."""
        self.num_left = self.num_jobs = len(jobs)
        self.plan = Plan.open(self.folder)  # with token budgets and learning rates that were decided meanwhile
        self.remaining_time.refresh(self.plan)
        if stage == "training":
            for line in describe_rates(self.folder, self.plan):
                console.log(line)
        if stage in ("speed", "latency"):
            console.log(STAGES[stage])
        else:
            name = EVALUATION if stage == "test" and not self.plan.test else STAGES[stage]
            if stage == "learning rates" and self.plan.added_rates:
                name += ", extended because the best rate was the lowest or the highest"
            unit = ("model" if stage == "test" else "trial") + ("s" if len(jobs) > 1 else "")
            console.log(f"{name}: {len(jobs)} {unit}; {self._format_end()}")

    def _format_end(self) -> str:
        seconds = self.remaining_time.estimate_seconds()
        end = datetime.now() + timedelta(seconds=seconds)
        return f"about {format_duration(seconds)} left, until {end:%H:%M}"

    def handle_event(self, event: Event) -> None:
        """Updates the display."""
        self.remaining_time.update(event)
        if event["event"] == "waiting":
            console.warn(event["reason"])
            return
        name = event["name"]
        if event["event"] == "begin":
            self.last_events[name] = {}
            self.bars[name] = self.live.add_task(f"{name:<{self.width}}", total=1.0, details="")
        elif event["event"] == "progress":
            self.last_events[name] = event
            self._print_notes(name, event.get("notes", ()))
            if name in self.bars:
                left = f"{format_duration(self.remaining_time.estimate_seconds())} left"
                details = "  ".join([left, *self._format_details(name, event)])
                self.live.update(self.bars[name], completed=event["progress"], details=details)
        elif event["event"] == "lost":
            console.warn(f"{name}: its process was lost {event['reason']}; it continues from its newest checkpoint.")
            self._remove_bar(name)
        elif event["event"] == "end":
            self._remove_bar(name)
            self.num_left -= 1
            self._print_end(name, event)

    def _print_notes(self, name: str, notes: Sequence[str]) -> None:
        """Prints the notes of a training run that are new, such as what is certainly wrong."""
        for note in notes:
            if (name, note) not in self.printed_notes:
                self.printed_notes.add((name, note))
                console.log(f"{name}: {note}")

    def _remove_bar(self, name: str) -> None:
        if name in self.bars:
            self.live.remove_task(self.bars.pop(name))

    def _print_end(self, name: str, event: Event) -> None:
        if event["status"] == "failed":
            console.warn(f"{name} failed: {event['reason']}")
        elif event["kind"] == "train":
            done = f"{self.num_jobs - self.num_left:>{len(str(self.num_jobs))}}/{self.num_jobs}"
            details = self._format_details(name, self.last_events.get(name, {}))
            console.log("  ".join([done, f"{name:<{self.width}}", *details]))

    def _format_details(self, name: str, event: Event) -> list[str]:
        """Returns learning rate, validation metric, tokens and seconds, as far as known."""
        trial = next((trial for trial in self.plan.list_lr_trials() if trial.name == name), None)
        details = [] if trial is None else [f"rate {self.plan.get_rate(trial):<7g}"]
        if event.get("value") is not None:
            metric = self.plan.metric
            details.append(f"valid {format_metric_name(metric)} {format_metric(metric, event['value'])}")
        if event.get("tokens"):
            details.append(f"{event['tokens']:,} {self.plan.unit}")
        if event.get("seconds"):
            details.append(f"{event['seconds']:.1f} s")
        return details


def describe_rates(folder: Path, plan: Plan) -> list[str]:
    """Returns lines with the learning rate that the search has chosen for each family; none without a search."""
    searched = [name for name in plan.families if plan.has_gradients(name)] if plan.budgets.lr_trials > 1 else []
    rows = []
    for name in searched:
        rate, _ = choose_rate(folder, plan, name)
        if rate is not None:  # the failure of a search was reported before
            rates, num_added = plan.list_rates(name), len(plan.added_rates.get(name, ()))
            edge = ", the lowest" if rate == min(rates) else ", the highest" if rate == max(rates) else ""
            extended = f"; the search was extended by {num_added}" if num_added else ""
            rows.append([f"  {name}", format_rate(rate), f"of {len(rates)} tried{edge}{extended}"])
    return ["chosen learning rates:", *console.align(rows, num_left=3)] if rows else []


def print_report(report: Report, folder: Path) -> None:
    """Prints the table, the verdict, failures, and the paths of the report."""
    console.write("")
    for line in build_table(report):
        console.write(line)
    console.write("")
    for sentence in report.verdict.sentences if report.verdict else ():
        console.write(sentence)
    for family in report.families:
        if family.reason:
            console.warn(f"{family.name}: {family.reason}")
    if report.waiting.text:
        console.log(report.waiting.text)
    console.log(f"\nreport: {folder / 'report.html'} (open it in a browser), {folder / 'report.json'}")
    if report.verdict and report.verdict.best:
        run = f"{shlex.quote(str(folder))}/{report.family(report.verdict.best).run}"
        console.log(f"the best model: seqwise evaluate {run} {shlex.quote(report.data)}")


def build_table(report: Report) -> list[str]:
    """Returns aligned lines: one per family, one per baseline in brackets, and a legend."""
    measured = ("parameters", f"{report.unit}/s", "training", "memory", "one prediction")
    head = ["", "family", report.metric.name, "95 % interval", *measured]
    rows = [head]
    for family in report.families:
        texts = [str(family.text.get(column, DASH)) for column in TEXT_COLUMNS]
        rows.append([_get_mark(report, family), family.name, *texts])
    rows += [["", f"({each.name})", each.value_text, *[""] * (len(head) - 3)] for each in report.baselines]
    about = [f"({each.name}) is a baseline. {each.about}" for each in report.baselines]
    return [*console.align(rows, num_left=2), _format_legend(report), *about]


def _get_mark(report: Report, family: Family) -> str:
    """Returns the mark of a family in the first column of the table."""
    is_equal = family.rank == "tied" and report.verdict is not None and family.name in report.verdict.equal
    return EQUAL if is_equal else RANK_MARKS[family.rank]


def _format_legend(report: Report) -> str:
    """Returns a sentence about the metric, the seeds and the marks in the table."""
    metric, families = report.metric, report.families
    direction = "lower is better" if metric.lower_is_better else "higher is better"
    seeds = len(report.rules.seeds)
    source = f"mean over {seeds} seeds" if seeds > 1 else f"one seed: the interval is over {metric.split} examples"
    single = [each.name for each in families if each.text.get("interval_source") == "examples"]
    if seeds > 1 and single:
        source += f" ({join_names(single)}: one training run, the interval is over {metric.split} examples)"
    used = {_get_mark(report, family) for family in families}
    marks = "; ".join(words for mark, words in LEGEND.items() if mark in used)
    return f"{metric.name} on the {metric.split} split, {source}; {direction}." + (f" {marks}." if marks else "")
