"""Progress displays on a terminal and in a log file."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from seqwise.cli import console, progress
from seqwise.training.loop import Step


def make_step(
    number: int, total: int, perplexity: float | None = None, best: bool = False, notes: tuple[str, ...] = ()
) -> Step:
    validation = None if perplexity is None else {"loss": 1.0, "perplexity": perplexity}
    return Step(number, 0, 64 * number, 2.5, 0.4, 0.001, 1.0, 12_345.0, number / total, validation, best, notes, "")


@pytest.fixture
def terminal(monkeypatch) -> io.StringIO:
    page = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=page, force_terminal=True, width=100, color_system=None))
    return page


@pytest.fixture
def log_file(monkeypatch) -> io.StringIO:
    page = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=page, force_terminal=False, width=100))
    return page


def test_a_log_file_has_one_line_per_validation(log_file):
    with progress.TrainingDisplay(("perplexity", "ppl")) as display:
        for number in range(1, 11):
            display.show(make_step(number, 10, 7.5 if number % 5 == 0 else None, best=number == 5))
    first, second = log_file.getvalue().splitlines()
    assert first.startswith("step      5  epoch 1  loss  2.500  ")
    assert "7.5000 *" in first
    assert "*" not in second
    assert "12,345 tok/s" in first
    assert second.endswith("0:00 left")
    assert "\x1b" not in log_file.getvalue()


def test_a_terminal_shows_the_state_of_every_step(terminal):
    with progress.TrainingDisplay(("perplexity", "ppl")) as display:
        display.show(make_step(3, 10))
        display.live.refresh()
    output = terminal.getvalue()
    assert "step 3" in output
    assert "loss 2.500" in output
    assert "12,345 tok/s" in output


def test_a_terminal_keeps_the_last_validation_visible(terminal):
    with progress.TrainingDisplay(("perplexity", "ppl")) as display:
        display.show(make_step(2, 10, perplexity=7.5))
        display.show(make_step(3, 10))
        (bar,) = display.live.tasks
    assert bar.description.startswith("step 3  loss 2.500  valid ppl 7.5000  12,345 tok/s")


def test_all_numbers_fit_into_80_columns(monkeypatch):
    page = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=page, force_terminal=True, width=80, color_system=None))
    with progress.TrainingDisplay(("perplexity", "ppl")) as display:
        display.show(make_step(12_345, 20_000, perplexity=123.456))
        display.live.refresh()
    assert "step 12,345  loss 2.500  valid ppl 123.46  12,345 tok/s  grad 0.40  0:01 left\n" in page.getvalue()


def test_notes_of_the_training_loop_are_printed(log_file):
    with progress.TrainingDisplay(("perplexity", "ppl")) as display:
        display.show(make_step(1, 10, notes=("out of memory: smaller micro-batches now.",)))
    assert log_file.getvalue() == "out of memory: smaller micro-batches now.\n"


def test_a_progress_bar_writes_nothing_to_a_file(log_file):
    with progress.ProgressBar("reading") as bar:
        bar(1, 2)
        bar(2, 2)
    assert log_file.getvalue().strip() == ""


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (61, "1:01"), (3_661, "1:01:01")])
def test_durations_are_formatted_as_hours_minutes_seconds(seconds, text):
    assert progress.format_duration(seconds) == text


def test_a_log_file_has_lines_of_progress_even_while_nothing_is_reported(log_file, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_PER_LINE", 0.01)
    with progress.ProgressBar("reading") as bar:
        bar(30, 120)
        while log_file.getvalue().count("\n") < 3:  # printed by a thread
            time.sleep(0.01)
    assert "reading: 25% after 0:00" in log_file.getvalue().splitlines()
    assert set(log_file.getvalue().splitlines()) <= {"reading: after 0:00", "reading: 25% after 0:00"}


def test_each_part_of_the_work_has_its_name_and_is_counted_from_zero(log_file, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_PER_LINE", 0.01)
    with progress.ProgressBar("evaluating") as bar:
        bar(120, 120)
        bar.start("searching the cache")
        lines = log_file.getvalue().count("\n")
        while log_file.getvalue().count("\n") < lines + 2:
            time.sleep(0.01)
    assert log_file.getvalue().splitlines()[-1] == "searching the cache: after 0:00"


def test_a_terminal_shows_the_part_of_the_work(terminal):
    with progress.ProgressBar("evaluating") as bar:
        bar(120, 120)
        bar.start("searching the cache")
        (shown,) = bar.live.tasks
    assert (shown.description, shown.completed) == ("searching the cache", 0)
