"""`seqwise train`: from a data file to a run folder. It parses, calls the library and draws the steps."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from seqwise.cli import console
from seqwise.cli.options import UNSET, parse, value_of
from seqwise.config import Settings, load_settings
from seqwise.errors import UsageError

if TYPE_CHECKING:
    from seqwise.cli.progress import TrainingDisplay
    from seqwise.tasks.task import Task
    from seqwise.training.counting import Count
    from seqwise.training.distribution import World
    from seqwise.training.run import Run
    from seqwise.training.training_run import TrainingRun

INTERRUPTED = 130  # 128 + SIGINT, for SIGTERM too: in both cases the run was saved and can go on
EXAMPLE = "seqwise train book.txt --task language --model lstm --budget 5m --out runs/book"


@dataclass
class Train:
    """Train a model on DATA: a file, a folder, gzip of these, or builtin:NAME. The docs say what each task reads.

    What is not set is chosen by rule for the data and the machine, and printed. Ctrl-C saves and stops.
    """

    data: Annotated[str | None, tyro.conf.Positional, UNSET] = None
    """What to learn from."""
    out: Annotated[Path | None, UNSET] = None
    """Run folder to make; runs/TASK-MODEL-N unless set."""
    resume: Annotated[Path | None, UNSET] = None
    """Go on with this run instead of starting one."""
    config: Annotated[Path | None, UNSET] = None
    """Settings file (YAML); flags override it."""
    nproc: int = 1
    """Processes on this machine, one per GPU or sharing the CPU."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


def main(argv: Sequence[str]) -> int:
    config = value_of(argv, "--config")
    default = Train(settings=load_settings(config)) if config else None
    asked = parse(Train, argv, prog="seqwise train", example=EXAMPLE, default=default)
    _check(asked)
    from seqwise.training.distribution import join_world, launched
    from seqwise.training.launching import launch
    from seqwise.training.run import Run
    from seqwise.training.signals import ends_at_once, on_signals
    from seqwise.training.training_run import choose_device

    run = None if asked.resume is None else Run.open(asked.resume)
    device = choose_device(asked.settings if run is None else run.settings)
    if asked.nproc > 1 and not launched():
        folder = asked.resume or asked.out or _named(asked)
        named = [] if asked.resume or asked.out else ["--out", str(folder)]
        return launch(asked.nproc, device, ["train", *named, *argv], folder)
    command = shlex.join(["seqwise", "train", *argv])
    try:
        with on_signals(ends_at_once), join_world(device) as world:
            return _train(*(_begin(asked, command, world) if run is None else (run, None)), world)
    except KeyboardInterrupt as interrupt:
        console.log(" ".join(["interrupted.", *getattr(interrupt, "__notes__", ())]))
        return INTERRUPTED


def _named(asked: Train) -> Path:
    """The folder that the run would get by itself."""
    from seqwise.training.training_run import free_folder, with_task

    return free_folder(f"{with_task(asked.settings, str(asked.data)).task}-{asked.settings.model}")


def _check(asked: Train) -> None:
    """Refuse what cannot be meant, before anything slow is imported."""
    if (asked.data is None) == (asked.resume is None):
        raise UsageError("name either DATA or --resume RUN.", repair=f"For example: {EXAMPLE}")
    if asked.nproc < 1:
        raise UsageError(f"--nproc: expected at least 1; received {asked.nproc}.")
    if asked.resume is not None and (asked.out or asked.config or asked.settings != Settings()):
        raise UsageError(
            "a run goes on with the settings it began with.",
            repair=f"Leave out all but: seqwise train --resume {shlex.quote(str(asked.resume))}",
        )


def _begin(asked: Train, command: str, world: World) -> tuple[Run, Task | None]:
    """The first process reads the data and makes the run folder, the others open it."""
    from seqwise.cli.progress import Bar
    from seqwise.training.run import Run
    from seqwise.training.training_run import create_run

    if not world.first:
        return Run.open(world.share("")), None
    with Bar("reading") as bar:
        run, task = create_run(
            str(asked.data), asked.settings, asked.out,
            command=command, log=console.log, progress=bar, processes=world.size,
        )  # fmt: skip
    world.share(str(run.folder))
    return run, task


def _train(run: Run, task: Task | None, world: World) -> int:
    """Train to the end or to a signal."""
    from seqwise.training.checkpoints import resume_command
    from seqwise.training.training_run import interruptible, training_of

    try:
        training = training_of(run, world, task, console.log)
        if training.ended:
            training.log("this run is already at its end.")
        with interruptible() as stop, _display(training) if world.first else nullcontext() as display:
            for step in training.steps(stop):
                if display is not None:
                    display.show(step)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(f"Go on with: {resume_command(run.folder)}")
        raise
    if world.first:
        _conclude(run, training.ended)
    return 0 if training.ended else INTERRUPTED


def _display(training: TrainingRun | Count) -> TrainingDisplay:
    from seqwise.cli.progress import TrainingDisplay

    return TrainingDisplay(training.task.headline, training.task.unit)


def _conclude(run: Run, ended: str) -> None:
    from seqwise.training.card import example_input
    from seqwise.training.checkpoints import resume_command

    if not ended:
        console.log(f"stopped and saved. Go on with: {resume_command(run.folder)}")
        return
    folder = shlex.quote(str(run.folder))
    console.log(f"done: {ended}. The run lies in {folder}")
    console.log(f"  seqwise evaluate {folder} {shlex.quote(run.origin.data)}")
    console.log(f"  seqwise predict {folder} {shlex.quote(example_input(run))}")
