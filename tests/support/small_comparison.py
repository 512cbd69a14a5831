"""Comparisons small enough for tests: some text, tiny settings, and an engine that executes jobs in this process.

A finished comparison takes seconds and is made once for all tests.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from seqwise.callbacks import LogFunction, no_log
from seqwise.compare.api import Orchestrator
from seqwise.compare.plan.create import Request, create_plan
from seqwise.compare.plan.folder import COMPARISON_FOLDER
from seqwise.compare.plan.options import ComparisonOptions
from seqwise.compare.plan.plan import Plan
from seqwise.compare.run.execute import execute
from seqwise.compare.run.jobs import Event, Job
from seqwise.config import Settings, merge_settings, parse_settings
from seqwise.new_folders import create_folder

WORDS = [
    "the",
    "a",
    "small",
    "old",
    "model",
    "learns",
    "reads",
    "writes",
    "forgets",
    "every",
    "word",
    "state",
    "gate",
    "vector",
    "of",
    "in",
    "and",
]

# 64 tokens per update; with dropout, so that results depend on random numbers, and with checkpoints to resume from.
TINY: dict[str, Any] = {
    "task": "language",
    "device": "cpu",
    "text": {"tokenizer": "characters"},
    "data": {"window": 16},
    "network": {"depth": 1, "dropout": 0.2, "width": 12},
    "training": {"batch_size": 4, "save_every": 20},
}
# The smallest budget that is accepted, not a whole number of updates: 1,281 tokens per learning rate, 3,843 to train.
BUDGET = "5124-tokens"
DIVERGING = {"too-fast": {"model": "rnn", "training": {"weight_decay": 1e9}}}  # whatever its learning rate


def write_text(path: Path, lines: int = 200) -> Path:
    """Writes a text of about 9 kB."""
    generator = random.Random(1)
    rows = (" ".join(generator.choices(WORDS, k=generator.randint(4, 14))) + "." for _ in range(lines))
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def tiny(**changes: Any) -> Settings:
    return parse_settings(merge_settings(TINY, changes))


class InProcessEngine:
    """Executes jobs in this process, one after another, and records them."""

    num_workers = 1

    def __init__(self, folder: Path):
        self.folder, self.jobs, self.closed = folder, list[Job](), False

    def run(self, jobs: Sequence[Job], on_event: Callable[[Event], None], should_stop: Callable[[], bool]) -> None:
        for job in jobs:
            if should_stop():
                return
            self.jobs.append(job)
            about = {"kind": job.kind, "name": job.name}
            on_event({"event": "begin", **about})
            outcome = execute(
                self.folder, job, lambda event, about=about: on_event({"event": "progress", **about, **event})
            )
            on_event({"event": "end", **about, "status": outcome.status, "reason": outcome.reason})

    def close(self) -> None:
        self.closed = True


def make_plan(folder: Path, data: Path | str, settings: Settings | None = None, **options: Any) -> Plan:
    values = {"models": ["rnn", "gru"], "budget": BUDGET, "seeds": 2, "lr_trials": 2, "examples": 3, **options}
    return create_comparison(folder, Request(str(data), ComparisonOptions(**values), settings or tiny()))


def create_comparison(folder: Path, request: Request, log: LogFunction = no_log) -> Plan:
    """Creates a comparison in a new folder, as the command does."""
    with create_folder(COMPARISON_FOLDER, folder, "compare"):
        return create_plan(folder, request, log)


def finish(folder: Path, plan: Plan) -> InProcessEngine:
    """Executes the remaining jobs in this process and writes the report."""
    engine = InProcessEngine(folder)
    run_with(folder, plan, engine)
    return engine


def run_with(folder: Path, plan: Plan, engine: Any, **callbacks: Any) -> None:
    """Runs the comparison to its report with another engine."""
    orchestrator = Orchestrator(folder, plan)
    orchestrator.engine = engine
    assert orchestrator.run(**callbacks) is not None


_FOLDERS: list[tempfile.TemporaryDirectory] = []  # removed when the tests are over


@cache
def _make_finished_comparison() -> Path:
    _FOLDERS.append(tempfile.TemporaryDirectory(prefix="seqwise-compared-"))
    root = Path(_FOLDERS[-1].name)
    data = write_text(root / "small.txt")
    folder = root / "compared"
    plan = make_plan(folder, data, models=["rnn", "gru", "ngram"], variants=DIVERGING)
    finish(folder, plan)
    return folder


def finished_comparison(to: Path) -> Path:
    """A copy of a finished comparison: rnn, gru and ngram did well, the variant too-fast failed."""
    shutil.copytree(_make_finished_comparison(), to, copy_function=shutil.copy2)
    return to


def get_data_path(folder: Path) -> str:
    return Plan.open(folder).data
