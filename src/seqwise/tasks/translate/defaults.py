"""The default rules of translation: every setting that the user has not set."""

from __future__ import annotations

from seqwise.families import RECURRENT_FAMILIES
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import (
    SAME_WIDTH,
    DefaultsContext,
    SetDefault,
    describe_epochs,
    describe_rate,
    estimate_epochs,
    scale_learning_rate,
    set_batch_size,
    set_transformer_defaults,
)

MAX_LENGTH = 512  # tokens of one text, unless set
MAX_CHARACTER_VOCABULARY = 500  # a vocabulary of at most this size is assumed to be one of characters


def set_translate_defaults(settings: ResolvedSettings, context: DefaultsContext, set_default: SetDefault) -> None:
    """Chooses the settings that are not set. The numbers come from the searches in docs/log.md."""
    is_transformer = settings.model == "transformer"
    has_characters = context.vocabulary_size <= MAX_CHARACTER_VOCABULARY
    # Some ten thousand sentences are enough for a small model only, and a CPU has time for an even smaller one.
    is_large = context.num_tokens > 20_000_000
    size = f"{context.num_tokens:,} training tokens on {context.machine}"
    if context.cuda:
        width = (512 if is_large else 256) if is_transformer else (1024 if is_large else 512)
        depth = (6 if is_large else 4) if is_transformer else (2 if is_large else 1)
    else:
        width, depth = 128 if has_characters else 256, 2 if is_transformer else 1
    set_default("network.width", width, size)
    set_default("network.depth", depth, f"{settings.model}; {size}")
    width, is_narrow = settings.network.width, has_characters and not is_transformer
    reason = "characters are few, and their vectors can be small" if is_narrow else SAME_WIDTH
    set_default("network.embedding", max(1, width // 2) if is_narrow else width, reason)
    if settings.model in RECURRENT_FAMILIES:
        set_default("recurrent.weight_dropout", 0.0, "the dropout of the layers is enough")
        set_default("recurrent.bidirectional", True, "the whole source is known")
        set_default("recurrent.concat_directions", True, "each layer reads both directions of the one below")
    if is_transformer:
        set_transformer_defaults(settings, set_default, 32)
    # Batches are limited by tokens, so that long pairs cost as much as short ones; a GPU needs some thousands.
    reason = f"the longest training text, at most {MAX_LENGTH}"
    set_default("data.max_length", max(1, min(MAX_LENGTH, context.max_length)), reason)
    # builtin:dates, a Transformer after 120k tokens: exact 24 % with batches of 64, 74 % with 32, in a fifth more time.
    batch_size = 512 if context.cuda else 32 if is_transformer else 64
    max_batch_size = max(1, context.num_examples // 20)  # an epoch of small data still has some updates
    reason = f"{settings.model} on {context.machine}; an epoch of {context.num_examples:,} pairs has some updates"
    set_batch_size(min(batch_size, max_batch_size), context, set_default, reason)
    reason = f"long pairs cost as much as short ones; {context.machine}"
    set_default("data.max_tokens", max(settings.data.max_length, 6_144 if context.cuda else 2_048) + 1, reason)
    # More epochs need more dropout.
    epochs = estimate_epochs(settings, context)
    is_repeated = epochs > 8 and context.num_tokens < 5_000_000
    dropout = (0.3 if is_repeated else 0.1) if is_transformer else (0.4 if is_repeated else 0.2)
    characters = f"a vocabulary of {context.vocabulary_size:,} is one of characters"
    reason = characters if has_characters else describe_epochs(epochs)
    set_default("network.dropout", 0.1 if has_characters else dropout, reason)
    reason = characters if has_characters else "a translation is one of several that are right"
    set_default("translate.label_smoothing", 0.0 if has_characters else 0.1, reason)
    is_adam = settings.training.is_adam
    # builtin:dates, 114 updates of an LSTM of width 128: exact 3 % at 0.004, 31 % at 0.008, 86 % at 0.015.
    # Family → learning rate, and the width × depth at which it was found.
    rates = {"transformer": (1.5e-3, 512), "rnn": (1e-3, 256), "feedforward": (2e-3, 256)}
    rate = scale_learning_rate(settings, *rates.get(settings.model, (1e-2 if has_characters else 3e-3, 256)))
    set_default("training.learning_rate", rate if is_adam else 1.0, describe_rate(settings))
    set_default("training.weight_decay", 0.01 if is_adam else 1e-6, f"with {settings.training.optimizer}")
    if context.cuda and is_adam:
        set_default("training.ema", 0.999, "Multi30k, LSTM: validation BLEU 36.8 against 36.2")
