"""Default rules of the language task: sizes, batches, regularisation and optimisation, from the data and the machine.

The numbers come from the searches in docs/log.md.
"""

from __future__ import annotations

import math

from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import RECURRENT, DefaultsContext, Fill, expected_epochs, heads_of


def fill_language(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """The rules of the language task."""
    _fill_size(chosen, facts, fill)
    _fill_batches(chosen, facts, fill)
    _fill_regularisation(chosen, facts, fill)
    _fill_optimisation(chosen, facts, fill)


def _fill_size(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """More text carries a wider model; a CPU has time for one recurrent layer, a GPU for two."""
    transformer = chosen.model == "transformer"
    few = facts.tokens < 200_000
    if facts.cuda:
        fill("network.width", 256 if few else 384 if transformer else 650)
        fill("network.depth", 6 if transformer else 2)
    else:
        fill("network.width", 128 if few else 256 if transformer or chosen.model == "feedforward" else 384)
        fill("network.depth", 1 if chosen.model in RECURRENT else 2)
    fill("network.embedding", chosen.network.width)
    width = chosen.network.width
    if transformer:
        fill("transformer.heads", heads_of(width, 64))
        fill("transformer.hidden", 4 * width)


def _fill_batches(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """Small batches: at a given number of tokens more updates learn more, until the machine is no longer busy."""
    transformer = chosen.model == "transformer"
    fill("data.order", "windows" if transformer else "streams")
    longest = (256 if transformer else 128) if facts.cuda else 64
    # A short text still gives an epoch of a few updates.
    fill("data.window", max(2, min(longest, facts.tokens // 64)))
    rows = max(1, min(64 if facts.cuda else 16, facts.tokens // 256))
    fill("training.batch_size", math.ceil(rows / facts.processes) * facts.processes)  # each process has as many


def _fill_regularisation(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """The more often the same text is read, the more dropout."""
    epochs = expected_epochs(chosen, facts)
    step = 0 if epochs <= 6 else 1 if epochs <= 15 else 2 if epochs <= 40 else 3
    transformer = chosen.model == "transformer"
    fill("network.dropout", (0.0, 0.1, 0.2, 0.3)[step] if transformer else (0.1, 0.2, 0.35, 0.5)[step])
    if chosen.model in RECURRENT:
        fill("recurrent.weight_dropout", (0.0, 0.0, 0.2, 0.4)[step])


def _fill_optimisation(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """Larger networks take smaller steps."""
    adam = chosen.training.optimizer == "adamw"
    size = chosen.network.width * chosen.network.depth
    peak, at = {"transformer": (3e-3, 512), "feedforward": (2e-3, 512), "rnn": (4e-3, 384)}.get(
        chosen.model, (6e-3, 384)
    )
    fill("training.learning_rate", float(f"{peak * (at / size) ** 0.5:.2g}") if adam else 10.0)
    fill("training.weight_decay", (0.1 if chosen.model == "transformer" else 0.01) if adam else 1e-6)
