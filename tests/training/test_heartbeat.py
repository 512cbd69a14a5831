"""Processes that no longer respond: which ones are found, and when."""

from __future__ import annotations

import os

import pytest

from seqwise.errors import UsageError
from seqwise.training import heartbeat
from seqwise.training.heartbeat import (
    IDLE_SHARE,
    START_SECONDS,
    HangDetector,
    HeartbeatRecorder,
    Heartbeats,
    Row,
    read_hang_seconds,
)

LIMIT = 10.0


class Processes:
    """Two processes whose counters and clock a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, limit: float = LIMIT, has_started: bool = True):
        self.now = 100.0
        monkeypatch.setattr(heartbeat.time, "monotonic", lambda: self.now)
        self.heartbeats = Heartbeats.create(2)
        self.heartbeats.close()  # the memory stays
        self.detector = HangDetector(self.heartbeats, limit)
        for rank in range(2):
            self.add(rank, ticks=int(has_started), calls=3, updates=2, cpu=10**9)
        self.detector.find_ranks()

    def add(self, rank: int, **changes: int) -> None:
        for name, change in changes.items():
            self.heartbeats.numbers[rank * len(Row._fields) + Row._fields.index(name)] += change

    def wait(self, seconds: float, *ticking: int, **changes: int) -> list[int]:
        """Lets time pass, in which some processes tick, and the first one also changes in another way."""
        found: list[int] = []
        for _ in range(round(seconds / 0.5)):
            self.now += 0.5
            for rank in ticking:
                self.add(rank, ticks=1)
            self.add(0, **changes)
            found = found or self.detector.find_ranks()
        return found


@pytest.fixture
def processes(monkeypatch) -> Processes:
    return Processes(monkeypatch)


def test_a_process_that_does_not_tick_is_found_after_the_limit(processes):
    assert processes.wait(LIMIT - 1, 0, calls=1) == []
    assert processes.wait(2, 0, calls=1) == [1]


def test_a_process_for_which_the_other_waits_is_found_if_it_does_not_compute(processes):
    processes.add(1, calls=10)  # the second has entered a call, for which it needs the first
    assert processes.wait(LIMIT - 2, 0, 1) == []
    assert processes.wait(4, 0, 1) == [0]


def test_a_process_that_validates_or_saves_while_the_other_waits_is_not_found(processes):
    processes.add(1, calls=10)
    assert processes.wait(20 * LIMIT, 0, 1, cpu=round(0.5e9 * 2 * IDLE_SHARE)) == []
    assert processes.wait(3 * LIMIT, 0, 1, cpu=round(0.5e9 * IDLE_SHARE / 10)) == [0]  # then it is blocked


def test_processes_that_wait_in_the_same_call_are_found_together(processes):
    row = processes.heartbeats.read(0)
    processes.add(1, calls=row.calls - processes.heartbeats.read(1).calls)
    assert processes.wait(2 * LIMIT, 0, 1) == [0, 1]


def test_before_the_second_update_a_process_may_be_idle_for_as_long_as_it_takes(monkeypatch):
    processes = Processes(monkeypatch)
    processes.add(0, calls=-1, updates=-1)
    assert processes.wait(START_SECONDS + 5 * LIMIT, 0, 1) == []
    processes.add(0, updates=1)
    assert processes.wait(1, 0, 1) == [0]


def test_a_process_that_never_starts_is_found(monkeypatch):
    processes = Processes(monkeypatch, has_started=False)
    processes.add(1, updates=-2)
    assert processes.wait(START_SECONDS, 0, calls=1) == []
    assert processes.wait(2 * LIMIT, 0, calls=1) == [1]


def test_a_process_whose_work_is_complete_is_not_found(processes):
    processes.add(1, is_done=1)
    assert processes.wait(5 * LIMIT, 0, calls=1) == []


def test_time_in_which_the_launcher_itself_was_stopped_does_not_count(processes):
    processes.now += 100 * LIMIT
    assert processes.detector.find_ranks() == []
    assert processes.wait(LIMIT / 2, 0, calls=1) == []


def test_zero_means_no_limit(monkeypatch):
    assert Processes(monkeypatch, limit=0.0).wait(1000) == []


def test_a_process_counts_its_calls_and_ticks(monkeypatch):
    monkeypatch.setattr(heartbeat, "TICK_SECONDS", 0.001)
    heartbeats = Heartbeats.create(2)
    heartbeats.close()
    recorder = HeartbeatRecorder(heartbeats, 1)
    recorder.record_call()
    recorder.record_call()
    while heartbeats.read(1).ticks < 3:
        pass
    row = heartbeats.read(1)
    assert (row.calls, row.is_done) == (2, 0)
    assert row.cpu > 0
    assert not heartbeats.have_all_started
    recorder.record_end()
    assert heartbeats.read(1).is_done
    assert heartbeats.read(0) == Row(0, 0, 0, 0, 0)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux has files in memory")
def test_the_counters_need_no_disk(monkeypatch):
    monkeypatch.setattr(heartbeat.tempfile, "TemporaryFile", None)
    assert Heartbeats.create(2).read(1) == Row(0, 0, 0, 0, 0)


@pytest.mark.parametrize(("text", "seconds"), [("", 300.0), ("2.5", 2.5), ("0", 0.0)])
def test_the_time_out_is_a_setting(monkeypatch, text, seconds):
    monkeypatch.setenv("SEQWISE_HANG_SECONDS", text)
    assert read_hang_seconds() == seconds


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "inf"])
def test_a_time_out_that_is_no_number_is_an_error(monkeypatch, text):
    monkeypatch.setenv("SEQWISE_HANG_SECONDS", text)
    with pytest.raises(UsageError, match=f"SEQWISE_HANG_SECONDS: expected a number of seconds.*{text}"):
        read_hang_seconds()
