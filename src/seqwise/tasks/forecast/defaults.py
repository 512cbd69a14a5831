"""The rules of the task forecast for settings left open. Series are small and noisy: small networks, much dropout.

Horizon, past, season, splits and quantiles are chosen when the data is read (`tasks/forecast/task.py`).
"""

from __future__ import annotations

import math

from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import RECURRENT, DefaultsContext, Fill, heads_of

SHORT = 64  # a past up to so many steps is read step by step
PATCHES = 14  # a longer one in about so many patches


def fill_forecast(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """Everything but budget and patience."""
    family = chosen.model
    few = facts.examples < 2_000
    fill("network.width", {"transformer": 16, "feedforward": 128}.get(family, 32 if few else 64))
    fill("network.depth", 2 if family == "transformer" else 1)
    fill("network.embedding", chosen.network.width)
    # Noise is learned by heart within two epochs otherwise.
    fill("network.dropout", 0.5 if family in RECURRENT else 0.3)
    if family in RECURRENT:
        fill("recurrent.weight_dropout", 0.0)
    if family == "transformer":
        width = chosen.network.width
        fill("transformer.heads", heads_of(width, max(1, width // 4)))
        fill("transformer.hidden", 4 * width)
    fill("forecast.patch", patch_of(facts.longest))
    rows = max(1, min(1024 if facts.cuda else 256, facts.examples // 8))
    fill("training.batch_size", math.ceil(rows / facts.processes) * facts.processes)
    # Few windows make few updates. builtin:sunspots, gru, 60 epochs, one seed: validation MSE 0.454, with 5e-4 0.470.
    fill("training.learning_rate", 2e-3 if few else 1e-3 if family == "transformer" else 5e-4)
    fill("training.weight_decay", 0.01)
    fill("training.precision", "float32")  # the models are small, and values have more digits than bfloat16


def patch_of(past: int) -> int:
    """Steps read at once: one by one in a short past, else the largest number that divides it evenly."""
    if past <= SHORT:
        return 1
    most = past // PATCHES
    return next((size for size in range(most, most // 2, -1) if past % size == 0), most)
