"""Comparisons small enough for tests: some text, tiny settings, and an engine that works in this process.

What takes seconds is made once for all tests that look at it.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from seqwise.compare.api import complete
from seqwise.compare.plan.create import Question, make_plan
from seqwise.compare.plan.plan import Plan
from seqwise.compare.run.engine import Event
from seqwise.compare.run.execute import execute
from seqwise.compare.run.jobs import Job
from seqwise.config import Settings, parse_settings
from seqwise.training.api import merge_settings

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

# 64 tokens an update; dropout, so that random numbers matter; checkpoints, so that there is something to go on from.
TINY: dict[str, Any] = {
    "task": "language",
    "device": "cpu",
    "text": {"tokenizer": "characters"},
    "data": {"window": 16},
    "network": {"depth": 1, "dropout": 0.2, "width": 12},
    "training": {"batch_size": 4, "save_every": 20},
}
# The least that is not refused, and no whole number of updates: a try gets 1,281 tokens, a training 3,843.
BUDGET = "5124-tokens"
DIVERGING = {"too-fast": {"model": "rnn", "training": {"weight_decay": 1e9}}}  # whatever its learning rate


def write_text(path: Path, lines: int = 200) -> Path:
    """A text of about 9 kB, a third of which one training reads."""
    draw = random.Random(1)
    rows = (" ".join(draw.choices(WORDS, k=draw.randint(4, 14))) + "." for _ in range(lines))
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def tiny(**changes: Any) -> Settings:
    return parse_settings(merge_settings(TINY, changes))


class Here:
    """The engine that carries out jobs in this process, one after another, and remembers which."""

    places = 1

    def __init__(self, folder: Path):
        self.folder, self.jobs, self.closed = folder, list[Job](), False

    def run(self, jobs: Sequence[Job], listen: Callable[[Event], None], stop: Callable[[], bool]) -> None:
        for job in jobs:
            if stop():
                return
            self.jobs.append(job)
            about = {"kind": job.kind, "name": job.name}
            listen({"event": "begin", **about})
            outcome = execute(
                self.folder, job, lambda event, about=about: listen({"event": "progress", **about, **event})
            )
            listen({"event": "end", **about, "status": outcome.status, "reason": outcome.reason})

    def close(self) -> None:
        self.closed = True


def plan_of(folder: Path, data: Path | str, base: Settings | None = None, **question: Any) -> Plan:
    asked = {"models": ["rnn", "gru"], "budget": BUDGET, "seeds": 2, "tries": 2, "examples": 3, **question}
    return make_plan(folder, str(data), Question(**asked), base or tiny())


def finish(folder: Path, plan: Plan) -> Here:
    """Carry out what is left, here, and write the report."""
    engine = Here(folder)
    assert complete(folder, plan, engine, lambda event: None)
    return engine


_HOMES: list[tempfile.TemporaryDirectory] = []  # removed when the tests are over


@cache
def _made() -> Path:
    _HOMES.append(tempfile.TemporaryDirectory(prefix="seqwise-compared-"))
    home = Path(_HOMES[-1].name)
    data = write_text(home / "small.txt")
    folder = home / "compared"
    plan = plan_of(folder, data, models=["rnn", "gru", "ngram"], variants=DIVERGING)
    finish(folder, plan)
    return folder


def finished_comparison(to: Path) -> Path:
    """A copy of a finished comparison: rnn, gru and ngram did well, the variant too-fast failed."""
    shutil.copytree(_made(), to, copy_function=shutil.copy2)
    return to


def data_of(folder: Path) -> str:
    return Plan.open(folder).data
