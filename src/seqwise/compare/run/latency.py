"""How long an answer takes: every family in turn, several rounds, with nothing else running.

Timed beside other trials, a model measures its neighbours. So this is one job for the whole comparison, carried out by
one process when all else is over. Round by round, so that a machine that slows down slows all families down.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqwise.compare.plan.plan import Plan
from seqwise.compare.run.jobs import Job, done
from seqwise.training.api import TrainedModel
from seqwise.training.run import Run

ROUNDS = 5


def pace_all(folder: Path, plan: Plan, between: Callable[[float], None]) -> dict[str, Any]:
    """For each family the median seconds of an answer in each round, by its first training that ended.

    `between` is told the share that is done, after each family and round.
    """
    first = {trial.family: trial for trial in reversed(done(folder, plan.trainings()))}
    clocks: dict[str, Callable[[], float]] = {}
    for name in (name for name in plan.families if name in first):
        run = Run.open(Job("train", first[name].name).run(folder))
        loaded, origin = TrainedModel(run, run.settings.device), run.origin.fingerprint
        clocks[name] = loaded.task.measure_latency(
            loaded.model, loaded.settings, run.preprocessor, plan.data, trained_on=origin
        )
    found: dict[str, list[float]] = {name: [] for name in clocks}
    for number in range(ROUNDS):
        for at, (name, seconds) in enumerate(clocks.items(), start=1):
            found[name].append(seconds())
            between((number * len(clocks) + at) / (ROUNDS * len(clocks)))
    return {"families": found}
