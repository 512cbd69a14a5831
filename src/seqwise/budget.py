"""Training budgets in seconds, tokens or epochs, and a maximum number of epochs within them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Literal

from seqwise.errors import UsageError

Unit = Literal["seconds", "tokens", "epochs"]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SCALES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "B": 10**9}
MAX_AMOUNT = 1e15  # of seconds, tokens or epochs
_MAXIMUM = "the maximum (training.max_epochs)"  # the end of a reason why training has ended
_EXAMPLES = "Write a time (90s, 5m, 1h), a number of tokens (500k-tokens, 2M-tokens) or of epochs (3-epochs)."


def parse_count(text: str) -> int | None:
    """Parses an abbreviated number such as `300k`, `1.5M` or `2000`; returns None for other texts."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kMGB]?)", text)
    return None if match is None else round(min(float(match[1]), MAX_AMOUNT + 1) * _SCALES[match[2]])


def has_reached_max_epochs(reason: str) -> bool:
    """Returns whether the reason why a training has ended is its maximum of epochs, rather than its budget."""
    return reason.endswith(_MAXIMUM)


@dataclass(frozen=True)
class Budget:
    """An amount of training in one unit. Training ends earlier after `max_epochs`, unless that is 0."""

    amount: float
    unit: Unit
    max_epochs: int = 0

    @classmethod
    def parse(cls, text: str, max_epochs: int = 0) -> Budget:
        """Parses a budget such as `90s`, `5m`, `1h`, `2M-tokens` or `3-epochs`."""
        if match := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text):
            budget = cls(float(match[1]) * _SECONDS[match[2]], "seconds")
        elif (match := re.fullmatch(r"(.+)-tokens?", text)) and (count := parse_count(match[1])) is not None:
            budget = cls(float(count), "tokens")
        elif match := re.fullmatch(r"(\d+(?:\.\d+)?)-epochs?", text):
            budget = cls(float(match[1]), "epochs")
        else:
            raise UsageError(f"the budget {text!r} is not understood.{_suggest_unit(text)}", fix=_EXAMPLES)
        if budget.amount <= 0:
            raise UsageError(f"the budget {text!r} is empty.", fix=_EXAMPLES)
        if budget.amount > MAX_AMOUNT:
            raise UsageError(f"the budget {text[:40]!r} is too large: no training takes so long.", fix=_EXAMPLES)
        return replace(budget, max_epochs=max_epochs)

    def get_progress(self, seconds: float, tokens: int, epochs: float) -> float:
        """Returns the fraction of the budget that is spent, or of `max_epochs` if that is larger, 0 to 1."""
        share = self._get_spent_share(seconds, tokens, epochs)
        return min(1.0, max(share, epochs / (self.max_epochs or math.inf)))

    def explain_end(self, seconds: float, tokens: int, epochs: float) -> str:
        """Returns why training ends: the budget is spent, or before that `max_epochs` is reached."""
        if not self.max_epochs or epochs < self.max_epochs or self._get_spent_share(seconds, tokens, epochs) >= 1:
            return "the budget is spent"
        return f"{self.max_epochs} epochs are {_MAXIMUM}" if self.max_epochs > 1 else f"1 epoch is {_MAXIMUM}"

    def build_spent_error(self, seconds: float, tokens: int, epochs: float) -> UsageError:
        """Returns the error for a run that is to be resumed with this budget, but has spent it already."""
        if has_reached_max_epochs(reason := self.explain_end(seconds, tokens, epochs)):
            fix = "Start a new run with a larger --training.max-epochs."
            return UsageError(f"--budget: this run has ended, because {reason}.", fix=fix)
        spent = f"{seconds:,.0f} s of training, {tokens:,} tokens"
        return UsageError(
            f"--budget: this run has already used {self} or more ({spent}).",
            fix="Name a larger budget. It counts from the start of the run.",
        )

    def _get_spent_share(self, seconds: float, tokens: int, epochs: float) -> float:
        return {"seconds": seconds, "tokens": tokens, "epochs": epochs}[self.unit] / self.amount

    def count_tokens_left(self, tokens: int) -> float:
        """Returns the number of tokens left after training on `tokens`; infinity for a budget in another unit."""
        return self.amount - tokens if self.unit == "tokens" else math.inf

    def __str__(self) -> str:
        if self.unit != "seconds":
            return f"{self.amount:,.10g} {self.unit}"
        minutes, seconds = divmod(self.amount, 60)
        return f"{minutes:g} min" if seconds == 0 else f"{self.amount:g} s"


def _suggest_unit(text: str) -> str:
    """Returns a suggestion for a number without a unit, else ""."""
    count = parse_count(text)
    if not count:
        return ""
    may_be_seconds = text[-1].isdigit() and count <= _SECONDS["d"]  # longer times are rarely given in seconds
    return f" Perhaps you meant {f'{text}s or ' if may_be_seconds else ''}{text}-tokens."
