"""How many threads a trial with a budget in time gets: no more than there are cores free when the comparison starts.

The threads of one operation wait for each other, and spin while they wait. On two cores, one of them taken, two threads
were measured to train up to a hundred times slower than one. Whoever sets OMP_NUM_THREADS or --workers decides alone.
This module only counts: it starts no process, and knows nothing of what a trial does.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import torch

from seqwise import environment
from seqwise.budget import Budget
from seqwise.compare.plan.plan import Plan
from seqwise.compare.run.jobs import unfinished
from seqwise.training.training_run import choose_device

VARIABLE = "OMP_NUM_THREADS"
STAT = Path("/proc/stat")  # proc(5): for each core, time since the start by what it was spent on
IDLE = (3, 4)  # the columns in which a core did nothing, or waited for a disk
COLUMNS = 8  # those behind are counted among the first ones too
LOOK = 0.3  # seconds
LOOKS = 3  # at most: what keeps a core busy only for a moment is no reason


def settled(folder: Path, plan: Plan, workers: int | None = None) -> tuple[Plan, str]:
    """The plan with the threads of its trials on this machine, saved; and what there is to say of them, if anything.

    A comparison that goes on keeps the number with which it began, unless fewer cores are free now.
    """
    if not _ours(plan, workers) or not unfinished(folder, plan):
        return plan, ""
    before, usual = plan.threads, _usual(plan)
    wanted = min(usual, before or usual)
    free = free_cores(wanted)
    threads = wanted if free is None else max(1, min(wanted, free))
    if threads == before:
        return plan, ""
    said = ""
    if threads < wanted:
        said = _sentence(free or 0, threads, wanted, going_on=before is not None)
    elif before is not None:
        said = f"Only {usual} cores where it went on: {_each(threads)} instead of {before}."
    plan = replace(plan, threads=threads, notes=(*plan.notes, *([said] if said else [])))
    plan.save(folder)
    return plan, said


def limit(plan: Plan, workers: int | None = None) -> int | None:
    """Threads that a trial must not exceed; None: as many as PyTorch thinks best."""
    if plan.threads is None or not _ours(plan, workers):
        return None
    return plan.threads if plan.threads < _usual(plan) else None


def _ours(plan: Plan, workers: int | None) -> bool:
    """Is it for us to decide?"""
    timed = Budget.parse(plan.spending.training).unit == "seconds"
    chosen = workers is not None or bool(os.environ.get(VARIABLE))
    return timed and not chosen and choose_device(next(iter(plan.families.values()))).type == "cpu"


def _usual(plan: Plan) -> int:
    """Threads of a trial on a quiet machine, those of all its processes together."""
    return torch.get_num_threads() if plan.nproc == 1 else environment.cpu_count()


def _sentence(free: int, threads: int, wanted: int, going_on: bool) -> str:
    cores = environment.cpu_count()
    when = "when it went on" if going_on else "at the start"
    return f"{free or 'None'} of {cores} cores free {when}: {_each(threads)} instead of {wanted}."


def _each(threads: int) -> str:
    return f"{threads} thread{'s' if threads > 1 else ''} for each trial"


def free_cores(wanted: int) -> int | None:
    """Cores that nobody but this process uses; None: it cannot be known here. More than `wanted` need not be found."""
    most = None
    for _ in range(LOOKS):
        busy = _busy(LOOK)
        if busy is None:
            return most
        most = max(most or 0, int(environment.cpu_count() - busy + 0.5))
        if most >= wanted:
            break
    return most


def _busy(seconds: float) -> float | None:
    """How many cores others keep busy, on average over some time."""
    before, own, began = _spent(), time.process_time(), time.monotonic()
    time.sleep(seconds)
    after, own, passed = _spent(), time.process_time() - own, time.monotonic() - began
    shares = [
        (after[core][0] - idle) / (after[core][1] - total)
        for core, (idle, total) in before.items()
        if core in after and after[core][1] > total
    ]
    return max(0.0, len(shares) - sum(shares) - own / passed) if shares else None


def _spent() -> dict[int, tuple[int, int]]:
    """For each core that we may use: time in which it was idle, and in all. Empty where this is not told."""
    if not hasattr(os, "sched_getaffinity"):
        return {}
    ours, found = os.sched_getaffinity(0), {}
    try:
        for name, *columns in (line.split() for line in STAT.read_text(encoding="utf-8").splitlines()):
            if name.startswith("cpu") and name != "cpu" and int(name[3:]) in ours:
                times = [int(column) for column in columns[:COLUMNS]]
                found[int(name[3:])] = sum(times[at] for at in IDLE), sum(times)
    except (OSError, ValueError, IndexError):
        return {}
    return found


__all__ = ["free_cores", "limit", "settled"]
