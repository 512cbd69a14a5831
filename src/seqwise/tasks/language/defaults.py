"""Default rules of the language task: sizes, batches, regularisation and optimisation, from the data and the machine.

The numbers come from the searches in docs/log.md.
"""

from __future__ import annotations

import math

from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import RECURRENT, DefaultsContext, Fill, choose_num_heads, estimate_epochs


def fill_language(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """Fills in the settings of the language task."""
    _fill_size(settings, context, fill)
    _fill_batches(settings, context, fill)
    _fill_regularisation(settings, context, fill)
    _fill_optimisation(settings, context, fill)


def _fill_size(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """More text supports a wider model; a CPU has time for one recurrent layer, a GPU for two."""
    transformer = settings.model == "transformer"
    few = context.tokens < 200_000
    if context.cuda:
        fill("network.width", 256 if few else 384 if transformer else 650)
        fill("network.depth", 6 if transformer else 2)
    else:
        fill("network.width", 128 if few else 256 if transformer or settings.model == "feedforward" else 384)
        fill("network.depth", 1 if settings.model in RECURRENT else 2)
    fill("network.embedding", settings.network.width)
    width = settings.network.width
    if transformer:
        fill("transformer.heads", choose_num_heads(width, 64))
        fill("transformer.hidden", 4 * width)


def _fill_batches(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """Small batches: at a given number of tokens more updates learn more, as long as they keep the machine busy."""
    transformer = settings.model == "transformer"
    fill("data.order", "windows" if transformer else "streams")
    max_window = (256 if transformer else 128) if context.cuda else 64
    # A short text still gives an epoch of a few updates.
    fill("data.window", max(2, min(max_window, context.tokens // 64)))
    rows = max(1, min(64 if context.cuda else 16, context.tokens // 256))
    fill("training.batch_size", math.ceil(rows / context.processes) * context.processes)  # a multiple of the processes


def _fill_regularisation(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """The more often the same text is read, the more dropout."""
    epochs = estimate_epochs(settings, context)
    step = 0 if epochs <= 6 else 1 if epochs <= 15 else 2 if epochs <= 40 else 3
    transformer = settings.model == "transformer"
    fill("network.dropout", (0.0, 0.1, 0.2, 0.3)[step] if transformer else (0.1, 0.2, 0.35, 0.5)[step])
    if settings.model in RECURRENT:
        fill("recurrent.weight_dropout", (0.0, 0.0, 0.2, 0.4)[step])


def _fill_optimisation(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """Larger networks take smaller steps."""
    adam = settings.training.optimizer == "adamw"
    size = settings.network.width * settings.network.depth
    rate, reference_size = {"transformer": (3e-3, 512), "feedforward": (2e-3, 512), "rnn": (4e-3, 384)}.get(
        settings.model, (6e-3, 384)
    )
    fill("training.learning_rate", float(f"{rate * (reference_size / size) ** 0.5:.2g}") if adam else 10.0)
    fill("training.weight_decay", (0.1 if settings.model == "transformer" else 0.01) if adam else 1e-6)
