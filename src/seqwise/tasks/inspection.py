"""What the views of `seqwise.lens` need of a task: an input as the model reads it, and the answers the model gives.

A task implements `Task.inspect_text` (an input of the user) and `Task.inspect_split` (examples of some data), which
return these types; each task does so in its own `inspection.py`. The module knows nothing of views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqwise.callbacks import ProgressCallback
from seqwise.data.batch import Batch
from seqwise.errors import UsageError
from seqwise.text.tokenizer import Tokenizer

MAX_TOKENS = 64  # of an example of a corpus, which has no end of its own
USER_TEXT = "the text given"
UNKNOWN_MARK = " (unk)"  # after a word that is outside the vocabulary: the model reads <unk>


@dataclass(frozen=True)
class Answer:
    """One thing that the model says about an input, such as a label, the next token, a tag or a value.

    `score(model)` computes it again, as a scalar through which gradients flow: the log-probability of the answer, or
    with `is_value` a predicted number.
    """

    name: str  # such as "label: positive" or "tag of Paris: B-LOC"
    score: Callable[[Any], Tensor]
    position: int | None = None  # of the token or step that it belongs to, if it belongs to one
    is_value: bool = False
    is_correct: bool | None = None  # None: the truth is not known
    label: int | None = None  # of a label of the whole input: its index among all labels


@dataclass(frozen=True)
class InspectedInput:
    """One input of a trained model: `model(batch)` reads it, `tokens` name the positions that it reads."""

    description: str  # which input it is: "the text given", or what `describe_example` returns
    text: str  # as a reader sees it
    batch: Batch  # of one row, on the device of the model
    tokens: Sequence[str]  # one per position of the encoder's or backbone's input; of a series, the times
    outputs: Sequence[str] = ()  # one per position of the decoder's input, for tasks that have a decoder
    targets: Sequence[str] = ()  # what is predicted at each position: next tokens, tags, tokens of the output
    answers: Sequence[Answer] = ()  # the most important first
    features: str = "embedding"  # name of the module whose output (B, T, D) is the vector of each position of `tokens`
    image: np.ndarray | None = None  # (height, width, 3) uint8, for captions
    target: str = ""  # the language of the output, if the run translates into several
    position_name: str = "token"  # what one position of `tokens` is


def get_device(model: Any) -> torch.device:
    """Returns the device of a model's weights; an n-gram model, which has none, is on the CPU."""
    weight = next(model.parameters(), None)
    return torch.device("cpu") if weight is None else weight.device


def name_tokens(tokenizer: Tokenizer, ids: Any, unknown: Iterable[str] = ()) -> list[str]:
    """Returns a readable name of each token; `unknown` are the words of the unknown tokens, in their order."""
    ids, words = [int(token) for token in ids], iter(unknown)
    if tokenizer.kind == "bpe":
        return [tokenizer.decode([token]) for token in ids]
    names = tokenizer.tokens(ids)
    return [
        name if token != tokenizer.unknown or (word := next(words, name)) == name else f"{word}{UNKNOWN_MARK}"
        for token, name in zip(ids, names)
    ]


def list_unknown(tokenizer: Tokenizer, text: str) -> list[str]:
    """Returns the words of a text that are outside the vocabulary, in their order."""
    encoding = tokenizer.encode(text)
    return [text[start:stop] for start, stop in encoding.offsets[encoding.ids == tokenizer.unknown]]


def report_each(items: Sequence[Any], progress: ProgressCallback) -> Iterator[Any]:
    """Yields each item, and reports it when the next one is asked for."""
    for number, item in enumerate(items, start=1):
        yield item
        progress(number, len(items))


def check_length(num_tokens: int, limit: int | None, unit: str = "tokens") -> None:
    """Raises an error for a text without tokens, or with more than the model can read at once."""
    if not num_tokens:
        raise UsageError(f"the text has no {unit}.", fix="Pass a text, or none: then a validation example is chosen.")
    if limit is not None and num_tokens > limit:
        problem = f"the text has {num_tokens:,} {unit}; the model reads at most {limit:,} at once."
        raise UsageError(problem, fix="Pass a shorter text.")


def choose_evenly(total: int, count: int) -> list[int]:
    """Returns at most `count` indices of `total` examples, at equal distances."""
    num_chosen = min(total, max(1, count))
    return [index * total // num_chosen for index in range(num_chosen)]


def describe_example(index: int, total: int, description: str) -> str:
    """Returns which example was chosen, such as "example 12 of 400 (reviews.csv, the valid split)"."""
    return f"example {index + 1:,} of {total:,} ({description})"
