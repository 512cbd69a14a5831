"""What an expert would have set for the task classify: the rules that fill every setting left open.

Labelled texts are few: a small network that is dropped out of strongly beats a large one. The numbers come from the
searches in docs/log.md.
"""

from __future__ import annotations

import math

from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import RECURRENT, DefaultsContext, Fill, heads_of

FEW = 50_000  # examples; with more a larger network pays, and less has to be dropped


def fill_classify(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """Fill in all that the task needs."""
    _fill_size(chosen, facts, fill)
    _fill_regularisation(chosen, facts, fill)
    _fill_batches(chosen, facts, fill)
    _fill_optimisation(chosen, facts, fill)


def _fill_size(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    few = facts.examples < FEW
    fill("network.width", 128 if few else 384 if facts.cuda else 256)
    fill("network.depth", 2 if chosen.model == "transformer" or (facts.cuda and not few) else 1)
    fill("network.embedding", chosen.network.width)
    if chosen.model in RECURRENT:
        fill("recurrent.bidirectional", True)
    if chosen.model == "transformer":
        width = chosen.network.width
        fill("transformer.heads", heads_of(width, max(1, width // 4)))
        fill("transformer.hidden", 2 * width)
    fill("classify.pooling", "attention" if few else "max")


def _fill_regularisation(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    few, transformer = facts.examples < FEW, chosen.model == "transformer"
    fill("network.dropout", (0.3 if transformer else 0.5) if few else 0.2)
    if chosen.model in RECURRENT:
        fill("recurrent.weight_dropout", 0.0)
    fill("classify.word_dropout", 0.1)
    fill("classify.label_smoothing", 0.0)


def _fill_batches(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """Small batches: more updates learn more from few examples."""
    rows = max(1, min(32 if facts.examples < FEW else 128, facts.examples // 8))
    fill("training.batch_size", math.ceil(rows / facts.processes) * facts.processes)  # each process has as many
    fill("data.max_tokens", 32_768 if facts.cuda else 8_192)


def _fill_optimisation(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """Large steps: most words are seen a few times only. With many texts they are seen often enough.

    Word vectors that learn on are known from the first step: SST-2, LSTM, four epochs, validation accuracy 84.5 % with
    a rate of 0.003, 82.2 % with 0.01.
    """
    adam, few = chosen.training.optimizer == "adamw", facts.examples < FEW
    known = facts.vectors > 0 and not chosen.network.freeze_embedding
    rate = (3e-3 if few else 1e-3) if chosen.model == "transformer" else (1e-2 if few and not known else 3e-3)
    fill("training.learning_rate", rate if adam else 1.0)
    fill("training.weight_decay", 0.01 if adam else 1e-6)
    if few and adam:
        fill("training.ema", 0.995)  # few texts make noisy updates; their average is better than the last of them
