"""The rules that fill the settings left open of the task translate."""

from __future__ import annotations

import math

from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import RECURRENT, DefaultsContext, Fill, expected_epochs, heads_of

SMALL = 500  # tokens of a vocabulary up to which texts are spelled


def fill_translate(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """Sizes, batches, regularisation, optimisation."""
    _fill_size(chosen, facts, fill)
    _fill_batches(chosen, facts, fill)
    _fill_training(chosen, facts, fill)


def _fill_size(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """Some ten thousand sentences carry a small model; a CPU has time for a smaller one."""
    transformer, spelled = chosen.model == "transformer", facts.vocabulary <= SMALL
    large = facts.tokens > 20_000_000
    if facts.cuda:
        fill("network.width", (512 if large else 256) if transformer else (1024 if large else 512))
        fill("network.depth", (6 if large else 4) if transformer else (2 if large else 1))
    else:
        fill("network.width", 128 if spelled else 256)
        fill("network.depth", 2 if transformer else 1)
    width = chosen.network.width
    # Spelled texts have few tokens, whose vectors need little room.
    fill("network.embedding", width if transformer or not spelled else max(1, width // 2))
    if chosen.model in RECURRENT:
        fill("recurrent.weight_dropout", 0.0)
        fill("recurrent.bidirectional", True)
        fill("recurrent.concat_directions", True)
    if transformer:
        fill("transformer.heads", heads_of(width, 32))
        fill("transformer.hidden", 4 * width)


def _fill_batches(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """A budget of steps: as many short pairs as long ones cost. A GPU is busy with some thousands."""
    fill("data.max_length", max(1, min(512, facts.longest)))
    # builtin:dates, a Transformer after 120k tokens: exact 24 % with 64 rows, 74 % with 32, for a fifth more time.
    rows = 512 if facts.cuda else 32 if chosen.model == "transformer" else 64
    few = max(1, facts.examples // 20)  # a small set still gives an epoch of some updates
    fill("training.batch_size", math.ceil(min(rows, few) / facts.processes) * facts.processes)
    fill("data.max_tokens", max(chosen.data.max_length, 6_144 if facts.cuda else 2_048) + 1)


def _fill_training(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """The oftener the same pairs are read, the more must be dropped; larger networks take smaller steps."""
    transformer, spelled = chosen.model == "transformer", facts.vocabulary <= SMALL
    if spelled:
        fill("network.dropout", 0.1)
        fill("translate.label_smoothing", 0.0)
    else:
        often = expected_epochs(chosen, facts) > 8 and facts.tokens < 5_000_000
        fill("network.dropout", (0.3 if often else 0.1) if transformer else (0.4 if often else 0.2))
        fill("translate.label_smoothing", 0.1)
    adam = chosen.training.optimizer == "adamw"
    size = chosen.network.width * chosen.network.depth
    # builtin:dates, 114 updates of an LSTM of width 128: exact 3 % at 0.004, 31 % at 0.008, 86 % at 0.015.
    usual = 1e-2 if spelled else 3e-3
    peak, at = {"transformer": (1.5e-3, 512), "rnn": (1e-3, 256), "feedforward": (2e-3, 256)}.get(
        chosen.model, (usual, 256)
    )
    fill("training.learning_rate", float(f"{peak * (at / size) ** 0.5:.2g}") if adam else 1.0)
    fill("training.weight_decay", 0.01 if adam else 1e-6)
    if facts.cuda and adam:
        fill("training.ema", 0.999)  # Multi30k, LSTM: validation BLEU 36.8 against 36.2
