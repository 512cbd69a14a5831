"""`Orchestrator`: runs a planned comparison to its report, for the command and for `seqwise.compare` alike.

    request → create_plan → Orchestrator.run: stages of jobs → report.json, report.html

It knows nothing of terminals: callers receive events and stages through callbacks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch

from seqwise.compare.plan.plan import Plan
from seqwise.compare.report.gather import write_report
from seqwise.compare.report.schema import Report
from seqwise.compare.run.engine import Engine
from seqwise.compare.run.jobs import OnEvent
from seqwise.compare.run.local_engine import LocalEngine
from seqwise.compare.run.ray_cluster import import_ray
from seqwise.compare.run.stages import OnStage, run_stages
from seqwise.compare.run.threads import get_thread_limit, limit_threads
from seqwise.errors import UsageError, suggest
from seqwise.training.distribution import defer_interrupts
from seqwise.training.training_run import choose_device

ENGINES = ("local", "ray")
EngineName = Literal["local", "ray"]


class Orchestrator:
    """Executes the remaining jobs of a comparison and writes its report."""

    def __init__(self, folder: Path, plan: Plan, engine: str = "local", workers: int | None = None):
        self.folder = folder
        self.thread_note = ""  # where fewer threads than usual are used
        if engine == "local":
            plan, self.thread_note = limit_threads(folder, plan, workers)
        self.plan = plan
        self.engine = create_engine(engine, folder, plan, workers)

    def run(
        self, on_event: OnEvent = lambda event: None, on_stage: OnStage = lambda stage, jobs: None
    ) -> Report | None:
        """Returns the report; None if Ctrl-C or SIGTERM stopped the comparison, whose state is then saved."""
        with defer_interrupts() as should_stop:
            try:
                if not run_stages(self.folder, self.plan, self.engine, on_event, on_stage, should_stop):
                    return None
            finally:
                self.engine.close()
            return write_report(self.folder, self.plan)


def check_engine(name: str, workers: int | None = None) -> None:
    """Refuses an engine that is not available, before a comparison is planned."""
    if workers is not None and workers < 1:
        raise UsageError(f"--workers: expected at least 1; received {workers}.")
    if name not in ENGINES:
        raise UsageError(f"there is no engine {name!r}.", repair=suggest(name, ENGINES))
    if name == "ray":
        import_ray()


def create_engine(name: str, folder: Path, plan: Plan, workers: int | None = None) -> Engine:
    """Returns the engine that executes a plan."""
    check_engine(name, workers)
    if name == "ray":
        from seqwise.compare.run.ray_engine import RayEngine  # imported here, because it is an extra

        return RayEngine(folder, workers)
    is_cuda = choose_device(next(iter(plan.families.values()))).type == "cuda"
    # A trial of several processes uses all GPUs.
    gpus = torch.cuda.device_count() if is_cuda and plan.nproc == 1 else 0
    return LocalEngine(folder, workers, gpus, plan.nproc, get_thread_limit(plan, workers))
