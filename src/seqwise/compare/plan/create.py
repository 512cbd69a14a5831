"""Creates the plan of a comparison: reads the data once, matches the sizes, divides the budget, writes the folder.

All mistakes in options, settings and data are reported here, before anything is trained, except a time budget that is
too short, which is found when speeds are measured.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from seqwise import environment
from seqwise.budget import Budget, parse_count
from seqwise.callbacks import LogFunction, ProgressCallback, no_log
from seqwise.compare.plan.budgets import TrialBudgets, estimate_token_cost
from seqwise.compare.plan.folder import COMPARISON_FOLDER, PREPROCESSOR_FOLDER
from seqwise.compare.plan.options import ComparisonOptions
from seqwise.compare.plan.plan import Plan, prepare_settings
from seqwise.compare.plan.sizes import match_sizes, use_default_sizes
from seqwise.compare.plan.variants import build_families, check_distinct, check_effects_in_families, check_family
from seqwise.compare.report.advice import MIN_TEST_EXAMPLES
from seqwise.config import Settings
from seqwise.errors import UsageError
from seqwise.families import get_family
from seqwise.new_folders import explain_creation_errors
from seqwise.tasks.guess import detect_task
from seqwise.tasks.task import Task
from seqwise.training.choices import build_defaults_context, choose_device
from seqwise.training.create import prepare_task
from seqwise.training.launcher import check_process_count

INDEPENDENT_UNITS = ("texts", "sentences", "pairs", "images")  # names of examples that are independent of each other
MIN_EXAMPLES = 3  # of a split: with fewer, every difference is chance
BUDGET_UNITS = {"time": ("seconds",), "tokens": ("tokens", "epochs")}  # required by --match
# Training settings that a comparison chooses itself, and why.
FIXED_SETTINGS = {
    "max_epochs": "every family spends all of its budget",
    "patience": "every family spends all of its budget, so that none is stopped before another",
    "validate_every": "one rule decides for all families when to validate, and learning-rate trials are validated at "
    "their end",
}


@dataclass(frozen=True)
class Request:
    """Everything that defines a comparison: data, options, common settings, and the command for the report."""

    data: str
    options: ComparisonOptions
    settings: Settings
    command: str = ""


def create_plan(
    folder: Path, request: Request, log: LogFunction = no_log, progress: ProgressCallback | None = None
) -> Plan:
    """Creates a comparison in an empty folder, which the caller has locked (`create_folder`)."""
    options, settings = request.options, request.settings
    COMPARISON_FOLDER.check_new(folder)
    _check_options(options, settings)
    # A wrong name is reported before the data is read.
    families = build_families(options.models, options.variants, settings)
    _check_rates(families, options.lr_trials)
    check_effects_in_families(settings, families)
    plan, task = _make_plan(request, log, progress)
    with explain_creation_errors(folder):
        (folder / PREPROCESSOR_FOLDER).mkdir(parents=True, exist_ok=True)
        task.preprocessor.save(folder / PREPROCESSOR_FOLDER)
        plan.save(folder)  # the last file, whose presence makes the folder a comparison
    return plan


def _make_plan(request: Request, log: LogFunction, progress: ProgressCallback | None) -> tuple[Plan, Task]:
    data_sentences: list[str] = []  # what is logged about the data, also for the report

    def log_and_keep(sentence: str) -> None:
        data_sentences.append(sentence)
        log(sentence)

    options = request.options
    settings = detect_task(request.settings, request.data, log_and_keep)
    settings, task, vectors = prepare_task(request.data, settings, log_and_keep, progress)
    _check_splits(task, options.test, log_and_keep)
    tokens_per_epoch = task.size().num_tokens
    seeds = tuple(range(settings.seed, settings.seed + options.seeds))
    budgets = TrialBudgets.divide(options.budget, options.lr_trials, seeds, tokens_per_epoch)
    families = build_families(options.models, options.variants, settings)
    check_effects_in_families(settings, families)
    families = {name: prepare_settings(each, budgets) for name, each in families.items()}
    vector_width = 0 if vectors is None else vectors.vectors.dim
    context = build_defaults_context(task, choose_device(settings), options.nproc, vector_width)
    context = replace(context, is_comparison=True)
    if options.match == "parameters":
        target = None if options.parameters is None else parse_count(str(options.parameters))
        sizes = match_sizes(task, families, context, target)
    else:
        sizes = use_default_sizes(task, families, context)
    check_distinct(sizes.settings)
    for name, resolved in sizes.settings.items():
        check_family(task, name, resolved, options.nproc)
    if not budgets.is_timed:  # a time budget is checked when the speed is known
        trainable = {name: each for name, each in sizes.settings.items() if get_family(each.model).has_gradients}
        token_costs = {name: estimate_token_cost(task, each) for name, each in trainable.items()}
        budgets.check(
            token_costs, task.unit, tokens_per_epoch if options.budget.endswith(("epoch", "epochs")) else None
        )
    plan = Plan(
        data=request.data,
        task=str(settings.task),
        fingerprint=task.fingerprint,
        split_rule=task.split_rule,
        about=tuple(data_sentences),
        command=request.command,
        seqwise=environment.get_version(),
        budgets=budgets,
        match=options.match,
        target_parameters=sizes.target,
        parameters=sizes.parameters,
        notes=sizes.notes,
        metric=task.primary_metric[0],
        unit=task.unit,
        nproc=options.nproc,
        num_examples=options.examples,
        families=sizes.settings,
        strict=options.strict,
        test=options.test,
        working_folder=os.getcwd(),
    )
    return plan, task


def _check_splits(task: Task, has_test: bool, log: LogFunction) -> None:
    """Raises an error if a split is too small to compare on.

    Logs a note if the evaluated split is so small that only large differences can be significant.
    """
    counts = task.count_data()
    unit = next(iter(counts["train"]))
    if unit not in INDEPENDENT_UNITS:
        return  # a long text (counted in tokens) or a series (in steps), for which the task checks the length itself
    sizes = {split: columns[unit] for split, columns in counts.items() if split != "train"}
    advice = "Give more data, or hold out more of it: --data.valid-fraction 0.2 --data.test-fraction 0.2"
    for split, count in sizes.items():
        if count < MIN_EXAMPLES:
            problem = f"the {split} split has {count} {unit}: a comparison needs at least {MIN_EXAMPLES}."
            raise UsageError(problem, fix=advice)
    evaluated = "test" if has_test else "valid"
    if sizes.get(evaluated, MIN_TEST_EXAMPLES) < MIN_TEST_EXAMPLES:
        name, count = "test" if has_test else "validation", sizes[evaluated]
        problem = f"the {name} split has only {count} {unit}, so only large differences can be significant"
        log(f"note: {problem}. {advice}")


def _check_options(options: ComparisonOptions, settings: Settings) -> None:
    """Raises an error if options or settings are wrong or contradictory, before the data is read."""
    budget = Budget.parse(options.budget)
    minimums = {"seeds": 1, "lr_trials": 1, "nproc": 1, "examples": 0}
    for name, minimum in minimums.items():
        value = getattr(options, name)
        if value < minimum:
            raise UsageError(f"--{name.replace('_', '-')}: expected at least {minimum}; received {value}.")
    if options.parameters is not None:
        if options.match != "parameters":
            problem = f"--parameters is a size for all families; with --match {options.match} each keeps its own."
            raise UsageError(problem, fix="Leave out --parameters, or use --match parameters.")
        if parse_count(str(options.parameters)) is None:
            problem = f"--parameters: expected a number of parameters; received {options.parameters!r}."
            raise UsageError(problem, fix="Write it as 250000, 300k or 1.5M.")
    if options.match != "parameters" and budget.unit not in BUDGET_UNITS[options.match]:
        expected = {"time": "in time, such as 2m", "tokens": "in tokens or epochs, such as 5M-tokens"}[options.match]
        problem = f"--match {options.match} needs a budget {expected}; received {options.budget}."
        raise UsageError(problem, fix="Change --budget or --match.")
    for key, reason in FIXED_SETTINGS.items():
        if getattr(settings.training, key) is not None:
            option = f"--training.{key.replace('_', '-')}"
            raise UsageError(f"{option} cannot be set in a comparison: {reason}.", fix=f"Leave out {option}.")
    check_process_count(options.nproc, choose_device(settings))


def _check_rates(families: Mapping[str, Settings], lr_trials: int) -> None:
    """Raises an error if a learning rate is set that would be searched for."""
    fixed = [
        f"{name} {each.training.learning_rate:g}"
        for name, each in families.items()
        if get_family(each.model).has_gradients and each.training.learning_rate is not None
    ]
    if lr_trials > 1 and fixed:
        problem = f"--lr-trials {lr_trials} searches for a learning rate, but it is already set: {', '.join(fixed)}."
        raise UsageError(problem, fix="Use --lr-trials 1 to train with it, or leave out training.learning_rate.")
