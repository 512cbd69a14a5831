"""What was filled in, block by block of the text: the same blocks for models with windows of any length.

Which tokens are hidden does not depend on the window either (`tasks/masked/masking.py`). It knows nothing of models.
"""

from __future__ import annotations

import numpy as np

from seqwise.data.corpus.store import TokenStore
from seqwise.metrics.example_scores import BLOCK_TOKENS, ExampleScores, ExampleText
from seqwise.tasks.language.blocks import UNIT, blocks_of
from seqwise.tasks.masked.filling import MASK, spelling
from seqwise.tasks.masked.masking import MaskedBatch
from seqwise.tasks.masked.model import Filled
from seqwise.text.tokenizer import Tokenizer


class Fillings:
    """Place, nats and first choice of every hidden token, batch by batch in the order of the text."""

    def __init__(self) -> None:
        self.places: list[np.ndarray] = []
        self.nats: list[np.ndarray] = []
        self.best: list[np.ndarray] = []

    def add(self, batch: MaskedBatch, filled: Filled) -> None:
        """A batch, and what `judge` made of it: both have the chosen tokens row by row."""
        assert batch.positions is not None
        rows, columns = batch.chosen.cpu().nonzero(as_tuple=True)
        self.places.append((batch.positions[rows] + columns).numpy())
        self.nats.append(filled.losses.double().cpu().numpy())
        self.best.append(filled.best.cpu().numpy())

    def examples(self, store: TokenStore, tokenizer: Tokenizer) -> ExampleScores:
        """The blocks in which something was hidden."""
        places, nats, best = (np.concatenate(some) for some in (self.places, self.nats, self.best))
        tally = blocks_of(store)
        tally.add(places // BLOCK_TOKENS, nats)
        rows = np.flatnonzero(tally.sums[:, 1])
        borders = np.searchsorted(places, [(row * BLOCK_TOKENS, (row + 1) * BLOCK_TOKENS) for row in rows])
        shown = [
            _shown(store, tokenizer, int(row) * BLOCK_TOKENS, places[first:last], best[first:last])
            for row, (first, last) in zip(rows, borders)
        ]
        return ExampleScores("perplexity", UNIT, tally.sums[rows], tuple(shown))


def _shown(store: TokenStore, tokenizer: Tokenizer, start: int, places: np.ndarray, best: np.ndarray) -> ExampleText:
    """The text with its hidden places; what stood there, and what was filled in, in their order."""
    ids = store.read(start, min(BLOCK_TOKENS, len(store) - start)).astype(np.int64)
    true = ids[places - start]
    ids[places - start] = tokenizer.id(MASK)
    texts = (" | ".join(spelling(tokenizer, int(number)) for number in numbers) for numbers in (true, best))
    return ExampleText.multi_line(tokenizer.decode(ids).replace(MASK, "[MASK]"), *texts)
