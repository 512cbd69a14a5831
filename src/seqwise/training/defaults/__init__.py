"""What an expert would have set: the rules that fill every setting left open, from the data, the budget, the machine.

Each rule is a line below with its reason; the numbers come from the searches in docs/log.md. The chosen values are
printed and saved with the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from seqwise.config import RECURRENT as RECURRENT
from seqwise.config import Settings
from seqwise.errors import UsageError
from seqwise.training.budgets import Budget

DEFAULT_BUDGET = "10m"

Fill = Callable[[str, Any], None]


@dataclass(frozen=True)
class Facts:
    """What the rules may look at."""

    tokens: int  # in the training split
    vocabulary: int
    cuda: bool
    cores: int
    processes: int = 1
    bfloat16: bool = False  # the device computes in it, not just pretends to
    examples: int = 0  # sentences, pairs, pictures or windows, where the task has such
    longest: int = 0  # tokens of the longest example
    outputs: int = 0  # labels, tags or values to choose from
    vectors: int = 0  # width of the word vectors to start from, where there are some


def resolve(settings: Settings, facts: Facts) -> tuple[Settings, list[str]]:
    """Settings without a gap, and the dotted names of those that were chosen here."""
    chosen = settings.model_copy(deep=True)
    names: list[str] = []

    def fill(path: str, value: Any) -> None:
        section, _, key = path.rpartition(".")
        home = getattr(chosen, section) if section else chosen
        if getattr(home, key) is None:
            setattr(home, key, value)
            names.append(path)

    if chosen.model == "ngram":
        return chosen, names
    fill("budget", DEFAULT_BUDGET)
    if facts.vectors:
        fill("network.embedding", facts.vectors)
    if chosen.task in (None, "language"):
        fill_language(chosen, facts, fill)
    else:  # each task has its own page of rules
        page = import_module(f"seqwise.training.defaults.{chosen.task}")
        getattr(page, f"fill_{chosen.task}")(chosen, facts, fill)
    fill("training.ema", 0.0)  # where the rules of the task do not say otherwise
    if chosen.training.validate_every is None:
        fill("training.patience", 8)  # of 20 validations: data read to pieces does not get better
    fill("training.precision", "bfloat16" if facts.cuda and facts.bfloat16 else "float32")
    return chosen, names


def fill_language(chosen: Settings, facts: Facts, fill: Fill) -> None:
    """The rules of the language task."""
    _fill_size(chosen, facts, fill)
    _fill_batches(chosen, facts, fill)
    _fill_regularisation(chosen, facts, fill)
    _fill_optimisation(chosen, facts, fill)


def _fill_size(chosen: Settings, facts: Facts, fill: Fill) -> None:
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
    width = _number(chosen.network.width)
    if transformer:
        fill("transformer.heads", heads_of(width, 64))
        fill("transformer.hidden", 4 * width)


def _fill_batches(chosen: Settings, facts: Facts, fill: Fill) -> None:
    """Small batches: at a given number of tokens more updates learn more, until the machine is no longer busy."""
    transformer = chosen.model == "transformer"
    fill("data.order", "windows" if transformer else "streams")
    longest = (256 if transformer else 128) if facts.cuda else 64
    # A short text still gives an epoch of a few updates.
    fill("data.window", max(2, min(longest, facts.tokens // 64)))
    rows = max(1, min(64 if facts.cuda else 16, facts.tokens // 256))
    fill("training.batch", math.ceil(rows / facts.processes) * facts.processes)  # each process has as many


def _fill_regularisation(chosen: Settings, facts: Facts, fill: Fill) -> None:
    """The oftener the same text is read, the more must be dropped."""
    epochs = expected_epochs(chosen, facts)
    step = 0 if epochs <= 6 else 1 if epochs <= 15 else 2 if epochs <= 40 else 3
    transformer = chosen.model == "transformer"
    fill("network.dropout", (0.0, 0.1, 0.2, 0.3)[step] if transformer else (0.1, 0.2, 0.35, 0.5)[step])
    if chosen.model in RECURRENT:
        fill("recurrent.weight_dropout", (0.0, 0.0, 0.2, 0.4)[step])


def _fill_optimisation(chosen: Settings, facts: Facts, fill: Fill) -> None:
    """Larger networks take smaller steps."""
    adam = chosen.training.optimizer == "adamw"
    size = _number(chosen.network.width) * _number(chosen.network.depth)
    peak, at = {"transformer": (3e-3, 512), "feedforward": (2e-3, 512), "rnn": (4e-3, 384)}.get(
        chosen.model, (6e-3, 384)
    )
    fill("training.learning_rate", float(f"{peak * (at / size) ** 0.5:.2g}") if adam else 10.0)
    fill("training.weight_decay", (0.1 if chosen.model == "transformer" else 0.01) if adam else 1e-6)


def expected_epochs(chosen: Settings, facts: Facts) -> float:
    """How often the budget will read the text; for a time budget by the arithmetic of the model."""
    budget = Budget.parse(chosen.budget or DEFAULT_BUDGET)
    if budget.unit == "epochs":
        return budget.amount
    tokens = budget.amount
    if budget.unit == "seconds":
        width, depth = _number(chosen.network.width), _number(chosen.network.depth)
        weights = 10 * width * width * depth + width * facts.vocabulary  # 8 or 12 D² a layer, and the softmax
        speed = 5e13 if facts.cuda else 6e10 * facts.cores  # operations per second that small models reach
        tokens = budget.amount * min(speed / (6 * weights), 1_000_000 if facts.cuda else 40_000)
    return tokens / max(1, facts.tokens)


def heads_of(width: int, each: int) -> int:
    """Heads about `each` wide, or a few; their own width is even, as rotary positions need, where that is possible."""
    return next((heads for heads in (width // each, 4, 2, 1) if heads and width % (2 * heads) == 0), 1)


def _number(value: int | None) -> int:
    if value is None:
        raise UsageError("a size is missing.")  # cannot happen: sizes are filled first
    return value
