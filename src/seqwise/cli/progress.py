"""Progress displays in the terminal: one live line, and a line per validation. They do not change any step."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Self

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from seqwise.cli import console
from seqwise.training.validation import describe_part

if TYPE_CHECKING:
    from seqwise.training.loop import Step
    from seqwise.training.run import Summary
    from seqwise.vectors.training import VectorStep


SECONDS_PER_LINE = 10.0  # between lines of progress if standard error is not a terminal


class LiveDisplay(AbstractContextManager["LiveDisplay"]):
    """Lines that change in place, on standard error; none if that is not a terminal."""

    def __init__(self, *columns: ProgressColumn, transient: bool = True, expand: bool = False) -> None:
        disable = not console.err.is_terminal
        self.live = Progress(*columns, console=console.err, transient=transient, expand=expand, disable=disable)

    def __enter__(self) -> Self:
        self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.live.stop()


class PlainColumn(TextColumn):
    """A text that is never interpreted as markup, and stays on its line."""

    def render(self, task: Task) -> Text:
        return Text(console.make_printable(self.text_format.format(task=task), is_line=True))


class TrainingDisplay(LiveDisplay):
    """Loss, the task's validation metric, speed, gradient norm and time left, on standard error."""

    def __init__(self, primary_metric: tuple[str, str] = ("loss", "loss"), unit: str = "tokens") -> None:
        self.key, self.name = primary_metric
        self.unit = {"tokens": "tok"}.get(unit, unit)
        # On narrow terminals the numbers already fill the line.
        bar = [BarColumn(bar_width=24), TaskProgressColumn()] if console.err.width >= 100 else []
        super().__init__(PlainColumn("{task.description}"), *bar, transient=False)
        self.bar = self.live.add_task("", total=1.0)
        self.loss = self.speed = 0.0
        self.last_validation = ""

    def show(self, step: Step) -> None:
        """Displays one step; a line with * is the best validation so far."""
        self.loss = step.loss if not self.loss else 0.95 * self.loss + 0.05 * step.loss
        self.speed = step.tokens_per_second if not self.speed else 0.95 * self.speed + 0.05 * step.tokens_per_second
        for note in step.notes:
            console.log(note, style="yellow")
        if step.validation:
            text = format_metric(step.validation, self.key)
            self.last_validation = f"valid {self.name} {text}  "
            mark = " *" if step.best else ""
            console.log(
                f"step {step.number:>6,}  epoch {step.epoch + 1}  loss {self.loss:6.3f}  "
                f"valid {self.name} {text:>9}{mark:2}  {self.speed:8,.0f} {self.unit}/s  "
                f"grad {step.gradient_norm:5.2f}  {format_duration(_seconds_left(step))} left"
            )
        self.live.update(
            self.bar,
            completed=step.progress,
            description=f"step {step.number:,}  loss {self.loss:.3f}  {self.last_validation}"
            f"{self.speed:,.0f} {self.unit}/s  grad {step.gradient_norm:.2f}  "
            f"{format_duration(_seconds_left(step))} left",
        )


class ProgressBar(LiveDisplay):
    """A progress bar that is called with (done, total) and disappears at the end; without a terminal, lines.

    A thread prints the lines, so that they appear even if it is not called for a long time.
    """

    def __init__(self, label: str):
        bar = BarColumn(bar_width=24), TaskProgressColumn(), TimeRemainingColumn()
        super().__init__(PlainColumn("{task.description}"), *bar)
        self.task = self.live.add_task(label, total=None)
        self.ended = threading.Event()
        self.start(label)

    def start(self, label: str) -> None:
        """Begins work with this name, such as the next part of an evaluation, which is counted from zero."""
        self.share: float | None = None  # unknown until it is called
        self.label, self.started_at = label, time.monotonic()
        self.live.reset(self.task, description=label)

    def __call__(self, done: int, total: int) -> None:
        self.live.update(self.task, completed=done, total=total)
        self.share = done / total if total else None

    def __enter__(self) -> Self:
        if self.live.disable:
            threading.Thread(target=self._print_lines, daemon=True).start()
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        self.ended.set()
        super().__exit__(*error)

    def _print_lines(self) -> None:
        while not self.ended.wait(SECONDS_PER_LINE):
            share = "" if self.share is None else f"{self.share:.0%} "
            console.log(f"{self.label}: {share}after {format_duration(time.monotonic() - self.started_at)}")


class VectorDisplay(LiveDisplay):
    """Training of word vectors: one live line, and a line per epoch."""

    def __init__(self) -> None:
        bar = BarColumn(bar_width=24), TaskProgressColumn(), TimeRemainingColumn()
        super().__init__(PlainColumn("{task.description}"), *bar)
        self.task = self.live.add_task("", total=1.0)
        self.stage = ""

    def show(self, step: VectorStep) -> None:
        """Displays one step."""
        if step.stage != self.stage:
            self.stage = step.stage
            self.live.reset(self.task, total=1.0)
        loss = "" if step.loss is None else f"  loss {step.loss:.4f}"
        line = f"{step.stage}" if step.stage != "training" else f"epoch {step.epoch + 1}{loss}"
        line += f"  {step.speed:,.0f} {step.unit}/s" if step.speed else ""
        self.live.update(self.task, completed=step.progress, description=line)
        if step.is_epoch_end:
            console.log(line)


def describe_summary(summary: Summary, key: str, name: str) -> str:
    """Returns what the best weights are the mean of, their final validation, if any, and the time of each part."""
    lines = []
    if summary.num_averaged:
        lines.append(f"best weights: the mean of those of the last {summary.num_averaged} validations")
    if summary.final is not None and summary.validation is not None:
        metric = f"{name} {format_metric(summary.validation, key)}"
        lines.append(f"best weights on {describe_part(summary.final)} of the validation split: {metric}")
    times = ", ".join(f"{part} {format_seconds(seconds)}" for part, seconds in summary.seconds.items())
    return "\n".join([*lines, f"time: {times}"])


def format_metric(validation: dict[str, float], key: str) -> str:
    value = validation.get(key, validation["loss"])
    return f"{value:.2f}" if value >= 10 else f"{value:.4f}"


def format_seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else format_duration(seconds)


def _seconds_left(step: Step) -> float:
    """Returns the estimated seconds to the end of the budget."""
    return step.seconds * (1 - step.progress) / step.progress if step.progress else 0.0


def format_duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
