"""`Engine`: what executes the jobs of a comparison. `local_engine` uses processes here, `ray_engine` a Ray cluster.

An engine receives jobs that do not depend on each other and reports events. It knows nothing of what the jobs do; their
outcomes are in the folder of the comparison when it returns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from seqwise.compare.plan.folder import WORKER_LOG
from seqwise.compare.run.jobs import Event, Job, OnEvent, Outcome

MAX_LOST_PROCESSES = 3  # of one job, before it fails
MAX_QUOTE = 300  # characters of a log in a message


class Engine(Protocol):
    """Executes jobs."""

    @property
    def num_workers(self) -> int:
        """The number of jobs that it executes at the same time, as far as known."""

    def run(self, jobs: Sequence[Job], on_event: OnEvent, should_stop: Callable[[], bool]) -> None:
        """Executes until all jobs have an outcome or `should_stop()`; every finished job has one "end" event."""

    def close(self) -> None:
        """Ends processes and releases devices."""


class JobQueue:
    """The jobs that wait for a process. A job whose process was lost waits again, a limited number of times.

    Several threads may use it.
    """

    def __init__(self, folder: Path, jobs: Sequence[Job], on_event: OnEvent):
        self.folder, self.on_event = folder, on_event
        self.waiting = list(jobs)
        self.num_lost_processes = dict.fromkeys(jobs, 0)
        self.earliest_starts = dict.fromkeys(jobs, 0.0)  # time from which a job may be taken
        self._lock = threading.RLock()

    def take(self) -> Job | None:
        """Removes and returns the next job that may be executed now; None if there is none."""
        with self._lock:
            job = next((job for job in self.waiting if time.monotonic() >= self.earliest_starts[job]), None)
            if job is not None:
                self.waiting.remove(job)
            return job

    def report(self, job: Job, event: Event) -> None:
        with self._lock:
            self.on_event({**event, "kind": job.kind, "name": job.name})

    def handle_lost_process(self, job: Job, reason: str, earliest_start: float = 0.0) -> None:
        """Puts the job back into the queue, or saves its failure if its process was lost too often."""
        self.report(job, {"event": "lost", "reason": reason})
        self.num_lost_processes[job] += 1
        if self.num_lost_processes[job] < MAX_LOST_PROCESSES:
            self.earliest_starts[job] = earliest_start
            self.waiting.append(job)
            return
        outcome = job.load(self.folder)  # it may have finished just before
        if outcome is None:
            outcome = Outcome[Any]("failed", self._explain_lost_process(job, reason))
            outcome.save(job.get_file(self.folder))
        self.report(job, {"event": "end", "status": outcome.status, "reason": outcome.reason})

    def _explain_lost_process(self, job: Job, reason: str) -> str:
        """Returns why the job failed, with the last line of its log."""
        problem = f"its process was lost {MAX_LOST_PROCESSES} times, the last time {reason}."
        if "SIGKILL" in reason:
            return f"{problem} Perhaps memory ran out."
        log = job.get_log_file(self.folder) if job.get_log_file(self.folder).exists() else self.folder / WORKER_LOG
        text = log.read_text(encoding="utf-8", errors="replace").strip() if log.exists() else ""
        return f"{problem} {log} ends with: {text.splitlines()[-1][:MAX_QUOTE]}" if text else problem
