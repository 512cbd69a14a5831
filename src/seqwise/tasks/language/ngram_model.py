"""`NGramModel`: the n-gram language model as a module that fits itself by counting (`seqwise.ngram`)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from seqwise import environment
from seqwise.backbones.states import ModelState
from seqwise.data.corpus.store import TokenStore
from seqwise.errors import RunError, UsageError
from seqwise.metrics.evaluation import BLOCK_TOKENS, ScoreSums
from seqwise.ngram import NGram, memory_bound

CHUNK_TOKENS = 1_000_000  # tokens scored at once
SETTING_PREFIX = "setting."  # prefix of the plain numbers among the saved tensors


class NGramModel(nn.Module):
    """Counts that predict the next token. It has no parameters; `fit` or `load_tensors` gives it its counts."""

    finished = "all n-grams are counted"  # why its training ended

    def __init__(self, order: int, vocabulary: int):
        super().__init__()
        self.order, self.vocabulary = order, vocabulary
        self._ngram: NGram | None = None

    @property
    def ngram(self) -> NGram:
        if self._ngram is None:
            raise RunError("the n-gram model has no counts.", repair="Train it first.")
        return self._ngram

    def fit(self, store: TokenStore, end: int | None) -> None:
        """Counts the n-grams of a text; `end` is the token that ends a line, where lines matter."""
        check_counting(len(store), self.vocabulary, self.order)
        self._ngram = NGram.count(store.read(0, len(store)), self.vocabulary, self.order, end)

    def get_tensors(self) -> dict[str, Tensor]:
        """Returns the counts, and the plain numbers that belong to them, for saving."""
        tensors = {name: torch.from_numpy(array) for name, array in self.ngram.tensors().items()}
        return tensors | {
            f"{SETTING_PREFIX}{name}": torch.tensor(value) for name, value in self.ngram.settings().items()
        }

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores what `get_tensors` returned."""
        arrays, settings = {}, {}
        for name, tensor in tensors.items():
            if name.startswith(SETTING_PREFIX):
                settings[name.removeprefix(SETTING_PREFIX)] = int(tensor)
            else:
                arrays[name] = tensor.numpy()
        self._ngram = NGram.from_tensors(arrays, settings)

    def score(self, store: TokenStore, blocks: ScoreSums | None = None) -> tuple[float, int]:
        """Returns the summed negative log likelihood of a text after its first token, and the number of tokens."""
        nats, context = 0.0, self.ngram.order - 1
        for start in range(1, len(store), CHUNK_TOKENS):
            first = max(0, start - context)
            ids = store.read(first, min(len(store), start + CHUNK_TOKENS) - first)
            log_probabilities = self.ngram.score_tokens(ids)[start - first :]
            nats -= float(log_probabilities.sum())
            if blocks is not None:
                blocks.add((start + np.arange(len(log_probabilities))) // BLOCK_TOKENS, -log_probabilities)
        return nats, len(store) - 1

    def next(self, ids: Tensor, state: ModelState = None) -> tuple[Tensor, ModelState]:
        """Reads ids (B, T); returns log-probabilities (B, V) of the next token, and the history as the state."""
        history = ids.cpu() if state is None else torch.cat([state, ids.cpu()], dim=1)
        history = history[:, -max(1, self.ngram.order - 1) :]
        scores = np.stack([np.log(self.ngram.distribution(row.numpy())) for row in history])
        return torch.from_numpy(scores), history

    def describe(self) -> str:
        """Returns order, smoothing and size in words."""
        return self.ngram.describe()


def check_counting(tokens: int, vocabulary: int, order: int) -> None:
    """Rejects counting that may exceed the memory: the system would kill the process without a message."""
    needed, free = 8 * tokens + memory_bound(tokens, vocabulary, order), environment.memory()[1]
    if free is not None and needed > free:
        raise UsageError(
            f"counting {order}-grams of {tokens:,} tokens can take {needed / 1e9:,.1f} GB; "
            f"{free / 1e9:,.1f} GB of memory are free.",
            repair="Choose a smaller --context.length, or a part of the text.",
        )
