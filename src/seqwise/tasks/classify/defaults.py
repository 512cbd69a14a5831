"""Default settings of the task classify, chosen from the data and the machine.

Labelled texts are few: a small network with strong dropout beats a large one. The numbers come from the searches in
docs/log.md.
"""

from __future__ import annotations

import math

from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import RECURRENT, DefaultsContext, Fill, choose_num_heads

LARGE_DATASET = 50_000  # examples from which on a larger network with less dropout is better


def fill_classify(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """Choose every setting that the user left open."""
    _fill_size(settings, context, fill)
    _fill_regularisation(settings, context, fill)
    _fill_batches(settings, context, fill)
    _fill_optimisation(settings, context, fill)


def _fill_size(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    few = context.examples < LARGE_DATASET
    fill("network.width", 128 if few else 384 if context.cuda else 256)
    fill("network.depth", 2 if settings.model == "transformer" or (context.cuda and not few) else 1)
    fill("network.embedding", settings.network.width)
    if settings.model in RECURRENT:
        fill("recurrent.bidirectional", True)
    if settings.model == "transformer":
        width = settings.network.width
        fill("transformer.heads", choose_num_heads(width, max(1, width // 4)))
        fill("transformer.hidden", 2 * width)
    fill("classify.pooling", "attention" if few else "max")


def _fill_regularisation(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    few, transformer = context.examples < LARGE_DATASET, settings.model == "transformer"
    fill("network.dropout", (0.3 if transformer else 0.5) if few else 0.2)
    if settings.model in RECURRENT:
        fill("recurrent.weight_dropout", 0.0)
    fill("classify.word_dropout", 0.1)
    fill("classify.label_smoothing", 0.0)


def _fill_batches(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """Small batches: more updates learn more from few examples."""
    rows = max(1, min(32 if context.examples < LARGE_DATASET else 128, context.examples // 8))
    fill("training.batch_size", math.ceil(rows / context.processes) * context.processes)  # a multiple of the processes
    fill("data.max_tokens", 32_768 if context.cuda else 8_192)


def _fill_optimisation(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """Large learning rates, because most words of a small data set occur only a few times.

    Pretrained vectors need smaller ones: SST-2, LSTM, four epochs, validation accuracy 84.5 % with a rate of 0.003,
    82.2 % with 0.01.
    """
    adam, few = settings.training.optimizer == "adamw", context.examples < LARGE_DATASET
    pretrained = context.vectors > 0 and not settings.network.freeze_embedding
    rate = (3e-3 if few else 1e-3) if settings.model == "transformer" else (1e-2 if few and not pretrained else 3e-3)
    fill("training.learning_rate", rate if adam else 1.0)
    fill("training.weight_decay", 0.01 if adam else 1e-6)
    if few and adam:
        fill("training.ema", 0.995)  # few texts make noisy updates: averaged weights are better
