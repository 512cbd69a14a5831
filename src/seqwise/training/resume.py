"""Resuming a run: with its own settings, but possibly another budget."""

from __future__ import annotations

from seqwise.callbacks import LogFunction, no_log
from seqwise.errors import UsageError
from seqwise.families import get_family
from seqwise.training.distribution import World
from seqwise.training.run import Run
from seqwise.training.single_pass import SinglePassRun
from seqwise.training.training_run import TrainingRun, open_training


def override_budget(run: Run, budget: str | None) -> bool:
    """Sets another budget of a run in memory; returns whether it differs. `resume_training` saves it."""
    if budget in (None, run.settings.budget):
        return False
    if not get_family(run.settings.model).has_gradients:
        raise UsageError("an n-gram model is fitted in one pass: it has no budget.", fix="Leave out --budget.")
    run.settings.budget = str(budget)
    return True


def resume_training(
    run: Run, world: World = World(), log: LogFunction = no_log, command: str = ""
) -> TrainingRun | SinglePassRun:
    """Returns the training of an existing run. `command` is what changes its budget; empty if nothing does."""
    training = open_training(run, world, log=log)
    if command and world.is_first:
        run.change_budget(run.settings.budget, command)
    if training.ended:
        training.log(f"this run is already complete: {training.ended}.")
    elif not any(run.checkpoints.glob("step-*")):
        training.log("the run has no checkpoint yet: training starts from the beginning.")
    return training
