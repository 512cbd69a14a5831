"""The statistical baseline: an n-gram language model with interpolated Kneser–Ney smoothing, in numpy.

With h the history, h' the history without its oldest token, and c the count of its order:

    p(w | h) = max(c(hw) − D(c(hw)), 0) / c(h·)  +  λ(h) p(w | h')
    λ(h)     = (D₁ N₁(h·) + D₂ N₂(h·) + D₃ N₃₊(h·)) / c(h·)          N_i(h·): words seen i times after h
    Y = n₁ / (n₁ + 2 n₂)    D₁ = 1 − 2Y n₂/n₁    D₂ = 2 − 3Y n₃/n₂    D₃ = 3 − 4Y n₄/n₃

S. F. Chen, J. Goodman, "An empirical study of smoothing techniques for language modeling", Computer Speech and
Language 13 (1999) 359–394 (modified Kneser–Ney; n_i: n-grams of that order with count i). On the Penn
Treebank, order 5, the test perplexity is 141.2, as T. Mikolov et al., Interspeech 2011, report; 143.5 with one discount
D = Y for all counts (R. Kneser, H. Ney, ICASSP 1995).

The longest n-grams have their number of occurrences as c. Shorter ones have the number of different tokens seen before
them (the continuation count), and an n-gram that begins where history begins, with no token before it, counts each such
occurrence. The lowest order is interpolated with the uniform distribution 1/V, so every token has a probability.

Each order is one sorted array of keys, `id of the context × V + token`, where the id of a context is its index in the
array of the order below. So a lookup is a binary search, and the tokens after one context are contiguous.

`NGram` is that model: ids in, probabilities out. `NGramModel` gives it the interface of a neural language model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seqwise import environment
from seqwise.backbones.states import ModelState
from seqwise.data.corpus.store import TokenStore
from seqwise.errors import RunError, UsageError
from seqwise.metrics.evaluation import BLOCK_TOKENS, ScoreSums

MAX_ORDER = 16
CHUNK_TOKENS = 1_000_000  # tokens scored at once, which bounds the memory of temporary arrays
SETTING_PREFIX = "setting."  # prefix of the plain numbers among the saved tensors
# Where a text is too small or too regular to estimate discounts: half the count that is discounted. Never 0, or tokens
# not seen in training would have no probability at all.
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Table = tuple[Integers, NDArray]  # keys and counts of one order


@dataclass(frozen=True)
class Level:
    """All n-grams of one order. Order 1 holds every token of the vocabulary, so its ids are the tokens."""

    keys: Integers  # sorted: id of the context × V + token
    counts: NDArray
    share: Floats  # (c − D) / c(h·), the n-gram's own part of its probability
    discounts: tuple[float, float, float]  # D₁, D₂, D₃

    def find(self, context: Integers, tokens: Integers, vocabulary: int) -> Integers:
        """Returns the ids of the n-grams `context token`; −1 where the context is −1 or the n-gram was never seen."""
        if not len(self.keys):
            return np.full(len(tokens), -1, np.int64)
        keys = context * vocabulary + tokens  # negative, so never found, where the context is −1
        indices = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[indices] == keys, indices, -1)


class NGram:
    """An n-gram model. Create one with `NGram.count` or `NGram.from_tensors`.

    With `end`, a line is a sentence: the history ends at the last `end` token, which serves as the start symbol of the
    next line, and every stream begins at the start of a line. Without it the stream is one long line.
    """

    def __init__(self, tables: Iterable[Table], vocabulary: int, end: int | None):
        self.vocabulary, self.end = vocabulary, end
        self.levels: list[Level] = []
        self.interpolation_weights: list[Floats] = []  # λ(h) for each n-gram h of the order below, by its id
        num_contexts = 1  # the empty history
        for keys, counts in tables:
            level, interpolation_weights = _smooth(keys, counts, num_contexts, vocabulary)
            self.levels.append(level)
            self.interpolation_weights.append(interpolation_weights)
            num_contexts = len(keys)
        self.order = len(self.levels)

    @classmethod
    def count(
        cls, ids: np.ndarray | Iterable[np.ndarray], vocabulary: int, order: int = 5, end: int | None = None
    ) -> NGram:
        """Counts the n-grams of a stream, an array or consecutive pieces; `memory_bound` returns the memory needed."""
        if not 1 <= order <= MAX_ORDER:
            problem = f"expected an n-gram order from 1 to {MAX_ORDER}, received {order}."
            raise UsageError(problem, repair="Set --context.length.")
        stream = _build_stream(ids, vocabulary, end)
        return cls(_count_ngrams(stream, vocabulary, order, end), vocabulary, end)

    def score_tokens(self, ids: np.ndarray | Iterable[np.ndarray]) -> Floats:
        """Returns log p(ids[t] | up to order − 1 tokens before t), for every t."""
        stream = _build_stream(ids, self.vocabulary, self.end)
        result = self.levels[0].share[stream] + self.interpolation_weights[0][0] / self.vocabulary
        for k, context, ngram_ids in self._iterate_orders(stream):
            has_context, has_ngram = context >= 0, ngram_ids >= 0
            result[has_context] *= self.interpolation_weights[k][context[has_context]]
            result[has_ngram] += self.levels[k].share[ngram_ids[has_ngram]]
        return np.log(result[int(self.end is not None) :])

    def distribution(self, history: np.ndarray | Sequence[int]) -> Floats:
        """Returns p(· | history) over the whole vocabulary, (V,)."""
        recent = np.asarray(history, np.int64)[max(0, len(history) - self.order + 1) :]
        stream = _build_stream(recent, self.vocabulary, self.end, may_be_empty=True)
        result = self.levels[0].share + self.interpolation_weights[0][0] / self.vocabulary
        # With any token appended, the last context of each order is that of the history.
        for k, context, _ in self._iterate_orders(np.append(stream, 0)):
            if (h := context[-1]) < 0:
                break
            level = self.levels[k]
            start, stop = np.searchsorted(level.keys, [h * self.vocabulary, (h + 1) * self.vocabulary])
            result *= self.interpolation_weights[k][h]
            result[level.keys[start:stop] - h * self.vocabulary] += level.share[start:stop]
        return result

    def describe(self) -> str:
        """Returns order, smoothing and size in words."""
        sizes = [int(np.count_nonzero(level.counts)) for level in self.levels]
        arrays = [array for level in self.levels for array in (level.keys, level.counts, level.share)]
        memory = sum(array.nbytes for array in (*arrays, *self.interpolation_weights))
        return (
            f"{self.order}-gram, interpolated modified Kneser–Ney, vocabulary {self.vocabulary:,}, "
            f"{sum(sizes):,} n-grams (by order: {', '.join(f'{size:,}' for size in sizes)}), {memory / 1e6:.0f} MB"
        )

    def tensors(self) -> dict[str, np.ndarray]:
        """Returns the counts, from which the probabilities are computed, and the numbers that belong to them."""
        end = -1 if self.end is None else self.end
        settings = {"vocabulary": self.vocabulary, "order": self.order, "end": end, "discounts": 3}
        tensors = {f"{SETTING_PREFIX}{name}": np.array(value) for name, value in settings.items()}
        for k, level in enumerate(self.levels, start=1):
            tensors[f"counts.{k}"] = level.counts
            if k > 1:
                tensors[f"keys.{k}"] = level.keys
        return tensors

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, np.ndarray]) -> NGram:
        """Returns the model whose `tensors()` these are."""
        vocabulary, order, end = (int(tensors[f"{SETTING_PREFIX}{name}"]) for name in ("vocabulary", "order", "end"))
        tables: list[Table] = []
        for k in range(1, order + 1):
            counts = tensors.get(f"counts.{k}")
            keys = np.arange(vocabulary, dtype=np.int64) if k == 1 else tensors.get(f"keys.{k}")
            if counts is None or keys is None or len(counts) != len(keys):
                raise RunError(f"the n-gram model lacks counts of order {k}.", repair="Train it again.")
            tables.append((keys, counts))
        return cls(tables, vocabulary, None if end < 0 else end)

    def _iterate_orders(self, stream: Integers) -> Iterator[tuple[int, Integers, Integers]]:
        """Yields for each order above 1 its index, and per position the ids of the context and of the n-gram, or −1."""
        ngram_ids = stream
        for k in range(1, self.order):
            context = _find_contexts(ngram_ids, stream, k, self.end)
            ngram_ids = self.levels[k].find(context, stream, self.vocabulary)
            yield k, context, ngram_ids


class NGramModel(nn.Module):
    """Counts that predict the next token. It has no parameters; `fit` or `load_tensors` gives it its counts."""

    finish_reason = "all n-grams are counted"

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
        return {name: torch.from_numpy(array) for name, array in self.ngram.tensors().items()}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores what `get_tensors` returned."""
        self._ngram = NGram.from_tensors({name: tensor.numpy() for name, tensor in tensors.items()})

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


def memory_bound(tokens: int, vocabulary: int, order: int) -> int:
    """Returns the maximum memory of counting in bytes, without the ids; reached if no n-gram occurs twice.

    An n-gram takes 28 bytes (key, count, share, λ), the work on one order 64 bytes per token (measured).
    """
    return 28 * (vocabulary + tokens * (order - 1)) + 64 * (vocabulary + tokens)


def check_counting(tokens: int, vocabulary: int, order: int) -> None:
    """Rejects counting that may exceed the memory: the system would kill the process without a message."""
    needed, free = 8 * tokens + memory_bound(tokens, vocabulary, order), environment.memory()[1]
    if free is not None and needed > free:
        raise UsageError(
            f"counting {order}-grams of {tokens:,} tokens can take {needed / 1e9:,.1f} GB; "
            f"{free / 1e9:,.1f} GB of memory are free.",
            repair="Choose a smaller --context.length, or a part of the text.",
        )


def _count_ngrams(stream: Integers, vocabulary: int, order: int, end: int | None) -> Iterator[Table]:
    """Yields keys and counts of each order, the lowest first, as soon as the next order is counted."""
    first = int(end is not None)  # the start symbol in front is never predicted
    keys, ngram_ids = np.arange(vocabulary, dtype=np.int64), stream
    occurrences = np.bincount(stream[first:], minlength=vocabulary)
    for length in range(1, order):
        context = _find_contexts(ngram_ids, stream, length, end)
        has_context = context >= 0
        longer_keys = context[has_context] * vocabulary + stream[has_context]
        unique_keys, occurrences = np.unique(longer_keys, return_counts=True)
        occurrences = _to_int32(occurrences)
        indices = np.searchsorted(unique_keys, longer_keys)
        del longer_keys, context
        suffix_ids = np.empty(len(unique_keys), np.int64)
        # Each longer n-gram without its oldest token has one continuation more.
        suffix_ids[indices] = ngram_ids[has_context]
        without_context = ~has_context & (ngram_ids >= 0)
        without_context[:first] = False
        counts = np.bincount(suffix_ids, minlength=len(keys))
        counts += np.bincount(ngram_ids[without_context], minlength=len(keys))
        del suffix_ids, without_context
        yield keys, _to_int32(counts)
        del counts
        keys = unique_keys
        ngram_ids = np.full(len(stream), -1, np.int64)
        ngram_ids[has_context] = indices
    yield keys, _to_int32(occurrences)


def _to_int32(counts: NDArray) -> NDArray:
    """Returns the counts as int32 where they fit."""
    return counts.astype(np.int32, copy=False) if counts.max(initial=0) < 2**31 else counts


def _find_contexts(ngram_ids: Integers, stream: Integers, length: int, end: int | None) -> Integers:
    """Returns the id of the `length` tokens before each position; −1 where the history is shorter or unseen."""
    context = np.full(len(ngram_ids), -1, np.int64)
    context[1:] = ngram_ids[:-1]
    if end is not None and length > 1:
        context[1:][stream[:-1] == end] = -1
    return context


def _smooth(keys: Integers, counts: NDArray, num_contexts: int, vocabulary: int) -> tuple[Level, Floats]:
    """Returns one order with the shares of its n-grams, and λ of each context, the weight of the order below."""
    context = keys // vocabulary
    d = _estimate_discounts(counts)
    discount = np.array([0.0, *d])[np.minimum(counts, 3)]
    total = np.bincount(context, counts, minlength=num_contexts)
    share = (counts - discount) / np.maximum(total, 1)[context]
    # After an unseen context the order below has weight 1.
    interpolation_weights = np.where(
        total > 0, np.bincount(context, discount, minlength=num_contexts) / np.maximum(total, 1), 1.0
    )
    return Level(keys, counts, share, d), interpolation_weights


def _estimate_discounts(counts: NDArray) -> tuple[float, float, float]:
    """Returns D₁, D₂, D₃ from the numbers of n-grams seen once, twice, three and four times."""
    n1, n2, n3, n4 = (int(np.count_nonzero(counts == i)) for i in (1, 2, 3, 4))
    if min(n1, n2, n3, n4) == 0:
        return FALLBACK_DISCOUNTS
    y = n1 / (n1 + 2 * n2)
    d = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return d if min(d) > 0 else FALLBACK_DISCOUNTS


def _build_stream(
    ids: np.ndarray | Iterable[np.ndarray], vocabulary: int, end: int | None, may_be_empty: bool = False
) -> Integers:
    """Returns the ids as one validated array, with the start symbol before it where there is an `end`."""
    pieces = [ids] if isinstance(ids, np.ndarray) else [np.atleast_1d(np.asarray(piece)) for piece in ids]
    start = [] if end is None else [np.array([end], np.int64)]
    stream = np.concatenate([*start, np.empty(0, np.int64), *pieces], dtype=np.int64, casting="same_kind")
    if len(stream) == len(start) and not may_be_empty:
        raise UsageError("expected at least one token, received none.", repair="Give a text that is not empty.")
    if len(stream) and not (stream.min() >= 0 and stream.max() < vocabulary):
        raise UsageError(
            f"expected ids from 0 to {vocabulary - 1}, received {stream.min()} to {stream.max()}.",
            repair="Encode the text with the tokeniser the model was trained with.",
        )
    return stream
