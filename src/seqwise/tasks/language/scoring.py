"""Scores a token store with a language model: every token once, as streams or half-overlapping windows.

A neural model maps (batch, state) to (summed loss, state), has `losses` for the loss of each token, and says in
`stateful` whether it passes a state from batch to batch. An `NGramModel` scores a store by itself. With `blocks`, each
token's loss is also added to its block of the text. The module knows nothing of text.
"""

from __future__ import annotations

import math
from itertools import islice

import torch
from torch import nn

from seqwise.backbones.states import ModelState, detach
from seqwise.data.batch import TokenBatch
from seqwise.data.corpus.batching import StreamEvaluationLoader, WindowEvaluationLoader
from seqwise.data.corpus.store import TokenStore
from seqwise.errors import NonFiniteError, UsageError
from seqwise.losses import Loss, total
from seqwise.metrics.evaluation import Perplexity, ScoreSums
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language.blocks import add_losses
from seqwise.tasks.language.ngram import NGramModel
from seqwise.tasks.task import ProgressCallback

ROWS = 16  # streams scored in parallel; each begins with an empty state
FULL_TEXT_WINDOW = 256  # tokens scored at once where data.window is "full"
DYNAMIC_WINDOW = 20  # tokens between updates of dynamic evaluation for models with a state


@torch.no_grad()
def score(
    model: nn.Module,
    store: TokenStore,
    settings: ResolvedSettings,
    rank: int = 0,
    world: int = 1,
    max_tokens: int | None = None,
    progress: ProgressCallback | None = None,
    blocks: ScoreSums | None = None,
) -> tuple[float, int]:
    """Returns the summed negative log likelihood of this process's share of a store, and its number of tokens.

    With `max_tokens` only the first batches that together hold so many tokens are scored: the same on every rank.
    """
    if isinstance(model, NGramModel):
        return model.score(store, blocks)
    model.eval()
    device = next(model.parameters()).device
    state, nats, tokens = None, 0.0, 0
    batches = evaluation_batches(bool(model.stateful), store, settings, rank, world)
    max_batches = None if max_tokens is None else math.ceil(max_tokens / _count_batch_targets(batches))
    for batch in islice(batches.epoch(), max_batches):
        batch = batch.to(device)
        loss, state = _compute_loss(model, batch, None if batch.resets_state else state, blocks)
        nats, tokens = nats + float(loss.total), tokens + loss.count
        if progress:
            progress(tokens * world, len(store) - 1)
    return nats, tokens


def _compute_loss(
    model: nn.Module, batch: TokenBatch, state: ModelState, blocks: ScoreSums | None
) -> tuple[Loss, ModelState]:
    """Returns the summed loss of a batch, and the state."""
    if blocks is None:
        return model(batch, state)
    losses, state = model.losses(batch, state)  # type: ignore[operator]
    add_losses(blocks, batch, losses)
    return total(losses, batch.mask), state


def evaluation_batches(
    stateful: bool, store: TokenStore, settings: ResolvedSettings, rank: int = 0, world: int = 1
) -> StreamEvaluationLoader | WindowEvaluationLoader:
    """Returns streams for a model with a state, half-overlapping windows for one without."""
    window = _window(settings)
    if not stateful:
        return WindowEvaluationLoader(store, ROWS, window, window // 2, rank, world)
    return StreamEvaluationLoader(store, evaluation_rows(store), window, rank, world)


def evaluation_rows(store: TokenStore) -> int:
    """Returns the number of streams: several only if each is long enough for its empty first state not to matter."""
    return ROWS if len(store) > 1000 * ROWS else 1


def score_dynamically(
    model: nn.Module,
    store: TokenStore,
    settings: ResolvedSettings,
    rate: float,
    progress: ProgressCallback | None = None,
    blocks: ScoreSums | None = None,
) -> tuple[float, int]:
    """Scores each piece of the text, then trains on it (dynamic evaluation: Mikolov et al. 2010; Krause et al. 2018).

    Every token is scored before the model is trained on it. The weights of `model` change.
    """
    if not (0 <= rate < math.inf):
        raise UsageError(f"--dynamic-rate: expected a number from 0 on; received {rate:g}.")
    model.eval()
    device, window = next(model.parameters()).device, _window(settings)
    batches: StreamEvaluationLoader | WindowEvaluationLoader = WindowEvaluationLoader(store, 1, window, window // 2)
    if model.stateful:
        batches = StreamEvaluationLoader(store, 1, DYNAMIC_WINDOW)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    state, nats, tokens = None, 0.0, 0
    for batch in batches.epoch():
        batch = batch.to(device)
        optimizer.zero_grad()
        loss, state = _compute_loss(model, batch, None if batch.resets_state else state, blocks)
        (loss.total / loss.count).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        state = detach(state)
        nats, tokens = nats + float(loss.total.detach()), tokens + loss.count
        if progress:
            progress(tokens, len(store) - 1)
    if not math.isfinite(nats):
        raise NonFiniteError(
            f"the loss became {nats:g} while learning from the text.", repair="Choose a smaller --dynamic-rate."
        )
    return nats, tokens


def perplexity(sums: tuple[float, int], store: TokenStore) -> Perplexity:
    """Returns the perplexity of summed nats and a number of tokens, with the counts of the original text."""
    info = store.info
    return Perplexity(*sums, words=info.words, characters=info.characters, unknown=info.unknown)


def _window(settings: ResolvedSettings) -> int:
    return settings.data.window if isinstance(settings.data.window, int) else FULL_TEXT_WINDOW


def _count_batch_targets(batches: StreamEvaluationLoader | WindowEvaluationLoader) -> int:
    """Returns the number of targets in a full batch, over all ranks."""
    return batches.rows * (batches.window if isinstance(batches, StreamEvaluationLoader) else batches.stride)
