"""`seqwise lab run`: runs one experiment with its parameters as options, or several as a table, a page or slides."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tyro

from seqwise.cli import console
from seqwise.cli.options import UNSET, parse
from seqwise.cli.progress import ProgressBar, format_seconds
from seqwise.errors import UsageError, pluralize
from seqwise.files import check_output_path, write_text

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
    """File to write: a page (.html); of one experiment also an image (.png, .svg) or numbers (.json)."""
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
    args = parse(RunSeveral, argv, prog="seqwise lab run", example=EXAMPLES)
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
    args: Any = parse(
        _build_options(kind, "--quick" in argv), argv, prog=f"seqwise lab run {kind.id}", example=kind.try_next
    )
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
    options.main_options = (*(each.name for each in fields(kind)), "quick", "out", "json")  # type: ignore[attr-defined]
    options.__doc__ = f"{kind.id}: {kind.claim}\n\n{kind.equation}\n\n{kind.measurement} {kind.rule}"
    return options


def _run_with_progress(experiment: Experiment, label: str) -> Result:
    """Runs an experiment. Its own progress is not known, so only the time that it takes is shown."""
    with ProgressBar(f"{label} (about {format_seconds(experiment.seconds)} at full size, on two cores)"):
        return experiment.run()


# Several experiments


def _run_several(kinds: Sequence[type[Experiment]], args: RunSeveral) -> int:
    from seqwise.lab.running import ResultFile, build_experiment

    page = _choose_page(kinds, args)
    results = ResultFile(None if page is None else page.with_suffix(".jsonl"))
    if args.resume:
        results.load()
    try:
        for number, kind in enumerate(kinds, start=1):
            experiment = build_experiment(kind, quick=args.quick, seed=args.seed)
            if not results.has(experiment):
                results.add(_run_with_progress(experiment, f"{kind.id}, {number} of {len(kinds)}"))
            if not args.json:
                _print_row(results.records[kind.id])
    except KeyboardInterrupt:
        _save(kinds, args, page, results)
        if page is not None:
            words = [*args.names, *(["--all"] if args.all else []), *(["--quick"] if args.quick else [])]
            words += ["--slides"] if args.slides else []
            words += ["--seed", str(args.seed)] if args.seed else []
            words += ["--out", str(args.out)] if args.out is not None else []
            console.log(
                f"{len(results.records)} results are saved. Continue: seqwise lab run {shlex.join(words)} --resume"
            )
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
        raise UsageError(
            f"--slides is for one chapter; received {', '.join(letters)}.", fix="seqwise lab run C --slides"
        )
    page = args.out or (Path(f"lab-{letters[0]}.html") if args.slides else PAGE if args.all else None)
    if args.resume and page is None:
        fix = "Add the --out FILE.html of the interrupted run."
        raise UsageError("--resume needs the page whose results to continue.", fix=fix)
    check_output_path(page, (".html",))
    check_output_path(args.markdown, (".md",), "--markdown")
    if page is not None and page.with_suffix(".jsonl").exists() and not args.resume:
        console.log(f"the results of an earlier run in {page.with_suffix('.jsonl')} are replaced; --resume keeps them.")
    return page


def _save(kinds: Sequence[type[Experiment]], args: RunSeveral, page: Path | None, results: ResultFile) -> None:
    """Writes the page or slides, and the table, of the results so far."""
    records = [results.records[kind.id] for kind in kinds if kind.id in results.records]
    if page is not None and records:
        from seqwise.lab.catalogue import CHAPTERS
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
    counts = Counter(record["verdict"] for record in records)
    parts = [f"{counts[kind]} {kind if kind != 'holds if' else 'holds under a condition'}" for kind in counts]
    seconds = sum(record["seconds"] for record in records)
    console.write(f"{pluralize(len(records), 'experiments')}: {', '.join(parts)}; {format_seconds(seconds)}")
