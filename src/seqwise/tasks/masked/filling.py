"""Fills `[MASK]` in texts with the most probable tokens, and collects the predictions of an evaluation by blocks.

Each mask of a text is predicted on its own, while the others stay masked. The blocks of a text, and the tokens that are
masked in them (`masking.py`), do not depend on the window of the model: all models are scored on the same tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqwise.data.batch import pad_sequences
from seqwise.data.corpus.store import TokenStore
from seqwise.errors import UsageError
from seqwise.metrics.evaluation import BLOCK_TOKENS, ExampleScores, ExampleText, ScoreSums
from seqwise.tasks.language.scoring import BLOCK_UNIT, create_block_sums
from seqwise.tasks.masked.model import Model
from seqwise.tasks.task import Prediction
from seqwise.text.tokenizer import Tokenizer

PAD, MASK = "<pad>", "<mask>"
BATCH_SIZE = 32  # masks that are predicted together
CONTINUATION_PREFIX = "##"  # of a wordpiece token that continues a word

_MASK_PATTERN = re.compile(r"\[MASK\]|<mask>")


@dataclass
class MaskedText:
    """A text with masks, and the predictions for them."""

    text: str
    parts: list[str]  # the texts before, between and after the masks
    ids: np.ndarray  # of the whole text, with a line break at both ends
    positions: list[int]  # of the masks in `ids`
    unknown: list[str]  # words outside the vocabulary
    predictions: list[list[tuple[int, float]]] = field(default_factory=list)  # id and probability, for each mask


def fill_masks(model: Model, tokenizer: Tokenizer, texts: Sequence[str], window: int, top: int) -> Iterator[Prediction]:
    """Yields one prediction per text, in their order; the model reads `window` tokens around a mask."""
    if top < 1:
        raise UsageError(f"expected at least one prediction to show; received {top}.", fix="Set --top to 5.")
    model.eval()
    for text in texts:
        masked = encode_masked_text(tokenizer, text)
        positions = iter(masked.positions)
        while chunk := list(islice(positions, BATCH_SIZE)):
            masked.predictions += _predict_positions(model, tokenizer, masked.ids, chunk, window, top)
        yield _build_prediction(tokenizer, masked)


def encode_masked_text(tokenizer: Tokenizer, text: str) -> MaskedText:
    """Encodes a text, with a line break at both ends, as lines have in the training text."""
    parts = _MASK_PATTERN.split(text)
    if len(parts) == 1:
        raise UsageError(
            f"there is nothing to fill in: expected [MASK] in the text, received {text[:60]!r}.",
            fix="Put [MASK] in the place of a word: 'the [MASK] sat'",
        )
    if tokenizer.kind == "bpe":  # a token includes the space before it
        parts = [part.removesuffix(" ") for part in parts[:-1]] + parts[-1:]
    line_break = tokenizer.encode("\n").ids
    ids, positions, unknown = [line_break], [], []
    for index, part in enumerate(parts):
        encoding = tokenizer.encode(part)
        ids.append(encoding.ids)
        unknown += [part[start:stop] for start, stop in encoding.offsets[encoding.ids == tokenizer.unknown]]
        if index < len(parts) - 1:
            positions.append(sum(map(len, ids)))
            ids.append(np.array([tokenizer.id(MASK)]))
    return MaskedText(text, parts, np.concatenate([*ids, line_break]), positions, unknown)


@torch.no_grad()
def _predict_positions(
    model: Model, tokenizer: Tokenizer, ids: np.ndarray, positions: list[int], window: int, top: int
) -> list[list[tuple[int, float]]]:
    """Returns the ids and probabilities of the `top` most probable tokens at each position."""
    starts = [max(0, min(position - window // 2, len(ids) - window)) for position in positions]
    windows = [ids[start : start + window] for start in starts]
    device = model.embedding.weight.device
    lengths = torch.tensor([len(window_ids) for window_ids in windows], device=device)
    states = model.states(torch.from_numpy(pad_sequences(windows)).to(device), lengths)
    columns = torch.tensor([position - start for position, start in zip(positions, starts)], device=device)
    scores = model.scores(states, torch.arange(len(windows), device=device), columns, lengths)
    scores = exclude_tokens(tokenizer, scores)
    best = scores.exp().topk(min(top, int((scores[0] > -torch.inf).sum())))
    return [
        list(zip(tokens, probabilities)) for tokens, probabilities in zip(best.indices.tolist(), best.values.tolist())
    ]


def exclude_tokens(tokenizer: Tokenizer, scores: Tensor) -> Tensor:
    """Returns scores (N, V) with −∞ for tokens that are never predicted: special, unknown, and the line break."""
    excluded_ids = {*range(len(tokenizer.specials)), int(tokenizer.encode("\n").ids[0]), tokenizer.unknown} - {None}
    scores = scores.clone()
    scores[:, sorted(excluded_ids)] = -torch.inf
    return scores


def _build_prediction(tokenizer: Tokenizer, masked: MaskedText) -> Prediction:
    """Returns the text with the best tokens filled in, and the alternatives for each mask."""
    filled = masked.parts[0]
    for candidates, text_after in zip(masked.predictions, masked.parts[1:]):
        word = format_token(tokenizer, candidates[0][0])
        if tokenizer.kind == "wordpiece" and word.startswith(CONTINUATION_PREFIX):
            filled, word = filled.rstrip(" "), word.removeprefix(CONTINUATION_PREFIX)
        filled += word + text_after
    masks: list[list[dict[str, Any]]] = [
        [{"token": format_token(tokenizer, token), "probability": probability} for token, probability in candidates]
        for candidates in masked.predictions
    ]
    lines = [filled]
    for position, alternatives in enumerate(masks, start=1):
        # A token of spaces only is quoted, so that it is visible.
        words = [f"{each['token'].strip() or repr(each['token'])} {each['probability']:.3f}" for each in alternatives]
        name = f"[MASK] {position}" if len(masks) > 1 else "[MASK]"
        lines.append(f"  {name}: {', '.join(words)}")
    if masked.unknown:
        lines.append(f"  the model does not know {', '.join(map(repr, dict.fromkeys(masked.unknown)))}")
    values = {"input": masked.text, "filled": filled, "masks": masks, "unknown": masked.unknown}
    return Prediction("\n".join(lines), values)


def format_token(tokenizer: Tokenizer, token: int) -> str:
    """Returns a token as text; a wordpiece that continues a word keeps its prefix."""
    if tokenizer.kind in ("characters", "bpe"):
        return tokenizer.decode([token])
    return tokenizer.token(token)


# For each batch: positions, nats and most probable tokens of the masks, in the order of the text.
Predictions = Sequence[tuple[Tensor, Tensor, Tensor]]


def sum_blocks(predictions: Predictions, store: TokenStore) -> ScoreSums:
    """Returns the nats and the number of masked tokens of each block of a text."""
    block_sums = create_block_sums(store)
    for positions, nats, _ in predictions:
        block_sums.add(positions.numpy() // BLOCK_TOKENS, nats.numpy())
    return block_sums


def build_block_examples(predictions: Predictions, store: TokenStore, tokenizer: Tokenizer) -> ExampleScores:
    """Returns the blocks of a text that contain a masked token."""
    sums = sum_blocks(predictions, store).sums
    blocks = iterate_block_predictions(predictions, store, tokenizer)
    texts = (ExampleText.multi_line(*block.values()) for block in blocks)
    return ExampleScores("perplexity", BLOCK_UNIT, sums[np.flatnonzero(sums[:, 1])], tuple(texts))


def iterate_block_predictions(
    predictions: Predictions, store: TokenStore, tokenizer: Tokenizer
) -> Iterator[dict[str, str]]:
    """Yields for each block with a masked token its text with [MASK], the true tokens there, and the predicted ones."""
    positions, _, predicted_ids = (torch.cat(tensors).numpy() for tensors in zip(*predictions))
    for block in np.unique(positions // BLOCK_TOKENS):
        start = int(block) * BLOCK_TOKENS
        first_mask, end_mask = np.searchsorted(positions, [start, start + BLOCK_TOKENS])
        ids = store.read(start, min(BLOCK_TOKENS, len(store) - start)).astype(np.int64)
        masked_positions = positions[first_mask:end_mask] - start
        true, predicted = (
            " | ".join(format_token(tokenizer, int(token)) for token in tokens)
            for tokens in (ids[masked_positions], predicted_ids[first_mask:end_mask])
        )
        ids[masked_positions] = tokenizer.id(MASK)
        yield {"input": tokenizer.decode(ids).replace(MASK, "[MASK]"), "expected": true, "predicted": predicted}
