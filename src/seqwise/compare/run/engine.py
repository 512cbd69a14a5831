"""Who carries out the jobs of a comparison: `local`, processes on this machine; `ray`, a cluster.

An engine gets jobs that do not depend on each other, and passes on what happens. The results are in the folder of the
comparison when it returns. It knows nothing of what the jobs do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from seqwise.compare.plan.plan import LOG
from seqwise.compare.run.jobs import Job, Outcome

# event: begin, progress, end, lost; kind and name of the job; and what the job tells. Or event: waiting, with a reason.
Event = dict[str, Any]
Listen = Callable[[Event], None]

DEATHS = 3  # of the process of one job, before it counts as failed
QUOTED = 300  # characters of a log, at most


class Engine(Protocol):
    """Carries out jobs."""

    @property
    def places(self) -> int:
        """How many jobs it carries out at the same time, as far as it knows."""

    def run(self, jobs: Sequence[Job], listen: Listen, stop: Callable[[], bool]) -> None:
        """Until all jobs have an outcome, or `stop()` says so. Every job that ends is told once."""

    def close(self) -> None:
        """Give back processes and devices."""


def bury(folder: Path, job: Job, reason: str) -> Event:
    """The end of a job whose process was lost too often. It may have been lost right after its work was done."""
    outcome = Outcome.load(job.file(folder))
    if outcome is None:
        own = job.log(folder)
        outcome = Outcome("failed", died(reason, own if own.exists() else folder / LOG))
        outcome.save(job.file(folder))
    return {"event": "end", "kind": job.kind, "name": job.name, "status": outcome.status, "reason": outcome.reason}


def died(reason: str, log: Path) -> str:
    """Why a job failed whose process ended too often."""
    told = f"its process was lost {DEATHS} times, the last time {reason}."
    if "SIGKILL" in reason:
        return f"{told} Perhaps memory ran out."
    said = log.read_text(encoding="utf-8", errors="replace").strip() if log.exists() else ""
    return f"{told} {log} ends with: {said.splitlines()[-1][:QUOTED]}" if said else told
