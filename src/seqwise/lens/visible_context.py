"""The losses of many targets when a model sees only a part of the context, for each task that has such a loss.

| task | target | visible | without context |
|---|---|---|---|
| language | a token | the n tokens before it | frequency of the token in training |
| masked | a token, masked | n tokens on each side | frequency of the token in training |
| classify | a label | the last n tokens of the text | the most frequent label in training |
| tag | the tag of a word | the word and n words on each side | the word alone |
| forecast | the next values | the last n steps of the look-back window | the mean of the training part |

`tag`, `classify` and `forecast` are in `visible_context_examples.py`. The module knows nothing of figures.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.errors import DataError
from seqwise.lens.context_curves import NUM_SEGMENTS, Advance, ScoreFunction
from seqwise.tasks.inspection import USER_TEXT, choose_evenly, get_device
from seqwise.tasks.language.ngram import NGram, NGramModel
from seqwise.tasks.masked.filling import MASK
from seqwise.tasks.masked.model import get_window
from seqwise.training.api import TrainedModel

MAX_STATE_CONTEXT = 256  # of models with a state, which have no limit of their own
MIN_TARGETS = 20
MAX_BATCH_TOKENS, MAX_BATCH_SIZE = 1 << 14, 256  # of a batch; they bound the memory


@dataclass(frozen=True)
class VisibleContext:
    """The targets of a model, and their losses with any length of context."""

    baseline: np.ndarray  # (M,): losses without context
    score: ScoreFunction
    max_context: int
    description: str  # what the targets are and where they come from
    target_key: Hashable  # equal for models that are scored on the same targets
    num_segments: int = NUM_SEGMENTS


@dataclass(frozen=True)
class TokenSource:
    """A text as tokens, wherever they are stored."""

    read: Callable[[np.ndarray, int], np.ndarray]  # starts (B,), length → ids (B, length)
    length: int
    description: str
    key: Hashable


def open_corpus_context(
    model: TrainedModel, text: str | None, data: str | None, num_targets: int, max_context: int, history: int
) -> VisibleContext:
    """Returns the targets of a language model or a masked model, evenly spread over the text.

    Each has `history` tokens before it, of which the model sees at most `max_context`: so models with contexts of
    different length have the same targets.
    """
    is_masked = model.settings.task == "masked"
    source = open_tokens(model, text, data)
    sides = 2 if is_masked else 1
    longest = min(history, (source.length - 1) // (sides + 1))
    last = source.length - (longest if is_masked else 0)
    positions = longest + np.array(choose_evenly(last - longest, num_targets))
    if len(positions) < MIN_TARGETS:
        problem = f"{source.description} has {source.length:,} tokens, too few to measure the benefit of context."
        raise DataError(problem, fix="Pass a longer text, or other data with --data.")
    ids = source.read(positions, 1)[:, 0]
    score = build_masked_score(model, source, positions) if is_masked else build_score(model.model, source, positions)
    return VisibleContext(
        compute_frequency_losses(model, source, ids),
        score,
        min(max_context, longest),
        f"{len(positions):,} tokens evenly spread over {source.description}",
        (source.key, len(positions), longest),
    )


def open_tokens(model: TrainedModel, text: str | None, data: str | None) -> TokenSource:
    """Returns the tokens of a text, of other data, or of the validation split of the run."""
    tokenizer = model.run.preprocessor.tokenizer
    if text is not None:
        return build_token_source(tokenizer.encode(text).ids, (tokenizer.fingerprint, text))
    task: Any = model.task
    store, description = task.open_store(model.bundle, data or model.run.metadata.data, None if data else "valid")
    key = (store.info.corpus, store.info.tokenizer, store.info.split)
    return TokenSource(store.read_sequences, len(store), description, key)


def build_token_source(ids: np.ndarray, key: Hashable = None) -> TokenSource:
    """Returns the tokens of a text that is in memory."""
    ids = np.asarray(ids, dtype=np.int64)
    return TokenSource(
        lambda starts, length: ids[np.asarray(starts)[:, None] + np.arange(length)], len(ids), USER_TEXT, key
    )


def limit_context(model: TrainedModel, max_context: int | None) -> int:
    """Returns the longest context that a language model or a masked model is shown."""
    network: Any = model.model
    if model.settings.task == "masked":
        limit = (get_window(model.settings) - 1) // 2
    elif isinstance(network, NGramModel):
        limit = network.order - 1
    else:
        window = getattr(network.backbone, "window", None)  # of Transformers and fixed windows
        limit = window if isinstance(window, int) else max_context or MAX_STATE_CONTEXT
    return limit if max_context is None else min(limit, max_context)


def compute_frequency_losses(model: TrainedModel, source: TokenSource, ids: np.ndarray) -> np.ndarray:
    """Returns −log of the frequency of tokens in training, with add-one smoothing.

    A run of a version that did not save the counts takes them from the text.
    """
    size, training = len(model.run.preprocessor.tokenizer), model.bundle.training
    if training is None:
        counts = np.bincount(source.read(np.arange(1), source.length)[0], minlength=size)
    else:
        counts = training.arrays["token_counts"]
    return -np.log((counts + 1) / (counts.sum() + size))[ids]


def build_score(network: Any, source: TokenSource, positions: np.ndarray) -> ScoreFunction:
    """Returns a function from n to a language model's losses of tokens, given exactly the n tokens before them.

    The model starts with an empty state and reads n tokens. A fixed window has zeros before them, as at the beginning
    of a text.
    """

    def score(n: int, advance: Advance) -> np.ndarray:
        if isinstance(network, NGramModel):
            advance(n * len(positions))
            return score_ngrams(network.ngram, source.read(positions - n, n + 1))
        losses = []
        for chosen in split_batches(len(positions), n):
            ids = read_tensor(network, source, positions[chosen] - n, n + 1)
            vectors = network.backbone(network.embedding(ids[:, :-1])).vectors[:, -1:]
            losses.append(network.head.losses(vectors, ids[:, -1:])[:, 0].double().cpu().numpy())
            advance(n * len(ids))
        return np.concatenate(losses)

    return score


def score_ngrams(ngram: NGram, ids: np.ndarray) -> np.ndarray:
    """Returns the losses (M,) of the last of ids (M, n + 1) given the others.

    N-grams longer than n + 1 are left out: otherwise the first token would follow the start symbol of a line.
    """
    shorter = ngram.truncate(ids.shape[1])
    return np.array([-shorter.score_tokens(row)[-1] for row in ids])


def build_masked_score(model: TrainedModel, source: TokenSource, positions: np.ndarray) -> ScoreFunction:
    """Returns a function from n to the losses of tokens that are replaced by <mask>, given n tokens on each side."""
    network: Any = model.model
    mask = model.run.preprocessor.tokenizer.id(MASK)

    def score(n: int, advance: Advance) -> np.ndarray:
        losses = []
        for chosen in split_batches(len(positions), 2 * n + 1):
            ids = read_tensor(network, source, positions[chosen] - n, 2 * n + 1)
            targets = ids[:, n].clone()
            ids[:, n] = mask
            rows = torch.arange(len(ids), device=ids.device)
            scores = network.scores(network.states(ids), rows, torch.full_like(rows, n))
            losses.append(-scores.gather(1, targets[:, None])[:, 0].double().cpu().numpy())
            advance(n * len(ids))
        return np.concatenate(losses)

    return score


def read_tensor(network: nn.Module, source: TokenSource, starts: np.ndarray, length: int) -> Tensor:
    """Returns ids (B, length) on the device of a model."""
    return torch.from_numpy(source.read(starts, length)).to(get_device(network))


def split_batches(count: int, length: int) -> Iterator[slice]:
    """Yields slices of `count` sequences of a length, each small enough for the memory."""
    size = max(1, min(MAX_BATCH_SIZE, MAX_BATCH_TOKENS // max(1, length)))
    for start in range(0, count, size):
        yield slice(start, min(count, start + size))
