"""Inputs of a masked model for the views of `seqwise.lens`. Each answer is a token predicted for a mask."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.data.corpus.store import TokenStore
from seqwise.tasks.inspection import (
    MAX_TOKENS,
    USER_TEXT,
    Answer,
    InspectedInput,
    check_length,
    get_device,
    name_tokens,
    report_each,
)
from seqwise.tasks.language.inspection import read_segments
from seqwise.tasks.masked.filling import MASK, encode_masked_text, exclude_tokens
from seqwise.tasks.masked.masking import EVALUATION_KEY, MaskedBatch, MaskSampler
from seqwise.tasks.masked.model import BidirectionalLanguageModel, Model, get_window
from seqwise.tasks.task import ModelBundle


def inspect_text(bundle: ModelBundle, text: str) -> InspectedInput:
    """Returns a text with [MASK], and a line break at both ends."""
    masked = encode_masked_text(bundle.preprocessor.tokenizer, text)
    check_length(len(masked.ids), get_window(bundle.settings))
    return inspect_ids(bundle, masked.ids, masked.positions, None, text, USER_TEXT, masked.unknown)


def inspect_store(
    bundle: ModelBundle,
    store: TokenStore,
    description: str,
    count: int,
    sampler: MaskSampler,
    progress: ProgressCallback = no_progress,
) -> list[InspectedInput]:
    """Returns segments of a text with the masks of an evaluation; here all of them are <mask>."""
    tokenizer, examples = bundle.preprocessor.tokenizer, []
    segments = read_segments(store, min(get_window(bundle.settings), MAX_TOKENS), count, tokenizer)
    for start, ids in report_each(segments, progress):
        _, is_target = sampler.sample(ids[None], np.array([start]), EVALUATION_KEY, EVALUATION_KEY)
        positions = np.flatnonzero(is_target[0]).tolist()
        if not positions:  # only unknown tokens, which are never masked
            continue
        inputs = np.where(is_target[0], tokenizer.id(MASK), ids)
        text = tokenizer.decode(inputs).replace(MASK, "[MASK]")
        example_description = f"tokens {start + 1:,} to {start + len(ids):,} of {len(store):,} ({description})"
        examples.append(inspect_ids(bundle, inputs, positions, ids, text, example_description))
    return examples


def inspect_ids(
    bundle: ModelBundle,
    ids: np.ndarray,
    positions: list[int],
    true: np.ndarray | None,
    text: str,
    description: str,
    unknown: Sequence[str] = (),
) -> InspectedInput:
    """Returns token ids (T,) with masks at some positions; `true` (T,) are the tokens under them, if known.

    `unknown` are the words of the unknown tokens.
    """
    model, tokenizer = bundle.model, bundle.preprocessor.tokenizer
    inputs = torch.from_numpy(np.asarray(ids, dtype=np.int64))[None].to(get_device(model))
    with torch.no_grad():
        best = exclude_tokens(tokenizer, compute_scores(model, inputs, positions)).argmax(-1)  # (masks,)
    targets = inputs.clone()
    targets[0, positions] = best if true is None else torch.from_numpy(true)[positions].to(inputs.device)
    is_target = torch.zeros_like(inputs, dtype=torch.bool)
    is_target[0, positions] = True
    batch = MaskedBatch(inputs, targets, is_target, bidirectional=isinstance(model, BidirectionalLanguageModel))
    answers = [
        Answer(
            f"[MASK] {number}: {name}",
            partial(score_mask, ids=inputs, positions=positions, index=number - 1, token=int(token)),
            position,
            is_correct=None if true is None else bool(token == true[position]),
        )
        for number, (position, token, name) in enumerate(zip(positions, best, name_tokens(tokenizer, best)), start=1)
    ]
    names = name_tokens(tokenizer, targets[0], unknown)
    tokens = name_tokens(tokenizer, ids, unknown)
    return InspectedInput(description, text, batch, tokens, targets=names, answers=answers)


def compute_scores(model: Model, ids: Tensor, positions: list[int]) -> Tensor:
    """Returns the log-probabilities (N, V) of the tokens at N positions of ids (1, T)."""
    columns = torch.tensor(positions, device=ids.device)
    return model.scores(model.states(ids), torch.zeros_like(columns), columns)


def score_mask(model: Model, ids: Tensor, positions: list[int], index: int, token: int) -> Tensor:
    """Returns the log-probability of a token at a mask, while all masks stay masked."""
    return compute_scores(model, ids, positions)[index, token]
