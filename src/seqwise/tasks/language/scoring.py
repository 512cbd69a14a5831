"""How well a model predicts a token store: every token once, in the order and with the history stated here.

A model is a module that maps (batch, carry) to (summed loss, carry) and says in `stateful` whether it carries a state;
or it is counted. Where `blocks` are given, each token's loss is also added to the block of the text it stands in; for
that a model has `losses`. Nothing here knows of text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice

import torch
from torch import nn

from seqwise.backbones.states import ModelState, detach
from seqwise.data.batch import TokenBatch
from seqwise.data.corpus.evaluation import StreamEvaluationLoader, WindowEvaluationLoader
from seqwise.data.corpus.store import TokenStore
from seqwise.errors import NonFiniteError, UsageError
from seqwise.losses import Loss, total
from seqwise.metrics.example_scores import ScoreSums
from seqwise.metrics.perplexity import Perplexity
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.language.blocks import add_losses
from seqwise.tasks.language.ngram_model import NGramModel

ROWS = 16  # streams scored side by side; each begins with an empty state
WINDOW = 256  # tokens scored at once where training took the whole text at once
DYNAMIC_WINDOW = 20  # tokens between updates of dynamic evaluation for models with a state

ProgressCallback = Callable[[int, int], None]


@torch.no_grad()
def score(
    model: nn.Module,
    store: TokenStore,
    settings: ResolvedSettings,
    rank: int = 0,
    world: int = 1,
    longest: int | None = None,
    progress: ProgressCallback | None = None,
    blocks: ScoreSums | None = None,
) -> tuple[float, int]:
    """Summed negative log likelihood of this process's share of a store, and its number of tokens.

    With `longest` only the first batches count, as many as hold that many tokens: the same on every rank.
    """
    if isinstance(model, NGramModel):
        return model.score(store, blocks)
    model.eval()
    device = next(model.parameters()).device
    carry, nats, tokens = None, 0.0, 0
    batches = evaluation_batches(bool(model.stateful), store, settings, rank, world)
    for batch in islice(batches.epoch(), None if longest is None else math.ceil(longest / _tokens(batches))):
        batch = batch.to(device)
        loss, carry = _loss(model, batch, None if batch.resets_state else carry, blocks)
        nats, tokens = nats + float(loss.total), tokens + loss.count
        if progress:
            progress(tokens * world, len(store) - 1)
    return nats, tokens


def _loss(model: nn.Module, batch: TokenBatch, carry: ModelState, blocks: ScoreSums | None) -> tuple[Loss, ModelState]:
    """The summed loss of a batch, and the carry."""
    if blocks is None:
        return model(batch, carry)
    losses, carry = model.losses(batch, carry)  # type: ignore[operator]
    add_losses(blocks, batch, losses)
    return total(losses, batch.mask), carry


def evaluation_batches(
    stateful: bool, store: TokenStore, settings: ResolvedSettings, rank: int = 0, world: int = 1
) -> StreamEvaluationLoader | WindowEvaluationLoader:
    """Streams for a model that carries a state, half-overlapping windows for one that does not."""
    window = _window(settings)
    if not stateful:
        return WindowEvaluationLoader(store, ROWS, window, window // 2, rank, world)
    return StreamEvaluationLoader(store, evaluation_rows(store), window, rank, world)


def evaluation_rows(store: TokenStore) -> int:
    """How many streams a text is read in: one, or several where each is long enough to forget its empty beginning."""
    return ROWS if len(store) > 1000 * ROWS else 1


def score_dynamically(
    model: nn.Module,
    store: TokenStore,
    settings: ResolvedSettings,
    rate: float,
    progress: ProgressCallback | None = None,
    blocks: ScoreSums | None = None,
) -> tuple[float, int]:
    """Score each piece of the text, then learn from it (dynamic evaluation: Mikolov et al. 2010; Krause et al. 2018).

    Every token is scored before the model has learned from it. The model is left as the text has made it.
    """
    if not (0 <= rate < math.inf):
        raise UsageError(f"--dynamic-rate: expected a number from 0 on; received {rate:g}.")
    model.eval()
    device, window = next(model.parameters()).device, _window(settings)
    batches: StreamEvaluationLoader | WindowEvaluationLoader = WindowEvaluationLoader(store, 1, window, window // 2)
    if model.stateful:
        batches = StreamEvaluationLoader(store, 1, DYNAMIC_WINDOW)
    optimiser = torch.optim.SGD(model.parameters(), lr=rate)
    carry, nats, tokens = None, 0.0, 0
    for batch in batches.epoch():
        batch = batch.to(device)
        optimiser.zero_grad()
        loss, carry = _loss(model, batch, None if batch.resets_state else carry, blocks)
        (loss.total / loss.count).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        carry = detach(carry)
        nats, tokens = nats + float(loss.total.detach()), tokens + loss.count
        if progress:
            progress(tokens, len(store) - 1)
    if not math.isfinite(nats):
        raise NonFiniteError(
            f"the loss became {nats:g} while learning from the text.", repair="Choose a smaller --dynamic-rate."
        )
    return nats, tokens


def perplexity(scored: tuple[float, int], store: TokenStore) -> Perplexity:
    """The score with the counts of the original text."""
    facts = store.info
    return Perplexity(*scored, words=facts.words, characters=facts.characters, unknown=facts.unknown)


def _window(settings: ResolvedSettings) -> int:
    return settings.data.window if isinstance(settings.data.window, int) else WINDOW


def _tokens(batches: StreamEvaluationLoader | WindowEvaluationLoader) -> int:
    """Targets that a full batch counts, over all ranks."""
    return batches.rows * (batches.window if isinstance(batches, StreamEvaluationLoader) else batches.stride)
