"""Who carries out the jobs of a comparison: `local`, processes on this machine; `ray`, a cluster.

An engine gets jobs that do not depend on each other, and passes on what happens. The results are in the folder of the
comparison when it returns. It knows nothing of what the jobs do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from seqwise.compare.outcomes import Job

Event = dict[str, Any]  # event: begin, progress, end, lost; kind and name of the job; and what the job tells
Listen = Callable[[Event], None]

DEATHS = 3  # of the process of one job, before it counts as failed


class Engine(Protocol):
    """Carries out jobs."""

    def run(self, jobs: Sequence[Job], listen: Listen, stop: Callable[[], bool]) -> None:
        """Until all jobs have an outcome, or `stop()` says so. Every job that ends is told once."""

    def close(self) -> None:
        """Give back processes and devices."""


def died(reason: str) -> str:
    """The reason of a job whose process ended too often."""
    return f"its process was lost {DEATHS} times, the last time {reason}. Perhaps memory ran out."
