"""`seqwise evaluate`: metrics of a trained run on data."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import tyro

from seqwise.cli import console
from seqwise.cli.models import explain_missing_columns, is_run, load_model, reject_run_as_data
from seqwise.cli.options import UNSET, list_typed, parse
from seqwise.cli.predict import DECODING_OPTION_TASKS, DecodingOptions, build_beam_search, reject_options_of_other_tasks
from seqwise.config import Device
from seqwise.errors import UsageError
from seqwise.metrics.options import DynamicMethod, FloatOrAuto, TextEvaluationOptions, reject_searched

if TYPE_CHECKING:
    from seqwise.metrics.evaluation import Evaluation

# Option → the tasks that use it; for other tasks it is an error.
OPTION_TASKS = DECODING_OPTION_TASKS | {
    "max_length": ("translate", "caption"),
    **{field.name: ("language",) for field in fields(TextEvaluationOptions)},
    "columns": ("classify", "tag", "translate", "caption"),
}
EXAMPLE = "seqwise evaluate runs/book book.txt --json"
EXAMPLES = f"""{EXAMPLE}
seqwise evaluate runs/book book.txt --softmax-temperature auto --cache --cache-search"""
MIN_TEXT_WIDTH = 40  # terminal columns beside the numbers; with fewer, definitions are printed below them


@dataclass
class Evaluate(DecodingOptions):
    """Compute the metrics of a run on DATA: on the test split, if DATA has one or is the training data; otherwise on
    all of it."""

    main_options: ClassVar = (
        "split", "columns", "out", "json", "device", "softmax-temperature", "cache", "dynamic",
        "beam", "max-length", "length-penalty", "target",
    )  # fmt: skip

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder, or the folder of a comparison."""
    data: Annotated[
        str | None, tyro.conf.Positional, tyro.conf.arg(metavar="DATA", help_behavior_hint="(required)")
    ] = None
    """Data to evaluate on."""
    split: Annotated[Literal["train", "valid", "test", "all"] | None, UNSET] = None
    """Split of DATA to evaluate on."""
    columns: Annotated[str | None, UNSET] = None
    """Columns to read, if their names differ from those of the training data."""
    softmax_temperature: Annotated[FloatOrAuto | None, UNSET] = None
    """language: also evaluate with logits divided by a number. auto: the best on the validation split."""
    cache: bool = TextEvaluationOptions.cache
    """language: also evaluate with a continuous cache of the text so far."""
    cache_window: int = TextEvaluationOptions.cache_window
    """Past tokens in the cache."""
    cache_weight: float = TextEvaluationOptions.cache_weight
    """Share of the cache in the probabilities."""
    cache_theta: float = TextEvaluationOptions.cache_theta
    """Factor of the products of vectors in the cache."""
    cache_search: bool = TextEvaluationOptions.cache_search
    """Choose --cache-weight and --cache-theta on the validation split."""
    dynamic: bool = TextEvaluationOptions.dynamic
    """language: also evaluate dynamically; the model is updated on each segment after scoring it."""
    dynamic_method: DynamicMethod = TextEvaluationOptions.dynamic_method
    """Update rule of --dynamic: plain SGD, or RMS (Krause et al.), which needs the training data of the run."""
    dynamic_rate: Annotated[float | None, UNSET] = None
    """Learning rate of --dynamic; sgd 0.1, rms 0.00005 unless set."""
    dynamic_decay: float = TextEvaluationOptions.dynamic_decay
    """rms: how fast weights return to those of the run."""
    dynamic_epsilon: float = TextEvaluationOptions.dynamic_epsilon
    """rms: added to the root mean square of a gradient."""
    dynamic_segment: Annotated[int | None, UNSET] = None
    """Tokens between updates; sgd 20, rms 5, half a window and one for models without a state unless set."""
    dynamic_search: bool = TextEvaluationOptions.dynamic_search
    """Choose --dynamic-rate, and with rms --dynamic-decay, on the validation split."""
    out: Annotated[Path | None, UNSET] = None
    """Write input, expected and predicted of every example to this file (.jsonl, .csv, .tsv); forecast: or a plot
    (.svg, .png)."""
    device: Device = "auto"
    """Device that computes; auto: a GPU if there is one."""
    json: bool = False
    """Print the result as one JSON document on standard output."""


def main(argv: Sequence[str]) -> int:
    args = _parse(argv)
    from seqwise.cli.progress import ProgressBar
    from seqwise.tasks.task import InferenceOptions

    if args.data is None:
        missing = "DATA is missing: the data to evaluate on" if is_run(args.run) else "RUN is missing: the run folder"
        raise UsageError(f"{missing}; received {args.run}.", fix=f"For example: {EXAMPLE}")
    trained = load_model("evaluate", args.run, [args.data], args.device)
    reject_run_as_data(args.data)
    _reject_unused(args, list_typed(argv), str(trained.settings.task))
    if args.columns is not None:
        trained.settings = trained.settings.model_copy(update={"columns": args.columns})
    options = InferenceOptions(
        beam_search=build_beam_search(args, trained.task.beam_search),
        max_length=args.max_length,
        target=args.target,
        out=args.out,
        **vars(_build_text_options(args)),
    )
    option = "--columns" if trained.settings.task in OPTION_TASKS["columns"] else ""
    explanation = nullcontext() if args.columns else explain_missing_columns(trained, option)
    with ProgressBar("evaluating") as bar, explanation:
        evaluation = trained.evaluate(args.data, split=args.split, options=options, progress=bar, start_phase=bar.start)
    if args.json:
        values = evaluation.as_dict()
        if "warnings" in values:
            values["remarks"] = values["warnings"]  # the old key, until version 0.3
        console.print_json(values)
        return 0
    _print_evaluation(evaluation)
    if args.out is not None:
        console.log(f"saved to {args.out}")
    return 0


def check_options(words: Sequence[str], task: str) -> None:
    """Raises an error for options that do not exist, are out of range, or do not apply to this task or together."""
    args = _parse(["RUN", "DATA", *words])
    _reject_unused(args, list_typed(words), task)
    _build_text_options(args)


def _build_text_options(args: Evaluate) -> TextEvaluationOptions:
    return TextEvaluationOptions(**{field.name: getattr(args, field.name) for field in fields(TextEvaluationOptions)})


def _parse(argv: Sequence[str]) -> Evaluate:
    return parse(Evaluate, argv, prog="seqwise evaluate", example=EXAMPLES)


def _reject_unused(args: Evaluate, typed: Sequence[str], task: str) -> None:
    """Raises an error for an option of another task, or of a method that is not asked for or does not use it."""
    reject_options_of_other_tasks(typed, task, OPTION_TASKS)
    for name in typed:
        method = name.partition("_")[0]
        option = f"--{name.replace('_', '-')}"
        if method in ("cache", "dynamic") and not getattr(args, method):
            raise UsageError(f"{option} has an effect with --{method} only.", fix=f"Add --{method}.")
        if name in ("dynamic_decay", "dynamic_epsilon") and args.dynamic_method != "rms":
            raise UsageError(f"{option} has an effect with --dynamic-method rms only.", fix="Add --dynamic-method rms.")
        reject_searched(args, name)


def _print_evaluation(evaluation: Evaluation) -> None:
    """Prints metrics, baselines, tables and notes, no wider than the terminal."""
    console.log("\n".join(filter(None, [evaluation.data, evaluation.method])))
    rows = [(name, value, evaluation.definitions.get(name, "")) for name, value in evaluation.metrics.items()]
    baselines = [(each.name, each.value, each.about) for each in evaluation.baselines]
    name_width = max(20, *(len(name) + 2 for name, *_ in [*rows, *baselines]))
    _print_rows(rows, name_width)
    if baselines:
        console.write(f"\nbaselines: {evaluation.primary_metric}")
        _print_rows(baselines, name_width)
    for table in evaluation.tables:
        cells = [[name, *map(_format_cell, row)] for name, row in table.rows.items()]
        console.write("\n".join(["", table.title, *console.align_to_width([["", *table.columns], *cells])]))
    for note in evaluation.notes:
        console.warn(note)
    for note in evaluation.data_notes:
        console.log(f"note: {note}")
    for warning in evaluation.warnings:
        console.warn(warning)


def _print_rows(rows: Sequence[tuple[str, float, str]], name_width: int) -> None:
    """Prints a name, a number and its definition per line; a definition may continue in the lines below."""
    for name, value, definition in rows:
        head = f"{name:{name_width}}{_format_metric(value):>14}   "
        is_beside = console.width() - len(head) >= MIN_TEXT_WIDTH
        indent = " " * len(head) if is_beside else "    "
        lines = textwrap.wrap(definition, console.width() - len(indent))
        first = [head + (lines.pop(0) if is_beside and lines else "")]
        console.write("\n".join(line.rstrip() for line in [*first, *(indent + line for line in lines)]))


def _format_metric(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.3f}" if abs(value) < 1e6 else f"{value:.3e}"


def _format_cell(value: float) -> str:
    """Returns a number of a table, with four significant digits: tables are wide."""
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
