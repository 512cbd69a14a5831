"""`seqwise compare`: parses the options, runs the comparison through the library, shows progress and the report."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import tyro

from seqwise.applicability import check_effects
from seqwise.callbacks import ProgressCallback
from seqwise.cli import console
from seqwise.cli.options import UNSET, find_value, list_typed, parse, read_config
from seqwise.compare.plan.options import ComparisonOptions, Match
from seqwise.config import Settings
from seqwise.errors import UsageError
from seqwise.families import list_family_names
from seqwise.new_folders import create_folder

if TYPE_CHECKING:
    from seqwise.compare.plan.plan import Plan

INTERRUPTED = 130
EXAMPLE = "seqwise compare reviews.csv --models gru,lstm,transformer --budget 2m --seeds 3 --out compared"
EXAMPLES = f"""{EXAMPLE}
seqwise compare book.txt --variants variants.yaml --models none --budget 5m
seqwise compare --resume compared"""
ALLOWED_ON_RESUME = {"resume", "engine", "workers", "json"}


@dataclass
class Compare:
    """Train several families on DATA under one budget, and compare them: a table, a verdict, a report.

    Settings are common to all families that use them. Ctrl-C saves and stops.
    """

    main_options: ClassVar = (
        "models", "budget", "seeds", "match", "parameters", "lr-trials", "variants", "task", "target", "out", "resume",
        "workers", "json",
    )  # fmt: skip
    without: ClassVar = ("model", "init", "budget")  # settings that do not apply, or that a field below replaces
    refused: ClassVar = {
        "model": ("a comparison has several models; received --model.", "Use --models, such as gru,lstm."),
        "init": ("a comparison starts every family from scratch; received --init.", "Leave out --init."),
        "recipe": (
            "a recipe has the settings of one model, for seqwise train; received --recipe.",
            "Copy what seqwise recipes NAME prints under 'settings' to a file, and pass it as --config FILE.",
        ),
    }
    new_names: ClassVar = {"--tries": "--lr-trials"}

    data: Annotated[str | None, tyro.conf.Positional, UNSET] = None
    """Data to train on."""
    models: str = ",".join(ComparisonOptions.models)
    """Families to compare, of: feedforward, rnn, gru, lstm, attentive-rnn, transformer, ngram."""
    variants: Annotated[Path | None, UNSET] = None
    """YAML file of further models: any settings under a name. With it, --models may be none."""
    budget: str = ComparisonOptions.budget
    """Budget of each family per seed, including the learning-rate search: 90s, 5m, 1h, 2M-tokens, 3-epochs."""
    match: Match = ComparisonOptions.match
    """What is equal: parameters within 3 %; or, with default sizes, only the time or the tokens."""
    parameters: Annotated[str | None, UNSET] = None
    """Parameters of every family, such as 300k or 1M; the median of the default sizes unless set."""
    seeds: int = ComparisonOptions.seeds
    """Training runs of each family, each with another seed."""
    lr_trials: int = ComparisonOptions.lr_trials
    """Number of learning rates to search among for each family, in at most a quarter of its budget; 1: no search. While
    the best rate is the lowest or the highest, up to two more are tried beyond the budget."""
    out: Annotated[Path | None, UNSET] = None
    """Folder to create; runs/compare-N unless set."""
    resume: Annotated[Path | None, UNSET] = None
    """Resume this comparison instead of starting one; trials that failed are repeated."""
    engine: Literal["local", "ray"] = "local"
    """Where to train: on this machine, or on a Ray cluster."""
    workers: Annotated[int | None, UNSET] = None
    """Trials at the same time; one per GPU, or one, unless set. Those that share a device slow each other down."""
    nproc: int = ComparisonOptions.nproc
    """Processes of each trial, one per GPU or sharing the CPU."""
    examples: int = ComparisonOptions.examples
    """Test examples on which families disagree, for the report."""
    test: bool = ComparisonOptions.test
    """Evaluate the models once on the test split. --no-test: on the validation split, to choose among many settings."""
    config: Annotated[Path | None, UNSET] = None
    """Settings file (YAML) for all families; options override it."""
    json: bool = False
    """Print the report as one JSON document on standard output and nothing else there."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


def main(argv: Sequence[str]) -> int:
    models = find_value(argv, "--models") or ",".join(ComparisonOptions.models)
    common = read_config(argv, models.split(",")) or Settings()
    default = Compare(settings=common, budget=common.budget or ComparisonOptions.budget)
    arguments = parse(Compare, argv, prog="seqwise compare", example=EXAMPLES, default=default)
    _check(arguments, list_typed(argv))
    from seqwise.compare.api import check_engine

    check_engine(arguments.engine, arguments.workers)  # before the data is read
    with ExitStack() as lock:
        if arguments.resume is not None:
            from seqwise.compare.run.stages import resume_plan

            folder = arguments.resume
            with _show_reading() as bar:
                plan = lock.enter_context(resume_plan(folder, bar))
        else:
            command = shlex.join(["seqwise", "compare", *_remove_out_option(argv)])
            new_plan = create_plan(
                str(arguments.data), make_options(arguments), arguments.settings, arguments.out, command
            )
            folder, plan = lock.enter_context(new_plan)
        return run(folder, plan, arguments.engine, arguments.workers, arguments.json)


def _check(arguments: Compare, typed: Sequence[str]) -> None:
    """Raises an error if options contradict each other, before anything slow is imported."""
    if (arguments.data is None) == (arguments.resume is None):
        raise UsageError("name either DATA or --resume FOLDER.", fix=f"For example: {EXAMPLE}")
    others = [f"--{name.replace('_', '-')}" for name in typed if name not in ALLOWED_ON_RESUME]
    if arguments.resume is not None and others:
        raise UsageError(
            f"a comparison is resumed as it was planned; received {', '.join(others)}.",
            fix=f"Leave out all but: seqwise compare --resume {shlex.quote(str(arguments.resume))}",
        )
    families = [name for name in arguments.models.split(",") if name in list_family_names()]
    if families and arguments.variants is None:  # with variants, when the plan is made
        check_effects([arguments.settings.model_copy(update={"model": name}) for name in families], typed)


def _remove_out_option(argv: Sequence[str]) -> list[str]:
    """Returns the words without --out FOLDER: the command of the report can be repeated, but that folder exists."""
    words = []
    previous = ""
    for word in argv:
        if "--out" not in (word, previous) and not word.startswith("--out="):
            words.append(word)
        previous = word
    return words


def make_options(arguments: Compare) -> ComparisonOptions:
    """Returns the options of the comparison without those of the command."""
    from seqwise.compare.plan.plan import parse_names

    common = {each.name for each in fields(ComparisonOptions)} & {each.name for each in fields(Compare)}
    values = {name: getattr(arguments, name) for name in common}
    return ComparisonOptions(**values | {"models": parse_names(arguments.models)})


@contextmanager
def _show_reading() -> Iterator[ProgressCallback]:
    """Shows progress while the data is read; Ctrl-C ends that at once."""
    from seqwise.cli.progress import ProgressBar
    from seqwise.signals import handle_signals, raise_interrupt

    with handle_signals(raise_interrupt), ProgressBar("reading") as bar:
        yield bar


@contextmanager
def create_plan(
    data: str, options: ComparisonOptions, settings: Settings, out: Path | None, command: str, name: str = "compare"
) -> Iterator[tuple[Path, Plan]]:
    """Creates a comparison and prints what it will do; its folder is locked for the block."""
    from seqwise.compare.plan.create import Request, create_plan
    from seqwise.compare.plan.folder import COMPARISON_FOLDER

    with create_folder(COMPARISON_FOLDER, out, name) as folder:
        with _show_reading() as bar:
            plan = create_plan(folder, Request(data, options, settings, command), console.log, bar)
        for sentence in describe_plan(plan):
            console.log(sentence)
        yield folder, plan


def describe_plan(plan: Plan) -> list[str]:
    """Returns sentences about sizes, budgets and trials."""
    from seqwise.compare.report.fairness import format_budget

    budgets = plan.budgets
    total, training = format_budget(budgets.total, plan.unit), format_budget(budgets.training, plan.unit)
    sizes = ", ".join(f"{name} {count:,}" if count else name for name, count in plan.parameters.items())
    families = f"each of {len(plan.families)} families" if len(plan.families) > 1 else next(iter(plan.families))
    search = ""
    if budgets.lr_trials > 1:
        search = (
            f"at least {budgets.lr_trials} learning rates of {format_budget(budgets.lr_trial, plan.unit)} each, then "
        )
    seeds = len(budgets.seeds)
    runs = f"{seeds} training run{'s' if seeds > 1 else ''} of {training}"
    return [f"parameters: {sizes}", f"{families}: {seeds} × {total}: {search}{runs}.", *plan.notes]


def _warn_if_busy(plan: Plan) -> None:
    """Warns where timed trials would run on a busy machine."""
    from seqwise import environment

    cores = environment.count_cpus()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if plan.budgets.is_timed and load >= max(1.5, 0.75 * cores):  # an installation just before makes about 1
        console.warn(
            f"this machine is busy: a load of {load:.1f} on {cores} cores in the last minute. The comparison will take "
            "longer than its budget; its results hardly depend on the load."
        )


def run(folder: Path, plan: Plan, engine: str = "local", workers: int | None = None, as_json: bool = False) -> int:
    """Runs a comparison with a live display and shows its report; returns the exit status."""
    from seqwise.cli.comparison_display import TrialsDisplay
    from seqwise.compare.api import Orchestrator
    from seqwise.compare.plan.folder import get_resume_command
    from seqwise.compare.run.jobs import is_unfinished
    from seqwise.signals import is_due_to_interrupt

    orchestrator = Orchestrator(folder, plan, engine, workers)
    if engine == "local" and is_unfinished(folder, plan):
        _warn_if_busy(plan)
    try:
        with TrialsDisplay(folder, plan, lambda: orchestrator.engine.num_workers) as display:
            report = orchestrator.run(display.handle_event, display.start_stage)
    except (KeyboardInterrupt, Exception) as error:
        if not is_due_to_interrupt(error):  # a second signal: `timeout` and `make` both pass SIGTERM on
            raise
        console.log(f"interrupted. Resume with: {get_resume_command(folder)}")
        return INTERRUPTED
    if report is None:
        console.log(f"stopped and saved. Resume with: {get_resume_command(folder)}")
        return INTERRUPTED
    if as_json:
        import json

        from seqwise.compare.report.schema import to_json

        console.print_json(json.loads(to_json(report)))
    else:
        from seqwise.cli.comparison_display import print_report

        print_report(report, folder)
    return 0 if report.verdict is not None and report.verdict.best is not None else 1
