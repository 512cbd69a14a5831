"""What an expert would have set: the rules that fill every setting left open, from the data, the budget, the machine.

Each rule is one line of `resolve`, with its reason. The chosen values are printed and saved with the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqwise.config import Settings

RECURRENT = ("rnn", "gru", "lstm", "attentive-rnn")
DEFAULT_BUDGET = "10m"


@dataclass(frozen=True)
class Facts:
    """What the rules may look at."""

    tokens: int  # in the training split
    vocabulary: int
    cuda: bool


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
    fill("data.order", "windows" if chosen.model == "transformer" else "streams")
    _fill_size(chosen, facts, fill)
    _fill_optimisation(chosen, facts, fill)
    return chosen, names


def _fill_size(chosen: Settings, facts: Facts, fill: Any) -> None:
    """Width from the amount of data; twice as wide where a GPU makes width cheap."""
    small, middle = facts.tokens < 300_000, facts.tokens < 5_000_000
    width = 192 if small else 256 if middle else 384
    fill("network.width", width * (2 if facts.cuda else 1))
    fill("network.depth", 4 if chosen.model == "transformer" else 2 if chosen.model in RECURRENT else 1)
    fill("network.embedding", chosen.network.width)
    fill("network.dropout", 0.1)
    fill("recurrent.weight_dropout", 0.0)
    width = chosen.network.width or width
    fill("transformer.heads", max(1, width // 64) if width % 64 == 0 else 1)
    fill("transformer.hidden", 4 * width)


def _fill_optimisation(chosen: Settings, facts: Facts, fill: Any) -> None:
    transformer = chosen.model == "transformer"
    fill("data.window", (256 if facts.cuda else 128) if transformer else 64)
    rows = 64 if facts.cuda else 16
    fill("training.batch", rows)
    sgd = chosen.training.optimizer != "adamw"
    fill("training.learning_rate", 10.0 if sgd else 1e-3 if transformer else 3e-3)
    fill("training.weight_decay", 1e-6 if sgd else 0.1 if transformer else 0.01)
    fill("training.precision", "bfloat16" if facts.cuda else "float32")
    _fit_to_text(chosen, facts)


def _fit_to_text(chosen: Settings, facts: Facts) -> None:
    """A short text still gives eight batches an epoch."""
