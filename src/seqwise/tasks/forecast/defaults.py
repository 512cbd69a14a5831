"""Default settings of forecasting. Series are short and noisy: small networks, much dropout.

Horizon, lookback, season, splits and quantiles are chosen when the data is read (`tasks/forecast/task.py`).
"""

from __future__ import annotations

import math

from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import RECURRENT, DefaultsContext, Fill, choose_num_heads

MAX_STEPWISE_LOOKBACK = 64  # a longer past is read in patches
NUM_PATCHES = 14
MANY_WINDOWS = 2_000


def fill_forecast(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """Fills in everything but budget and patience."""
    model, has_few_windows = settings.model, context.examples < MANY_WINDOWS
    fill("network.width", {"transformer": 16, "feedforward": 128}.get(model, 32 if has_few_windows else 64))
    fill("network.depth", 2 if model == "transformer" else 1)
    fill("network.embedding", settings.network.width)
    # Without it the noise is memorised within two epochs.
    fill("network.dropout", 0.5 if model in RECURRENT else 0.3)
    if model in RECURRENT:
        fill("recurrent.weight_dropout", 0.0)
    if model == "transformer":
        width = settings.network.width
        fill("transformer.heads", choose_num_heads(width, max(1, width // 4)))
        fill("transformer.hidden", 4 * width)
    fill("forecast.patch", choose_patch_size(context.longest))
    batch_size = max(1, min(1024 if context.cuda else 256, context.examples // 8))
    fill("training.batch_size", math.ceil(batch_size / context.processes) * context.processes)
    # Few windows make few updates. builtin:sunspots, gru, 60 epochs, one seed: validation MSE 0.454, with 5e-4 0.470.
    fill("training.learning_rate", 2e-3 if has_few_windows else 1e-3 if model == "transformer" else 5e-4)
    fill("training.weight_decay", 0.01)
    fill("training.precision", "float32")  # the models are small, and values have more digits than bfloat16


def choose_patch_size(lookback: int) -> int:
    """Returns the steps per patch: 1 for a short past, else the largest size that divides it, near NUM_PATCHES."""
    if lookback <= MAX_STEPWISE_LOOKBACK:
        return 1
    max_size = lookback // NUM_PATCHES
    return next((size for size in range(max_size, max_size // 2, -1) if lookback % size == 0), max_size)
