"""`seqwise train`: from a data file to a run folder. It parses, calls the library and draws the steps."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from seqwise.cli import console
from seqwise.cli.options import parse
from seqwise.config import Settings, load_settings
from seqwise.errors import UsageError

if TYPE_CHECKING:
    from seqwise.training.distribution import World
    from seqwise.training.run import Run

EXAMPLE = "seqwise train book.txt --task language --model lstm --budget 5m --out runs/book"


@dataclass
class Train:
    """Train a model on DATA: a .txt or .jsonl file, a folder of them, gzip of these, or builtin:docs, builtin:code.

    What is not set is chosen by rule for the data and the machine, and printed. Ctrl-C saves and stops.
    """

    data: Annotated[str | None, tyro.conf.Positional] = None
    """What to learn from."""
    out: Path | None = None
    """Run folder to make; runs/TASK-MODEL-N unless set."""
    resume: Path | None = None
    """Go on with this run instead of starting one."""
    config: Path | None = None
    """Settings file (YAML); flags override it."""
    nproc: int = 1
    """Processes on this machine, one per GPU or sharing the CPU."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


def main(argv: Sequence[str]) -> int:
    config = _value_of(argv, "--config")
    default = Train(settings=load_settings(config)) if config else None
    asked = parse(Train, argv, prog="seqwise train", example=EXAMPLE, default=default)
    if (asked.data is None) == (asked.resume is None):
        raise UsageError("name either DATA or --resume RUN.", repair=f"For example: {EXAMPLE}")
    from seqwise.training.distribution import join_world, launch, launched
    from seqwise.training.fit import choose_device

    if asked.nproc > 1 and not launched():
        return launch(asked.nproc, ["train", *argv])
    with join_world(choose_device(asked.settings)) as world:
        return _train(asked, argv, world)


def _train(asked: Train, argv: Sequence[str], world: World) -> int:
    from seqwise.cli.progress import Bar, TrainingDisplay
    from seqwise.training.fit import Fit, count_run, create_run, interruptible
    from seqwise.training.run import Run

    task = None
    if asked.resume is not None:
        run = Run.open(asked.resume)
    elif world.first:
        command = shlex.join(["seqwise", "train", *argv])
        with Bar("reading") as bar:
            run, task = create_run(
                str(asked.data), asked.settings, asked.out, command=command, say=console.say, progress=bar
            )
    if asked.resume is None and world.size > 1:
        folder = world.share(str(run.folder) if world.first else "")
        run = run if world.first else Run.open(folder)
    if run.settings.model == "ngram":
        if asked.resume is None and task is not None:
            console.say(f"validation perplexity {count_run(run, task, console.say).validation['perplexity']:.2f}")  # type: ignore[index]
        return _conclude(run, "all n-grams are counted")
    fit = Fit(run, world, task, console.say)
    began = fit.trainer.place.step
    if began:
        fit.say(f"going on at step {began:,}.")
    ended = fit.ended
    with interruptible() as stop, TrainingDisplay() as display:
        for step in fit.steps(stop):
            ended = step.ended
            if world.first:
                display.show(step)
    return _conclude(run, ended) if world.first else 0


def _conclude(run: Run, ended: str) -> int:
    if not ended:
        console.say(f"stopped and saved. Go on with: seqwise train --resume {shlex.quote(str(run.folder))}")
        return 0
    folder = shlex.quote(str(run.folder))
    console.say(f"done: {ended}. The run lies in {folder}")
    console.say(f"  seqwise evaluate {folder} {shlex.quote(run.origin.data)}")
    console.say(f"  seqwise predict {folder} 'Once'")
    return 0


def _value_of(argv: Sequence[str], option: str) -> str | None:
    """The value of an option that must be known before the others can be parsed."""
    for word, following in zip(argv, [*argv[1:], ""]):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else following or None
    return None
