"""Default rules of language modelling. The numbers come from the searches in docs/log.md."""

from __future__ import annotations

from seqwise.backbones.encoder import get_cell_name
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

SMALL_TEXT = 200_000  # tokens
# The regularised LSTM on a GPU: tokens per second with fast bfloat16, measured on an H200 (docs/log.md), and a guess
# without it; and the epochs from which it is used.
REGULARIZED_SPEEDS = {True: 900_000.0, False: 150_000.0}
MIN_REGULARIZED_EPOCHS = 40
MAX_EPOCHS_OF_LEVELS = (6, 15, 40)  # of dropout levels 0, 1 and 2; more epochs get level 3
# Weights per training token → the highest level of dropout: smaller networks underfit with more. Measured at 0.2 to 21
# weights per token for recurrent networks, at 2 to 16 for Transformers (docs/log.md).
MAX_DROPOUT_LEVELS = ((0.3, 0), (2.5, 1), (5.0, 2))
MAX_RECURRENT_DROPOUT_LEVELS = ((0.3, 0), (1.5, 1), (5.0, 2))
# Recurrent networks with more weights per training token than this, which read the text at least so many times, get one
# level more. Measured at 10 weights per token, 4 to 60 epochs (docs/log.md).
MANY_WEIGHTS_PER_TOKEN, MIN_MEMORISING_EPOCHS = 8.0, 4
LAYER_WEIGHTS = {"rnn": 2, "gru": 6, "lstm": 8, "transformer": 12}  # times the square of the width
OTHER_LAYER_WEIGHTS = 10


def set_language_defaults(settings: ResolvedSettings, context: DefaultsContext, set_default: SetDefault) -> None:
    """Chooses the settings that are not set."""
    if is_regularized(settings, context):
        set_regularized_defaults(settings, context, set_default)
    is_transformer, is_recurrent = settings.model == "transformer", settings.model in RECURRENT_FAMILIES
    # More text supports a wider model; a CPU has time for one recurrent layer, a GPU for two.
    is_small = context.num_tokens < SMALL_TEXT
    size = f"{context.num_tokens:,} training tokens on {context.machine}"
    if context.cuda:
        width, depth = 256 if is_small else 384 if is_transformer else 650, 6 if is_transformer else 2
    else:
        width = 128 if is_small else 256 if is_transformer or settings.model == "feedforward" else 384
        depth = 1 if is_recurrent else 2
    set_default("network.width", width, f"{size}: more text supports a wider model")
    set_default("network.depth", depth, f"{settings.model} on {context.machine}")
    set_default("network.embedding", settings.network.width, SAME_WIDTH)
    if is_transformer:
        set_transformer_defaults(settings, set_default, 64)
    # Small batches: for a given number of tokens more updates are better, as long as they keep the machine busy.
    is_stream = is_recurrent or settings.model == "feedforward"
    order = "the state is passed from batch to batch" if is_stream else "there is no state to pass on"
    set_default("data.order", "streams" if is_stream else "windows", order)
    max_window = (256 if is_transformer else 128) if context.cuda else 64
    # Small enough that an epoch of a short text has a few updates.
    reason = "small enough that an epoch has a few updates"
    set_default("data.window", max(2, min(max_window, context.num_tokens // 64)), f"{size}; {reason}")
    reason = "for a given number of tokens more updates are better, as long as they keep the machine busy"
    set_batch_size(min(64 if context.cuda else 16, context.num_tokens // 256), context, set_default, reason)
    level, reason = choose_dropout_level(settings, context)
    dropout = (0.0, 0.1, 0.2, 0.3) if is_transformer else (0.1, 0.2, 0.35, 0.5)
    set_default("network.dropout", dropout[level], reason)
    if is_recurrent:
        set_default("recurrent.weight_dropout", (0.0, 0.0, 0.2, 0.4)[level], reason)
    if get_cell_name(settings) == "lstm":
        set_forget_bias(settings, set_default)
    is_adam = settings.training.is_adam
    # Family → learning rate, and the width × depth at which it was found.
    rates = {"transformer": (3e-3, 512), "feedforward": (2e-3, 512), "rnn": (4e-3, 384)}
    rate = scale_learning_rate(settings, *rates.get(settings.model, (6e-3, 384)))
    set_default("training.learning_rate", rate if is_adam else 10.0, describe_rate(settings))
    decay = (0.1 if is_transformer else 0.01) if is_adam else 1e-6
    set_default("training.weight_decay", decay, f"for {settings.model} with {settings.training.optimizer}")


def choose_dropout_level(settings: ResolvedSettings, context: DefaultsContext) -> tuple[int, str]:
    """Returns how much dropout there is, from 0 to 3, and why: more epochs need more, small networks underfit."""
    is_recurrent, epochs = settings.model in RECURRENT_FAMILIES, estimate_epochs(settings, context)
    weights_per_token = estimate_weights(settings, context) / max(1, context.num_tokens)
    count = f"{weights_per_token:.2g}" if weights_per_token < 10 else f"{weights_per_token:.0f}"
    level, reason = sum(epochs > each for each in MAX_EPOCHS_OF_LEVELS), describe_epochs(epochs)
    memorises = weights_per_token > MANY_WEIGHTS_PER_TOKEN and epochs >= MIN_MEMORISING_EPOCHS
    if is_recurrent and memorises and level < len(MAX_EPOCHS_OF_LEVELS) and not context.is_comparison:
        return level + 1, f"{reason}, and a network with about {count} weights per training token one level more"
    bounds = MAX_RECURRENT_DROPOUT_LEVELS if is_recurrent else MAX_DROPOUT_LEVELS
    max_level = next((each for bound, each in bounds if weights_per_token < bound), level)
    underfits = f"about {count} weights per training token: more dropout underfits"
    return (max_level, underfits) if max_level < level else (level, reason)


def estimate_weights(settings: ResolvedSettings, context: DefaultsContext) -> int:
    """Returns about how many weights the layers and the embedding have."""
    width, layer_weights = settings.network.width, LAYER_WEIGHTS.get(get_cell_name(settings), OTHER_LAYER_WEIGHTS)
    return layer_weights * width * width * settings.network.depth + width * context.vocabulary_size


def is_regularized(settings: ResolvedSettings, context: DefaultsContext) -> bool:
    """Returns whether the defaults are those of the regularised LSTM: on a GPU, for many epochs, if no size is set.

    Not in a comparison, where all families have the same kinds of sizes and of regularisation.
    """
    has_sizes = not {"width", "depth", "embedding"}.isdisjoint(settings.network.model_fields_set)
    has_sizes |= settings.recurrent.sum_layers  # of which all layers have the same width
    is_text_small = context.num_tokens < SMALL_TEXT
    if settings.model != "lstm" or not context.cuda or context.is_comparison or has_sizes or is_text_small:
        return False
    epochs = estimate_epochs(settings, context, REGULARIZED_SPEEDS[context.bfloat16])
    return epochs > MIN_REGULARIZED_EPOCHS


def set_regularized_defaults(settings: ResolvedSettings, context: DefaultsContext, set_default: SetDefault) -> None:
    """Chooses an LSTM as Merity et al. 2018: wide layers, a narrow embedding, and dropout everywhere."""
    epochs = estimate_epochs(settings, context, REGULARIZED_SPEEDS[context.bfloat16])
    reason = f"{describe_epochs(epochs)}, and then wide layers are better (Merity et al. 2018)"
    values = {
        "network.width": 1024,
        "network.depth": 3,
        "network.embedding": 400,
        "recurrent.last_width": 400,
        "network.embedding_dropout": 0.1,
        "network.input_dropout": 0.5,
        "network.dropout": 0.2,
        "network.output_dropout": 0.4,
        "recurrent.weight_dropout": 0.5,
        "recurrent.activation_regularization": 2.0,
        "recurrent.temporal_regularization": 1.0,
        "data.window": 70,
    }
    if settings.training.optimizer == "adamw":
        values["training.weight_decay"] = 1e-3
    for name, value in values.items():
        set_default(name, value, reason)
    set_batch_size(100, context, set_default, reason)


def set_forget_bias(settings: ResolvedSettings, set_default: SetDefault) -> None:
    """Chooses the initial bias of the forget gate of an LSTM.

    Several layers with weight dropout and open forget gates stay at the word frequencies: docs/log.md.
    """
    is_closed = settings.network.depth > 1 and settings.recurrent.weight_dropout > 0
    reason = "several layers with weight dropout do not learn with open forget gates" if is_closed else "usual"
    set_default("recurrent.forget_bias", 0.0 if is_closed else 1.0, reason)
