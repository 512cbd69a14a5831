"""A comparison as it is seen on a terminal: a live line per running trial, a line for each that ended, and when.

It only listens to events.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn
from rich.table import Column

from seqwise.cli import console
from seqwise.cli.progress import format_duration
from seqwise.compare.report.formatting import named, shown
from seqwise.compare.run.estimate import Estimate

if TYPE_CHECKING:
    from seqwise.compare.plan.plan import Plan
    from seqwise.compare.run.jobs import Job

STAGES = {
    "rehearsal": "rehearsing each family: a few updates and one validation",
    "learning rates": "trying learning rates",
    "training": "training",
    "test": "reading the test split, once",
    "timing": "timing answers one at a time, with nothing else running",
}


class TrialsDisplay(AbstractContextManager["TrialsDisplay"]):
    """One line per trial, on standard error."""

    def __init__(self, folder: Path, plan: Plan, places: Callable[[], int] = lambda: 1) -> None:
        self.plan, self.estimate = plan, Estimate(folder, plan, places)
        self.width = max(len(trial.name) for trial in plan.trials())
        # What matters most comes first: a narrow terminal cuts off the rest.
        rest = TextColumn("{task.fields[rest]}", table_column=Column(no_wrap=True, ratio=1))
        bar = [BarColumn(bar_width=12), TaskProgressColumn()]
        self.live = Progress(
            TextColumn("{task.description}"), *bar, rest, console=console.err, transient=True, expand=True
        )
        self.bars: dict[str, TaskID] = {}
        self.last: dict[str, dict[str, Any]] = {}
        self.left = self.total = 0
        self.stage = ""

    def __enter__(self) -> TrialsDisplay:
        if console.err.is_terminal:
            self.live.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if console.err.is_terminal:
            self.live.stop()

    def begin(self, stage: str, jobs: Sequence[Job]) -> None:
        """A stage with so many jobs begins."""
        self.stage, self.left, self.total = stage, len(jobs), len(jobs)
        self.estimate.begin()
        trials = {"rehearsal": "", "timing": "", "test": f": {len(jobs)} models"}.get(stage, f": {len(jobs)} trials")
        ends = "" if stage in ("rehearsal", "timing") else f"; {self._end()}"
        console.log(f"{STAGES[stage]}{trials}{ends}")

    def _end(self) -> str:
        seconds = self.estimate.seconds()
        at = datetime.now() + timedelta(seconds=seconds)
        return f"about {format_duration(seconds)} to the end, at {at:%H:%M}"

    def listen(self, event: dict[str, Any]) -> None:
        """Draw what happened."""
        self.estimate.listen(event)
        if event["event"] == "waiting":
            console.warn(event["reason"])
            return
        name = event["name"]
        if event["event"] == "begin":
            self.last[name] = {}
            self.bars[name] = self.live.add_task(f"{name:<{self.width}}", total=1.0, rest="")
        elif event["event"] == "progress":
            self.last[name] = event
            if name in self.bars:
                left = f"{format_duration(self.estimate.seconds())} to the end"
                words = "  ".join([left, *self._words(name, event)])
                self.live.update(self.bars[name], completed=event["progress"], rest=words)
        elif event["event"] == "lost":
            console.warn(f"{name}: its process was lost {event['reason']}; it goes on from its newest checkpoint.")
            self._drop(name)
        elif event["event"] == "end":
            self._drop(name)
            self.left -= 1
            self._ended(name, event)

    def _drop(self, name: str) -> None:
        if name in self.bars:
            self.live.remove_task(self.bars.pop(name))

    def _ended(self, name: str, event: dict[str, Any]) -> None:
        if event["status"] == "failed":
            console.warn(f"{name} failed: {event['reason']}")
        elif event["kind"] == "train":
            done = f"{self.total - self.left:>{len(str(self.total))}}/{self.total}"
            console.log("  ".join([done, f"{name:<{self.width}}", *self._words(name, self.last.get(name, {}))]))

    def _words(self, name: str, event: dict[str, Any]) -> list[str]:
        """How a trial is doing."""
        words = self._rate(name)
        if event.get("value") is not None:
            words.append(f"valid {named(self.plan.metric)} {shown(self.plan.metric, event['value'])}")
        if event.get("tokens"):
            words.append(f"{event['tokens']:,} {self.plan.unit}")
        if event.get("seconds"):
            words.append(f"{event['seconds']:.1f} s")
        return words

    def _rate(self, name: str) -> list[str]:
        """What a try tries."""
        trial = next((trial for trial in self.plan.tries() if trial.name == name), None)
        return [] if trial is None else [f"rate {self.plan.rates(trial.family)[trial.number - 1]:<7g}"]
