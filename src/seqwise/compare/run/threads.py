"""Limits the threads of timed trials to the cores that are free when the comparison starts.

The threads of one operation wait for each other, and spin while they wait. On two cores, one of them busy, two threads
were measured to train up to a hundred times slower than one. OMP_NUM_THREADS or --workers overrides this module.
It starts no process, and knows nothing of what a trial does.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import torch

from seqwise import environment
from seqwise.compare.plan.plan import Plan
from seqwise.compare.run.jobs import is_unfinished
from seqwise.training.training_run import choose_device

THREADS_VARIABLE = "OMP_NUM_THREADS"
STAT = Path("/proc/stat")  # proc(5): for each core, the time since the start by kind of activity
IDLE_COLUMNS = (3, 4)  # idle, or waiting for a disk
NUM_COLUMNS = 8  # the later ones are included in the first
SAMPLE_SECONDS = 0.3
MAX_SAMPLES = 3  # a core that is busy only for a moment counts as free


def limit_threads(folder: Path, plan: Plan, workers: int | None = None) -> tuple[Plan, str]:
    """Returns the plan with the threads of its trials on this machine, saved; and a note where they are limited.

    A resumed comparison keeps its number of threads, unless fewer cores are free now.
    """
    if not _should_limit(plan, workers) or not is_unfinished(folder, plan):
        return plan, ""
    before, default = plan.threads, _get_default_threads(plan)
    requested = min(default, before or default)
    free = count_free_cores(requested)
    threads = requested if free is None else max(1, min(requested, free))
    if threads == before:
        return plan, ""
    note = ""
    per_trial = f"{threads} thread{'s' if threads > 1 else ''} for each trial"
    if threads < requested:
        when = "at the start" if before is None else "when it was resumed"
        note = f"{free or 'None'} of {environment.cpu_count()} cores free {when}: {per_trial} instead of {requested}."
    elif before is not None:
        note = f"Only {default} cores where it was resumed: {per_trial} instead of {before}."
    plan = replace(plan, threads=threads, notes=(*plan.notes, *([note] if note else [])))
    plan.save(folder)
    return plan, note


def get_thread_limit(plan: Plan, workers: int | None = None) -> int | None:
    """Returns the maximum number of threads of a trial; None: PyTorch's default."""
    if plan.threads is None or not _should_limit(plan, workers):
        return None
    return plan.threads if plan.threads < _get_default_threads(plan) else None


def _should_limit(plan: Plan, workers: int | None) -> bool:
    """Returns whether trials are timed, run on the CPU, and the user has not chosen threads or workers."""
    is_chosen = workers is not None or bool(os.environ.get(THREADS_VARIABLE))
    is_cpu = choose_device(next(iter(plan.families.values()))).type == "cpu"
    return plan.budgets.is_timed and not is_chosen and is_cpu


def _get_default_threads(plan: Plan) -> int:
    """Returns the threads of a trial on an idle machine, of all its processes together."""
    return torch.get_num_threads() if plan.nproc == 1 else environment.cpu_count()


def count_free_cores(requested: int) -> int | None:
    """Returns the cores that no other process uses, counting at least up to `requested`; None: not known here."""
    free = None
    for _ in range(MAX_SAMPLES):
        busy = _measure_busy_cores(SAMPLE_SECONDS)
        if busy is None:
            return free
        free = max(free or 0, int(environment.cpu_count() - busy + 0.5))
        if free >= requested:
            break
    return free


def _measure_busy_cores(seconds: float) -> float | None:
    """Returns how many cores other processes keep busy, on average over some time."""
    before = _read_core_times()
    own_start, start = time.process_time(), time.monotonic()
    time.sleep(seconds)
    after = _read_core_times()
    own_seconds, elapsed = time.process_time() - own_start, time.monotonic() - start
    idle_shares = [
        (after[core][0] - idle) / (after[core][1] - total)
        for core, (idle, total) in before.items()
        if core in after and after[core][1] > total
    ]
    return max(0.0, len(idle_shares) - sum(idle_shares) - own_seconds / elapsed) if idle_shares else None


def _read_core_times() -> dict[int, tuple[int, int]]:
    """Returns idle and total time of each core that this process may use; empty where they are not available."""
    if not hasattr(os, "sched_getaffinity"):
        return {}
    cores = os.sched_getaffinity(0)
    times = {}
    try:
        for name, *columns in (line.split() for line in STAT.read_text(encoding="utf-8").splitlines()):
            if name.startswith("cpu") and name != "cpu" and int(name[3:]) in cores:
                values = [int(column) for column in columns[:NUM_COLUMNS]]
                times[int(name[3:])] = sum(values[column] for column in IDLE_COLUMNS), sum(values)
    except (OSError, ValueError, IndexError):
        return {}
    return times
