"""`Engine`: what executes the jobs of a comparison. `local_engine` uses processes here, `ray_engine` a Ray cluster.

An engine receives jobs that do not depend on each other and reports events. It knows nothing of what the jobs do; their
outcomes are in the folder of the comparison when it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from seqwise.compare.plan.folder import WORKER_LOG
from seqwise.compare.run.jobs import Job, Outcome

# event: begin, progress, end or lost, with kind and name of the job and its report; or waiting, with a reason.
Event = dict[str, Any]
OnEvent = Callable[[Event], None]

MAX_LOSSES = 3  # of the process of one job, before the job fails
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


def record_failure(folder: Path, job: Job, reason: str) -> Event:
    """Saves the failure of a job whose process was lost too often, unless it had finished; returns the "end" event."""
    outcome = job.load(folder)
    if outcome is None:
        log = job.log(folder)
        outcome = Outcome[Any]("failed", explain_loss(reason, log if log.exists() else folder / WORKER_LOG))
        outcome.save(job.file(folder))
    return {"event": "end", "kind": job.kind, "name": job.name, "status": outcome.status, "reason": outcome.reason}


def explain_loss(reason: str, log: Path) -> str:
    """Returns why a job failed whose process was lost too often, with the last line of its log."""
    problem = f"its process was lost {MAX_LOSSES} times, the last time {reason}."
    if "SIGKILL" in reason:
        return f"{problem} Perhaps memory ran out."
    text = log.read_text(encoding="utf-8", errors="replace").strip() if log.exists() else ""
    return f"{problem} {log} ends with: {text.splitlines()[-1][:MAX_QUOTE]}" if text else problem
