"""How long to train: seconds, tokens or epochs, and how far along a run is."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from seqwise.errors import UsageError

Unit = Literal["seconds", "tokens", "epochs"]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SCALES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "B": 10**9}
_EXAMPLES = "Write a time (90s, 5m, 1h), a number of tokens (500k-tokens, 2M-tokens) or of epochs (3-epochs)."


def parse_count(text: str) -> int | None:
    """`300k`, `1.5M`, `2000` → the number; None: it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kMGB]?)", text)
    return None if found is None else round(float(found[1]) * _SCALES[found[2]])


@dataclass(frozen=True)
class Budget:
    """An amount of training in one unit."""

    amount: float
    unit: Unit

    @classmethod
    def parse(cls, text: str) -> Budget:
        """`90s`, `5m`, `1h`, `2M-tokens`, `3-epochs`."""
        if found := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text):
            budget = cls(float(found[1]) * _SECONDS[found[2]], "seconds")
        elif (found := re.fullmatch(r"(.+)-tokens?", text)) and (count := parse_count(found[1])) is not None:
            budget = cls(float(count), "tokens")
        elif found := re.fullmatch(r"(\d+(?:\.\d+)?)-epochs?", text):
            budget = cls(float(found[1]), "epochs")
        else:
            raise UsageError(f"the budget {text!r} is not understood.{_suggestion(text)}", repair=_EXAMPLES)
        if budget.amount <= 0:
            raise UsageError(f"the budget {text!r} is empty.", repair=_EXAMPLES)
        return budget

    def progress(self, seconds: float, tokens: int, epochs: float) -> float:
        """Share of the budget that is spent, 0 to 1."""
        spent = {"seconds": seconds, "tokens": tokens, "epochs": epochs}[self.unit]
        return min(1.0, spent / self.amount)

    def tokens_left(self, tokens: int) -> float:
        """How many more tokens may be learned from after so many; without end for a budget in another unit."""
        return self.amount - tokens if self.unit == "tokens" else math.inf

    def __str__(self) -> str:
        if self.unit != "seconds":
            return f"{self.amount:,.10g} {self.unit}"
        minutes, seconds = divmod(self.amount, 60)
        return f"{minutes:g} min" if seconds == 0 else f"{self.amount:g} s"


def _suggestion(text: str) -> str:
    """What a number without a unit may stand for."""
    count = parse_count(text)
    if not count:
        return ""
    plain = text[-1].isdigit() and count <= _SECONDS["d"]  # longer trainings are not counted in seconds
    return f" Perhaps you meant {f'{text}s or ' if plain else ''}{text}-tokens."
