"""`seqwise train`: trains a model on data and saves it in a run folder. It parses options and displays the steps."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import tyro

from seqwise.applicability import check_effects, list_changed
from seqwise.budget import Budget
from seqwise.cli import console
from seqwise.cli.models import reject_run_as_data
from seqwise.cli.options import UNSET, find_value, list_typed, parse, read_config
from seqwise.cli.recipes import (
    check_prepared,
    describe_missing_data,
    explain_recipe_data,
    read_and_check_recipe,
    suggest_evaluations,
)
from seqwise.config import Settings, merge_settings, parse_settings
from seqwise.errors import FileKindError, UsageError
from seqwise.files import check_output_path
from seqwise.image import SUFFIXES
from seqwise.locks import lock_folder
from seqwise.new_folders import create_folder, reserve_folder
from seqwise.recipe_files import describe_other_data, explain_recipe_settings, read_recipe

if TYPE_CHECKING:
    from seqwise.tasks.task import Task
    from seqwise.training.distribution import World
    from seqwise.training.run import Run

INTERRUPTED = 130  # exit status: 128 + SIGINT, also for SIGTERM; in both cases the run is saved and can be resumed
EXAMPLE = "seqwise train book.txt --task language --model lstm --budget 5m --out runs/book"
EXAMPLES = f"""{EXAMPLE}
seqwise train reviews.csv --task classify --columns text,label --network.width 256
seqwise train --resume runs/book"""


@dataclass
class Train:
    """Train a model on DATA: a file or a folder of files, gzipped or not, or builtin:NAME. docs/data.md lists formats.

    Settings that are not set are chosen for the data and the machine, and printed. Ctrl-C saves and stops.
    """

    main_options: ClassVar = (
        "task", "model", "budget", "out", "resume", "recipe", "config", "columns", "target", "horizon",
        "network.width", "network.depth", "training.learning-rate", "seed", "device",
    )  # fmt: skip

    data: Annotated[str | None, tyro.conf.Positional, UNSET] = None
    """Training data."""
    out: Annotated[Path | None, UNSET] = None
    """Run folder to create; runs/TASK-MODEL-N by default."""
    resume: Annotated[Path | None, UNSET] = None
    """Resume this run instead of starting a new one; with a larger --budget also one that is complete."""
    recipe: Annotated[str | None, UNSET] = None
    """Settings of a published result: a name that seqwise recipes lists, or a file. --config and flags override it."""
    config: Annotated[Path | None, UNSET] = None
    """Settings file (YAML); flags override it."""
    plot: Annotated[Path | None, UNSET] = None
    """Write the learning curve to this file too (.svg or .png)."""
    nproc: int = 1
    """Number of processes on this machine, one per GPU or sharing the CPU."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


COMMAND_OPTIONS = tuple(each.name for each in fields(Train))  # options that are not settings


def main(argv: Sequence[str]) -> int:
    try:
        settings, recipe_settings = _read_settings(argv)
    except FileKindError as error:
        error.fix = _correct_file_option(argv)
        raise
    default = None if settings is None else Train(settings=settings)
    with explain_recipe_settings(find_value(argv, "--recipe"), recipe_settings):
        args = parse(Train, argv, prog="seqwise train", example=EXAMPLES, default=default)
        with explain_recipe_data(args.recipe, args.data):
            return _train(args, argv)


def _train(args: Train, argv: Sequence[str]) -> int:
    """Runs the command; returns the exit status."""
    typed = list_typed(argv)
    _reject_contradictions(args)
    if args.resume is None:
        check_effects([args.settings], typed)  # again when the task is known
    from seqwise.signals import handle_signals, is_due_to_interrupt, raise_interrupt
    from seqwise.training.choices import choose_device
    from seqwise.training.distribution import is_worker, join_world
    from seqwise.training.launcher import launch
    from seqwise.training.resume import change_settings
    from seqwise.training.run import Run

    check_output_path(args.plot, SUFFIXES)
    if args.data is not None:
        reject_run_as_data(args.data)
    run = None if args.resume is None else Run.open(args.resume)
    changes_budget = False
    if run is not None:
        _check_resumed(run, args.settings, argv)
        changes_budget = change_settings(run, args.settings, typed)
    device = choose_device(args.settings if run is None else run.settings)
    if args.nproc > 1 and not is_worker():
        with _reserve_folder(args) as folder:
            words = argv if args.resume or args.out else ["--out", str(folder), *argv]
            return launch(args.nproc, device, ["train", *words], folder)
    try:
        with handle_signals(raise_interrupt), join_world(device) as world, ExitStack() as lock:
            task = None
            if run is None:
                run, task = _create_run(args, argv, world, lock)
            elif world.is_first:
                lock.enter_context(lock_folder(run.folder))
            budget_command = shlex.join(["seqwise", "train", *argv]) if changes_budget else ""
            with run.record_failure():
                status = _run_training(run, task, world, budget_command, is_resumed=args.resume is not None)
            if args.plot is not None and world.is_first:
                _write_curve(run, args.plot)
            return status
    except (KeyboardInterrupt, Exception) as error:
        if not is_due_to_interrupt(error):
            raise
        console.log(f"interrupted. {_advise_resume(args.resume or args.out, args.nproc)}".rstrip())
        return INTERRUPTED


def _read_settings(argv: Sequence[str]) -> tuple[Settings | None, list[str]]:
    """Returns the settings of `--recipe`, overridden by those of `--config`, and the names that only the recipe sets.

    The settings are None without a recipe and a file.
    """
    settings = read_config(argv, [find_value(argv, "--model")])
    name = find_value(argv, "--recipe")
    if name is None:
        return settings, []
    recipe = read_and_check_recipe(name)
    changes = {} if settings is None else settings.model_dump(exclude_unset=True)
    others = [*list_typed(argv), *(() if settings is None else list_changed(settings))]
    names = [each for each in list_changed(recipe.settings) if each not in others]
    return parse_settings(merge_settings(recipe.get_setting_values(), changes)), names


def _correct_file_option(argv: Sequence[str]) -> str:
    """Returns how to pass a recipe that was passed as `--config`, or a settings file that was passed as `--recipe`."""
    if {"config", "recipe"} <= {*list_typed(argv)}:
        return "Pass the recipe as --recipe, and settings that override it as --config."
    old, new = ("--config", "--recipe") if find_value(argv, "--recipe") is None else ("--recipe", "--config")
    words = [re.sub(rf"^{old}(?==|$)", new, word) for word in argv]
    return f"Pass it as {new}: {shlex.join(['seqwise', 'train', *words])}"


def _advise_resume(folder: Path | None, num_processes: int) -> str:
    """Returns how to resume the run in a folder; nothing if it has not been created."""
    from seqwise.training.checkpoints import get_resume_command
    from seqwise.training.run import CONFIG

    if folder is None or not (folder / CONFIG).exists():
        return ""
    return f"Resume with: {get_resume_command(folder, num_processes)}"


def _reject_contradictions(args: Train) -> None:
    """Raises an error for options that exclude each other, before anything slow is imported."""
    if args.data is None and args.resume is None and args.recipe is not None:
        raise describe_missing_data(args.recipe)
    if args.data is not None and args.recipe is not None:
        check_prepared(args.recipe, args.data)
    if (args.data is None) == (args.resume is None):
        raise UsageError("expected either DATA or --resume RUN.", fix=f"For example: {EXAMPLE}")
    if args.nproc < 1:
        raise UsageError(f"--nproc: expected at least 1; received {args.nproc}.")
    if args.settings.budget is not None:
        Budget.parse(args.settings.budget)
    if args.resume is not None and (args.out or args.config or args.recipe):
        option = "--out" if args.out else "--config" if args.config else "--recipe"
        fix = f"Leave out {option}: seqwise train --resume {shlex.quote(str(args.resume))}"
        raise UsageError(f"a run is resumed in its own folder with its own settings; received {option}.", fix=fix)


def _check_resumed(run: Run, settings: Settings, argv: Sequence[str]) -> None:
    """Raises an error for a setting on the command line that differs from the run's."""
    from seqwise.training.resume import find_conflicts

    names = [name for name in list_typed(argv) if name not in COMMAND_OPTIONS]
    problems = [
        f"--{name.replace('_', '-')} {value} differs from that of {run.folder}: {saved_value}."
        for name, (value, saved_value) in find_conflicts(run, settings, names).items()
    ]
    if problems:
        problem = "\n".join(["a run is resumed with its own settings.", *problems])
        resume = f"seqwise train --resume {shlex.quote(str(run.folder))}"
        new_run = run.build_training_command(_remove_resume(argv))
        raise UsageError(problem, fix=f"Leave it out: {resume}\nOr start a new run: {new_run}")


def _remove_resume(argv: Sequence[str]) -> list[str]:
    """Returns the words of a command without `--resume RUN`."""
    words = list(argv)
    position = next(i for i, word in enumerate(words) if re.match(r"--resume(=|$)", word))
    del words[position : position + (1 if "=" in words[position] else 2)]
    return words


@contextmanager
def _reserve_folder(args: Train) -> Iterator[Path]:
    """Yields the folder of the run before it is created; an unnamed one is reserved, so that all processes know it."""
    from seqwise.tasks.guess import detect_task

    folder = args.resume or args.out
    if folder is not None:
        yield folder
        return
    with reserve_folder(f"{detect_task(args.settings, str(args.data)).task}-{args.settings.model}") as folder:
        yield folder


def _create_run(args: Train, argv: Sequence[str], world: World, lock: ExitStack) -> tuple[Run, Task | None]:
    """Reads the data, and creates and locks the run folder in the first process; opens it in the others."""
    from seqwise.cli.progress import ProgressBar
    from seqwise.tasks.guess import detect_task
    from seqwise.training.create import create_run
    from seqwise.training.run import RUN_FOLDER, Run

    if not world.is_first:
        return Run.open(world.broadcast_text("")), None
    settings = detect_task(args.settings, str(args.data), console.log)
    check_effects([settings], list_typed(argv))
    command = shlex.join(["seqwise", "train", *argv])
    args.out = folder = lock.enter_context(create_folder(RUN_FOLDER, args.out, f"{settings.task}-{settings.model}"))
    with ProgressBar("reading") as bar:
        run, task = create_run(
            str(args.data), settings, folder,
            command=command, recipe=args.recipe or "", log=console.log, progress=bar, processes=world.size,
        )  # fmt: skip
    world.broadcast_text(str(run.folder))
    return run, task


def _write_curve(run: Run, path: Path) -> None:
    from seqwise.image import write_plot
    from seqwise.tasks import get_task
    from seqwise.training.card import build_curve_svg

    write_plot(path, build_curve_svg(run.read_metrics(), get_task(run.settings.task).unit))
    console.log(f"saved to {path}")


def _run_training(run: Run, task: Task | None, world: World, budget_command: str, is_resumed: bool) -> int:
    """Trains until the budget is spent or a signal arrives; prints the commands that may follow.

    `budget_command` is this command if it changes the budget of a resumed run, and otherwise empty.
    """
    from seqwise.cli.progress import TrainingDisplay, describe_summary
    from seqwise.signals import defer_interrupts
    from seqwise.training.card import get_example_input
    from seqwise.training.resume import resume_training
    from seqwise.training.training_run import open_training

    if is_resumed:
        training = resume_training(run, world, console.log, budget_command)
    else:
        training = open_training(run, world, task, console.log)
    was_complete = bool(training.ended)
    display = TrainingDisplay(training.task.primary_metric, training.task.unit) if world.is_first else None
    with defer_interrupts() as stop, display or nullcontext():
        for step in training.steps(stop):
            if display is not None:
                display.show(step)
    summary = training.finish()
    if world.is_first and training.ended:
        folder = shlex.quote(str(run.folder))
        if summary is not None:
            console.log(describe_summary(summary, *training.task.primary_metric))
        if not was_complete:
            console.log(f"done: {training.ended}. Saved in {folder}")
        for command in _suggest_evaluations(run):
            console.log(f"  {command}")
        console.log(f"  seqwise predict {folder} {shlex.quote(get_example_input(run))}")
    elif world.is_first:
        console.log(f"stopped and saved. {_advise_resume(run.folder, world.size)}")
    return 0 if training.ended else INTERRUPTED


def _suggest_evaluations(run: Run) -> list[str]:
    """Returns the commands that evaluate a run: those of its recipe, if it has one that can be read and its data, with
    the numbers to compare with."""
    folder, data = shlex.quote(str(run.folder)), shlex.quote(run.metadata.data)
    with suppress(UsageError):
        name, overrides = run.metadata.recipe, run.metadata.overrides
        if name and not describe_other_data(name, read_recipe(name), run.metadata.fingerprint):
            return suggest_evaluations(name, folder, data, overrides)
    return [f"seqwise evaluate {folder} {data}"]
