"""Default rules of the task masked. They follow those of the language task; comments explain the differences."""

from __future__ import annotations

import math

from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import RECURRENT, DefaultsContext, Fill, choose_num_heads, estimate_epochs


def fill_masked(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """Fills in the settings of the task masked."""
    _fill_size(settings, context, fill)
    _fill_batches(settings, context, fill)
    _fill_training(settings, context, fill)


def _fill_size(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """A recurrent model is two language models, each half as wide as the whole."""
    recurrent, transformer = settings.model in RECURRENT, settings.model == "transformer"
    few = context.tokens < 200_000
    if context.cuda:
        fill("network.width", (512 if few else 1024) if recurrent else (256 if few else 512))
        fill("network.depth", 6 if transformer else 2)
    else:
        fill("network.width", (256 if few else 512) if recurrent else (128 if few else 256))
        fill("network.depth", 1 if recurrent else 2)
    width = settings.network.width
    fill("network.embedding", -(-width // 2) if recurrent else width)
    if recurrent:
        fill("recurrent.bidirectional", True)
        fill("recurrent.concat_directions", False)  # concatenated directions would see what they predict
    if transformer:
        fill("transformer.heads", choose_num_heads(width, 64))
        fill("transformer.hidden", 4 * width)


def _fill_batches(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """Twice the rows of the language task where only every seventh token is a target."""
    fill("data.order", "windows")
    fill("data.window", max(3, min(128 if context.cuda else 64, context.tokens // 64)))
    max_rows = (128 if context.cuda else 32) if settings.model not in RECURRENT else (64 if context.cuda else 16)
    rows = max(1, min(max_rows, context.tokens // 256))
    fill("training.batch_size", math.ceil(rows / context.processes) * context.processes)
    window = settings.data.window if isinstance(settings.data.window, int) else 1
    fill("data.max_length", window)
    fill("data.max_tokens", settings.training.batch_size * window)


def _fill_training(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """Each epoch masks other tokens, so it needs less dropout than in the language task."""
    transformer = settings.model == "transformer"
    epochs = estimate_epochs(settings, context)
    step = 0 if epochs <= 6 else 1 if epochs <= 15 else 2 if epochs <= 40 else 3
    fill("network.dropout", (0.0, 0.0, 0.1, 0.1)[step] if transformer else (0.1, 0.2, 0.3, 0.4)[step])
    if settings.model in RECURRENT:
        fill("recurrent.weight_dropout", (0.0, 0.0, 0.1, 0.2)[step])
    adam = settings.training.optimizer == "adamw"
    size = settings.network.width * settings.network.depth
    rate, reference_size = {"transformer": (2e-3, 512), "feedforward": (2e-3, 512), "rnn": (3e-3, 512)}.get(
        settings.model, (5e-3, 512)
    )
    fill("training.learning_rate", float(f"{rate * (reference_size / size) ** 0.5:.2g}") if adam else 10.0)
    fill("training.weight_decay", (0.1 if transformer else 0.01) if adam else 1e-6)
