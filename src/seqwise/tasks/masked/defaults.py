"""The rules of the task masked. They follow those of the language task; where they differ, the reason is given here."""

from __future__ import annotations

import math

from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import RECURRENT, DefaultsContext, Fill, expected_epochs, heads_of


def fill_masked(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """Sizes, batches, regularisation, optimisation."""
    _fill_size(chosen, facts, fill)
    _fill_batches(chosen, facts, fill)
    _fill_training(chosen, facts, fill)


def _fill_size(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """A recurrent model is two language models, each half as wide as the whole."""
    recurrent, transformer = chosen.model in RECURRENT, chosen.model == "transformer"
    few = facts.tokens < 200_000
    if facts.cuda:
        fill("network.width", (512 if few else 1024) if recurrent else (256 if few else 512))
        fill("network.depth", 6 if transformer else 2)
    else:
        fill("network.width", (256 if few else 512) if recurrent else (128 if few else 256))
        fill("network.depth", 1 if recurrent else 2)
    width = chosen.network.width
    fill("network.embedding", -(-width // 2) if recurrent else width)
    if recurrent:
        fill("recurrent.bidirectional", True)
        fill("recurrent.concat_directions", False)  # concatenated directions would see what they predict
    if transformer:
        fill("transformer.heads", heads_of(width, 64))
        fill("transformer.hidden", 4 * width)


def _fill_batches(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """Twice the rows of the language task where only every seventh token is a target."""
    fill("data.order", "windows")
    fill("data.window", max(3, min(128 if facts.cuda else 64, facts.tokens // 64)))
    most = (128 if facts.cuda else 32) if chosen.model not in RECURRENT else (64 if facts.cuda else 16)
    rows = max(1, min(most, facts.tokens // 256))
    fill("training.batch_size", math.ceil(rows / facts.processes) * facts.processes)
    window = chosen.data.window if isinstance(chosen.data.window, int) else 1
    fill("data.max_length", window)
    fill("data.max_tokens", chosen.training.batch_size * window)


def _fill_training(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """Each epoch hides other tokens, so less must be dropped than in the language task."""
    transformer = chosen.model == "transformer"
    epochs = expected_epochs(chosen, facts)
    step = 0 if epochs <= 6 else 1 if epochs <= 15 else 2 if epochs <= 40 else 3
    fill("network.dropout", (0.0, 0.0, 0.1, 0.1)[step] if transformer else (0.1, 0.2, 0.3, 0.4)[step])
    if chosen.model in RECURRENT:
        fill("recurrent.weight_dropout", (0.0, 0.0, 0.1, 0.2)[step])
    adam = chosen.training.optimizer == "adamw"
    size = chosen.network.width * chosen.network.depth
    peak, at = {"transformer": (2e-3, 512), "feedforward": (2e-3, 512), "rnn": (3e-3, 512)}.get(
        chosen.model, (5e-3, 512)
    )
    fill("training.learning_rate", float(f"{peak * (at / size) ** 0.5:.2g}") if adam else 10.0)
    fill("training.weight_decay", (0.1 if transformer else 0.01) if adam else 1e-6)
