"""Inputs of a language model for the views of `seqwise.lens`. Each answer is a token, given the tokens before it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.data.batch import TokenBatch
from seqwise.data.corpus.store import TokenStore
from seqwise.tasks.inspection import (
    MAX_TOKENS,
    USER_TEXT,
    Answer,
    InspectedInput,
    check_length,
    choose_evenly,
    get_device,
    list_unknown,
    name_tokens,
    report_each,
)
from seqwise.tasks.language.model import LanguageModel
from seqwise.tasks.language.ngram import NGramModel
from seqwise.tasks.language.scoring import get_window
from seqwise.tasks.task import ModelBundle
from seqwise.text.tokenizer import Tokenizer


def inspect_text(bundle: ModelBundle, text: str) -> InspectedInput:
    """Returns a text; its first answer is the most probable token after it."""
    ids = bundle.preprocessor.tokenizer.encode(text).ids
    check_length(len(ids), get_max_length(bundle.model))
    return inspect_ids(bundle, ids, None, text, USER_TEXT)


def inspect_store(
    bundle: ModelBundle, store: TokenStore, description: str, count: int, progress: ProgressCallback = no_progress
) -> list[InspectedInput]:
    """Returns segments of a text, each of the window of the run or of MAX_TOKENS, with the token after it."""
    tokenizer = bundle.preprocessor.tokenizer
    segments = read_segments(store, min(get_window(bundle.settings), MAX_TOKENS) + 1, count, tokenizer)
    examples = []
    for start, ids in report_each(segments, progress):
        example_description = f"tokens {start + 1:,} to {start + len(ids) - 1:,} of {len(store):,} ({description})"
        examples.append(inspect_ids(bundle, ids[:-1], int(ids[-1]), tokenizer.decode(ids[:-1]), example_description))
    return examples


def read_segments(store: TokenStore, length: int, count: int, tokenizer: Tokenizer) -> list[tuple[int, np.ndarray]]:
    """Returns at most `count` segments, evenly spread, with their positions; they begin with a line where they can."""
    length = min(length, len(store))
    line_break = int(tokenizer.encode("\n").ids[-1])
    segments = []
    for start in choose_evenly(len(store) - length + 1, count):
        breaks = np.flatnonzero(store.read(start, length) == line_break)
        if len(breaks) and start + breaks[0] + 1 + length <= len(store):
            start += int(breaks[0]) + 1
        segments.append((start, store.read(start, length).astype(np.int64)))
    return segments


def inspect_ids(
    bundle: ModelBundle, ids: np.ndarray, following: int | None, text: str, description: str
) -> InspectedInput:
    """Returns token ids (T,); `following` is the token after them if it is known, else the model predicts it."""
    model, tokenizer = bundle.model, bundle.preprocessor.tokenizer
    inputs = torch.from_numpy(np.asarray(ids, dtype=np.int64))[None].to(get_device(model))
    with torch.no_grad():
        best = compute_log_probabilities(model, inputs).argmax(-1)  # (T,)
    last = int(best[-1]) if following is None else following
    targets = torch.cat([inputs[0, 1:], inputs.new_tensor([last])])
    mask = None
    if following is None:  # the token after the text is not known, and so has no loss
        mask = torch.ones_like(inputs, dtype=torch.bool)
        mask[0, -1] = False
    # Of the segments of a corpus only the ids are stored, not the words outside the vocabulary.
    tokens = name_tokens(tokenizer, ids, list_unknown(tokenizer, text) if following is None else ())
    names = [*tokens[1:], *name_tokens(tokenizer, [last])]

    def build_answer(position: int, name: str) -> Answer:
        is_known = following is not None or position < len(ids) - 1
        return Answer(
            f"{name}: {names[position]}",
            partial(score_token, ids=inputs[:, : position + 1], token=int(targets[position])),
            position,
            is_correct=bool(best[position] == targets[position]) if is_known else None,
        )

    answers = [build_answer(position, f"token {position + 2}") for position in range(len(ids) - 1)]
    return InspectedInput(
        description,
        text,
        TokenBatch(inputs, targets[None], mask),
        tokens,
        targets=names,
        answers=[build_answer(len(ids) - 1, "next token"), *answers],
    )


def compute_log_probabilities(model: Any, ids: Tensor) -> Tensor:
    """Returns the log-probabilities (T, V) of the token after each of ids (1, T)."""
    if isinstance(model, NGramModel):
        return torch.cat([model.next(ids[:, : stop + 1])[0] for stop in range(ids.shape[1])])
    return model.head(model.backbone(model.embedding(ids)).vectors[0])


def score_token(model: LanguageModel | NGramModel, ids: Tensor, token: int) -> Tensor:
    """Returns the log-probability of a token after ids (1, T)."""
    return model.next(ids)[0][0, token]


def get_max_length(model: Any) -> int | None:
    """Returns the number of tokens that a model can read at once; None if it is not limited."""
    return None if isinstance(model, NGramModel) or model.stateful else getattr(model.backbone, "window", None)
