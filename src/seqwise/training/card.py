"""The model card of a run in Markdown, and its learning curve as an SVG image."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from itertools import pairwise
from statistics import fmean
from typing import Any

from seqwise.errors import UsageError, pluralize
from seqwise.printable import make_printable
from seqwise.recipe_files import build_evaluate_commands, read_recipe
from seqwise.svg import BLUE, BOTTOM, GREY, ORANGE, RIGHT, WIDTH, Chart, Point, build_document, choose_ticks
from seqwise.tasks import get_task
from seqwise.tasks.task import Task
from seqwise.training.checkpoints import get_resume_command
from seqwise.training.run import Run, Summary
from seqwise.training.step import TrainerState, get_objective
from seqwise.training.validation import describe_part


def build_model_card(run: Run, task: Task, model_size: str, state: TrainerState) -> str:
    """Returns the card: task, data, size of the model, validation, and the commands to train and use it."""
    metadata = run.metadata
    lines = "\n".join([*_describe_data_and_model(run, model_size), *_describe_training(run, task, state)])
    predict = shlex.join(["seqwise", "predict", str(run.folder), get_example_input(run)])
    is_stopped = state.step > 0 and not state.ended
    first_commands = [get_resume_command(run.folder)] if is_stopped else _build_evaluate_commands(run)
    commands = "\n".join([*first_commands, predict])
    start = f":\n\n{format_code_block(metadata.command)}" if metadata.command else " from Python."
    return f"""# {format_words(run.settings.model)}, {format_words(run.settings.task)}

{lines}

Trained with Seqwise {format_words(metadata.seqwise_version)}{start}

{"Continue its training, or use it as it is" if is_stopped else "Use it"}:

{format_code_block(commands)}

All settings are in `config.yaml`, the machine in `env.json`, the curve in `metrics.jsonl`.
"""


def _build_evaluate_commands(run: Run) -> list[str]:
    """Returns the commands that evaluate a run: those of its recipe, if it was started with one that can be read."""
    folder, data = shlex.quote(str(run.folder)), shlex.quote(run.metadata.data)
    with suppress(UsageError):
        if run.metadata.recipe:
            return build_evaluate_commands(read_recipe(run.metadata.recipe), folder, data)
    return [f"seqwise evaluate {folder} {data}"]


def _describe_data_and_model(run: Run, model_size: str) -> list[str]:
    """Returns lines about the data, the vocabularies, the word vectors of `--vectors`, and the model."""
    settings, metadata, vectors = run.settings, run.metadata, run.preprocessor.attributes.get("vectors", {})
    lines = [
        f"- data: {format_code(metadata.data)} (fingerprint {format_code(metadata.fingerprint)})",
        f"- split: {format_words(metadata.split_rule)}",
    ]
    source = f"of the run {format_code(settings.init)}" if settings.init else "learned from the training split"
    if num_added := vectors.get("joined", 0):
        source += f", with {num_added:,} words of the word vectors"
    for name, tokenizer in run.preprocessor.tokenizers.items():
        lines.append(f"- vocabulary of {format_words(name)}: {tokenizer.kind}, {len(tokenizer):,} tokens, {source}")
    if vectors:
        coverage = "; ".join([*vectors["found"], "frozen" if settings.network.freeze_embedding else "trained further"])
        file, fingerprint = format_code(vectors["file"]), format_code(vectors["fingerprint"])
        lines.append(f"- word vectors: {file} (fingerprint {fingerprint}): {format_words(coverage)}")
    lines.append(f"- model: {format_words(model_size)}")
    if metadata.recipe:
        names = ", ".join(map(format_code, metadata.overrides))
        changes = f"with other values of {names}" if names else "with its settings"
        lines.append(f"- recipe: {format_code(metadata.recipe)}, {changes}")
    return [*lines, f"- budget: {format_words(settings.budget)}"] if settings.budget else lines


def _describe_training(run: Run, task: Task, state: TrainerState) -> list[str]:
    """Returns lines about the training so far; none before the first update."""
    if not state.step:
        return []
    summary = run.load_summary()  # times and metrics; not the `TrainingSummary`
    if summary is not None and summary.step != state.step:  # of an earlier end; the run has been continued
        summary = None
    averaged = 0 if summary is None else summary.num_averaged
    times = [] if summary is None else [f"{stage} {seconds:.1f} s" for stage, seconds in summary.seconds.items()]
    trained = f"{state.tokens:,} {task.unit} in {state.seconds:.0f} s, {pluralize(state.step, 'updates')}"
    return [
        f"- trained: {trained}; {state.ended or 'the training is not complete'}",
        *([f"- time: {', '.join(times)}"] if times else []),
        *_describe_validation(run, summary, task),
        *([f"- weights: the mean of those of the last {averaged} validations"] if averaged else []),
        *(["", "![learning curve](curve.svg)"] if (run.folder / "curve.svg").exists() else []),
    ]


def _describe_validation(run: Run, summary: Summary | None, task: Task) -> list[str]:
    """Returns a line about the best validation; none before the first one."""
    validated = [row for row in run.read_metrics() if row.get("validation")]
    if not validated:
        return []
    best, name, share = min(validated, key=lambda row: get_objective(row["validation"])), task.primary_metric[0], ""
    values = best["validation"]
    # After training, the best weights may have been evaluated again on a larger share of the validation split.
    if summary is not None and summary.final is not None and summary.validation is not None:
        values, share = summary.validation, f" on {describe_part(summary.final)} of the split"
    value = values.get(name, values["loss"])
    return [f"- validation {name.replace('_', ' ')} at the best step ({best['step']:,}){share}: {value:.4g}"]


def format_words(text: str) -> str:
    """Returns a text for a line of Markdown, on one line: it forms no heading, no link, no code and no HTML."""
    return re.sub(r"[`*\[\]|\\]", r"\\\g<0>", escape(make_printable(text, is_line=True), quote=False))


def format_code(text: str) -> str:
    """Returns a text as code within a line of Markdown, whatever it contains."""
    fence = "`" * (1 + _count_backticks(text))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{make_printable(text, is_line=True)}{space}{fence}"


def format_code_block(text: str) -> str:
    """Returns a text as a code block of Markdown, which no line of the text can end."""
    fence = "`" * max(3, 1 + _count_backticks(text))
    return f"{fence}\n{make_printable(text)}\n{fence}"


def _count_backticks(text: str) -> int:
    """Returns the length of the longest sequence of backticks."""
    return max(map(len, re.findall("`+", text)), default=0)


def get_example_input(run: Run) -> str:
    """Returns an example input for the model."""
    return str(run.preprocessor.attributes.get("example", get_task(run.settings.task).example))


HEIGHT = 320
MAX_VALUE = 1e300  # of a point: differences of larger numbers overflow
MAX_POINTS = 500  # of the training curve: more would be closer together than the width of a line


def build_curve_svg(rows: Sequence[dict[str, Any]], unit: str = "tokens") -> str:
    """Returns the learning curve, given the rows of `metrics.jsonl`."""
    train = downsample(smooth(keep_drawable([(row["tokens"], row["loss"]) for row in rows])))
    valid = keep_drawable([(row["tokens"], row["validation"]["loss"]) for row in rows if row.get("validation")])
    points = train + valid
    if not points:
        return build_document([], HEIGHT, "learning curve")
    chart = Chart(HEIGHT, max(x for x, _ in points), [y for _, y in points])
    for tokens in choose_ticks(0, chart.x_end):
        x, _ = chart.to_pixels((tokens, chart.low))
        if x <= WIDTH - RIGHT + 1:
            chart.add_text(x, HEIGHT - BOTTOM + 18, format_count(tokens), anchor="middle")
    chart.add_line(train, BLUE, 1.5)
    chart.add_line(valid, ORANGE, 2.5)
    for x, y in map(chart.to_pixels, valid):
        chart.parts.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{ORANGE}"/>')
    best = f" (best {min(y for _, y in valid):.3f})" if valid else ""
    chart.add_legend([("training loss", BLUE, ""), (f"validation loss{best}", ORANGE, "")])
    chart.add_text(WIDTH - RIGHT, 18, "per target", GREY, "end")
    chart.add_text(WIDTH - RIGHT, HEIGHT - 8, f"{unit} trained on", GREY, "end")
    return build_document(chart.parts, HEIGHT, "learning curve")


def keep_drawable(points: list[Point]) -> list[Point]:
    """Returns the points that have a place in an image; the infinite loss of a model that diverges has none."""
    return [point for point in points if all(abs(value) <= MAX_VALUE for value in point)]  # NaN is not


def smooth(points: list[Point], decay: float = 0.7) -> list[Point]:
    """Returns an exponential moving average, which shows the trend behind the noise of single batches."""
    smoothed: list[Point] = []
    for x, y in points:
        previous = smoothed[-1][1] if smoothed else y
        smoothed.append((x, decay * previous + (1 - decay) * y))
    return smoothed


def downsample(points: list[Point], max_points: int = MAX_POINTS) -> list[Point]:
    """Returns at most `max_points` points: the first, the last, and means of groups of neighbours between them."""
    if len(points) <= max_points:
        return points
    inner, num_groups = points[1:-1], max_points - 2
    bounds = [i * len(inner) // num_groups for i in range(num_groups + 1)]
    groups = [inner[start:stop] for start, stop in pairwise(bounds)]
    means = [(fmean(x for x, _ in group), fmean(y for _, y in group)) for group in groups]
    return [points[0], *means, points[-1]]


def format_count(number: float) -> str:
    """Returns an abbreviated number: 1,500,000 → 1.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"
