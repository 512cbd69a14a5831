"""Default settings of the task translate, chosen from the data and the machine; numbers from docs/log.md."""

from __future__ import annotations

import math

from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import RECURRENT, DefaultsContext, Fill, choose_num_heads, estimate_epochs

MAX_CHARACTERS = 500  # tokens of a vocabulary up to which the tokens are taken to be characters


def fill_translate(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """Choose every setting that the user left open."""
    _fill_size(settings, context, fill)
    _fill_batches(settings, context, fill)
    _fill_training(settings, context, fill)


def _fill_size(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """Some ten thousand sentences suffice for a small model; a CPU has time for a smaller one."""
    transformer, characters = settings.model == "transformer", context.vocabulary <= MAX_CHARACTERS
    large = context.tokens > 20_000_000
    if context.cuda:
        fill("network.width", (512 if large else 256) if transformer else (1024 if large else 512))
        fill("network.depth", (6 if large else 4) if transformer else (2 if large else 1))
    else:
        fill("network.width", 128 if characters else 256)
        fill("network.depth", 2 if transformer else 1)
    width = settings.network.width
    # Characters are few, and their vectors can be small.
    fill("network.embedding", width if transformer or not characters else max(1, width // 2))
    if settings.model in RECURRENT:
        fill("recurrent.weight_dropout", 0.0)
        fill("recurrent.bidirectional", True)
        fill("recurrent.concat_directions", True)
    if transformer:
        fill("transformer.heads", choose_num_heads(width, 32))
        fill("transformer.hidden", 4 * width)


def _fill_batches(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """Batches are limited by tokens, so that long pairs cost as much as short ones; a GPU needs some thousands."""
    fill("data.max_length", max(1, min(512, context.max_length)))
    # builtin:dates, a Transformer after 120k tokens: exact 24 % with 64 rows, 74 % with 32, for a fifth more time.
    rows = 512 if context.cuda else 32 if settings.model == "transformer" else 64
    few = max(1, context.examples // 20)  # an epoch of small data still has some updates
    fill("training.batch_size", math.ceil(min(rows, few) / context.processes) * context.processes)
    fill("data.max_tokens", max(settings.data.max_length, 6_144 if context.cuda else 2_048) + 1)


def _fill_training(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """More epochs need more dropout; larger networks need smaller learning rates."""
    transformer, characters = settings.model == "transformer", context.vocabulary <= MAX_CHARACTERS
    if characters:
        fill("network.dropout", 0.1)
        fill("translate.label_smoothing", 0.0)
    else:
        repeated = estimate_epochs(settings, context) > 8 and context.tokens < 5_000_000
        fill("network.dropout", (0.3 if repeated else 0.1) if transformer else (0.4 if repeated else 0.2))
        fill("translate.label_smoothing", 0.1)
    adam = settings.training.optimizer == "adamw"
    size = settings.network.width * settings.network.depth
    # builtin:dates, 114 updates of an LSTM of width 128: exact 3 % at 0.004, 31 % at 0.008, 86 % at 0.015.
    base_rate = 1e-2 if characters else 3e-3
    rate, reference_size = {"transformer": (1.5e-3, 512), "rnn": (1e-3, 256), "feedforward": (2e-3, 256)}.get(
        settings.model, (base_rate, 256)
    )
    fill("training.learning_rate", float(f"{rate * (reference_size / size) ** 0.5:.2g}") if adam else 1.0)
    fill("training.weight_decay", 0.01 if adam else 1e-6)
    if context.cuda and adam:
        fill("training.ema", 0.999)  # Multi30k, LSTM: validation BLEU 36.8 against 36.2
