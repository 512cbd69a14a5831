"""The statistical baseline: an n-gram language model with interpolated Kneser–Ney smoothing, in numpy.

With h the history, h' the history without its oldest token, and c the count (defined below):

    p(w | h) = max(c(hw) − D(c(hw)), 0) / c(h·)  +  λ(h) p(w | h')
    λ(h)     = (D₁ N₁(h·) + D₂ N₂(h·) + D₃ N₃₊(h·)) / c(h·)          N_i(h·): words seen i times after h
    Y = n₁ / (n₁ + 2 n₂)    D₁ = 1 − 2Y n₂/n₁    D₂ = 2 − 3Y n₃/n₂    D₃ = 3 − 4Y n₄/n₃

S. F. Chen, J. Goodman, "An empirical study of smoothing techniques for language modeling", Computer Speech and
Language 13 (1999) 359–394 (modified Kneser–Ney; n_i: n-grams of that order with count i). On the Penn
Treebank, order 5, the test perplexity is 141.2, as T. Mikolov et al., Interspeech 2011, report; 143.5 with one discount
D = Y for all counts (R. Kneser, H. Ney, ICASSP 1995).

For n-grams of the highest order c is the number of occurrences. For shorter ones it is the number of distinct tokens
that precede them (the continuation count), plus the occurrences without a preceding token, at the start of a history.
The lowest order is interpolated with the uniform distribution 1/V, so every token has a probability.

Each order is one sorted array of keys, `id of the context × V + token`, where the id of a context is its index in the
array of the order below. So a lookup is a binary search, and the tokens after one context are contiguous.

`NGram` is the model: it maps ids to probabilities. `NGramModel` wraps it in the interface of a neural language model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from seqwise import environment
from seqwise.backbones.states import ModelState
from seqwise.data.batch import TokenBatch
from seqwise.data.corpus.store import TokenStore
from seqwise.errors import RunError, UsageError
from seqwise.losses import Loss, total
from seqwise.metrics.evaluation import BLOCK_TOKENS, ScoreSums

MAX_ORDER = 16
CHUNK_TOKENS = 1_000_000  # tokens scored at once, which bounds the memory of temporary arrays
SETTING_PREFIX = "setting."  # of the names of plain numbers among the saved tensors
# For a text that is too small or too regular to estimate discounts: half of the counts 1, 2 and 3. They must not be 0,
# or unseen tokens would have probability 0.
FALLBACK_DISCOUNTS = (0.5, 1.0, 1.5)

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Table = tuple[Integers, NDArray]  # keys and counts of one order


@dataclass(frozen=True)
class Level:
    """All n-grams of one order. Order 1 contains every token of the vocabulary, so its ids are the token ids."""

    keys: Integers  # sorted: id of the context × V + token
    counts: NDArray
    discounted_probabilities: Floats  # (c − D) / c(h·), the first term of p(w | h)
    discounts: tuple[float, float, float]  # D₁, D₂, D₃

    def find(self, context: Integers, tokens: Integers, vocabulary_size: int) -> Integers:
        """Returns the ids of the n-grams `context token`; −1 where the context is −1 or the n-gram was never seen."""
        if not len(self.keys):
            return np.full(len(tokens), -1, np.int64)
        keys = context * vocabulary_size + tokens  # negative, and so never found, if the context is −1
        indices = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[indices] == keys, indices, -1)


class NGram:
    """An n-gram model. Create one with `NGram.count` or `NGram.from_tensors`.

    With `end_id`, each line is a sentence: a history starts with the last end token, which serves as the start symbol
    of the next line, and every stream begins at the start of a line. Without it the stream is one long line.
    """

    def __init__(self, tables: Iterable[Table], vocabulary_size: int, end_id: int | None):
        self.vocabulary_size, self.end_id = vocabulary_size, end_id
        self.levels: list[Level] = []
        self.interpolation_weights: list[Floats] = []  # λ(h) for each n-gram h of the order below, by its id
        num_contexts = 1  # the empty history
        for keys, counts in tables:
            level, interpolation_weights = _smooth(keys, counts, num_contexts, vocabulary_size)
            self.levels.append(level)
            self.interpolation_weights.append(interpolation_weights)
            num_contexts = len(keys)
        self.order = len(self.levels)

    @classmethod
    def count(
        cls, ids: np.ndarray | Iterable[np.ndarray], vocabulary_size: int, order: int = 5, end_id: int | None = None
    ) -> NGram:
        """Counts the n-grams of a stream, given as an array or as consecutive arrays.

        `estimate_max_memory` returns the memory that it needs.
        """
        if not 1 <= order <= MAX_ORDER:
            problem = f"expected an n-gram order from 1 to {MAX_ORDER}, received {order}."
            raise UsageError(problem, fix="Set --context.length.")
        stream = _build_stream(ids, vocabulary_size, end_id)
        return cls(_count_ngrams(stream, vocabulary_size, order, end_id), vocabulary_size, end_id)

    def score_tokens(self, ids: np.ndarray | Iterable[np.ndarray]) -> Floats:
        """Returns log p(ids[t] | up to order − 1 tokens before t), for every t."""
        stream = _build_stream(ids, self.vocabulary_size, self.end_id)
        result = (
            self.levels[0].discounted_probabilities[stream] + self.interpolation_weights[0][0] / self.vocabulary_size
        )
        for k, context, ngram_ids in self._iterate_orders(stream):
            has_context, has_ngram = context >= 0, ngram_ids >= 0
            result[has_context] *= self.interpolation_weights[k][context[has_context]]
            result[has_ngram] += self.levels[k].discounted_probabilities[ngram_ids[has_ngram]]
        return np.log(result[int(self.end_id is not None) :])

    def compute_distribution(self, history: np.ndarray | Sequence[int]) -> Floats:
        """Returns p(· | history) over the whole vocabulary, (V,)."""
        recent = np.asarray(history, np.int64)[max(0, len(history) - self.order + 1) :]
        stream = _build_stream(recent, self.vocabulary_size, self.end_id, may_be_empty=True)
        result = self.levels[0].discounted_probabilities + self.interpolation_weights[0][0] / self.vocabulary_size
        # After any token is appended, the last context of each order is the history.
        for k, context, _ in self._iterate_orders(np.append(stream, 0)):
            if (h := context[-1]) < 0:
                break
            level = self.levels[k]
            start, stop = np.searchsorted(level.keys, [h * self.vocabulary_size, (h + 1) * self.vocabulary_size])
            result *= self.interpolation_weights[k][h]
            result[level.keys[start:stop] - h * self.vocabulary_size] += level.discounted_probabilities[start:stop]
        return result

    def truncate(self, order: int) -> NGram:
        """Returns the model without its n-grams that are longer than `order`; both share their arrays."""
        shorter = copy(self)
        shorter.levels, shorter.interpolation_weights = self.levels[:order], self.interpolation_weights[:order]
        shorter.order = len(shorter.levels)
        return shorter

    def describe(self) -> str:
        """Returns a description of order, smoothing and size."""
        sizes = [int(np.count_nonzero(level.counts)) for level in self.levels]
        arrays = [
            array for level in self.levels for array in (level.keys, level.counts, level.discounted_probabilities)
        ]
        memory = sum(array.nbytes for array in (*arrays, *self.interpolation_weights))
        return (
            f"{self.order}-gram, interpolated modified Kneser–Ney, vocabulary {self.vocabulary_size:,}, "
            f"{sum(sizes):,} n-grams (by order: {', '.join(f'{size:,}' for size in sizes)}), {memory / 1e6:.0f} MB"
        )

    def get_tensors(self) -> dict[str, np.ndarray]:
        """Returns the counts, from which the probabilities are computed, and the settings of the model."""
        end_id = -1 if self.end_id is None else self.end_id
        settings = {"vocabulary": self.vocabulary_size, "order": self.order, "end": end_id, "discounts": 3}
        tensors = {f"{SETTING_PREFIX}{name}": np.array(value) for name, value in settings.items()}
        for k, level in enumerate(self.levels, start=1):
            tensors[f"counts.{k}"] = level.counts
            if k > 1:
                tensors[f"keys.{k}"] = level.keys
        return tensors

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, np.ndarray]) -> NGram:
        """Returns the model whose `get_tensors()` these are."""
        vocabulary_size, order, end_id = (_read_setting(tensors, name) for name in ("vocabulary", "order", "end"))
        tables: list[Table] = []
        for k in range(1, order + 1):
            counts = tensors.get(f"counts.{k}")
            has_counts = counts is not None and (k > 1 or len(counts) == vocabulary_size)
            keys = np.arange(vocabulary_size) if k == 1 and has_counts else tensors.get(f"keys.{k}")
            if counts is None or not has_counts or keys is None or len(counts) != len(keys):
                raise RunError(f"the n-gram model lacks counts of order {k}.", fix="Train it again.")
            num_keys = len(tables[-1][1]) * vocabulary_size if tables else vocabulary_size
            if len(keys) and not 0 <= int(keys.min()) <= int(keys.max()) < num_keys:
                raise RunError(f"the n-gram model has n-grams of order {k} without a context.", fix="Train it again.")
            tables.append((keys, counts))
        return cls(tables, vocabulary_size, None if end_id < 0 else end_id)

    def _iterate_orders(self, stream: Integers) -> Iterator[tuple[int, Integers, Integers]]:
        """Yields for each order above 1 its index k, and for each position the ids of context and n-gram, or −1."""
        ngram_ids = stream
        for k in range(1, self.order):
            context = _find_contexts(ngram_ids, stream, k, self.end_id)
            ngram_ids = self.levels[k].find(context, stream, self.vocabulary_size)
            yield k, context, ngram_ids


def _read_setting(tensors: Mapping[str, np.ndarray], name: str) -> int:
    setting = tensors.get(f"{SETTING_PREFIX}{name}")
    if setting is None or setting.size != 1 or setting.dtype.kind not in "iu":
        raise RunError(f"the n-gram model lacks the setting {name!r}, an integer.", fix="Train it again.")
    return int(setting.item())


class NGramModel(nn.Module):
    """An n-gram model as a module without parameters; `fit` or `load_tensors` sets its counts."""

    finish_reason = "all n-grams are counted"  # why training ends

    def __init__(self, order: int, vocabulary_size: int):
        super().__init__()
        self.order, self.vocabulary_size = order, vocabulary_size
        self._ngram: NGram | None = None

    @property
    def ngram(self) -> NGram:
        if self._ngram is None:
            raise RunError("the n-gram model has no counts.", fix="Train it first.")
        return self._ngram

    def fit(self, store: TokenStore, end_id: int | None) -> None:
        """Counts the n-grams of a text; `end_id` is the token that ends a line, if each line is a sentence."""
        check_counting_memory(len(store), self.vocabulary_size, self.order)
        self._ngram = NGram.count(store.read(0, len(store)), self.vocabulary_size, self.order, end_id)

    def get_tensors(self) -> dict[str, Tensor]:
        """Returns the counts and the settings of the model, for saving."""
        return {name: torch.from_numpy(array) for name, array in self.ngram.get_tensors().items()}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores what `get_tensors` returned."""
        self._ngram = NGram.from_tensors({name: tensor.numpy() for name, tensor in tensors.items()})

    def score(self, store: TokenStore, block_sums: ScoreSums | None = None) -> tuple[float, int]:
        """Returns the summed negative log likelihood of a text after its first token, and the number of tokens."""
        nats, context_length = 0.0, self.ngram.order - 1
        for start in range(1, len(store), CHUNK_TOKENS):
            context_start = max(0, start - context_length)
            ids = store.read(context_start, min(len(store), start + CHUNK_TOKENS) - context_start)
            log_probabilities = self.ngram.score_tokens(ids)[start - context_start :]
            nats -= float(log_probabilities.sum())
            if block_sums is not None:
                block_sums.add((start + np.arange(len(log_probabilities))) // BLOCK_TOKENS, -log_probabilities)
        return nats, len(store) - 1

    def forward(self, batch: TokenBatch, state: None = None) -> tuple[Loss, None]:
        """Returns the summed loss of the batch's targets, and no state; it has no gradient."""
        sequences = torch.cat([batch.ids[:, :1], batch.targets], dim=1).cpu().numpy()
        losses = np.stack([-self.ngram.score_tokens(ids)[1:] for ids in sequences])
        return total(torch.from_numpy(losses), batch.mask), None

    def next(self, ids: Tensor, state: ModelState = None) -> tuple[Tensor, ModelState]:
        """Returns log-probabilities (B, V) of the token after ids (B, T), and the history as the state."""
        history = ids.cpu() if state is None else torch.cat([state, ids.cpu()], dim=1)
        history = history[:, -max(1, self.ngram.order - 1) :]
        scores = np.stack([np.log(self.ngram.compute_distribution(ids.numpy())) for ids in history])
        return torch.from_numpy(scores), history


def estimate_max_memory(num_tokens: int, vocabulary_size: int, order: int) -> int:
    """Returns the bytes that counting needs if no n-gram occurs twice, without the ids.

    An n-gram takes 28 bytes (key, count, probability, λ), temporary arrays 64 bytes per token (measured).
    """
    return 28 * (vocabulary_size + num_tokens * (order - 1)) + 64 * (vocabulary_size + num_tokens)


def check_counting_memory(num_tokens: int, vocabulary_size: int, order: int) -> None:
    """Raises an error if counting may exceed the memory: the system would kill the process without a message."""
    needed, free = 8 * num_tokens + estimate_max_memory(num_tokens, vocabulary_size, order), environment.get_memory()[1]
    if free is not None and needed > free:
        raise UsageError(
            f"counting {order}-grams of {num_tokens:,} tokens can take {needed / 1e9:,.1f} GB; "
            f"{free / 1e9:,.1f} GB of memory are free.",
            fix="Choose a smaller --context.length, or a part of the text.",
        )


def _count_ngrams(stream: Integers, vocabulary_size: int, order: int, end_id: int | None) -> Iterator[Table]:
    """Yields keys and counts of each order, the lowest first, as soon as the next order is counted."""
    first = int(end_id is not None)  # index of the first token that is predicted, after the start symbol
    keys, ngram_ids = np.arange(vocabulary_size, dtype=np.int64), stream
    occurrences = np.bincount(stream[first:], minlength=vocabulary_size)
    for length in range(1, order):
        context = _find_contexts(ngram_ids, stream, length, end_id)
        has_context = context >= 0
        longer_keys = context[has_context] * vocabulary_size + stream[has_context]
        unique_keys, occurrences = np.unique(longer_keys, return_counts=True)
        occurrences = _to_int32(occurrences)
        indices = np.searchsorted(unique_keys, longer_keys)
        del longer_keys, context
        suffix_ids = np.empty(len(unique_keys), np.int64)
        # Each distinct longer n-gram adds 1 to the count of the n-gram without its oldest token.
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


def _find_contexts(ngram_ids: Integers, stream: Integers, length: int, end_id: int | None) -> Integers:
    """Returns the id of the `length` tokens before each position; −1 where the history is shorter or unseen."""
    context = np.full(len(ngram_ids), -1, np.int64)
    context[1:] = ngram_ids[:-1]
    if end_id is not None and length > 1:
        context[1:][stream[:-1] == end_id] = -1
    return context


def _smooth(keys: Integers, counts: NDArray, num_contexts: int, vocabulary_size: int) -> tuple[Level, Floats]:
    """Returns one order with its discounted probabilities, and λ of each context, the weight of the order below."""
    context = keys // vocabulary_size
    discounts = _estimate_discounts(counts)
    discount = np.array([0.0, *discounts])[np.minimum(counts, 3)]
    total = np.bincount(context, counts, minlength=num_contexts)
    probabilities = (counts - discount) / np.maximum(total, 1)[context]
    # After an unseen context the order below has weight 1.
    interpolation_weights = np.where(
        total > 0, np.bincount(context, discount, minlength=num_contexts) / np.maximum(total, 1), 1.0
    )
    return Level(keys, counts, probabilities, discounts), interpolation_weights


def _estimate_discounts(counts: NDArray) -> tuple[float, float, float]:
    """Returns D₁, D₂, D₃ from the numbers of n-grams seen once, twice, three and four times."""
    n1, n2, n3, n4 = (int(np.count_nonzero(counts == i)) for i in (1, 2, 3, 4))
    if min(n1, n2, n3, n4) == 0:
        return FALLBACK_DISCOUNTS
    y = n1 / (n1 + 2 * n2)
    d = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return d if min(d) > 0 else FALLBACK_DISCOUNTS


def _build_stream(
    ids: np.ndarray | Iterable[np.ndarray], vocabulary_size: int, end_id: int | None, may_be_empty: bool = False
) -> Integers:
    """Returns the ids as one validated array; with `end_id` the start symbol is put before them."""
    pieces = [ids] if isinstance(ids, np.ndarray) else [np.atleast_1d(np.asarray(piece)) for piece in ids]
    start = [] if end_id is None else [np.array([end_id], np.int64)]
    stream = np.concatenate([*start, np.empty(0, np.int64), *pieces], dtype=np.int64, casting="same_kind")
    if len(stream) == len(start) and not may_be_empty:
        raise UsageError("expected at least one token, received none.", fix="Give a text that is not empty.")
    if len(stream) and not (stream.min() >= 0 and stream.max() < vocabulary_size):
        raise UsageError(
            f"expected ids from 0 to {vocabulary_size - 1}, received {stream.min()} to {stream.max()}.",
            fix="Encode the text with the tokeniser the model was trained with.",
        )
    return stream
