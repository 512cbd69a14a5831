"""The progress of a comparison on the terminal: a live line per running trial, a line for each that ended.

It only reads events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn
from rich.table import Column

from seqwise.cli import console
from seqwise.cli.progress import format_duration
from seqwise.compare.report.formatting import format_metric, format_metric_name
from seqwise.compare.run.stages import RemainingTime

if TYPE_CHECKING:
    from seqwise.compare.plan.plan import Plan
    from seqwise.compare.run.jobs import Event, Job
    from seqwise.compare.run.stages import Stage

STAGES: dict[Stage, str] = {
    "speed": "measuring the speed of each family: a few updates and one validation",
    "learning rates": "learning-rate search",
    "training": "training",
    "test": "evaluating on the test split, once",
    "latency": "measuring the latency of single predictions, with nothing else running",
}


class TrialsDisplay(AbstractContextManager["TrialsDisplay"]):
    """One line per trial, on standard error."""

    def __init__(self, folder: Path, plan: Plan, count_workers: Callable[[], int] = lambda: 1) -> None:
        self.plan, self.remaining_time = plan, RemainingTime(folder, plan, count_workers)
        self.width = max(len(trial.name) for trial in plan.trials())
        # The most important fields come first: a narrow terminal cuts off the others.
        details = TextColumn("{task.fields[details]}", table_column=Column(no_wrap=True, ratio=1))
        bar = [BarColumn(bar_width=12), TaskProgressColumn()]
        self.live = Progress(
            TextColumn("{task.description}"), *bar, details, console=console.err, transient=True, expand=True
        )
        self.bars: dict[str, TaskID] = {}
        self.last_events: dict[str, Event] = {}
        self.num_left = self.num_jobs = 0

    def __enter__(self) -> TrialsDisplay:
        if console.err.is_terminal:
            self.live.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if console.err.is_terminal:
            self.live.stop()

    def start_stage(self, stage: Stage, jobs: Sequence[Job]) -> None:
        """Prints the start of a stage."""
        self.num_left = self.num_jobs = len(jobs)
        self.remaining_time.refresh()
        if stage in ("speed", "latency"):
            console.log(STAGES[stage])
        else:
            unit = "models" if stage == "test" else "trials"
            console.log(f"{STAGES[stage]}: {len(jobs)} {unit}; {self._format_end()}")

    def _format_end(self) -> str:
        seconds = self.remaining_time.seconds()
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
            if name in self.bars:
                left = f"{format_duration(self.remaining_time.seconds())} left"
                details = "  ".join([left, *self._format_details(name, event)])
                self.live.update(self.bars[name], completed=event["progress"], details=details)
        elif event["event"] == "lost":
            console.warn(f"{name}: its process was lost {event['reason']}; it continues from its newest checkpoint.")
            self._remove_bar(name)
        elif event["event"] == "end":
            self._remove_bar(name)
            self.num_left -= 1
            self._print_end(name, event)

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
        trial = next((trial for trial in self.plan.lr_trials() if trial.name == name), None)
        details = [] if trial is None else [f"rate {self.plan.get_rate(trial):<7g}"]
        if event.get("value") is not None:
            metric = self.plan.metric
            details.append(f"valid {format_metric_name(metric)} {format_metric(metric, event['value'])}")
        if event.get("tokens"):
            details.append(f"{event['tokens']:,} {self.plan.unit}")
        if event.get("seconds"):
            details.append(f"{event['seconds']:.1f} s")
        return details
