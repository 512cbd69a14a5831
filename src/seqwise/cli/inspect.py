"""`seqwise inspect`: looks inside trained runs. Without `--view` it lists the views that apply."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from seqwise.cli import console
from seqwise.cli.inputs import get_piped_input, read_lines, read_text
from seqwise.cli.models import is_run, load_model
from seqwise.cli.options import UNSET, list_typed, parse
from seqwise.config import Device
from seqwise.errors import UsageError
from seqwise.lens import VIEWS
from seqwise.lens.arguments import (
    NUMBERED,
    Signature,
    build_command,
    convert_number,
    explain_inapplicable,
    get_view,
)
from seqwise.task_registry import PATH_TASKS

if TYPE_CHECKING:
    from seqwise.lens.subject import Subject
    from seqwise.lens.view import View
    from seqwise.training.api import TrainedModel

PIPE = "seqwise inspect RUN -"
MAX_TERMINAL_FIGURES = 3
COMMON = ("view", "figure", "out", "device", "json", "debug")  # options of every view
EXAMPLES = """seqwise inspect runs/book
seqwise inspect runs/book 'It was a dark night' --view gates --layer 1
seqwise inspect runs/lstm runs/gru --view gradients --out gradients.html"""

VIEW_OPTION = tyro.conf.arg(metavar="VIEW", help=f"What to show: {', '.join(VIEWS)}.")


@dataclass
class Inspect:
    """Look inside trained runs: --view names what to show; without it, the views that apply are listed.

    TEXT is what the model reads: a text, a text file, or - (standard input); [MASK] marks what a masked model predicts.
    caption reads an image, forecast a CSV file. Without TEXT a validation example is chosen and named. Some views take
    several texts, and some none. Layers, heads, answers and figures are counted from 1; units and positions of tokens
    from 0, as in the arrays of Python.
    """

    inputs: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="RUN [RUN …] [TEXT …]", help_behavior_hint=""),
    ] = ()
    """Run folders, or folders of comparisons, whose best run is used; then the text."""
    rest: ClassVar = "inputs"
    main_options: ClassVar = ("view", "layer", "head", "unit", "answer", "data", "figure", "out", "device", "json")

    view: Annotated[Literal[tuple(VIEWS)] | None, UNSET, VIEW_OPTION] = None  # type: ignore[valid-type]
    layer: Annotated[str | None, UNSET] = None
    """The layer to show: its number from 1, or its name."""
    head: Annotated[int | None, UNSET] = None
    """The attention head to show: its number from 1."""
    query: Annotated[str | None, UNSET] = None
    """The token that attends, of one weight: its text, or its position from 0."""
    key: Annotated[str | None, UNSET] = None
    """The token attended to, of one weight: its text, or its position from 0."""
    unit: Annotated[int | None, UNSET] = None
    """The unit to show: its number from 0, as the figures and arrays count units."""
    answer: Annotated[str | None, UNSET] = None
    """The answer to explain: its number from 1, or its name."""
    measure: bool = True
    """cost: measure time and memory, and compare the count of operations with a profiler."""
    quick: bool = False
    """health: read only the curve of the run, neither its data nor its model."""
    span: Annotated[str | None, UNSET] = None
    """units: a part of the text: its words, or START:END in tokens from 0, without END."""
    method: Annotated[Literal["pca", "tsne"] | None, UNSET] = None
    """states: how states are projected onto a map; pca unless set."""
    colour: Annotated[Literal["token", "label", "time"] | None, UNSET] = None
    """states: what the colours of a map show; label if labels or tags are known."""
    word: Annotated[str | None, UNSET] = None
    """senses: the word to compare; the one that all sentences share unless set."""
    labels: Annotated[str | None, UNSET] = None
    """senses: the sense of the word in each sentence, separated by commas, such as river,river,money."""
    top: Annotated[int | None, UNSET] = None
    """neighbours, decoding: how many words or tokens to list; all if there are fewer."""
    beam: Annotated[int | None, UNSET] = None
    """decoding: the beam size; that of `seqwise predict` unless set."""
    length_penalty: Annotated[float | None, UNSET] = None
    """decoding: the length penalty of beam search."""
    max_length: Annotated[int | None, UNSET] = None
    """decoding: the maximum number of tokens to generate; cost: the length of the longest sequence."""
    greedy: bool = False
    """decoding: always choose the most probable token."""
    seed: Annotated[int | None, UNSET] = None
    """decoding: the random seed of a language model's sampling."""
    target: Annotated[str | None, UNSET] = None
    """attention, attribution, decoding, errors: the target of a translator that has several; the first unless set."""
    data: Annotated[str | None, UNSET] = None
    """Other data than that of the run."""
    split: Annotated[Literal["train", "valid", "test", "all"] | None, UNSET] = None
    """The split to evaluate; valid unless set, test only together with --data."""
    max_examples: Annotated[int | None, UNSET] = None
    """Examples to evaluate at most."""
    max_context: Annotated[int | None, UNSET] = None
    """horizon: the longest context to measure, in tokens, words or steps."""
    num_targets: Annotated[int | None, UNSET] = None
    """horizon: how many targets are scored."""
    watch: bool = False
    """training: redraw the view until the runs end, or Ctrl-C."""
    figure: Annotated[int | None, UNSET] = None
    """Number of the figure to draw or write, from 1; without it all are."""
    out: Annotated[Path | None, UNSET] = None
    """File to write: an interactive page (.html), an image (.png, .svg) or the numbers (.json)."""
    device: Device = "auto"
    """Device that computes; auto: a GPU if there is one."""
    json: bool = False
    """Print the result as one JSON document on standard output."""


def main(argv: Sequence[str]) -> int:
    args = parse(Inspect, argv, prog="seqwise inspect", example=EXAMPLES)
    from seqwise.cli.progress import ProgressBar

    folders = [value for value in args.inputs if is_run(value)]
    texts = [value for value in args.inputs if not is_run(value)]
    typed = [name if hasattr(args, name) else name.removeprefix("no_") for name in list_typed(argv)]  # --no-measure
    typed = [name for name in typed if name not in COMMON]
    _check_arguments(args, folders, texts, typed)
    runs = [load_model("inspect", Path(folder), (), args.device) for folder in folders]
    if args.view is None:
        return _list_views(runs, folders, texts, args.json)
    signature = Signature.of(args.view)
    inputs: list[Any] = [runs if signature.takes_runs else runs[0]]
    if signature.takes_text:
        inputs.append(_read_texts(runs[0], texts) if signature.takes_texts else _read_text(runs[0], texts))
    values = {name: getattr(args, name) for name in typed}
    values |= {name: convert_number(values[name]) for name in NUMBERED if values.get(name) is not None}
    with ProgressBar(f"computing {args.view}") as bar:
        if "progress" in signature.options:
            values["progress"] = bar
        view = get_view(args.view)(*inputs, **values)
    _name_example(runs)
    summary = view.summary
    view = view if args.figure is None else view.select(args.figure)
    if args.out is not None:
        view.save(args.out)
        console.log(f"saved to {args.out}")
    if args.json:
        console.print_json(view.to_json())
    elif args.out is None:
        _print_view(view)
    else:
        console.write("\n".join(summary))
    return 0


def _print_view(view: View) -> None:
    """Draws the first figures of a view in the terminal, and names the others."""
    sys.stdout.write(f"{replace(view, figures=view.figures[:MAX_TERMINAL_FIGURES])}\n")
    if len(view.figures) > MAX_TERMINAL_FIGURES:
        others = enumerate(view.figures[MAX_TERMINAL_FIGURES:], start=MAX_TERMINAL_FIGURES + 1)
        names = "; ".join(f"{number} {figure.title}" for number, figure in others)
        console.write(f"\nMore figures, by --figure N or all of them by --out FILE.html: {names}.")


def _check_arguments(args: Inspect, folders: Sequence[str], texts: Sequence[str], typed: Sequence[str]) -> None:
    """Raises an error for arguments that cannot work, before a model is loaded."""
    if not folders:
        if texts:
            from seqwise.training.run import Run

            Run.open(texts[0])  # raises an error that says why it is not a run
        raise UsageError("RUN is missing: the folder of a trained run.", fix=f"For example: {EXAMPLES.splitlines()[0]}")
    if args.view is None:
        needing = [*typed, *(name for name in ("figure", "out") if getattr(args, name) is not None)]
        if needing:
            option = f"--{needing[0].replace('_', '-')}"
            raise UsageError(f"{option} needs a view.", fix=f"Add --view, one of {', '.join(VIEWS)}.")
        return
    if args.out is not None:
        from seqwise.files import check_output_path
        from seqwise.lens.view import SUFFIXES

        check_output_path(args.out, SUFFIXES)
    if args.figure is not None and args.figure < 1:
        raise UsageError(f"figures are counted from 1; received --figure {args.figure}.")
    signature = Signature.of(args.view)
    if texts and not signature.takes_text:
        problem = f"the view {args.view} reads no text; received {texts[0]!r}."
        raise UsageError(problem, fix="Leave it out. A folder that has no run is read as a text.")
    if len(texts) > 1 and not signature.takes_texts:
        problem = f"expected one text; received {len(texts)}, the first two {texts[0]!r} and {texts[1]!r}."
        raise UsageError(problem, fix="Quote the text. A folder that has no run is read as a text.")
    if len(folders) > 1 and not signature.takes_runs:
        problem = f"the view {args.view} shows one run; received {len(folders)}."
        raise UsageError(problem, fix=f"Name one of them: {shlex.join(['seqwise', 'inspect', folders[0]])} …")
    known = [name for name in signature.options if hasattr(args, name)]
    for name in typed:
        if name not in known:
            options = ", ".join(f"--{each.replace('_', '-')}" for each in known) or "none"
            problem = f"--{name.replace('_', '-')} has no effect on the view {args.view}; its options: {options}."
            raise UsageError(problem, fix="Leave it out.")


def _read_text(trained: TrainedModel, arguments: Sequence[str]) -> str | None:
    """Returns the text to look at: the argument, or the content of a file or pipe; None if there is none."""
    argument = arguments[0] if arguments else get_piped_input()
    if argument is None:
        return None
    if _is_path(trained, argument):
        return argument
    text = read_text(argument, PIPE)
    is_typed = argument != "-"
    return text.removesuffix("\n") if text.strip() or is_typed else None  # an empty pipe is no input


def _read_texts(trained: TrainedModel, arguments: Sequence[str]) -> list[str] | None:
    """Returns the texts to look at: each argument, and each line of a file or pipe; None if there are none."""
    piped = get_piped_input()
    texts: list[str] = []
    for argument in arguments or ([] if piped is None else [piped]):
        texts += [argument] if _is_path(trained, argument) else read_lines(argument, PIPE)
    return texts if any(text.strip() for text in texts) or arguments else None  # an empty pipe is no input


def _is_path(trained: TrainedModel, argument: str) -> bool:
    """Returns whether the model reads a file of which the argument is the path."""
    return trained.settings.task in PATH_TASKS and argument != "-"


def _name_example(runs: Sequence[TrainedModel]) -> None:
    """Says which examples were chosen because no text was given."""
    from seqwise.lens.subject import get_chosen_example

    for trained in runs:
        if (example := get_chosen_example(trained)) is not None:
            console.log(f"no text was given; shown is {example.description}: {' '.join(example.text.split())[:200]}")


# The list of views


def _list_views(runs: Sequence[TrainedModel], folders: Sequence[str], texts: Sequence[str], as_json: bool) -> int:
    """Prints the views that apply to runs with their commands, and those that do not with the reason."""
    from seqwise.lens.subject import open_subject_or_model

    read = _read_texts(runs[0], texts)
    subjects = [open_subject_or_model(trained, read[0] if read else None) for trained in runs]
    rows = [_describe_view(name, subjects, folders, texts) for name in VIEWS]
    if as_json:
        console.print_json(rows)
        return 0
    applicable = [row for row in rows if row["command"] is not None]
    if len(runs) > 1:
        _print_commands("views of several runs:", [row for row in applicable if len(row["runs"]) > 1])
        _print_commands("\nviews of one run:", [row for row in applicable if len(row["runs"]) == 1])
    else:
        _print_commands("", applicable)
    missing = [row for row in rows if row["command"] is None]
    if missing:
        console.write(f"\nnot for {'this run' if len(runs) == 1 else 'these runs'}:")
        for row in missing:
            console.write(f"  {row['view']}: {row['reason']}")
    return 0


def _describe_view(
    name: str, subjects: Sequence[Subject], folders: Sequence[str], texts: Sequence[str]
) -> dict[str, Any]:
    """Returns a view with the command for the runs that it applies to, or with the reason why it applies to none."""
    signature = Signature.of(name)
    reasons = [explain_inapplicable(name, subject) for subject in subjects]
    suitable = [folder for folder, reason in zip(folders, reasons) if reason is None]
    suitable = suitable if signature.takes_runs else suitable[:1]
    # The text, if one text is enough for the view: not if it reads several, or the data of the run.
    takes_one_text = signature.takes_text and not {"texts", "data"} & {*signature.names}
    command = build_command(suitable, texts[:1] if takes_one_text else (), name, {}) if suitable else None
    reason = None if suitable else reasons[0]
    return {"view": name, "description": VIEWS[name][1], "runs": suitable, "command": command, "reason": reason}


def _print_commands(heading: str, rows: Sequence[dict[str, Any]]) -> None:
    """Prints views with their commands below a heading."""
    if heading and rows:
        console.write(heading)
    for row in rows:
        console.write(f"{row['view']}: {row['description']}")
        console.write(f"  {row['command']}")
