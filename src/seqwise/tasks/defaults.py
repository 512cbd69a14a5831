"""What an expert would have set: the rules that fill every setting left open, from the data, the budget, the machine.

Each rule is a line below with its reason; the numbers come from the searches in docs/log.md. The chosen values are
printed and saved with the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from seqwise.budget import Budget
from seqwise.config import RECURRENT as RECURRENT
from seqwise.config import Settings
from seqwise.resolved_settings import ResolvedSettings

DEFAULT_BUDGET = "10m"

Fill = Callable[[str, Any], None]


@dataclass(frozen=True)
class DefaultsContext:
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


def resolve(settings: Settings, facts: DefaultsContext) -> tuple[ResolvedSettings, list[str]]:
    """Settings without a gap, and the dotted names of those that were chosen here."""
    chosen = ResolvedSettings.from_settings(settings)
    names: list[str] = []

    def fill(path: str, value: Any) -> None:
        section, _, key = path.rpartition(".")
        home = getattr(chosen, section) if section else chosen
        if key not in home.model_fields_set:
            setattr(home, key, value)
            names.append(path)

    if chosen.model == "ngram":
        return chosen, names
    fill("budget", DEFAULT_BUDGET)
    if facts.vectors:
        fill("network.embedding", facts.vectors)
    rules = import_module(f"seqwise.tasks.{chosen.task}.defaults")  # each task has its own module of rules
    getattr(rules, f"fill_{chosen.task}")(chosen, facts, fill)
    fill("training.ema", 0.0)  # where the rules of the task do not say otherwise
    if not chosen.training.validate_every:
        fill("training.patience", 8)  # of 20 validations: data read to pieces does not get better
    fill("training.precision", "bfloat16" if facts.cuda and facts.bfloat16 else "float32")
    return chosen, names


def expected_epochs(chosen: ResolvedSettings, facts: DefaultsContext) -> float:
    """How often the budget will read the text; for a time budget by the arithmetic of the model."""
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
    """Heads about `each` wide, or a few; their own width is even, as rotary positions need, where that is possible."""
    return next((heads for heads in (width // each, 4, 2, 1) if heads and width % (2 * heads) == 0), 1)
