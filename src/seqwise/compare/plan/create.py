"""From what the user asks to a `Plan`: the data is read once, the sizes are solved, the folder is made.

Whatever can be refused is refused here, before anything is trained.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from seqwise import environment
from seqwise.budget import Budget, parse_count
from seqwise.compare.plan.budget_limits import larger, least_tokens, too_small
from seqwise.compare.plan.claim import Taken, claimed, refuse_existing, unmade
from seqwise.compare.plan.options import Question
from seqwise.compare.plan.plan import LEARNED, Plan, Spending, Undivided, requested, seeds_of
from seqwise.compare.plan.sizes import Matched, match, parameters_of, resolved
from seqwise.compare.plan.variants import contestants, refuse_twins, refuse_unable
from seqwise.compare.report.verdict import FEW
from seqwise.config import Settings
from seqwise.errors import SaveError, UsageError
from seqwise.families import get_family
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import DefaultsContext
from seqwise.tasks.task import LogFunction, ProgressCallback, Task, no_log
from seqwise.training.launching import check_process_count
from seqwise.training.training_run import (
    build_defaults_context,
    choose_device,
    fill_in_task,
    find_free_folder,
    open_data,
)

COUNTED = ("texts", "sentences", "pairs", "images")  # examples that stand for themselves
LEAST_EXAMPLES = 3  # of a split: below, every difference is chance
AMPLE = "1G-tokens"  # a budget that can be divided, whatever the tries
UNITS = {"time": "seconds", "tokens": "tokens"}  # what a comparison at equal time or tokens must be given
# What cannot be set for all families either, and why.
FIXED = {
    "patience": "every family spends all of its budget, so that none is stopped before another",
    "validate_every": "when to validate is chosen for each family by one rule, and a try is validated at its end",
}


def new_plan(
    out: Path | None,
    name: str,
    data: str,
    question: Question,
    base: Settings,
    command: str = "",
    log: LogFunction = no_log,
    progress: ProgressCallback | None = None,
) -> tuple[Path, Plan]:
    """A plan in `out`, or in the first of runs/NAME-1, -2, … that nobody else takes meanwhile."""
    while True:
        folder = out or find_free_folder(name)
        try:
            return folder, make_plan(folder, data, question, base, command, log, progress)
        except Taken:
            if out is not None:
                raise


def make_plan(
    folder: Path,
    data: str,
    question: Question,
    base: Settings,
    command: str = "",
    log: LogFunction = no_log,
    progress: ProgressCallback | None = None,
) -> Plan:
    """The plan, in a new folder. Nothing is left of it if that fails."""
    refuse_existing(folder)
    _check(question)
    _check_base(base)
    check_process_count(question.nproc, choose_device(base))
    # A wrong name must not cost the reading of the data.
    _refuse_rates(contestants(question.models, question.variants, base), question.tries)
    with claimed(folder):
        plan, task = _planned(data, question, base, command, log, progress)
        _save(plan, task, folder)
    return plan


def _planned(
    data: str, question: Question, base: Settings, command: str, log: LogFunction, progress: ProgressCallback | None
) -> tuple[Plan, Task]:
    about: list[str] = []

    def hear(sentence: str) -> None:
        about.append(sentence)
        log(sentence)

    settings, task, vectors = open_data(data, fill_in_task(base, data, hear), hear, progress)
    _check_splits(task, hear)
    seeds = seeds_of(question.seeds, base.seed)
    spending, problem = _divided(question, seeds, task.size().tokens)
    families = contestants(question.models, question.variants, settings)
    asked = {name: requested(each, spending) for name, each in families.items()}
    width = 0 if vectors is None else vectors.keyed.dim
    facts = build_defaults_context(task, choose_device(settings), question.nproc, width)
    sized = _sized(task, asked, facts, question)
    _refuse(task, sized.settings, question.nproc)
    _refuse_small(task, sized.settings, spending, question, problem)
    return Plan(
        data=data,
        task=str(settings.task),
        fingerprint=task.fingerprint,
        split=task.split_rule,
        about=tuple(about),
        command=command,
        seqwise=environment.version(),
        spending=spending,
        match=question.match,
        target=sized.target,
        parameters=sized.parameters,
        notes=sized.notes,
        metric=task.primary_metric[0],
        unit=task.unit,
        nproc=question.nproc,
        examples=question.examples,
        families=sized.settings,
        strict=question.strict,
        home=os.getcwd(),
    ), task


def _divided(question: Question, seeds: tuple[int, ...], tokens: int) -> tuple[Spending, str]:
    """The budget in parts. If there is too little to divide: an ample one, by which it is found out what would do."""
    try:
        return Spending.of(question.budget, question.tries, seeds, tokens), ""
    except Undivided as error:
        if Budget.parse(question.budget).unit == "seconds":
            raise
        return Spending.of(AMPLE, question.tries, seeds, tokens), error.problem


def _refuse(task: Task, families: Mapping[str, ResolvedSettings], processes: int) -> None:
    """Refuse resolved settings that cannot be trained."""
    refuse_twins(families)
    for name, each in families.items():
        refuse_unable(task, name, each)
        if get_family(each.model).has_gradients:
            task.batches(each, 0, processes)  # complains about rows that cannot be divided


def _refuse_small(
    task: Task, families: Mapping[str, ResolvedSettings], spending: Spending, question: Question, problem: str | None
) -> None:
    """Refuse a budget in tokens that is too small, for the reason that is known or for another."""
    for name, each in families.items():
        problem = problem or too_small(task, each, spending.training, name)
        if spending.tries > 1:
            problem = problem or too_small(task, each, spending.a_try, name, a_try=True)
    if not problem:
        return
    training, a_try = (
        max(1.0, *(least_tokens(task, each, short) for each in families.values())) for short in (False, True)
    )
    least = spending.least(training, a_try)
    if Budget.parse(question.budget).unit == "epochs":
        least = Budget(least.amount / task.size().tokens, "epochs")
    raise UsageError(problem, repair=larger(least, spending.tries))


def _save(plan: Plan, task: Task, folder: Path) -> None:
    try:
        task.preprocessor.save(folder / LEARNED)
        plan.save(folder)  # the last file, whose presence makes the folder a comparison
    except (OSError, SaveError) as error:
        raise unmade(folder, error) from error


def _check_splits(task: Task, log: LogFunction) -> None:
    """Refuse splits on which nothing can be told apart; a remark where only large differences can."""
    report = task.report()
    what = report.columns[0]
    if what not in COUNTED:
        return  # a text is counted in tokens, a series in steps: its own checks know what is too short
    sizes = {split: rows[0] for split, rows in report.rows.items() if split != "train"}
    fraction = "Give more data, or hold out more of it: --data.valid-fraction 0.2 --data.test-fraction 0.2"
    for split, count in sizes.items():
        if count < LEAST_EXAMPLES:
            raise UsageError(
                f"the {split} split has {count} of the {what}: a comparison needs at least {LEAST_EXAMPLES}.",
                repair=fraction,
            )
    if sizes.get("test", FEW) < FEW:
        log(f"note: the test split has only {sizes['test']} {what}, so only large differences will count. {fraction}")


def _check(question: Question) -> None:
    budget = Budget.parse(question.budget)
    seeds_of(question.seeds, 0)
    if question.tries < 1:
        raise UsageError(f"--tries: expected at least 1; received {question.tries}.")
    if question.nproc < 1:
        raise UsageError(f"--nproc: expected at least 1; received {question.nproc}.")
    if question.examples < 0:
        raise UsageError(f"--examples: expected at least 0; received {question.examples}.")
    if question.match == "parameters":
        _parameters(question)
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


def _parameters(question: Question) -> int | None:
    """The size that was asked for all families, if one was."""
    if question.parameters is None:
        return None
    count = parse_count(str(question.parameters))
    if count is None:
        raise UsageError(
            f"--parameters: expected a number of parameters; received {question.parameters!r}.",
            repair="Write it as 250000, 300k or 1.5M.",
        )
    return count


def _check_base(base: Settings) -> None:
    for key, why in FIXED.items():
        if getattr(base.training, key) is not None:
            option = f"--training.{key.replace('_', '-')}"
            raise UsageError(f"{option} is not for a comparison: {why}.", repair=f"Leave out {option}.")


def _refuse_rates(families: Mapping[str, Settings], tries: int) -> None:
    """A learning rate that somebody has chosen is not searched for."""
    rates = {
        name: each.training.learning_rate for name, each in families.items() if get_family(each.model).has_gradients
    }
    fixed = [f"{name} {rate:g}" for name, rate in rates.items() if rate is not None]
    if tries > 1 and fixed:
        raise UsageError(
            f"--tries {tries} searches for a learning rate, but one is set already: {', '.join(fixed)}.",
            repair="Use --tries 1, which trains with it as it is, or leave out training.learning_rate.",
        )


def _sized(task: Task, asked: dict[str, Settings], facts: DefaultsContext, question: Question) -> Matched:
    if question.match == "parameters":
        return match(task, asked, facts, _parameters(question))
    settings = {name: resolved(each, facts) for name, each in asked.items()}
    return Matched(settings, {name: parameters_of(task, each) for name, each in settings.items()}, None, ())
