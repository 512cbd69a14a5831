"""The clock of training stands still while the process is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from live_runs import SMALL, finish, get_logged_step, start, wait_until

from seqwise import clock
from seqwise.errors import SaveError
from seqwise.signals import handle_signals, is_due_to_interrupt, raise_interrupt, suspend_with

# The parent stops it while it sleeps, and while it computes in one long call that holds the interpreter lock.
STOPPED = """
import sys, time
from seqwise.clock import exclude_stops, read_clock

with exclude_stops():
    time.sleep(0.6)
    for work in (lambda: time.sleep(1.0), lambda: sum(range(10**7))):
        before, start = time.perf_counter(), read_clock()
        print("ready", flush=True)
        work()
        sys.stdin.readline()
        print(time.perf_counter() - before, read_clock() - start, flush=True)
"""


@pytest.mark.slow
def test_stops_do_not_count():
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for _ in range(2):
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        process.send_signal(signal.SIGCONT)
        process.stdin.write("\n")
        elapsed, counted = map(float, process.stdout.readline().split())
        assert elapsed > 3
        assert 0 <= counted < elapsed - 2.5
    assert process.wait() == 0


@pytest.fixture
def stop_watch(monkeypatch) -> clock._StopWatch:
    watch = clock._StopWatch()
    monkeypatch.setattr(clock, "_stop_watch", watch)
    return watch


def test_a_continuation_without_a_stop_changes_nothing(stop_watch):
    with clock.exclude_stops():
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGCONT)
        assert stop_watch.stopped_seconds == 0


def test_a_long_interval_without_a_continuation_is_training_time(stop_watch, monkeypatch):
    """Such as a function that holds the interpreter lock."""
    now = [10.0]
    monkeypatch.setattr(clock.time, "perf_counter", lambda: now[0])
    with clock.exclude_stops():
        start = clock.read_clock()
        now[0] += 8.0
        assert clock.read_clock() - start == 8.0
        os.kill(os.getpid(), signal.SIGCONT)  # now it was a stop
        assert clock.read_clock() - start == clock.TICK_SECONDS  # in which it may still have worked


def test_the_previous_handler_and_the_threads_are_restored():
    wait_for_threads(0)  # those of other tests end
    before = signal.getsignal(signal.SIGCONT)
    with handle_signals(raise_interrupt), handle_signals(raise_interrupt):
        assert signal.getsignal(signal.SIGCONT) != before
        wait_for_threads(1)
    assert signal.getsignal(signal.SIGCONT) == before
    wait_for_threads(0)


# The parent continues it before it has handled the stop, because it computes in one long call.
CONTINUED = """
from seqwise.signals import defer_interrupts, suspend_with

with defer_interrupts(), suspend_with(lambda signal_number: None):
    print("ready", flush=True)
    sum(range(10**8))
"""


@pytest.mark.slow
def test_a_process_that_was_continued_before_it_could_stop_does_not_stop_later():
    process = subprocess.Popen([sys.executable, "-c", CONTINUED], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTSTP)
        time.sleep(0.2)
        process.send_signal(signal.SIGCONT)
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()


def test_a_continuation_that_is_handled_first_cancels_the_stop(monkeypatch: pytest.MonkeyPatch):
    sent: list[int] = []
    with handle_signals(raise_interrupt), suspend_with(sent.append):
        monkeypatch.setattr(os, "kill", lambda pid, signal_number: None)
        monkeypatch.setattr(clock._stop_watch, "last_continuation", 0.0)
        for names, expected in [(["SIGTSTP"], [signal.SIGSTOP, signal.SIGCONT]), (["SIGCONT", "SIGTSTP"], [])]:
            sent.clear()
            for name in names:
                handler = signal.getsignal(signal.Signals[name])
                assert callable(handler)
                handler(signal.Signals[name], None)
            assert sent == expected


def wait_for_threads(count: int) -> None:
    deadline = time.monotonic() + 60
    while [thread.name for thread in threading.enumerate()].count(clock.THREAD_NAME) != count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_suspended_run_uses_its_whole_time_budget(book, tmp_path, processes):
    """Of several processes, Ctrl-Z reaches only the launcher, which stops the others and continues them."""
    folder = tmp_path / "run"
    # Updates that are so long that the stop is during one of them: the time between two is no training time.
    sizes = ["--network.width", "128", "--data.window", "64", "--training.batch-size", "16"]
    rare = ["--training.validate-every", "100000"]
    options = [*SMALL, *sizes, *rare, "--budget", "5s", "--nproc", str(processes), "--out", folder]
    process = start("train", book, "--model", "lstm", *options, start_new_session=True)
    wait_until(lambda: get_logged_step(folder) >= 1, process)
    time.sleep(0.5)  # after the first update the run saves more than after others
    # The system discards SIGTSTP of a group without a terminal, unless it is handled, as the launcher does.
    os.kill(process.pid, signal.SIGSTOP if processes == 1 else signal.SIGTSTP)
    time.sleep(1)  # until all have stopped
    stopped_step = get_logged_step(folder)
    time.sleep(8)
    assert get_logged_step(folder) == stopped_step
    os.kill(process.pid, signal.SIGCONT)
    status, stderr = finish(process)
    assert status == 0, stderr
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["seconds"] < 8, "the stop counts"
    assert rows[-1]["step"] > stopped_step


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("cannot release un-acquired lock"), True),
        (SaveError("the disk is full."), False),  # of a save after Ctrl-C
        (SystemExit(1), False),
    ],
)
def test_which_errors_are_due_to_ctrl_c(error, expected):
    def fail():
        try:
            raise KeyboardInterrupt
        finally:
            raise error

    with pytest.raises(type(error)) as caught:
        fail()
    assert is_due_to_interrupt(caught.value) is expected
    assert is_due_to_interrupt(KeyboardInterrupt())
    assert not is_due_to_interrupt(RuntimeError())
