"""Default settings of tagging. Each rule has its reason; the numbers come from the searches in docs/log.md."""

from __future__ import annotations

import math

from seqwise.budget import Budget
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import RECURRENT, DefaultsContext, Fill, choose_num_heads

CPU_WORDS_PER_SECOND, GPU_WORDS_PER_SECOND = 6_000, 60_000  # in training, per core and on a GPU


def fill_tag(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """Fills in sizes, batches, regularisation and optimisation; later rules depend on what earlier ones chose."""
    _fill_size(settings, context, fill)
    batch_size = max(4, min(32, context.examples // 32))  # an epoch of few sentences still has some updates
    fill("training.batch_size", math.ceil(batch_size / context.processes) * context.processes)
    fill("data.max_tokens", 8192 if context.cuda else 2048)
    _fill_dropout(settings, context, fill)
    is_adam = settings.training.optimizer == "adamw"
    # CoNLL-2003, six minutes of a GPU, validation F1: 0.005 → 91.1, 0.007 → 90.2.
    fill("training.learning_rate", (1e-3 if settings.model == "transformer" else 5e-3) if is_adam else 0.1)
    fill("training.weight_decay", 0.01 if is_adam else 1e-6)


def _fill_size(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """Data sets for tagging are small, so networks are small."""
    fill("network.width", 256 if context.cuda else 200)
    fill("network.depth", 2 if settings.model in ("transformer", "feedforward") else 1)
    fill("network.embedding", 100)
    # A pre-trained encoder has word vectors as its only input.
    fill("tag.characters", 0 if settings.init else 64)
    fill("tag.crf", False)  # `Tag.prepare` turns it on if the tags mark spans
    if settings.model in RECURRENT:
        fill("recurrent.bidirectional", True)  # the words after a word tell as much as those before it
    if settings.model == "transformer":
        width = settings.network.width
        fill("transformer.heads", choose_num_heads(width, max(1, width // 4)))
        fill("transformer.hidden", 4 * width)


def _fill_dropout(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """More epochs over the same sentences need more dropout."""
    epochs = _estimate_epochs(settings, context)
    level = 0 if epochs < 2 else 1 if epochs < 6 else 2
    fill("network.dropout", (0.1, 0.15, 0.2)[level] if settings.model == "transformer" else (0.2, 0.35, 0.5)[level])
    if settings.model in RECURRENT:
        fill("recurrent.weight_dropout", 0.0)


def _estimate_epochs(settings: ResolvedSettings, context: DefaultsContext) -> float:
    budget = Budget.parse(settings.budget)
    if budget.unit == "epochs":
        return budget.amount
    words = budget.amount
    if budget.unit == "seconds":
        words *= GPU_WORDS_PER_SECOND if context.cuda else CPU_WORDS_PER_SECOND * context.cores
    return words / max(1, context.tokens)
