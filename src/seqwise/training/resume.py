"""Resuming a run: with its own settings, but possibly another budget and other limits of the data."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from seqwise.budget import Budget
from seqwise.callbacks import LogFunction, no_log
from seqwise.config import Settings
from seqwise.errors import UsageError
from seqwise.families import get_family
from seqwise.training.distribution import World
from seqwise.training.run import Run
from seqwise.training.single_pass import SinglePassRun
from seqwise.training.training_run import TrainingRun, open_training

DATA_LIMITS = ("max_text_mb", "max_expansion")  # settings of `data` that change no result
CHANGEABLE = ("budget", *(f"data.{name}" for name in DATA_LIMITS))  # settings that may differ from those of the run


def find_conflicts(run: Run, settings: Settings, names: Iterable[str]) -> dict[str, tuple[Any, Any]]:
    """Returns the settings among `names` that must not differ from those of the run but do: the new value and its own.

    Names are dotted.
    """
    values = {name: (attrgetter(name)(settings), attrgetter(name)(run.settings)) for name in names}
    return {name: pair for name, pair in values.items() if name not in CHANGEABLE and pair[0] != pair[1]}


def change_settings(run: Run, settings: Settings, names: Iterable[str]) -> bool:
    """Changes the budget and the limits of the data in memory; returns whether the budget is another.

    `resume_training` saves them if the budget is another.
    """
    for name in {*DATA_LIMITS} & {each.removeprefix("data.") for each in names if each.startswith("data.")}:
        setattr(run.settings.data, name, getattr(settings.data, name))
    budget = settings.budget
    if budget is None or budget == run.settings.budget:
        return False
    if not get_family(run.settings.model).has_gradients:
        raise UsageError("an n-gram model is fitted in one pass: it has no budget.", fix="Leave out --budget.")
    if Budget.parse(budget) == Budget.parse(run.settings.budget):  # such as 60s and 1m
        return False
    run.settings.budget = budget
    return True


def resume_training(
    run: Run, world: World = World(), log: LogFunction = no_log, command: str = ""
) -> TrainingRun | SinglePassRun:
    """Opens the training of an existing run. If its budget was changed, by `command`, config.yaml is written again."""
    training = open_training(run, world, log=log)
    if command and world.is_first:
        run.change_budget(run.settings.budget, command)
    if training.ended:
        training.log(f"this run is already complete: {training.ended}.")
    elif not any(run.checkpoints.glob("step-*")):
        training.log("the run has no checkpoint yet: training starts from the beginning.")
    return training
