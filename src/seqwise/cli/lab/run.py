"""`seqwise lab run`: runs one experiment with its parameters as options, or several as a table, a page or slides."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tyro

from seqwise.cli import console
from seqwise.cli.options import UNSET, parse
from seqwise.cli.progress import ProgressBar, format_seconds
from seqwise.errors import UsageError, pluralize
from seqwise.files import check_output_path, write_text
from seqwise.signals import is_due_to_interrupt

if TYPE_CHECKING:
    from seqwise.lab.experiment import Experiment, Result
    from seqwise.lab.running import ResultFile

PAGE = Path("lab.html")  # of `--all`, unless --out is given
EXAMPLES = """seqwise lab run C2
seqwise lab run C2 --radius 0.99 --steps 500
seqwise lab run C --slides
seqwise lab run --all --quick"""
MAX_CLAIM = 80  # characters of a claim in a table that is not printed to a terminal


@dataclass(kw_only=True)
class RunOne:
    """Options of a run of one experiment, besides its parameters."""

    names: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[ID|CHAPTER …]", help_behavior_hint="")
    ] = ()
    """Experiments, such as C2, or chapters, such as C."""
    rest: ClassVar = "names"

    quick: bool = False
    """Use smaller sizes and shorter training; the verdicts are the same."""
    out: Annotated[Path | None, UNSET] = None
    """File to write: .html, .png, .svg or .json for one experiment, .html for several."""
    figure: Annotated[int | None, UNSET] = None
    """Number of the figure to write with --out, from 1, without the text around it: for one experiment."""
    markdown: Annotated[Path | None, UNSET] = None
    """File for a table of verdicts and numbers in Markdown."""
    json: bool = False
    """Print the results as a list of objects on standard output."""


@dataclass(kw_only=True)
class RunSeveral(RunOne):
    """Run experiments by id (C2), by chapter (C), or all of them.

    One experiment prints its claim, numbers, verdict and figure; its parameters are options, which
    seqwise lab run ID --help lists. Several print a table. --all also writes lab.html: one page with every figure.
    """

    all: bool = False
    """Run all experiments and write lab.html."""
    resume: bool = False
    """Continue an interrupted run: keep the results that are saved beside the page."""
    slides: bool = False
    """Write a slide deck of a chapter (arrow keys move), to lab-C.html unless --out is given."""
    seed: int = 0
    """Seed of all random numbers."""


def run(argv: Sequence[str]) -> int:
    from seqwise.lab.catalogue import CHAPTERS, find_experiments

    names = _find_names(argv)
    kinds = find_experiments(names)
    is_chapter = bool(names) and names[0].upper() in CHAPTERS
    if len(kinds) == 1 and not is_chapter and not {"--all", "--resume", "--slides"} & {*argv}:
        return _run_one(kinds[0], argv)
    try:
        args = parse(RunSeveral, argv, prog="seqwise lab run", example=EXAMPLES)
    except UsageError as error:
        if len(kinds) > 1 and "unknown option" in error.problem:
            error.fix = f"Parameters are options of a single experiment: seqwise lab run {kinds[0].id} --help"
        raise
    if args.figure is not None:
        raise UsageError(
            "--figure is for one experiment.", fix="For example: seqwise lab run C2 --figure 1 --out c2.png"
        )
    if not kinds and not args.all:
        fix = "For example: seqwise lab run C2, or --all. See seqwise lab list."
        raise UsageError("no experiment is named.", fix=fix)
    if kinds and args.all:
        problem = f"--all runs every experiment; received {args.names[0]!r} as well."
        raise UsageError(problem, fix="Leave one of them out.")
    return _run_several(kinds or find_experiments(tuple(CHAPTERS)), args)


def _find_names(argv: Sequence[str]) -> list[str]:
    """Returns the words before the first option, and later ones that look like an id rather than like a value."""
    options = [position for position, word in enumerate(argv) if word.startswith("-")]
    end = options[0] if options else len(argv)
    return [*argv[:end], *(word for word in argv[end:] if re.fullmatch(r"[A-Ha-h]\d+|[A-H]", word))]


# One experiment


def _run_one(kind: type[Experiment], argv: Sequence[str]) -> int:
    from seqwise.lab.page.build import split_command

    command, hint = split_command(kind.try_next, asdict(kind()))
    example = f"{command}  # {hint}" if command and hint else kind.try_next
    options = _build_options(kind, "--quick" in argv)
    args: Any = parse(options, argv, prog=f"seqwise lab run {kind.id}", example=example)
    if args.out is not None:
        from seqwise.lens.view import SUFFIXES

        check_output_path(args.out, SUFFIXES)
    check_output_path(args.markdown, (".md",), "--markdown")
    if args.figure is not None and args.out is None:
        fix = f"For example: seqwise lab run {kind.id} --figure 1 --out {kind.id.lower()}.png"
        raise UsageError("--figure needs --out, the file to write.", fix=fix)
    result = _run_with_progress(args.parameters, kind.id)
    if args.out is not None:
        view = result.view()
        (view if args.figure is None else view.select(args.figure)).save(args.out)
        console.log(f"saved to {args.out}")
    if args.markdown is not None:
        _write_markdown(args.markdown, [result.to_json()])
    if args.json:
        console.print_json([result.to_json()])
    else:
        console.write(str(result))
    return 0


def _build_options(kind: type[Experiment], quick: bool) -> type:
    """Returns the options of one experiment: those of `RunOne`, and its parameters."""
    parameters = (
        "parameters",
        Annotated[kind, tyro.conf.OmitArgPrefixes],
        field(default_factory=lambda: kind(**(kind.quick if quick else {}))),
    )
    options = make_dataclass(f"Run{kind.id}", [parameters], bases=(RunOne,), kw_only=True)
    options.main_options = (*(each.name for each in fields(kind)), "quick", "out", "figure", "json")  # type: ignore[attr-defined]
    options.__doc__ = f"{kind.id}: {kind.claim}\n\n{kind.equation}\n\n{kind.measurement} {kind.rule}"
    return options


def _run_with_progress(experiment: Experiment, label: str) -> Result:
    """Runs an experiment. Its own progress is not known, so only the time that it takes is shown."""
    estimate = "" if experiment.list_changed() else f", about {format_seconds(experiment.seconds)} at full size"
    with ProgressBar(f"{label}{estimate}"):
        return experiment.run()


# Several experiments


def _run_several(kinds: Sequence[type[Experiment]], args: RunSeveral) -> int:
    from seqwise.lab.running import build_experiment

    page = _choose_page(kinds, args)
    results = _open_results(kinds, args, page)
    experiments = [build_experiment(kind, quick=args.quick, seed=args.seed) for kind in kinds]
    is_done = [results.has(experiment) for experiment in experiments]
    try:
        for number, experiment in enumerate(experiments, start=1):
            if not is_done[number - 1]:
                results.add(_run_with_progress(experiment, f"{experiment.id}, {number} of {len(kinds)}"))
            if not args.json:
                _print_row(results.records[experiment.id])
    except (KeyboardInterrupt, Exception) as error:
        if not is_due_to_interrupt(error):
            raise
        _save(kinds, args, page, results)
        if page is not None:
            words = [*args.names, *(f"--{name}" for name in ("all", "quick", "slides") if getattr(args, name))]
            words += ["--seed", str(args.seed)] if args.seed else []
            words += ["--out", str(args.out)] if args.out is not None else []
            saved = pluralize(len(results.records), "results")
            console.log(f"{saved} saved. Continue: seqwise lab run {shlex.join(words)} --resume")
        raise
    _save(kinds, args, page, results)
    records = [results.records[kind.id] for kind in kinds]
    if args.json:
        console.print_json([{key: value for key, value in each.items() if key != "figures"} for each in records])
    else:
        _print_summary(records)
    return 0


def _choose_page(kinds: Sequence[type[Experiment]], args: RunSeveral) -> Path | None:
    """Returns the page to write, or None; raises an error if it, or the table, cannot be written."""
    letters = sorted({kind.id[0] for kind in kinds})
    if args.slides and len(letters) > 1:
        problem = f"--slides is for one chapter; received {', '.join(letters)}."
        raise UsageError(problem, fix=f"For example: seqwise lab run {letters[0]} --slides")
    page = args.out or (Path(f"lab-{letters[0]}.html") if args.slides else PAGE if args.all else None)
    if args.resume and page is None:
        fix = "Add the --out FILE.html of the interrupted run."
        raise UsageError("--resume needs the page whose results to continue.", fix=fix)
    check_output_path(page, (".html",))
    check_output_path(args.markdown, (".md",), "--markdown")
    return page


def _open_results(kinds: Sequence[type[Experiment]], args: RunSeveral, page: Path | None) -> ResultFile:
    """Returns the results beside a page, or none for a new run; raises an error if some would be lost."""
    from seqwise.lab.running import ResultFile

    path = None if page is None else page.with_suffix(".jsonl")
    saved = ResultFile(path)
    saved.load()
    if args.resume:
        return saved
    others = saved.list_others([kind.id for kind in kinds])
    if others:
        problem = f"{pluralize(len(others), 'results')} of other experiments, such as {others[0]}, would be lost."
        fix = "Name another file with --out, add --resume to keep them, or delete it."
        raise UsageError(problem, fix=fix, file=path)
    if saved.records:
        console.log(f"the results of an earlier run in {path} are replaced; --resume would keep them.")
    return ResultFile(path)


def _save(kinds: Sequence[type[Experiment]], args: RunSeveral, page: Path | None, results: ResultFile) -> None:
    """Writes the page or slides, and the table, of the results so far, also of those that were resumed."""
    from seqwise.lab.catalogue import CHAPTERS, list_ids

    records = [results.records[name] for name in list_ids() if name in results.records]
    if page is not None and records:
        from seqwise.lab.page import build_lab_page, build_slides

        title = CHAPTERS[kinds[0].id[0]].title
        write_text(page, build_slides(records, title) if args.slides else build_lab_page(records), concurrent=True)
        console.log(f"saved to {page}")
    if args.markdown is not None and records:
        _write_markdown(args.markdown, records)


def _write_markdown(path: Path, records: Sequence[dict[str, Any]]) -> None:
    from seqwise.lab.markdown import build_markdown

    write_text(path, build_markdown(records), concurrent=True)
    console.log(f"saved to {path}")


def _print_row(record: dict[str, Any]) -> None:
    """Prints the line of one experiment."""
    start = f"{record['id']:4} {record['verdict']:9} {format_seconds(record['seconds']):>7}  "
    width = min(console.width() - len(start), MAX_CLAIM)
    claim = record["claim"]
    console.write(start + (claim if len(claim) <= width else f"{claim[: width - 1].rstrip()}…"))


def _print_summary(records: Sequence[dict[str, Any]]) -> None:
    from seqwise.lab.markdown import summarize_verdicts

    seconds = sum(record["seconds"] for record in records)
    verdicts = summarize_verdicts([record["verdict"] for record in records])
    console.write(f"{pluralize(len(records), 'experiments')}: {verdicts}; {format_seconds(seconds)}")
