"""`follow`: a view that is redrawn while runs are being trained. It knows nothing of what the view shows.

It reads the files of the runs once a second, and draws on standard error: in place in a terminal, otherwise lines.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from seqwise.errors import RunError
from seqwise.lens.view import View
from seqwise.locks import find_owner
from seqwise.page.terminal import draw_text
from seqwise.printable import make_printable
from seqwise.training.checkpoints import get_resume_command
from seqwise.training.run import CONFIG, Run, find_comparison

POLL_SECONDS = 1.0
SECONDS_PER_LINE = 10.0  # if standard error is not a terminal
MAX_SILENCE = 300.0  # seconds without a new row after which training is taken to have stopped
START_SECONDS = 20.0  # that the processes of a new run may take until they lock its folder
MAX_SILENT_ROWS = 20  # or this many times the time between the last two rows, if that is longer
MARGIN = 2  # lines of a terminal that are left free

BuildFunction = Callable[[], View]


def follow(runs: Sequence[Run], build: BuildFunction) -> View:
    """Redraws the view when the runs have written new rows, until none is being trained or Ctrl-C; returns the last."""
    console = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
    display = LiveDisplay(console) if console.is_terminal else LineDisplay(console)
    versions = None
    try:
        while not all(reasons := [find_reason_to_stop(run) for run in runs]):
            if (newest := [get_version(run) for run in runs]) != versions:
                versions = newest
                display.show(try_build(build))
            display.wait(POLL_SECONDS)
    except KeyboardInterrupt:
        reasons = ["stopped watching; the run is not affected."]
    finally:
        display.close()
    for reason in dict.fromkeys(filter(None, reasons)):
        console.print(make_printable(reason))
    return build()


def try_build(build: BuildFunction) -> View:
    """Returns the view, or one that says what is missing, such as the first update."""
    try:
        return build()
    except RunError as error:
        return View("training", "Waiting", (error.problem,), ())


def find_reason_to_stop(run: Run) -> str:
    """Returns why a run is not being trained any more, as a sentence; "" if it seems to be."""
    owner = find_owner(run.folder)  # before the rows are read: a process writes the last one, then unlocks the folder
    rows = run.read_metrics()
    if rows and rows[-1].get("ended"):
        return f"{run.folder} has ended: {rows[-1]['ended']}."
    silence = time.time() - max(get_modification_time(path) for path in (run.metrics_file, run.folder / CONFIG))
    if owner is None and (rows or silence > START_SECONDS):
        comparison = find_comparison(run.folder)
        trial_command = f"seqwise compare --resume {shlex.quote(str(comparison))}"
        command = get_resume_command(run.folder) if comparison is None else trial_command
        return f"{run.folder} has not ended, and no process is training it. Resume: {command}"
    # A process on another host may have been killed.
    row_seconds = rows[-1]["seconds"] - rows[-2]["seconds"] if len(rows) > 1 else 0.0
    if silence <= max(MAX_SILENCE, MAX_SILENT_ROWS * row_seconds):
        return ""
    return f"{run.folder} has not written an update for {silence / 60:,.0f} minutes: it is not being trained."


def get_version(run: Run) -> tuple[float, float]:
    """Returns a value that changes whenever the run has written a row."""
    return get_modification_time(run.metrics_file), get_modification_time(run.watch_file)


def get_modification_time(path: Path) -> float:
    """Returns when a file was last written, in seconds since 1970; 0 if it is missing."""
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


class LiveDisplay:
    """The view, drawn in place: its sentences, and as many figures as the terminal has lines for."""

    def __init__(self, console: Console):
        self.console, self.live = console, Live(console=console, auto_refresh=False, transient=True)
        self.live.start()

    def show(self, view: View) -> None:
        counts = range(len(view.figures), 0, -1)
        for summary, count in [*((view.summary, count) for count in counts), (view.summary[:1], 1)]:
            text = draw_text(view.title, summary, view.figures[:count], self.console.width, has_colour=True)
            if text.count("\n") < self.console.height - MARGIN:
                break
        self.live.update(Text.from_ansi(text), refresh=True)  # rich cuts off what is still too long

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        self.live.stop()


class LineDisplay:
    """The sentences of the view, at most every `SECONDS_PER_LINE`."""

    def __init__(self, console: Console):
        self.console, self.view, self.last_time = console, View("", "", (), ()), -SECONDS_PER_LINE
        self.shown: Sequence[str] = ()

    def show(self, view: View) -> None:
        self.view = view
        self._print()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)
        self._print()

    def _print(self) -> None:
        new = [sentence for sentence in self.view.summary if sentence not in self.shown]
        if new and time.monotonic() - self.last_time >= SECONDS_PER_LINE:
            self.shown, self.last_time = self.view.summary, time.monotonic()
            for sentence in new:
                self.console.print(make_printable(sentence))

    def close(self) -> None:
        """Prints nothing more: the caller has the view."""
