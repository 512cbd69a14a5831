"""What an expert would have set for the tag task: its rules for settings left open.

Each rule has its reason; the numbers come from the searches in docs/log.md.
"""

from __future__ import annotations

import math

from seqwise.budget import Budget
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import RECURRENT, DefaultsContext, Fill, heads_of

SPEED = 6_000, 60_000  # words per second that are learned from, per core and on a GPU


def fill_tag(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """Sizes, batches, regularisation and optimisation, in this order: later rules look at what earlier ones chose."""
    _fill_size(chosen, facts, fill)
    rows = max(4, min(32, facts.examples // 32))  # an epoch of few sentences still has some updates
    fill("training.batch_size", math.ceil(rows / facts.processes) * facts.processes)
    fill("data.max_tokens", 8192 if facts.cuda else 2048)
    _fill_regularisation(chosen, facts, fill)
    adam = chosen.training.optimizer == "adamw"
    # CoNLL-2003, six minutes of a GPU, validation F1: 0.005 → 91.1, 0.007 → 90.2.
    fill("training.learning_rate", (1e-3 if chosen.model == "transformer" else 5e-3) if adam else 0.1)
    fill("training.weight_decay", 0.01 if adam else 1e-6)


def _fill_size(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """Sentences are few, so networks are small."""
    fill("network.width", 256 if facts.cuda else 200)
    fill("network.depth", 2 if chosen.model in ("transformer", "feedforward") else 1)
    fill("network.embedding", 100)
    # An encoder that was trained before has seen word vectors alone.
    fill("tag.characters", 0 if chosen.init else 64)
    fill("tag.crf", False)  # reading the data has turned it on where tags mark spans
    if chosen.model in RECURRENT:
        fill("recurrent.bidirectional", True)  # what follows a word tells as much as what precedes it
    if chosen.model == "transformer":
        width = chosen.network.width
        fill("transformer.heads", heads_of(width, max(1, width // 4)))
        fill("transformer.hidden", 4 * width)


def _fill_regularisation(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """The oftener the same sentences are read, the more must be dropped."""
    epochs = _epochs(chosen, facts)
    step = 0 if epochs < 2 else 1 if epochs < 6 else 2
    fill("network.dropout", (0.1, 0.15, 0.2)[step] if chosen.model == "transformer" else (0.2, 0.35, 0.5)[step])
    if chosen.model in RECURRENT:
        fill("recurrent.weight_dropout", 0.0)


def _epochs(chosen: ResolvedSettings, facts: DefaultsContext) -> float:
    """How often the budget will read the sentences."""
    budget = Budget.parse(chosen.budget)
    if budget.unit == "epochs":
        return budget.amount
    words = budget.amount
    if budget.unit == "seconds":
        words *= SPEED[1] if facts.cuda else SPEED[0] * facts.cores
    return words / max(1, facts.tokens)
