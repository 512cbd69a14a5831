"""Scores per block of a text: comparable between models that read it in windows, rows or streams.

A block is `BLOCK_TOKENS` consecutive tokens, counted from the beginning of the text, whatever the model reads at once.
The module knows nothing of models.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from seqwise.data.batch import TokenBatch
from seqwise.data.corpus.store import TokenStore
from seqwise.metrics.evaluation import BLOCK_TOKENS, ExampleScores, ExampleText, ScoreSums
from seqwise.text.tokenizer import Tokenizer

CONTEXT_TOKENS = 32  # tokens before a block that are displayed with it
UNIT = f"blocks of {BLOCK_TOKENS} tokens"


def create_block_sums(store: TokenStore) -> ScoreSums:
    """Returns empty sums of nats and tokens, one row for each block."""
    return ScoreSums(-(-len(store) // BLOCK_TOKENS))


def add_losses(blocks: ScoreSums, batch: TokenBatch, losses: Tensor) -> None:
    """Adds the losses (B, T) of a batch's targets to their blocks; a target is one position after its input."""
    assert batch.positions is not None
    positions = batch.positions.numpy()[:, None] + 1 + np.arange(losses.shape[1])
    nats = losses.detach().double().cpu().numpy()
    mask = np.ones_like(positions, dtype=bool) if batch.mask is None else batch.mask.cpu().numpy()
    blocks.add(positions[mask] // BLOCK_TOKENS, nats[mask])


def build_block_examples(blocks: ScoreSums, store: TokenStore, tokenizer: Tokenizer) -> ExampleScores:
    """Returns the blocks that contain a scored token, each with its text and the tokens before it."""
    rows = np.flatnonzero(blocks.sums[:, 1])
    texts = (ExampleText.multi_line(*_decode_block(store, tokenizer, int(row) * BLOCK_TOKENS)) for row in rows)
    return ExampleScores("perplexity", UNIT, blocks.sums[rows], tuple(texts))


def _decode_block(store: TokenStore, tokenizer: Tokenizer, start: int) -> tuple[str, str]:
    """Returns the text before the block that begins at token `start`, and the text of the block."""
    context_start, stop = max(0, start - CONTEXT_TOKENS), min(len(store), start + BLOCK_TOKENS)
    ids = store.read(context_start, stop - context_start)
    return tokenizer.decode(ids[: start - context_start]), tokenizer.decode(ids[start - context_start :])
