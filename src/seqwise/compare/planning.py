"""From what the user asks to a `Plan`: the data is read once, the sizes are solved, the folder is made.

Whatever can be refused is refused here, before anything is trained.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqwise import environment
from seqwise.compare.limits import too_small
from seqwise.compare.plan import LEARNED, PLAN, Match, Plan, Spending, requested, seeds_of, withdraw
from seqwise.compare.sizes import Matched, match, parameters_of, resolved
from seqwise.compare.variants import contestants, refuse_twins, refuse_unable
from seqwise.config import Settings
from seqwise.errors import SaveError, UsageError
from seqwise.tasks.task import Progress, Say, Task, silent
from seqwise.training.budgets import Budget
from seqwise.training.defaults import Facts
from seqwise.training.fit import choose_device, facts_of, open_data, with_task
from seqwise.training.launching import refuse_too_many

BUDGET, SEEDS = "2m", 3
MODELS = ("rnn", "gru", "lstm", "attentive-rnn", "transformer")
UNITS = {"time": "seconds", "tokens": "tokens"}  # what a comparison at equal time or tokens must be given


@dataclass(frozen=True)
class Question:
    """What the user asks, besides settings common to all families."""

    models: Sequence[str] = MODELS
    variants: Path | Mapping[str, Any] | None = None
    budget: str = BUDGET
    match: Match = "parameters"
    parameters: int | None = None
    seeds: int = SEEDS
    tries: int = 3
    examples: int = 12
    nproc: int = 1


def make_plan(
    folder: Path, data: str, question: Question, base: Settings, command: str = "", say: Say = silent,
    progress: Progress | None = None,
) -> Plan:  # fmt: skip
    """The plan, in a new folder. Nothing is left of it if that fails."""
    refuse_existing(folder)
    seeds = seeds_of(question.seeds, base.seed)
    _check(question)
    refuse_too_many(question.nproc, choose_device(base))
    contestants(question.models, question.variants, base)  # a wrong name must not cost the reading of the data
    about: list[str] = []

    def hear(sentence: str) -> None:
        about.append(sentence)
        say(sentence)

    settings, task, vectors = open_data(data, with_task(base, data, hear), hear, progress)
    spending = Spending.of(question.budget, question.tries, seeds, task.size().tokens)
    families = contestants(question.models, question.variants, settings)
    asked = {name: requested(each, spending) for name, each in families.items()}
    width = 0 if vectors is None else vectors.keyed.dim
    facts = facts_of(task, choose_device(settings), question.nproc, width)
    sized = _sized(task, asked, facts, question)
    _refuse(task, sized.settings, spending, question.nproc)
    plan = Plan(
        data=data,
        task=str(settings.task),
        fingerprint=task.fingerprint,
        split=task.rule,
        about=tuple(about),
        command=command,
        seqwise=environment.version(),
        spending=spending,
        match=question.match,
        target=sized.target,
        parameters=sized.parameters,
        notes=sized.notes,
        metric=task.headline[0],
        unit=task.unit,
        nproc=question.nproc,
        examples=question.examples,
        families=sized.settings,
    )
    _save(plan, task, folder)
    return plan


def _refuse(task: Task, families: Mapping[str, Settings], spending: Spending, processes: int) -> None:
    """Refuse resolved settings that cannot be trained, or not within the budget."""
    refuse_twins(families)
    for name, each in families.items():
        refuse_unable(task, name, each)
        if each.model != "ngram":
            task.batches(each, 0, processes)  # complains about rows that cannot be divided
        problem = too_small(task, each, spending.training, name)
        if spending.tries > 1:
            problem = problem or too_small(task, each, spending.a_try, name, a_try=True)
        if problem:
            raise UsageError(problem, repair="Give a larger --budget, or fewer --tries.")


def _save(plan: Plan, task: Task, folder: Path) -> None:
    try:
        (folder / LEARNED).mkdir(parents=True, exist_ok=True)
        task.learned.save(folder / LEARNED)
        plan.save(folder)  # the last file, whose presence makes the folder a comparison
    except BaseException as error:
        withdraw(folder)
        if isinstance(error, (OSError, SaveError)):
            problem = f"could not make {folder}: {getattr(error, 'strerror', None) or error.__cause__ or error}."
            raise SaveError(problem, repair="Name a folder on another disk with --out.") from error
        raise


def _check(question: Question) -> None:
    budget = Budget.parse(question.budget)
    if question.tries < 1:
        raise UsageError(f"--tries: expected at least 1; received {question.tries}.")
    if question.nproc < 1:
        raise UsageError(f"--nproc: expected at least 1; received {question.nproc}.")
    if question.examples < 0:
        raise UsageError(f"--examples: expected at least 0; received {question.examples}.")
    if question.match == "parameters":
        return
    if question.parameters is not None:
        raise UsageError(
            f"--parameters is a size for all families; with --match {question.match} each keeps its own.",
            repair="Leave out --parameters, or use --match parameters.",
        )
    unit = "tokens" if budget.unit == "epochs" else budget.unit
    if unit != UNITS[question.match]:
        wanted = {"time": "in time, such as 2m", "tokens": "in tokens or epochs, such as 5M-tokens"}[question.match]
        raise UsageError(
            f"--match {question.match} needs a budget {wanted}; received {question.budget}.",
            repair="Change --budget or --match.",
        )


def _sized(task: Task, asked: dict[str, Settings], facts: Facts, question: Question) -> Matched:
    if question.match == "parameters":
        return match(task, asked, facts, question.parameters)
    settings = {name: resolved(each, facts) for name, each in asked.items()}
    return Matched(settings, {name: parameters_of(task, each) for name, each in settings.items()}, None, ())


def refuse_existing(folder: Path) -> None:
    """Only a folder that is missing or empty may become a comparison."""
    if (folder / PLAN).exists():
        raise UsageError(
            f"{folder} already holds a comparison.",
            repair=f"Go on with it: {resume_command(folder)}\nOr name another folder with --out.",
        )
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(f"{folder} is not an empty folder.", repair="Name another folder with --out.")


def resume_command(folder: Path) -> str:
    return f"seqwise compare --resume {shlex.quote(str(folder))}"
