"""Measures the latency of one prediction: every family in turn, in several rounds, with nothing else running.

A model that is timed beside other trials measures their load. So this is one job for the whole comparison, executed by
one process after all others. It goes round by round, so that a slow phase of the machine affects all families.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from seqwise.compare.plan.plan import Plan
from seqwise.compare.run.jobs import Job, LatencyResult, find_done
from seqwise.training.api import TrainedModel
from seqwise.training.run import Run

NUM_ROUNDS = 5


def measure_latencies(folder: Path, plan: Plan, report_progress: Callable[[float], None]) -> LatencyResult:
    """Returns for each family the median seconds of a prediction in each round, by its first trained model.

    `report_progress` receives the share that is done, after each family and round.
    """
    models = {trial.family: trial for trial in reversed(find_done(folder, plan.trainings()))}
    clocks: dict[str, Callable[[], float]] = {}
    for name in (name for name in plan.families if name in models):
        run = Run.open(Job("train", models[name].name).run_folder(folder))
        trained = TrainedModel(run, run.settings.device)
        clocks[name] = trained.task.measure_latency(trained.bundle, plan.data)
    latencies: dict[str, list[float]] = {name: [] for name in clocks}
    for number in range(NUM_ROUNDS):
        for index, (name, measure) in enumerate(clocks.items(), start=1):
            latencies[name].append(measure())
            report_progress((number * len(clocks) + index) / (NUM_ROUNDS * len(clocks)))
    return LatencyResult({name: tuple(seconds) for name, seconds in latencies.items()})
