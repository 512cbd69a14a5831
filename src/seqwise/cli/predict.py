"""`seqwise predict`: predictions of a trained run. A language model prints its continuation token by token."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from seqwise.cli import console
from seqwise.cli.decoding_options import (
    DECODING_OPTION_TASKS,
    DecodingOptions,
    build_beam_search,
    reject_options_of_other_tasks,
)
from seqwise.cli.options import UNSET, parse
from seqwise.config import Device
from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.errors import DataError, UsageError, suggest_path

if TYPE_CHECKING:
    from seqwise.tasks.task import InferenceOptions, Prediction
    from seqwise.text.tokenizer import Tokenizer
    from seqwise.training.api import TrainedModel

MAX_PROMPT = 10_000  # characters
INPUT_WARNINGS = {  # flag in a prediction's values → the end of a warning
    "cut": "were truncated: they are longer than --data.max-length",
    "unknown": "contain unknown tokens",
    "nothing_known": "contain only unknown tokens",
}
EXAMPLE = "seqwise predict runs/book 'It was' --sample --temperature 0.8 --top-p 0.9 --seed 1"


# Option → the tasks that use it; it is rejected for the others.
OPTION_TASKS = DECODING_OPTION_TASKS | {
    "n_best": ("translate", "caption"),
    "start": ("translate", "caption"),
    "top": ("classify", "masked"),
    "out": ("forecast",),
    **dict.fromkeys(("greedy", "sample", "temperature", "top_k", "top_p"), ("language", "translate", "caption")),
    "repetition_penalty": ("language", "translate", "caption"),
}


@dataclass
class Predict(DecodingOptions):
    """Predict with a trained run. TEXT is one input; a file or - (standard input) has one input per line.

    language continues TEXT (a whole file), masked fills [MASK], classify predicts labels, tag tags words, translate
    translates, caption describes images, forecast continues the series of a CSV file.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    text: Annotated[str, tyro.conf.Positional, UNSET] = ""
    """Text, a file, or - for standard input; image files for caption, a CSV file for forecast."""
    n_best: int = BeamSearchOptions.n_best
    """translate, caption: hypotheses per input, best first."""
    start: str = BeamSearchOptions.start
    """translate, caption: forced first words of the output."""
    top: int = 5
    """classify, masked: number of alternatives to print."""
    greedy: bool = SamplingOptions.greedy
    """Always take the most likely token."""
    sample: bool = False
    """Sample tokens; language samples by default, unless --greedy."""
    temperature: float = SamplingOptions.temperature
    """Sampling temperature: below 1 sharpens the distribution, above 1 flattens it."""
    top_k: Annotated[int | None, UNSET] = SamplingOptions.top_k
    """Sample from the k most likely tokens only."""
    top_p: Annotated[float | None, UNSET] = SamplingOptions.top_p
    """Nucleus sampling: sample from the smallest set of tokens with this total probability."""
    repetition_penalty: float = SamplingOptions.repetition_penalty
    """Above 1 makes tokens that already occurred less likely."""
    seed: int = 0
    """Random seed of sampling."""
    out: Annotated[Path | None, UNSET] = None
    """forecast: write a plot to this file (.svg)."""
    device: Device = "auto"
    """Where to compute."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there."""


def main(argv: Sequence[str]) -> int:
    args = parse(Predict, argv, prog="seqwise predict", example=EXAMPLE)
    if args.greedy and args.sample:
        raise UsageError("--greedy and --sample exclude each other.")
    from seqwise.training.api import load

    choice = SamplingOptions(args.greedy, args.temperature, args.top_k, args.top_p, args.repetition_penalty)
    build_beam_search(args, BeamSearchOptions(), args.n_best)  # reject invalid values before the model is loaded
    trained = load(args.run, args.device)
    reject_options_of_other_tasks(args, str(trained.settings.task), OPTION_TASKS)
    if trained.settings.task == "language":
        return _continue_text(trained, args, _build_options(args, BeamSearchOptions(), choice))
    if choice != replace(SamplingOptions(), greedy=args.greedy) and not args.sample:
        raise UsageError(
            "--temperature, --top-k, --top-p and --repetition-penalty need sampling.", repair="Add --sample."
        )
    search = BeamSearchOptions() if args.greedy else trained.task.beam_search
    return _predict(trained, args, _build_options(args, search, choice if args.sample else None))


def _build_options(args: Predict, search: BeamSearchOptions, choice: SamplingOptions | None) -> InferenceOptions:
    from seqwise.tasks.task import InferenceOptions

    return InferenceOptions(
        beam_search=build_beam_search(args, search, args.n_best, args.start),
        sampling=choice,
        seed=args.seed,
        max_length=args.max_length,
        target=args.target,
        top=args.top,
        out=args.out,
    )


def _continue_text(trained: TrainedModel, args: Predict, options: InferenceOptions) -> int:
    """Print the continuation of a language model piece by piece."""
    prompt = _truncate_prompt(_check_utf8(_read(args.text)))
    _warn_about_unknown_tokens(trained.run.tokenizer, prompt)
    pieces = trained.predict(prompt, options=options)
    if args.json:
        console.print_json({"prompt": prompt, "continuation": "".join(pieces), "seed": args.seed})
        return 0
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
    return 0


def _predict(trained: TrainedModel, args: Predict, options: InferenceOptions) -> int:
    """Print one prediction per input, as they arrive."""
    from seqwise.training.card import example_input

    inputs = trained.task.read_inputs(args.text, trained.settings)
    if inputs is None:
        inputs = read_lines(args.text)
    if not inputs or not any(each.strip() for each in inputs):
        example = shlex.join(["seqwise", "predict", str(args.run), example_input(trained.run)])
        raise UsageError("there is no input.", repair=f"For example: {example}")
    predictions: list[Prediction] = []
    for answer in trained.predict_all(inputs, options):
        predictions.append(answer)
        if not args.json:
            sys.stdout.write(answer.text + "\n")
            sys.stdout.flush()
    if args.json:
        console.print_json([answer.values for answer in predictions])
    _warn_about_inputs(predictions)
    if args.out is not None:
        console.log(f"written: {args.out}")
    return 0


def _warn_about_inputs(predictions: list[Prediction]) -> None:
    """Warn about inputs that the model did not see unchanged."""
    for key, what in INPUT_WARNINGS.items():
        if count := sum(bool(answer.values.get(key)) for answer in predictions):
            console.warn(f"{count:,} of {len(predictions):,} inputs {what}.")


def read_lines(text: str) -> list[str]:
    """The lines of a file, of standard input or of `text` itself; an empty last line is not an input."""
    content = _check_utf8(_read(text))
    lines = content.split("\n")
    return lines[:-1] if len(lines) > 1 and not lines[-1] else lines


def _warn_about_unknown_tokens(tokenizer: Tokenizer, prompt: str) -> None:
    """Warn about tokens of the prompt that are not in the vocabulary."""
    encoding = tokenizer.encode(prompt)
    unknown = [
        prompt[start:stop]
        for number, (start, stop) in zip(encoding.ids, encoding.offsets)
        if number == tokenizer.unknown
    ]
    if unknown:
        some = ", ".join(map(repr, dict.fromkeys(unknown[:5])))
        console.warn(f"{len(unknown)} of {len(encoding)} tokens of the prompt are not in the vocabulary: {some}")


def _read(text: str) -> str:
    """The content of the file `text`, of standard input for -, or else `text` itself."""
    if text == "-":
        return _decode(sys.stdin.buffer.read(), "standard input")
    path = Path(text)
    try:
        if text and path.is_file():
            return _decode(path.read_bytes(), text)
        folder = path.is_dir() and text != "."
    except OSError as error:
        if text and len(text) < 256 and path.exists():
            raise DataError(f"cannot be read: {error.strerror}.", file=text) from None
        return text  # too long for a file name
    except ValueError:
        return text  # not a valid path
    if folder and os.sep in text:
        raise DataError("this is a folder; a text or a text file was expected.", file=text)
    if path.suffix == ".txt" and not any(map(str.isspace, text)):
        others = [Path(entry.name) for entry in sorted(path.parent.iterdir())] if path.parent.is_dir() else []
        raise DataError("there is no such file.", repair=suggest_path(path, others) or "Check the path.", file=text)
    return text


def _truncate_prompt(prompt: str) -> str:
    """The last `MAX_PROMPT` characters: a model reads the prompt in one pass, and its memory is limited."""
    if len(prompt) <= MAX_PROMPT:
        return prompt
    console.warn(f"the prompt has {len(prompt):,} characters; only the last {MAX_PROMPT:,} are used.")
    return prompt[-MAX_PROMPT:]


def _check_utf8(text: str) -> str:
    """Reject bytes that are not UTF-8; Python represents them as lone surrogates in command-line arguments."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError("the prompt is not UTF-8.", repair="Put it into a UTF-8 file, or set LANG=C.UTF-8.")
    return text


def _decode(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise DataError(
            f"byte 0x{data[error.start]:02X} at offset {error.start} is not UTF-8.",
            repair="Convert it, for example from latin1: iconv -f latin1 -t utf8",
            file=name,
            line=data.count(b"\n", 0, error.start) + 1,
        ) from None
