"""A trial gets at most as many threads as cores are free, and the report mentions it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from small_comparison import make_plan, write_text

from seqwise import environment
from seqwise.compare.api import create_engine
from seqwise.compare.plan.plan import Plan
from seqwise.compare.report.gather import gather_report
from seqwise.compare.run import threads
from seqwise.compare.run.jobs import LATENCY_JOB, Job, Outcome
from seqwise.compare.run.local_engine import LocalEngine
from seqwise.compare.run.threads import count_free_cores, get_thread_limit, limit_threads


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four cores, four threads by default, and a user who has set nothing."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(environment, "cpu_count", lambda: 4)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return make_plan(tmp_path / "out", write_text(tmp_path / "small.txt"), budget="20s")


def set_free_cores(monkeypatch: pytest.MonkeyPatch, cores: int | None) -> None:
    monkeypatch.setattr(threads, "count_free_cores", lambda requested: cores)


def get_thread_variables(folder: Path, plan: Plan, workers: int | None = None) -> list[str | None]:
    engine = create_engine("local", folder, plan, workers)
    assert isinstance(engine, LocalEngine)
    return [each.get("OMP_NUM_THREADS") for each in engine.variables]


@pytest.mark.parametrize(("cores", "num_threads"), [(3, "3"), (1, "1"), (0, "1")])
def test_threads_are_limited_to_free_cores(plan, tmp_path: Path, monkeypatch, cores, num_threads):
    set_free_cores(monkeypatch, cores)
    limited, note = limit_threads(tmp_path / "out", plan)
    each = f"{num_threads} thread{'s' if cores > 1 else ''} for each trial"
    assert note == f"{cores or 'None'} of 4 cores free at the start: {each} instead of 4."
    assert get_thread_variables(tmp_path / "out", limited) == [num_threads]
    assert Plan.open(tmp_path / "out") == limited
    assert (limited.threads, limited.notes[-1]) == (int(num_threads), note)
    report = gather_report(tmp_path / "out", limited)
    assert report.machine["threads"] == int(num_threads)
    assert f", {num_threads} thread" in report.machine["in_words"]
    assert note in report.rules.sentences


@pytest.mark.parametrize("cores", [4, 5, None])
def test_threads_are_not_limited_on_an_idle_or_unknown_machine(plan, tmp_path: Path, monkeypatch, cores):
    set_free_cores(monkeypatch, cores)
    limited, note = limit_threads(tmp_path / "out", plan)
    assert note == ""
    assert limited.notes == plan.notes
    assert get_thread_variables(tmp_path / "out", limited) == [None]
    assert "thread" not in gather_report(tmp_path / "out", limited).machine["in_words"]


def test_omp_num_threads_and_workers_override_the_limit(plan: Plan, tmp_path: Path, monkeypatch):
    set_free_cores(monkeypatch, 1)
    folder = tmp_path / "out"
    assert limit_threads(folder, plan, workers=1) == (plan, "")
    limited, _ = limit_threads(folder, plan)
    assert get_thread_limit(limited) == 1
    assert get_thread_limit(limited, workers=2) is None
    assert get_thread_variables(folder, limited, 2) == ["2", "2"]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert limit_threads(folder, plan) == (plan, "")
    assert get_thread_limit(limited) is None


def test_threads_are_not_limited_for_token_budgets_and_gpus(plan: Plan, tmp_path: Path, monkeypatch):
    set_free_cores(monkeypatch, 1)
    tokens = make_plan(tmp_path / "tokens", tmp_path / "small.txt")
    assert limit_threads(tmp_path / "tokens", tokens) == (tokens, "")
    monkeypatch.setattr(threads, "choose_device", lambda settings: torch.device("cuda"))
    assert limit_threads(tmp_path / "out", plan) == (plan, "")


def test_free_cores_are_not_measured_for_a_finished_comparison(plan: Plan, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(threads, "count_free_cores", lambda requested: pytest.fail("measured"))
    folder = tmp_path / "out"
    jobs = [Job(kind, trial.name) for trial in plan.trials() for kind in ("train", "test")]
    for job in [*jobs, LATENCY_JOB]:
        Outcome("done").save(job.file(folder))
    assert limit_threads(folder, plan) == (plan, "")


def test_a_resumed_comparison_keeps_its_threads_unless_fewer_cores_are_free(plan: Plan, tmp_path: Path, monkeypatch):
    folder = tmp_path / "out"
    set_free_cores(monkeypatch, 2)
    first, _ = limit_threads(folder, plan)
    set_free_cores(monkeypatch, 4)
    assert limit_threads(folder, Plan.open(folder)) == (first, "")  # idle again, but all trials use the same number
    assert get_thread_variables(folder, first) == ["2"]
    set_free_cores(monkeypatch, 1)
    reduced, note = limit_threads(folder, Plan.open(folder))
    assert note == "1 of 4 cores free when it was resumed: 1 thread for each trial instead of 2."
    assert reduced.notes == (*first.notes, note)
    assert limit_threads(folder, Plan.open(folder)) == (reduced, "")


def test_resuming_on_fewer_cores_is_noted(plan: Plan, tmp_path: Path, monkeypatch):
    folder = tmp_path / "out"
    set_free_cores(monkeypatch, 4)
    assert limit_threads(folder, plan)[0].threads == 4
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    set_free_cores(monkeypatch, 2)
    limited, note = limit_threads(folder, Plan.open(folder))
    assert limited.threads == 2
    assert note == "Only 2 cores where it was resumed: 2 threads for each trial instead of 4."


def test_processes_of_a_trial_share_the_free_cores(tmp_path: Path):
    one = LocalEngine(tmp_path, None, 0, 2, 3).variables
    assert [each["OMP_NUM_THREADS"] for each in one] == ["1"]
    assert [each["OMP_NUM_THREADS"] for each in LocalEngine(tmp_path, None, 0, 1, 3).variables] == ["3"]
    assert "OMP_NUM_THREADS" not in LocalEngine(tmp_path, None, 0, 2).variables[0]


# Counting free cores


class FakeClock:
    """Time passes only in `sleep`; the cores are busy for some share of it."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shares: list[list[float]], own_cores: float = 0.0
    ):
        self.now = 0.0
        self.shares, self.own_cores = shares, own_cores
        self.num_sleeps = 0
        self.busy = [0.0] * len(shares[0])
        self.stat = tmp_path / "stat"
        self.write()
        monkeypatch.setattr(threads, "STAT", self.stat)
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(4)))
        monkeypatch.setattr(threads.time, "sleep", self.sleep)
        monkeypatch.setattr(threads.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(threads.time, "process_time", lambda: self.own_cores * self.now)

    def sleep(self, seconds: float) -> None:
        share = self.shares[min(self.num_sleeps, len(self.shares) - 1)]
        self.busy = [before + each * seconds for before, each in zip(self.busy, share)]
        self.now += seconds
        self.num_sleeps += 1
        self.write()

    def write(self) -> None:
        lines = ["cpu  9 9 9 9 9 9 9 9 9 9"]
        for core, busy in enumerate(self.busy):  # a third of what is busy is the system, a third is stolen
            third, idle = 1000 * busy / 3, 1000 * (self.now - busy) / 2
            lines.append(f"cpu{core} {third:.0f} 0 {third:.0f} {idle:.0f} {idle:.0f} 0 0 {third:.0f} 77 77")
        self.stat.write_text("\n".join([*lines, "intr 1 2 3", "ctxt 5"]) + "\n")


def test_an_idle_core_is_free(monkeypatch, tmp_path: Path):
    clock = FakeClock(monkeypatch, tmp_path, [[1.0, 0.1, 0.0, 0.1]])
    assert count_free_cores(4) == 3
    assert clock.num_sleeps == threads.MAX_SAMPLES


def test_one_sample_is_enough_on_an_idle_machine(monkeypatch, tmp_path: Path):
    clock = FakeClock(monkeypatch, tmp_path, [[0.1, 0.0, 0.0, 0.2]])
    assert count_free_cores(4) == 4
    assert clock.num_sleeps == 1


def test_a_core_that_is_busy_for_a_moment_is_free(monkeypatch, tmp_path: Path):
    clock = FakeClock(monkeypatch, tmp_path, [[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    assert count_free_cores(4) == 4
    assert clock.num_sleeps == 2


def test_this_process_and_cores_outside_its_affinity_are_not_counted(monkeypatch, tmp_path: Path):
    FakeClock(monkeypatch, tmp_path, [[1.0, 1.0, 0.0, 0.0, 1.0, 1.0]], own_cores=2.0)
    assert count_free_cores(4) == 4
    FakeClock(monkeypatch, tmp_path, [[1.0, 1.0, 0.0, 0.0]], own_cores=1.0)
    assert count_free_cores(4) == 3


@pytest.mark.parametrize("content", [None, "", "cpu0 a b c d\n", "cpu0 1 2\n", "cpu0 1 1 1 1 1 1 1 1\n"], ids=str)
def test_free_cores_are_unknown_without_valid_proc_stat(monkeypatch, tmp_path: Path, content: str | None):
    """In the last case the counters never change."""
    if content is not None:
        (tmp_path / "stat").write_text(content)
    monkeypatch.setattr(threads, "STAT", tmp_path / "stat")
    monkeypatch.setattr(threads, "SAMPLE_SECONDS", 0.0)
    assert count_free_cores(4) is None


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs /proc/stat")
def test_a_spinning_process_is_counted():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        time.sleep(0.2)
        busy: Any = threads._measure_busy_cores(0.3)
        process.kill()
    assert busy is None or busy > 0.7
