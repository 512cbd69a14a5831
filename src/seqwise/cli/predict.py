"""`seqwise predict`: let a run answer. A language model writes on, token by token as it is chosen."""

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
from seqwise.cli.options import UNSET, parse
from seqwise.cli.searching import SEARCHED, SearchOptions, refuse_foreign, search_of
from seqwise.config import Device
from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.errors import DataError, UsageError, nearest_path

if TYPE_CHECKING:
    from seqwise.tasks.task import InferenceOptions, Prediction
    from seqwise.text.tokenizer import Tokenizer
    from seqwise.training.api import TrainedModel

LONGEST = 10_000  # characters of a prompt
LOSSES = {  # what an answer may say of its input → the end of a warning
    "cut": "were cut, being longer than --data.max-length",
    "unknown": "hold unknown tokens",
    "nothing_known": "hold nothing that the model knows",
}
EXAMPLE = "seqwise predict runs/book 'It was' --sample --temperature 0.8 --top-p 0.9 --seed 1"


# Option → the tasks it is for; the others would not notice it.
FOR = SEARCHED | {
    "n_best": ("translate", "caption"),
    "start": ("translate", "caption"),
    "top": ("classify", "masked"),
    "out": ("forecast",),
    **dict.fromkeys(("greedy", "sample", "temperature", "top_k", "top_p"), ("language", "translate", "caption")),
    "repetition_penalty": ("language", "translate", "caption"),
}


@dataclass
class Predict(SearchOptions):
    """Let a run answer. TEXT is one input; a file or - (standard input) holds one input per line.

    language continues TEXT (all of a file), masked fills in [MASK], classify labels, tag marks, translate translates,
    caption describes pictures, forecast goes on with the series of a CSV file.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    text: Annotated[str, tyro.conf.Positional, UNSET] = ""
    """Words, a file, or - for standard input; for caption pictures, for forecast a CSV file."""
    n_best: int = BeamSearchOptions.n_best
    """translate, caption: answers per input, best first."""
    start: str = BeamSearchOptions.start
    """translate, caption: how the answer begins."""
    top: int = 5
    """classify, masked: alternatives shown."""
    greedy: bool = SamplingOptions.greedy
    """Always take the most likely token."""
    sample: bool = False
    """Draw tokens at random; language does so anyway without --greedy."""
    temperature: float = SamplingOptions.temperature
    """Of drawing. Below 1 sharpens the distribution, above 1 flattens it."""
    top_k: Annotated[int | None, UNSET] = SamplingOptions.top_k
    """Draw among the k most likely tokens only."""
    top_p: Annotated[float | None, UNSET] = SamplingOptions.top_p
    """Draw among the fewest tokens that together have this probability."""
    repetition_penalty: float = SamplingOptions.repetition_penalty
    """Above 1 makes tokens that occurred already less likely."""
    seed: int = 0
    """The same seed draws the same text."""
    out: Annotated[Path | None, UNSET] = None
    """forecast: draw the answer into this file (.svg)."""
    device: Device = "auto"
    """Where to compute."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there."""


def main(argv: Sequence[str]) -> int:
    asked = parse(Predict, argv, prog="seqwise predict", example=EXAMPLE)
    if asked.greedy and asked.sample:
        raise UsageError("--greedy and --sample exclude each other.")
    from seqwise.training.api import load

    choice = SamplingOptions(asked.greedy, asked.temperature, asked.top_k, asked.top_p, asked.repetition_penalty)
    search_of(asked, BeamSearchOptions(), asked.n_best)  # complains about wrong numbers before anything is loaded
    loaded = load(asked.run, asked.device)
    refuse_foreign(asked, str(loaded.settings.task), FOR)
    if loaded.settings.task == "language":
        return _write_on(loaded, asked, _request(asked, BeamSearchOptions(), choice))
    if choice != replace(SamplingOptions(), greedy=asked.greedy) and not asked.sample:
        raise UsageError(
            "temperature, top-k, top-p and repetition penalty are ways of drawing.", repair="Add --sample."
        )
    search = BeamSearchOptions() if asked.greedy else loaded.task.search
    return _answer(loaded, asked, _request(asked, search, choice if asked.sample else None))


def _request(asked: Predict, search: BeamSearchOptions, choice: SamplingOptions | None) -> InferenceOptions:
    from seqwise.tasks.task import InferenceOptions

    return InferenceOptions(
        search=search_of(asked, search, asked.n_best, asked.start),
        choice=choice,
        seed=asked.seed,
        max_length=asked.max_length,
        target=asked.target,
        top=asked.top,
        out=asked.out,
    )


def _write_on(loaded: TrainedModel, asked: Predict, request: InferenceOptions) -> int:
    """A language model writes on, piece by piece."""
    prompt = _short(_checked(_read(asked.text)))
    _tell_unknown(loaded.run.tokenizer, prompt)
    pieces = loaded.predict(prompt, request=request)
    if asked.json:
        console.print_json({"prompt": prompt, "continuation": "".join(pieces), "seed": asked.seed})
        return 0
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
    return 0


def _answer(loaded: TrainedModel, asked: Predict, request: InferenceOptions) -> int:
    """One answer per input, as they come."""
    from seqwise.training.card import example_input

    inputs = loaded.task.read_inputs(asked.text, loaded.settings)
    if inputs is None:
        inputs = lines_of(asked.text)
    if not inputs or not any(each.strip() for each in inputs):
        example = shlex.join(["seqwise", "predict", str(asked.run), example_input(loaded.run)])
        raise UsageError("there is nothing to answer.", repair=f"For example: {example}")
    given: list[Prediction] = []
    for answer in loaded.predict_all(inputs, request):
        given.append(answer)
        if not asked.json:
            sys.stdout.write(answer.text + "\n")
            sys.stdout.flush()
    if asked.json:
        console.print_json([answer.values for answer in given])
    _tell_losses(given)
    if asked.out is not None:
        console.log(f"written: {asked.out}")
    return 0


def _tell_losses(given: list[Prediction]) -> None:
    """What of the inputs the model did not see as it stands there."""
    for key, what in LOSSES.items():
        if count := sum(bool(answer.values.get(key)) for answer in given):
            console.warn(f"{count:,} of {len(given):,} inputs {what}.")


def lines_of(text: str) -> list[str]:
    """One input per line of a file or of standard input; an empty last line is none."""
    content = _checked(_read(text))
    lines = content.split("\n")
    return lines[:-1] if len(lines) > 1 and not lines[-1] else lines


def _tell_unknown(tokenizer: Tokenizer, prompt: str) -> None:
    """The model cannot know what such a prompt says."""
    encoding = tokenizer.encode(prompt)
    unknown = [
        prompt[start:stop]
        for number, (start, stop) in zip(encoding.ids, encoding.offsets)
        if number == tokenizer.unknown
    ]
    if unknown:
        some = ", ".join(map(repr, dict.fromkeys(unknown[:5])))
        console.warn(f"the model knows {len(unknown)} of {len(encoding)} tokens of the prompt only as <unk>: {some}")


def _read(text: str) -> str:
    """A name of a file means its content, - means standard input, anything else itself."""
    if text == "-":
        return _decoded(sys.stdin.buffer.read(), "standard input")
    path = Path(text)
    try:
        if text and path.is_file():
            return _decoded(path.read_bytes(), text)
        folder = path.is_dir() and text != "."
    except OSError as error:
        if text and len(text) < 256 and path.exists():
            raise DataError(f"cannot be read: {error.strerror}.", file=text) from None
        return text  # too long for a file name: it is the text itself
    except ValueError:
        return text  # no path can hold it
    if folder and os.sep in text:
        raise DataError("this is a folder; a text or a text file was expected.", file=text)
    if path.suffix == ".txt" and not any(map(str.isspace, text)):
        others = [Path(entry.name) for entry in sorted(path.parent.iterdir())] if path.parent.is_dir() else []
        raise DataError("there is no such file.", repair=nearest_path(path, others) or "Check the path.", file=text)
    return text


def _short(prompt: str) -> str:
    """The end of a long prompt: a model reads it all at once, and remembers little of what is far back."""
    if len(prompt) <= LONGEST:
        return prompt
    console.warn(f"the prompt has {len(prompt):,} characters; its last {LONGEST:,} are read.")
    return prompt[-LONGEST:]


def _checked(text: str) -> str:
    """Python marks bytes of the command line that are no UTF-8 with halves of surrogate pairs."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise UsageError("the prompt is not UTF-8.", repair="Put it into a UTF-8 file, or set LANG=C.UTF-8.")
    return text


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise DataError(
            f"byte 0x{data[error.start]:02X} at offset {error.start} is not UTF-8.",
            repair="Convert it, for example from latin1: iconv -f latin1 -t utf8",
            file=name,
            line=data.count(b"\n", 0, error.start) + 1,
        ) from None
