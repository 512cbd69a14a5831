"""`seqwise train`: from a data file to a run folder. It parses options, calls the library and displays the steps."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from seqwise.budget import Budget
from seqwise.cli import console
from seqwise.cli.options import UNSET, find_value, parse
from seqwise.config import Settings, load_settings
from seqwise.errors import UsageError
from seqwise.families import get_family

if TYPE_CHECKING:
    from seqwise.tasks.task import Task
    from seqwise.training.distribution import World
    from seqwise.training.run import Run

INTERRUPTED = 130  # 128 + SIGINT, also for SIGTERM: in both cases the run is saved and can be resumed
EXAMPLE = "seqwise train book.txt --task language --model lstm --budget 5m --out runs/book"


@dataclass
class Train:
    """Train a model on DATA: a file, a folder, either of them gzipped, or builtin:NAME. docs/data.md lists the formats.

    Settings that are not given are chosen for the data and the machine, and printed. Ctrl-C saves and stops.
    """

    data: Annotated[str | None, tyro.conf.Positional, UNSET] = None
    """Training data."""
    out: Annotated[Path | None, UNSET] = None
    """Run folder to create; runs/TASK-MODEL-N by default."""
    resume: Annotated[Path | None, UNSET] = None
    """Resume this run instead of starting a new one; with a larger --budget also one that is complete."""
    config: Annotated[Path | None, UNSET] = None
    """Settings file (YAML); flags override it."""
    nproc: int = 1
    """Number of processes on this machine, one per GPU or sharing the CPU."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


def main(argv: Sequence[str]) -> int:
    config = find_value(argv, "--config")
    default = Train(settings=load_settings(config)) if config else None
    args = parse(Train, argv, prog="seqwise train", example=EXAMPLE, default=default)
    _check(args)
    from seqwise.training.distribution import handle_signals, interrupt_at_once, is_worker, join_world, launch
    from seqwise.training.run import Run
    from seqwise.training.training_run import choose_device, fill_in_task, find_free_folder

    run = None if args.resume is None else Run.open(args.resume)
    changes_budget = run is not None and args.settings.budget not in (None, run.settings.budget)
    if run is not None and changes_budget:
        if not get_family(run.settings.model).has_gradients:
            raise UsageError("an n-gram model is fitted in one pass: it has no budget.", repair="Leave out --budget.")
        run.settings.budget = str(args.settings.budget)
    device = choose_device(args.settings if run is None else run.settings)
    if args.nproc > 1 and not is_worker():
        folder, words = args.resume or args.out, list(argv)
        if folder is None:
            task = fill_in_task(args.settings, str(args.data)).task
            folder = find_free_folder(f"{task}-{args.settings.model}")
            words = ["--out", str(folder), *argv]
        return launch(args.nproc, device, ["train", *words], folder)
    command = shlex.join(["seqwise", "train", *argv])
    try:
        with handle_signals(interrupt_at_once), join_world(device) as world:
            created = _create_run(args, command, world) if run is None else (run, None)
            return _run_training(*created, world, command if changes_budget else "")
    except KeyboardInterrupt as interrupt:
        console.log(" ".join(["interrupted.", *getattr(interrupt, "__notes__", ())]))
        return INTERRUPTED


def _check(args: Train) -> None:
    """Reject contradictory options, before anything slow is imported."""
    if (args.data is None) == (args.resume is None):
        raise UsageError("expected either DATA or --resume RUN.", repair=f"For example: {EXAMPLE}")
    if args.nproc < 1:
        raise UsageError(f"--nproc: expected at least 1; received {args.nproc}.")
    if args.settings.budget is not None:
        Budget.parse(args.settings.budget)
    others = args.settings.model_copy(update={"budget": None})
    if args.resume is not None and (args.out or args.config or others != Settings()):
        repair = f"Remove the other options: seqwise train --resume {shlex.quote(str(args.resume))}"
        raise UsageError("a run is resumed with its own settings.", repair=f"{repair}\nOnly --budget may differ.")


def _create_run(args: Train, command: str, world: World) -> tuple[Run, Task | None]:
    """Read the data and create the run folder in the first process; open it in the others."""
    from seqwise.cli.progress import ProgressBar
    from seqwise.training.run import Run
    from seqwise.training.training_run import create_run

    if not world.is_first:
        return Run.open(world.broadcast_text("")), None
    with ProgressBar("reading") as bar:
        run, task = create_run(
            str(args.data), args.settings, args.out,
            command=command, log=console.log, progress=bar, processes=world.size,
        )  # fmt: skip
    world.broadcast_text(str(run.folder))
    return run, task


def _run_training(run: Run, task: Task | None, world: World, budget_command: str = "") -> int:
    """Train until the budget is spent or a signal arrives; print what to do next.

    `budget_command` is the command that has changed the budget of the run, if one has.
    """
    from seqwise.cli.progress import TrainingDisplay, describe_summary
    from seqwise.training.card import get_example_input
    from seqwise.training.checkpoints import resume_command
    from seqwise.training.distribution import defer_interrupts
    from seqwise.training.training_run import open_training

    try:
        training = open_training(run, world, task, console.log)
        if budget_command and world.is_first:
            run.change_budget(run.settings.budget, budget_command)
        if training.ended:
            training.log("this run is already complete.")
        display = TrainingDisplay(training.task.primary_metric, training.task.unit) if world.is_first else None
        with defer_interrupts() as stop, display or nullcontext():
            for step in training.steps(stop):
                if display is not None:
                    display.show(step)
        summary = training.finish()
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(f"Resume with: {resume_command(run.folder)}")
        raise
    if world.is_first and training.ended:
        folder = shlex.quote(str(run.folder))
        if summary is not None:
            console.log(describe_summary(summary, *training.task.primary_metric))
        console.log(f"done: {training.ended}. Saved in {folder}")
        console.log(f"  seqwise evaluate {folder} {shlex.quote(run.origin.data)}")
        console.log(f"  seqwise predict {folder} {shlex.quote(get_example_input(run))}")
    elif world.is_first:
        console.log(f"stopped and saved. Resume with: {resume_command(run.folder)}")
    return 0 if training.ended else INTERRUPTED
