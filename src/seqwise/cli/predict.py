"""`seqwise predict`: let a run continue a text, token by token as it is chosen."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from seqwise.cli import console
from seqwise.cli.options import UNSET, parse
from seqwise.config import MAX_LENGTH, Device
from seqwise.decoding.choice import Choice
from seqwise.errors import DataError, UsageError, nearest_path

if TYPE_CHECKING:
    from seqwise.text.tokenizer import Tokenizer

LONGEST = 10_000  # characters of a prompt
EXAMPLE = "seqwise predict runs/book 'It was' --sample --temperature 0.8 --top-p 0.9 --seed 1"


@dataclass
class Predict:
    """Continue TEXT (or the text in a file, or standard input with -). Samples unless --greedy is given."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    text: Annotated[str, tyro.conf.Positional, UNSET] = ""
    """The beginning: words, a file, or - for standard input."""
    max_length: int = MAX_LENGTH
    """Tokens to write."""
    greedy: bool = Choice.greedy
    """Always take the most likely token."""
    sample: Annotated[bool, UNSET] = False
    """Draw tokens at random, which is what happens anyway without --greedy."""
    temperature: float = Choice.temperature
    """Below 1 sharpens the distribution, above 1 flattens it."""
    top_k: Annotated[int | None, UNSET] = Choice.top_k
    """Draw among the k most likely tokens only."""
    top_p: Annotated[float | None, UNSET] = Choice.top_p
    """Draw among the fewest tokens that together have this probability."""
    repetition_penalty: float = Choice.repetition_penalty
    """Above 1 makes tokens that occurred already less likely."""
    seed: int = 0
    """The same seed writes the same text."""
    device: Device = "auto"
    """Where to compute."""
    json: bool = False
    """Print one JSON document on standard output and nothing else there."""


def main(argv: Sequence[str]) -> int:
    asked = parse(Predict, argv, prog="seqwise predict", example=EXAMPLE)
    if asked.greedy and asked.sample:
        raise UsageError("--greedy and --sample exclude each other.")
    if asked.max_length < 1:
        raise UsageError(f"--max-length must be at least 1; received {asked.max_length}.")
    from seqwise.training.api import load

    choice = Choice(asked.greedy, asked.temperature, asked.top_k, asked.top_p, asked.repetition_penalty)
    prompt = _short(_checked(_read(asked.text)))
    loaded = load(asked.run, asked.device)
    _tell_unknown(loaded.run.tokenizer, prompt)
    pieces = loaded.predict(prompt, choice=choice, seed=asked.seed, max_length=asked.max_length)
    if asked.json:
        console.print_json({"prompt": prompt, "continuation": "".join(pieces), "seed": asked.seed})
        return 0
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
    return 0


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
