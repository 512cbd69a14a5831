"""The statistical baseline: an n-gram language model with interpolated Kneser–Ney smoothing, in numpy.

With h the history, h' the history without its oldest token, and c the count of its order:

    p(w | h) = max(c(hw) − D(c(hw)), 0) / c(h·)  +  λ(h) p(w | h')
    λ(h)     = (D₁ N₁(h·) + D₂ N₂(h·) + D₃ N₃₊(h·)) / c(h·)          N_i(h·): words seen i times after h
    Y = n₁ / (n₁ + 2 n₂)    D₁ = 1 − 2Y n₂/n₁    D₂ = 2 − 3Y n₃/n₂    D₃ = 3 − 4Y n₄/n₃

S. F. Chen, J. Goodman, "An empirical study of smoothing techniques for language modeling", Computer Speech and
Language 13 (1999) 359–394 (modified Kneser–Ney; n_i: n-grams of that order with count i). With the one discount D = Y
it is plain interpolated Kneser–Ney (R. Kneser, H. Ney, ICASSP 1995). On the Penn Treebank, order 5, the test
perplexity is 141.2 with three discounts and 143.5 with one; T. Mikolov et al., Interspeech 2011, report 141.2.

The longest n-grams have their number of occurrences as c. Shorter ones have the number of different tokens seen before
them (the continuation count), and an n-gram that begins where history begins, with no token before it, counts each such
occurrence. At the bottom stands the uniform distribution 1/V, so every token of the vocabulary has a probability.

Each order is one sorted array of keys, `id of the context × V + token`, where the id of a context is its place in the
array of the order below. So a lookup is a binary search and all followers of a context lie side by side.

This module knows nothing of text, files or tensors: ids in, probabilities out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seqwise.errors import RunError, UsageError

LONGEST = 16
CHUNK = 1 << 19  # tokens evaluated at once: a long text adds only its ids and its result to the memory taken
# Where a text is too small or too regular to estimate discounts: half the count that is discounted. Never 0, or tokens
# not seen in training would have no probability at all.
FALLBACK = {1: (0.5, 0.5, 0.5), 3: (0.5, 1.0, 1.5)}

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
        """Ids of the n-grams `context token`; −1 where the context is −1 or the n-gram was never seen."""
        if not len(self.keys):
            return np.full(len(tokens), -1, np.int64)
        wanted = context * vocabulary + tokens  # negative, so never found, where the context is −1
        places = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        return np.where(self.keys[places] == wanted, places, -1)


class NGram:
    """A counted model. Make one with `NGram.count` or `NGram.from_tensors`.

    With `end`, a line is a sentence: history does not reach beyond the last `end` token, which itself stands for the
    start of the next line, and every stream begins at the start of a line. Without it the stream is one long line.
    """

    def __init__(self, tables: Iterable[Table], vocabulary: int, end: int | None, discounts: int = 3):
        self.vocabulary, self.end, self.discounts = vocabulary, end, discounts
        self.levels: list[Level] = []
        self.leftover: list[Floats] = []  # λ(h) for each n-gram h of the order below, by its id
        contexts = 1  # the empty history
        for keys, counts in tables:
            level, leftover = _smooth(keys, counts, contexts, vocabulary, discounts)
            self.levels.append(level)
            self.leftover.append(leftover)
            contexts = len(keys)
        self.order = len(self.levels)

    @classmethod
    def count(
        cls,
        ids: np.ndarray | Iterable[np.ndarray],
        vocabulary: int,
        order: int = 5,
        end: int | None = None,
        discounts: int = 3,
    ) -> NGram:
        """Count the n-grams of one stream, given whole or in consecutive pieces; `memory_bound` says what it takes."""
        _check(vocabulary, order, end, discounts)
        stream = _stream(ids, vocabulary, end)
        return cls(_tables(stream, vocabulary, order, end), vocabulary, end, discounts)

    def score_tokens(self, ids: np.ndarray | Iterable[np.ndarray]) -> Floats:
        """Natural logarithm of p(ids[t] | up to order − 1 tokens before t), for every t."""
        stream = _stream(ids, self.vocabulary, self.end)
        first, reach = int(self.end is not None), self.order - 1
        result = np.empty(len(stream) - first)
        for start in range(first, len(stream), CHUNK):
            begin, stop = max(0, start - reach), min(start + CHUNK, len(stream))
            result[start - first : stop - first] = np.log(self._probabilities(stream[begin:stop])[start - begin :])
        return result

    def distribution(self, history: np.ndarray | Sequence[int]) -> Floats:
        """p(· | history) over the whole vocabulary, (V,)."""
        recent = np.asarray(history, np.int64)[max(0, len(history) - self.order + 1) :]
        stream = _stream(recent, self.vocabulary, self.end, may_be_empty=True)
        result = self.levels[0].share + self.leftover[0][0] / self.vocabulary
        # A token is put behind the history, so that the last context of each order is that of the history.
        for k, context, _ in self._walk(np.append(stream, 0)):
            if (h := context[-1]) < 0:
                break
            level = self.levels[k]
            start, stop = np.searchsorted(level.keys, [h * self.vocabulary, (h + 1) * self.vocabulary])
            result *= self.leftover[k][h]
            result[level.keys[start:stop] - h * self.vocabulary] += level.share[start:stop]
        return result

    @property
    def parameters(self) -> int:
        """Number of n-grams seen, over all orders."""
        return sum(int(np.count_nonzero(level.counts)) for level in self.levels)

    @property
    def bytes(self) -> int:
        """Memory the model takes."""
        arrays = [a for level in self.levels for a in (level.keys, level.counts, level.share)] + self.leftover
        return sum(array.nbytes for array in arrays)

    def describe(self) -> str:
        """Order, smoothing and size in one paragraph."""
        kind = "modified Kneser–Ney" if self.discounts == 3 else "Kneser–Ney"
        sizes = ", ".join(f"{np.count_nonzero(level.counts):,}" for level in self.levels)
        return (
            f"{self.order}-gram, interpolated {kind}, vocabulary {self.vocabulary:,}, "
            f"{self.parameters:,} n-grams (by order: {sizes}), {self.bytes / 1e6:.0f} MB"
        )

    def settings(self) -> dict[str, int]:
        """Plain numbers that `from_tensors` needs beside the tensors; end is −1 where lines do not matter."""
        end = -1 if self.end is None else self.end
        return {"vocabulary": self.vocabulary, "order": self.order, "end": end, "discounts": self.discounts}

    def tensors(self) -> dict[str, np.ndarray]:
        """The counts; all else is computed from them."""
        tensors: dict[str, np.ndarray] = {}
        for k, level in enumerate(self.levels, start=1):
            tensors[f"counts.{k}"] = level.counts
            if k > 1:
                tensors[f"keys.{k}"] = level.keys
        return tensors

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, np.ndarray], settings: Mapping[str, int]) -> NGram:
        """The model that `tensors()` and `settings()` came from."""
        vocabulary = settings["vocabulary"]
        tables: list[Table] = []
        for k in range(1, settings["order"] + 1):
            counts = tensors.get(f"counts.{k}")
            keys = np.arange(vocabulary, dtype=np.int64) if k == 1 else tensors.get(f"keys.{k}")
            if counts is None or keys is None or len(counts) != len(keys):
                raise RunError(f"the n-gram model lacks counts of order {k}.", repair="Train it again.")
            tables.append((keys, counts))
        end = None if settings["end"] < 0 else settings["end"]
        return cls(tables, vocabulary, end, settings["discounts"])

    def _probabilities(self, stream: Integers) -> Floats:
        result = self.levels[0].share[stream] + self.leftover[0][0] / self.vocabulary
        for k, context, gram in self._walk(stream):
            known = context >= 0
            seen = gram >= 0
            result[known] *= self.leftover[k][context[known]]
            result[seen] += self.levels[k].share[gram[seen]]
        return result

    def _walk(self, stream: Integers) -> Iterator[tuple[int, Integers, Integers]]:
        """For each order above 1: its index, and per position the ids of the context and of the n-gram, or −1."""
        gram = stream
        for k in range(1, self.order):
            context = _contexts(gram, stream, k, self.end)
            gram = self.levels[k].find(context, stream, self.vocabulary)
            yield k, context, gram


def memory_bound(tokens: int, vocabulary: int, order: int) -> int:
    """Most bytes that counting can take beside the ids given, nearly reached where no n-gram occurs twice.

    An n-gram takes 28 bytes (key, count, share, leftover), the work on one order 64 bytes per token (measured).
    """
    return 28 * (vocabulary + tokens * (order - 1)) + 64 * (vocabulary + tokens)


def _tables(stream: Integers, vocabulary: int, order: int, end: int | None) -> Iterator[Table]:
    """Keys and counts of each order, shortest first. An order is given away as soon as the next one is counted."""
    first = int(end is not None)  # the start symbol in front was never predicted
    keys, gram = np.arange(vocabulary, dtype=np.int64), stream
    occurrences = np.bincount(stream[first:], minlength=vocabulary)
    for length in range(1, order):
        context = _contexts(gram, stream, length, end)
        here = context >= 0
        longer, longer_occurrences, places = _distinct(context[here] * vocabulary + stream[here])
        del context
        inner = np.empty(len(longer), np.int64)
        inner[places] = gram[here]  # each longer n-gram without its oldest token: one continuation more
        alone = ~here & (gram >= 0)
        alone[:first] = False
        counts = np.bincount(inner, minlength=len(keys))
        counts += np.bincount(gram[alone], minlength=len(keys))
        del inner, alone
        yield keys, _compact(counts)
        del counts
        keys, occurrences = longer, longer_occurrences
        gram = np.full(len(stream), -1, np.int64)
        gram[here] = places
    yield keys, _compact(occurrences)


def _distinct(keys: Integers) -> tuple[Integers, NDArray, Integers]:
    """The distinct keys in order, how often each occurs, and the place of each given key among them."""
    distinct, occurrences = np.unique(keys, return_counts=True)
    return distinct, _compact(occurrences), np.searchsorted(distinct, keys)


def _compact(counts: NDArray) -> NDArray:
    return counts.astype(np.int32, copy=False) if counts.max(initial=0) < 2**31 else counts


def _contexts(gram: Integers, stream: Integers, length: int, end: int | None) -> Integers:
    """Id of the `length` tokens before each position; −1 where history is shorter, or was never seen."""
    context = np.full(len(gram), -1, np.int64)
    context[1:] = gram[:-1]
    if end is not None and length > 1:
        context[1:][stream[:-1] == end] = -1
    return context


def _smooth(keys: Integers, counts: NDArray, contexts: int, vocabulary: int, discounts: int) -> tuple[Level, Floats]:
    """Shares of the n-grams of one order, and what each context leaves for the order below."""
    context = keys // vocabulary
    d = _discounts(counts, discounts)
    taken = np.array([0.0, *d])[np.minimum(counts, 3)]
    total = np.bincount(context, counts, minlength=contexts)
    share = (counts - taken) / np.maximum(total, 1)[context]
    # A context that nothing followed leaves everything.
    leftover = np.where(total > 0, np.bincount(context, taken, minlength=contexts) / np.maximum(total, 1), 1.0)
    return Level(keys, counts, share, d), leftover


def _discounts(counts: NDArray, number: int) -> tuple[float, float, float]:
    """D₁, D₂, D₃ from the numbers of n-grams seen once, twice, three and four times."""
    n1, n2, n3, n4 = (int(np.count_nonzero(counts == i)) for i in (1, 2, 3, 4))
    if min((n1, n2, n3, n4)[: number + 1]) == 0:
        return FALLBACK[number]
    y = n1 / (n1 + 2 * n2)
    if number == 1:
        return y, y, y
    d = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return d if min(d) > 0 else FALLBACK[number]


def _stream(
    ids: np.ndarray | Iterable[np.ndarray], vocabulary: int, end: int | None, may_be_empty: bool = False
) -> Integers:
    """One checked array, with the start symbol before it where lines matter."""
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


def _check(vocabulary: int, order: int, end: int | None, discounts: int) -> None:
    if not 1 <= order <= LONGEST:
        raise UsageError(
            f"expected an n-gram order from 1 to {LONGEST}, received {order}.", repair="Set --context.length."
        )
    if vocabulary < 1 or (end is not None and not 0 <= end < vocabulary):
        raise UsageError(f"expected a vocabulary that holds the line end, received {vocabulary} tokens, end {end}.")
    if discounts not in FALLBACK:
        raise UsageError(f"expected 1 discount (Kneser–Ney) or 3 (modified), received {discounts}.")
