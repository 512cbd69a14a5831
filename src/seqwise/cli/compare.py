"""`seqwise compare`: which family suits the data, at one budget. It parses, calls the library, draws what happens."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import tyro

from seqwise.cli import console
from seqwise.cli.options import UNSET, parse, value_of
from seqwise.compare.plan.options import Match, Question
from seqwise.config import Settings, load_settings
from seqwise.errors import UsageError

if TYPE_CHECKING:
    from seqwise.compare.plan.plan import Plan

INTERRUPTED = 130
EXAMPLE = "seqwise compare reviews.csv --models gru,lstm,transformer --budget 2m --seeds 3 --out compared"


@dataclass
class Compare:
    """Train several families on DATA under one budget, and say which suits it: a table, a verdict, a report.

    What is listed after --json are settings, common to all families. Ctrl-C saves and stops.
    """

    without: ClassVar = ("model", "init", "budget")  # settings that a comparison does not have, or has by itself

    data: Annotated[str | None, tyro.conf.Positional, UNSET] = None
    """What to learn from."""
    models: str = ",".join(Question.models)
    """Families to compare, of: feedforward, rnn, gru, lstm, attentive-rnn, transformer, ngram."""
    variants: Annotated[Path | None, UNSET] = None
    """File of further contestants (YAML): any settings under a name. With it, --models may be none."""
    budget: str = Question.budget
    """What each family may spend per seed, the search included: 90s, 5m, 1h, 2M-tokens, 3-epochs."""
    match: Match = Question.match
    """What is made equal: sizes within 3 %; or, with sizes by rule, only the time or the tokens."""
    parameters: Annotated[str | None, UNSET] = None
    """Parameters of every family, such as 300k or 1M; the median of the sizes by rule unless set."""
    seeds: int = Question.seeds
    """Trainings of each family."""
    tries: int = Question.tries
    """Learning rates that each family tries, in at most a quarter of its budget; 1: no search."""
    out: Annotated[Path | None, UNSET] = None
    """Folder to make; runs/compare-N unless set."""
    resume: Annotated[Path | None, UNSET] = None
    """Go on with this comparison instead of starting one; trials that failed are tried again."""
    engine: Literal["local", "ray"] = "local"
    """Who trains: this machine, or a Ray cluster."""
    workers: Annotated[int | None, UNSET] = None
    """Trials at the same time; one per GPU, or one, unless set. Those that share a device slow each other down."""
    nproc: int = Question.nproc
    """Processes of each trial, one per GPU or sharing the CPU."""
    examples: int = Question.examples
    """Test examples on which families disagree, to be kept in the report."""
    config: Annotated[Path | None, UNSET] = None
    """Settings file (YAML) for all families; flags override it."""
    json: bool = False
    """Print the report as one JSON document on standard output and nothing else there."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=Settings)


def main(argv: Sequence[str]) -> int:
    _check_words(argv)
    config = value_of(argv, "--config")
    common = load_settings(config) if config else Settings()
    default = Compare(settings=common, budget=common.budget or Question.budget)
    asked = parse(Compare, argv, prog="seqwise compare", example=EXAMPLE, default=default)
    _check(asked)
    from seqwise.compare.api import check_engine

    check_engine(asked.engine, asked.workers)  # before the data is read
    if asked.resume is not None:
        folder, plan = asked.resume, _reopened(asked.resume)
    else:
        command = shlex.join(["seqwise", "compare", *argv])
        folder, plan = planned(str(asked.data), question_of(asked), asked.settings, asked.out, command)
    return conclude(folder, plan, asked.engine, asked.workers, asked.json)


def _check_words(argv: Sequence[str]) -> None:
    """Refuse what is an option of other commands, by a better reason than that it is unknown."""
    names = {word.partition("=")[0] for word in argv}
    if "--model" in names:
        raise UsageError("a comparison has several models; received --model.", repair="Use --models, such as gru,lstm.")
    if "--init" in names:
        raise UsageError("a comparison starts every family from scratch; received --init.", repair="Leave out --init.")


def _check(asked: Compare) -> None:
    """Refuse what cannot be meant, before anything slow is imported."""
    if (asked.data is None) == (asked.resume is None):
        raise UsageError("name either DATA or --resume FOLDER.", repair=f"For example: {EXAMPLE}")
    fresh = Compare(resume=asked.resume, engine=asked.engine, workers=asked.workers, json=asked.json)
    if asked.resume is not None and asked != fresh:
        raise UsageError(
            "a comparison goes on as it was planned.",
            repair=f"Leave out all but: seqwise compare --resume {shlex.quote(str(asked.resume))}",
        )


def _reopened(folder: Path) -> Plan:
    from seqwise.cli.progress import ProgressBar
    from seqwise.compare.run.stages import reopen
    from seqwise.training.signals import handle_signals, interrupt_at_once

    with handle_signals(interrupt_at_once), ProgressBar("reading") as bar:
        return reopen(folder, bar)


def question_of(asked: Compare) -> Question:
    """What the options ask."""
    from seqwise.compare.plan.plan import names_of

    return Question(
        names_of(asked.models), asked.variants, asked.budget, asked.match,
        asked.parameters, asked.seeds, asked.tries, asked.examples, asked.nproc,
    )  # fmt: skip


def planned(
    data: str, question: Question, settings: Settings, out: Path | None, command: str, name: str = "compare"
) -> tuple[Path, Plan]:
    """A new comparison, said what it will do."""
    from seqwise.cli.progress import ProgressBar
    from seqwise.compare.plan.create import new_plan
    from seqwise.training.signals import handle_signals, interrupt_at_once

    with handle_signals(interrupt_at_once), ProgressBar("reading") as bar:
        folder, plan = new_plan(out, name, data, question, settings, command, console.log, bar)
    for sentence in introduction(plan):
        console.log(sentence)
    return folder, plan


def introduction(plan: Plan) -> list[str]:
    """What is going to happen."""
    from seqwise.compare.report.fairness import amount

    spending = plan.spending
    budget, training = amount(spending.budget, plan.unit), amount(spending.training, plan.unit)
    sizes = ", ".join(f"{name} {count:,}" if count else name for name, count in plan.parameters.items())
    found = [f"parameters: {sizes}"]
    tries = spending.tries
    search = f"{tries} learning rates of {amount(spending.a_try, plan.unit)} each, then " if tries > 1 else ""
    seeds = len(spending.seeds)
    found.append(
        f"{f'each of {len(plan.families)} families' if len(plan.families) > 1 else next(iter(plan.families))}: "
        f"{seeds} × {budget}: {search}"
        f"{seeds} training{'s' if seeds > 1 else ''} of {training}."
    )
    return [*found, *plan.notes]


def _busy(plan: Plan) -> str:
    """What is wrong with timing something here and now; empty if nothing is."""
    from seqwise import environment
    from seqwise.budget import Budget

    cores, load = environment.cpu_count(), os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if Budget.parse(plan.spending.training).unit != "seconds" or load < max(1.0, cores / 2):
        return ""
    return (
        f"this machine is busy: {load:.1f} processes wanted its {cores} cores in the last minute. A time buys less "
        "then, and not the same for each family. Wait until it is quiet, or give a budget in tokens."
    )


def conclude(folder: Path, plan: Plan, engine: str = "local", workers: int | None = None, as_json: bool = False) -> int:
    """Carry out what is left, write the report and show it."""
    from seqwise.cli.trials import TrialsDisplay
    from seqwise.compare.api import complete, engine_of
    from seqwise.compare.plan.plan import resume_command
    from seqwise.compare.report.gather import load_report
    from seqwise.compare.run.threads import settled
    from seqwise.training.signals import defer_interrupts

    if engine == "local":
        plan, few = settled(folder, plan, workers)
        if few:
            console.warn(f"{few} A time buys less then: wait until it is quiet, or give a budget in tokens.")
        elif busy := _busy(plan):
            console.warn(busy)
    runner = engine_of(engine, folder, plan, workers)
    with defer_interrupts() as stop, TrialsDisplay(folder, plan, lambda: runner.places) as display:
        finished = complete(folder, plan, runner, display.listen, display.begin, stop)
    if not finished:
        console.log(f"stopped and saved. Go on with: {resume_command(folder)}")
        return INTERRUPTED
    report = load_report(folder)
    if as_json:
        console.print_json(report)
    else:
        from seqwise.cli.leaderboard import show

        show(report, folder)
    return 0 if report["verdict"]["best"] is not None else 1
