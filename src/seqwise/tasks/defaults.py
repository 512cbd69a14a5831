"""Default rules: every setting that the user left open is chosen from the data, the budget and the machine.

Each task has its own rules in its `defaults.py`; here is what they share, and the rules of tasks without their own. The
numbers come from the searches in docs/log.md. The chosen values are printed and saved with the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seqwise.budget import Budget
from seqwise.config import Settings
from seqwise.families import RECURRENT as RECURRENT
from seqwise.families import get_family
from seqwise.resolved_settings import ResolvedSettings
from seqwise.task_registry import find_task

DEFAULT_BUDGET = "10m"

Fill = Callable[[str, Any], None]


@dataclass(frozen=True)
class DefaultsContext:
    """What the default rules depend on: the data and the machine."""

    tokens: int  # in the training split
    vocabulary: int
    cuda: bool
    cores: int
    processes: int = 1
    bfloat16: bool = False  # supported by the device itself, not emulated
    examples: int = 0  # in the training split: sentences, pairs, pictures or windows
    longest: int = 0  # tokens of the longest example
    outputs: int = 0  # labels, tags or values to choose from
    vectors: int = 0  # width of the pretrained word vectors; 0: none


def resolve(settings: Settings, facts: DefaultsContext) -> tuple[ResolvedSettings, list[str]]:
    """Returns the settings with every gap filled, and the dotted names of the settings that were chosen here."""
    chosen = ResolvedSettings.from_settings(settings)
    names: list[str] = []

    def fill(path: str, value: Any) -> None:
        section, _, key = path.rpartition(".")
        home = getattr(chosen, section) if section else chosen
        if key not in home.model_fields_set:
            setattr(home, key, value)
            names.append(path)

    if not get_family(chosen.model).has_gradients:
        return chosen, names  # it has nothing to choose
    fill("budget", DEFAULT_BUDGET)
    if facts.vectors:
        fill("network.embedding", facts.vectors)
    find_task(chosen.task).fill_defaults(chosen, facts, fill)
    fill("training.ema", 0.0)  # where the rules of the task do not say otherwise
    if not chosen.training.validate_every:
        fill("training.patience", 8)  # of 20 validations: data read to pieces does not get better
    fill("training.precision", "bfloat16" if facts.cuda and facts.bfloat16 else "float32")
    return chosen, names


def expected_epochs(chosen: ResolvedSettings, facts: DefaultsContext) -> float:
    """Returns how often the budget passes over the text; for a time budget, estimated from the size of the model."""
    budget = Budget.parse(chosen.budget)
    if budget.unit == "epochs":
        return budget.amount
    tokens = budget.amount
    if budget.unit == "seconds":
        width, depth = chosen.network.width, chosen.network.depth
        weights = 10 * width * width * depth + width * facts.vocabulary  # 8 or 12 D² a layer, and the softmax
        speed = 5e13 if facts.cuda else 6e10 * facts.cores  # operations per second that small models reach
        tokens = budget.amount * min(speed / (6 * weights), 1_000_000 if facts.cuda else 40_000)
    return tokens / max(1, facts.tokens)


def heads_of(width: int, each: int) -> int:
    """Returns a number of heads about `each` wide; where possible of even width, as rotary positions need."""
    return next((heads for heads in (width // each, 4, 2, 1) if heads and width % (2 * heads) == 0), 1)


def fill_common(chosen: ResolvedSettings, facts: DefaultsContext, fill: Fill) -> None:
    """The rules of a task without its own: a small network, since labelled examples are usually few."""
    transformer = chosen.model == "transformer"
    fill("network.width", 256 if facts.cuda else 128)
    fill("network.depth", 2 if transformer else 1)
    fill("network.embedding", chosen.network.width)
    fill("network.dropout", 0.2)
    if transformer:
        fill("transformer.heads", heads_of(chosen.network.width, 32))
        fill("transformer.hidden", 4 * chosen.network.width)
    fill("data.max_length", max(1, min(512, facts.longest)))
    fill("data.max_tokens", 32_768 if facts.cuda else 8_192)
    rows = max(1, min(32, facts.examples // 8))
    fill("training.batch_size", math.ceil(rows / facts.processes) * facts.processes)
    fill("training.learning_rate", 1e-3 if transformer else 3e-3)
    fill("training.weight_decay", 0.01)
