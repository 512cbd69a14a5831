"""A scored text, block by block: what models that read it in windows, rows or streams are compared on.

A block is `BLOCK_TOKENS` tokens of the text, from its beginning on, whatever the model reads at once. It knows nothing
of models.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from seqwise.data.batch import TokenBatch
from seqwise.data.corpus.store import TokenStore
from seqwise.metrics.example_scores import BLOCK_TOKENS, ExampleScores, ExampleText, ScoreSums
from seqwise.text.tokenizer import Tokenizer

BEFORE = 32  # tokens before a block that are shown with it
UNIT = f"blocks of {BLOCK_TOKENS} tokens"


def blocks_of(store: TokenStore) -> ScoreSums:
    """Nats and tokens of each block, nothing added yet."""
    return ScoreSums(-(-len(store) // BLOCK_TOKENS))


def add_losses(blocks: ScoreSums, batch: TokenBatch, losses: Tensor) -> None:
    """The losses (B, T) of a batch's targets; each stands one place behind its input."""
    assert batch.positions is not None
    places = batch.positions.numpy()[:, None] + 1 + np.arange(losses.shape[1])
    nats = losses.detach().double().cpu().numpy()
    counts = np.ones_like(places, dtype=bool) if batch.mask is None else batch.mask.cpu().numpy()
    blocks.add(places[counts] // BLOCK_TOKENS, nats[counts])


def examples_of(blocks: ScoreSums, store: TokenStore, tokenizer: Tokenizer) -> ExampleScores:
    """The blocks that hold a scored token, each with its text and the end of what comes before it."""
    rows = np.flatnonzero(blocks.sums[:, 1])
    shown = (ExampleText.multi_line(*_texts(store, tokenizer, int(row) * BLOCK_TOKENS)) for row in rows)
    return ExampleScores("perplexity", UNIT, blocks.sums[rows], tuple(shown))


def _texts(store: TokenStore, tokenizer: Tokenizer, start: int) -> tuple[str, str]:
    begin, stop = max(0, start - BEFORE), min(len(store), start + BLOCK_TOKENS)
    ids = store.read(begin, stop - begin)
    return tokenizer.decode(ids[: start - begin]), tokenizer.decode(ids[start - begin :])
