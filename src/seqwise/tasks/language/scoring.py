"""Scores the text in a token store with a language model: every token once, in streams or half-overlapping windows.

A neural model maps (batch, state) to (summed loss, state); its method `losses` returns the loss of each token, and
`stateful` says whether it passes a state from batch to batch. An `NGramModel` scores a store by itself.

With `block_sums`, each token's loss is also added to its block: `BLOCK_TOKENS` consecutive tokens, counted from the
beginning of the text. So models that read the text in different ways have the same blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.data.batch import TokenBatch, spread_batches, spread_indices
from seqwise.data.corpus.batching import BlockEvaluationLoader, StreamEvaluationLoader, WindowEvaluationLoader
from seqwise.data.corpus.store import TokenStore
from seqwise.losses import total
from seqwise.metrics.evaluation import (
    BLOCK_TOKENS,
    ExampleScores,
    ExampleText,
    ScoreSums,
    TrainingOverlap,
    compute_metric,
)
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language.ngram import NGramModel
from seqwise.tasks.training_summary import measure_overlap
from seqwise.text.tokenizer import Tokenizer

BATCH_SIZE = 16  # windows scored together, or streams, each of which begins with an empty state
FULL_TEXT_WINDOW = 256  # tokens scored at once if data.window is "full"
TOKENS_PER_SOFTMAX = 256  # distributions over the vocabulary in memory at once
CONTEXT_TOKENS = 32  # tokens before a block that are shown with it
BLOCK_UNIT = f"blocks of {BLOCK_TOKENS} tokens"


@torch.no_grad()
def score_text(
    model: nn.Module,
    store: TokenStore,
    settings: ResolvedSettings,
    rank: int = 0,
    world_size: int = 1,
    share: float = 1.0,
    progress: ProgressCallback = no_progress,
    block_sums: ScoreSums | None = None,
) -> tuple[float, int]:
    """Returns the summed negative log likelihood of this process's part of a text, and its number of tokens.

    With a `share` below 1 only that share of the text is scored: evenly spaced blocks or windows.
    """
    if isinstance(model, NGramModel):
        return model.score(store, block_sums)
    window = get_window(settings)
    batches = iterate_batches(store, window, bool(model.stateful), share, rank, world_size)
    return _sum_losses(model, batches, block_sums, lambda done: progress(done * world_size, len(store) - 1))


def iterate_batches(
    store: TokenStore, window: int, stateful: bool, share: float = 1.0, rank: int = 0, world_size: int = 1
) -> Iterator[TokenBatch]:
    """Returns the batches of a text, or of a share of it, for a model with a state or without one."""
    if not stateful:
        return spread_batches(WindowEvaluationLoader(store, BATCH_SIZE, window, window // 2, rank, world_size), share)
    if share < 1:
        return BlockEvaluationLoader(store, BATCH_SIZE, window, share, rank, world_size).epoch()
    return StreamEvaluationLoader(store, choose_num_streams(store), window, rank, world_size).epoch()


def choose_num_streams(store: TokenStore) -> int:
    """Returns the number of streams: one for a short text, in which the empty states at their starts would matter."""
    return BATCH_SIZE if len(store) > 1000 * BATCH_SIZE else 1


def get_window(settings: ResolvedSettings) -> int:
    """Returns the number of tokens that are scored at once."""
    return settings.data.window if isinstance(settings.data.window, int) else FULL_TEXT_WINDOW


def _sum_losses(
    model: nn.Module,
    batches: Iterable[TokenBatch],
    block_sums: ScoreSums | None,
    progress: Callable[[int], None],
) -> tuple[float, int]:
    """Returns the summed loss of batches and their number of tokens."""
    device = next(model.eval().parameters()).device
    state, nats, num_tokens = None, 0.0, 0
    for batch in batches:
        batch, state = batch.to(device), None if batch.resets_state else state
        if block_sums is None:
            loss, state = model(batch, state)
        else:
            losses, state = model.losses(batch, state)  # type: ignore[operator]
            loss = total(losses, batch.mask)
            assert batch.positions is not None
            positions = batch.positions.numpy()[:, None] + 1 + np.arange(losses.shape[1])  # of the targets
            mask = np.ones_like(positions, dtype=bool) if batch.mask is None else batch.mask.cpu().numpy()
            block_sums.add(positions[mask] // BLOCK_TOKENS, losses.double().cpu().numpy()[mask])
        nats, num_tokens = nats + float(loss.total), num_tokens + loss.count
        progress(num_tokens)
    return nats, num_tokens


def create_block_sums(store: TokenStore) -> ScoreSums:
    """Returns sums of nats and tokens for each block of a text, all 0."""
    return ScoreSums(-(-len(store) // BLOCK_TOKENS))


def measure_block_overlap(
    is_checked: np.ndarray, is_found: np.ndarray, block_sums: ScoreSums | None
) -> TrainingOverlap | None:
    """Returns the number of blocks that occur in training, and the perplexity of the others.

    `is_checked` and `is_found` are the masks of `TrainingSummary.find` over the blocks. `block_sums` may be None if no
    block occurs in training.
    """

    def compute_perplexity(block_indices: np.ndarray) -> float:
        assert block_sums is not None
        return float(compute_metric("perplexity", block_sums.sums[block_indices].sum(axis=0)))

    return measure_overlap(is_checked, is_found, BLOCK_UNIT, compute_perplexity)


def predict_tokens(model: nn.Module, store: TokenStore, settings: ResolvedSettings) -> np.ndarray:
    """Returns the most probable token at each position of a text, given the true tokens before it; 0 at the first."""
    predicted = np.zeros(len(store), dtype=np.int64)
    for positions, _, scores in iterate_log_probabilities(model, store, settings):
        predicted[positions] = scores.argmax(-1).cpu().numpy()
    return predicted


@torch.no_grad()
def iterate_vectors(model: nn.Module, batches: Iterable[TokenBatch]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields the vectors that enter the output layer (n, D) and their targets (n,), batch by batch."""
    device, state = next(model.eval().parameters()).device, None
    for batch in batches:
        batch, state = batch.to(device), None if batch.resets_state else state
        output = model.backbone(model.embedding(batch.ids), state)  # type: ignore[operator]
        vectors, state = output.vectors, output.state
        if batch.mask is None:
            yield vectors.flatten(0, 1), batch.targets.flatten()
        else:
            yield vectors[batch.mask], batch.targets[batch.mask]


@torch.no_grad()
def iterate_log_probabilities(
    model: nn.Module, store: TokenStore, settings: ResolvedSettings, share: float = 1.0
) -> Iterator[tuple[np.ndarray, np.ndarray, Tensor]]:
    """Yields positions of scored tokens (N,), the length of the context of each (N,), and log-probabilities (N, V).

    The model reads the text as in `score_text`. The context is counted from where the model begins to read: at the
    beginning of the window or stream, or before a block. With a `share` below 1 only that share of the text is scored;
    of an n-gram model the tokens are evenly spread.
    """
    if isinstance(model, NGramModel):
        yield from _iterate_ngram(model, store, share)
        return
    device, window, state = next(model.eval().parameters()).device, get_window(settings), None
    starts: np.ndarray | None = None
    for batch in iterate_batches(store, window, bool(model.stateful), share):
        assert batch.positions is not None
        if starts is None or batch.resets_state or not model.stateful:
            starts = batch.positions.numpy()
        first_positions = batch.positions
        batch, state = batch.to(device), None if batch.resets_state else state
        output = model.backbone(model.embedding(batch.ids), state)  # type: ignore[operator]
        state = output.state
        mask = torch.ones_like(batch.ids, dtype=torch.bool) if batch.mask is None else batch.mask
        rows, columns = mask.nonzero(as_tuple=True)
        for row, column in zip(rows.split(TOKENS_PER_SOFTMAX), columns.split(TOKENS_PER_SOFTMAX)):
            positions = (first_positions[row.cpu()] + 1 + column.cpu()).numpy()
            yield positions, positions - starts[row.cpu().numpy()], model.head(output.vectors[row, column])  # type: ignore[operator]


def _iterate_ngram(
    model: NGramModel, store: TokenStore, share: float
) -> Iterator[tuple[np.ndarray, np.ndarray, Tensor]]:
    """Yields position, length of the context and log-probabilities (1, V) of one token after the other."""
    for position in 1 + spread_indices(len(store) - 1, share):
        count = min(model.order, int(position))
        history = torch.from_numpy(store.read(int(position) - count, count).astype(np.int64))
        yield np.array([position]), np.array([min(position, model.order - 1)]), model.next(history[None])[0]


def iterate_block_predictions(
    model: nn.Module, store: TokenStore, settings: ResolvedSettings, tokenizer: Tokenizer
) -> Iterator[dict[str, str]]:
    """Yields for each block the text before it, its text, and the most probable token at each of its positions."""
    predicted = predict_tokens(model, store, settings)
    for start in range(0, len(store), BLOCK_TOKENS):
        before, text = _decode_block(store, tokenizer, start)
        best = tokenizer.decode(predicted[max(1, start) : start + BLOCK_TOKENS])
        yield {"input": before, "expected": text, "predicted": best}


def build_block_examples(block_sums: ScoreSums, store: TokenStore, tokenizer: Tokenizer) -> ExampleScores:
    """Returns the blocks that contain a scored token, each with its text and the tokens before it."""
    blocks = np.flatnonzero(block_sums.sums[:, 1])
    texts = (ExampleText.multi_line(*_decode_block(store, tokenizer, int(block) * BLOCK_TOKENS)) for block in blocks)
    return ExampleScores("perplexity", BLOCK_UNIT, block_sums.sums[blocks], tuple(texts))


def _decode_block(store: TokenStore, tokenizer: Tokenizer, start: int) -> tuple[str, str]:
    """Returns the text before the block that begins at token `start`, and the text of the block."""
    context_start, stop = max(0, start - CONTEXT_TOKENS), min(len(store), start + BLOCK_TOKENS)
    ids = store.read(context_start, stop - context_start)
    return tokenizer.decode(ids[: start - context_start]), tokenizer.decode(ids[start - context_start :])
