"""Predictions of masked tokens per block of the text: the same blocks for models with windows of any length.

Which tokens are masked does not depend on the window either (`tasks/masked/masking.py`). The module knows nothing of
how a model predicts.
"""

from __future__ import annotations

import numpy as np

from seqwise.data.corpus.store import TokenStore
from seqwise.metrics.evaluation import BLOCK_TOKENS, ExampleScores, ExampleText
from seqwise.tasks.language.blocks import UNIT, create_block_sums
from seqwise.tasks.masked.filling import MASK, format_token
from seqwise.tasks.masked.masking import MaskedBatch
from seqwise.tasks.masked.model import MaskedScores
from seqwise.text.tokenizer import Tokenizer


class BlockPredictions:
    """Position, nats and most probable token of every masked token, added batch by batch in the order of the text."""

    def __init__(self) -> None:
        self.positions: list[np.ndarray] = []
        self.nats: list[np.ndarray] = []
        self.predictions: list[np.ndarray] = []

    def add(self, batch: MaskedBatch, scores: MaskedScores) -> None:
        """Adds a batch and its scores: both have the targets row by row."""
        assert batch.positions is not None
        rows, columns = batch.target_mask.cpu().nonzero(as_tuple=True)
        self.positions.append((batch.positions[rows] + columns).numpy())
        self.nats.append(scores.losses.double().cpu().numpy())
        self.predictions.append(scores.predictions.cpu().numpy())

    def examples(self, store: TokenStore, tokenizer: Tokenizer) -> ExampleScores:
        """Returns the blocks that contain a masked token."""
        positions, predictions = np.concatenate(self.positions), np.concatenate(self.predictions)
        blocks = create_block_sums(store)
        blocks.add(positions // BLOCK_TOKENS, np.concatenate(self.nats))
        rows = np.flatnonzero(blocks.sums[:, 1])
        borders = np.searchsorted(positions, [(row * BLOCK_TOKENS, (row + 1) * BLOCK_TOKENS) for row in rows])
        texts = [
            _format_block(store, tokenizer, int(row) * BLOCK_TOKENS, positions[first:last], predictions[first:last])
            for row, (first, last) in zip(rows, borders)
        ]
        return ExampleScores("perplexity", UNIT, blocks.sums[rows], tuple(texts))


def _format_block(
    store: TokenStore, tokenizer: Tokenizer, start: int, positions: np.ndarray, predictions: np.ndarray
) -> ExampleText:
    """Returns the text with [MASK] at the positions, the true tokens there, and the predicted ones."""
    ids = store.read(start, min(BLOCK_TOKENS, len(store) - start)).astype(np.int64)
    targets = ids[positions - start]
    ids[positions - start] = tokenizer.id(MASK)
    texts = (" | ".join(format_token(tokenizer, int(token)) for token in tokens) for tokens in (targets, predictions))
    return ExampleText.multi_line(tokenizer.decode(ids).replace(MASK, "[MASK]"), *texts)
