"""Divides the budget of a family among its trials; a budget that is too small for them is an error.

A training run of a handful of updates shows how a family begins, not how it learns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal

from seqwise.budget import Budget
from seqwise.errors import UsageError
from seqwise.resolved_settings import ResolvedSettings
from seqwise.training.validation import MAX_VALIDATION_SHARE, NUM_VALIDATIONS

if TYPE_CHECKING:
    from seqwise.tasks.task import Task

SEARCH_SHARE = 0.25  # of a family's budget, for its learning-rate search
MAX_LR_TRIAL_SHARE = 1 / 3  # of the budget of one seed, for one learning rate
MIN_SECONDS = 0.01  # of a trial
ROUNDING_ERROR = 1e-6  # of sums and products of decimal numbers
SAFETY_FACTOR = 1.2  # another measurement of the speed may be slower
NUM_SAMPLE_BATCHES = 8  # from which the tokens of an update are estimated

TrialKind = Literal["lr", "train"]
# In fewer than 20 updates the learning rate can hardly warm up and decay; the search has only to rank learning rates.
MIN_UPDATES: dict[TrialKind, int] = {"train": 20, "lr": 10}
TRIAL_NAMES: dict[TrialKind, str] = {"train": "training run", "lr": "learning-rate trial"}


@dataclass(frozen=True)
class TrialBudgets:
    """How the budget of a family is divided: `lr_trials` short training runs, then one for each seed."""

    total: str  # per seed
    lr_trials: int
    seeds: tuple[int, ...]
    lr_trial: str
    training: str

    @classmethod
    def divide(cls, text: str, lr_trials: int, seeds: tuple[int, ...], tokens_per_epoch: int) -> TrialBudgets:
        """Divides a budget; epochs are converted to tokens."""
        budget = Budget.parse(text)
        if budget.unit == "epochs":
            budget = Budget(float(round(budget.amount * tokens_per_epoch)), "tokens")
        lr_trial = _compute_lr_trial_share(lr_trials, len(seeds)) * budget.amount
        training = budget.amount - lr_trial * lr_trials / len(seeds)
        smallest = min(training, lr_trial) if lr_trials > 1 else training
        if budget.unit == "seconds" and smallest < MIN_SECONDS:
            problem = f"the budget {text} is too small to be divided among the trials."
            raise UsageError(problem, fix="Give a larger --budget, or fewer --lr-trials.")
        if budget.unit == "tokens" and smallest < 1:  # `check` raises an error that names a budget that suffices
            lr_trial, training = 1.0, 1.0
        total, *parts = (_format_amount(amount, budget.unit) for amount in (budget.amount, lr_trial, training))
        return cls(total, lr_trials, seeds, *parts)

    @property
    def is_timed(self) -> bool:
        return Budget.parse(self.training).unit == "seconds"

    def convert_to_tokens(self, update_seconds: float, update_tokens: float, validation_seconds: float) -> TokenBudgets:
        """Converts a time budget into tokens, at the speed of a family.

        Validations are part of the time, except the last one; they take at most `MAX_VALIDATION_SHARE` of it.
        """
        training = Budget.parse(self.training).amount
        lr_trial = Budget.parse(self.lr_trial).amount if self.lr_trials > 1 else 0.0
        validations = min(NUM_VALIDATIONS - 1, int(MAX_VALIDATION_SHARE * training / max(1e-9, validation_seconds)))
        updates = max(1.0, (training - validations * validation_seconds) / update_seconds)
        has_all_validations = validations == NUM_VALIDATIONS - 1
        return TokenBudgets(
            lr_trial=_round_down(max(1.0, lr_trial / update_seconds) * update_tokens),
            training=_round_down(updates * update_tokens),
            validate_every=0 if has_all_validations else math.ceil(updates / (validations + 1)),
            tokens_per_second=update_tokens / update_seconds,
        )

    def check(self, costs: Mapping[str, TrialCost], unit: str, tokens_per_epoch: int | None = None) -> None:
        """Raises an error if a trial is too short; with `tokens_per_epoch` the error suggests a total in epochs."""
        for name, cost in costs.items():
            for kind, amount in self.get_amounts().items():
                if amount < cost.compute_minimum(kind):
                    also = " and one validation" if kind == "train" and cost.validation else ""
                    minimum = (
                        f"{MIN_UPDATES[kind]} updates{also} take {_format_minimum(cost.compute_minimum(kind))} {unit}"
                    )
                    problem = f"{name}: a {TRIAL_NAMES[kind]} of {amount:,.10g} {unit} is too short: {minimum}."
                    raise UsageError(problem, fix=self._suggest_total(costs, tokens_per_epoch))

    def is_too_short(self, cost: TrialCost) -> bool:
        """Returns whether a trial of a family has less than it needs."""
        return any(amount < cost.compute_minimum(kind) for kind, amount in self.get_amounts().items())

    def get_amounts(self) -> dict[TrialKind, float]:
        """Returns the budget of one trial of each kind."""
        texts: dict[TrialKind, str] = {"train": self.training}
        if self.lr_trials > 1:
            texts["lr"] = self.lr_trial
        return {kind: Budget.parse(text).amount for kind, text in texts.items()}

    def _suggest_total(self, costs: Mapping[str, TrialCost], tokens_per_epoch: int | None) -> str:
        """Returns advice with the smallest total that gives every trial what it needs."""
        training, lr_trial = (max(cost.compute_minimum(kind) for cost in costs.values()) for kind in ("train", "lr"))
        share = _compute_lr_trial_share(self.lr_trials, len(self.seeds))
        factor = SAFETY_FACTOR
        if not self.is_timed:
            training, lr_trial, factor = math.ceil(training), math.ceil(lr_trial), 1.0  # parts are rounded down
        total = max(training / (1 - share * self.lr_trials / len(self.seeds)), lr_trial / share if share else 0.0)
        minimum = Budget(factor * total, "seconds" if self.is_timed else "tokens")
        if tokens_per_epoch is not None:
            minimum = Budget(total / tokens_per_epoch, "epochs")
        fewer = ", or fewer --lr-trials" if self.lr_trials > 1 else ""
        return f"Give a larger --budget, at least {format_budget_option(minimum)}{fewer}."


@dataclass(frozen=True)
class TokenBudgets:
    """The time budget of a family in tokens: all its seeds train on the same number, whatever the machine does."""

    lr_trial: int
    training: int
    validate_every: int  # updates; 0: at equal shares of the budget
    tokens_per_second: float


@dataclass(frozen=True)
class TrialCost:
    """What an update and a validation of a family cost, in the unit of the budget."""

    update: float
    validation: float = 0.0

    def compute_minimum(self, kind: TrialKind) -> float:
        """Returns what one trial needs at least; a trial of the learning-rate search is validated after its budget."""
        return MIN_UPDATES[kind] * self.update + (self.validation if kind == "train" else 0.0)


def estimate_token_cost(task: Task, settings: ResolvedSettings) -> TrialCost:
    """Returns the mean tokens of an update, estimated from the first batches; validations cost no tokens."""
    sizes = [batch.num_tokens for batch in islice(task.batches(settings).epoch(0), NUM_SAMPLE_BATCHES)]
    return TrialCost(sum(sizes) / len(sizes))


def format_budget_option(minimum: Budget) -> str:
    """Formats a budget as a short value of --budget, rounded up."""
    if minimum.unit == "epochs":
        return f"{_round_up(max(minimum.amount, 0.01)):.10g}-epochs"
    if minimum.unit == "tokens":
        count = _round_up(max(minimum.amount, 1.0))
        size, letter = next((size, letter) for size, letter in ((1e6, "M"), (1e3, "k"), (1.0, "")) if count >= size)
        return f"{count / size:.10g}{letter}-tokens"
    if minimum.amount <= 120:
        return f"{max(1, math.ceil(minimum.amount))}s"
    minutes = math.ceil(minimum.amount / 60)
    return f"{minutes}m" if minutes <= 120 else f"{math.ceil(minutes / 30) / 2:g}h"


def _round_down(tokens: float) -> int:
    """Rounds down to three significant digits."""
    step = 10 ** max(0, math.floor(math.log10(tokens)) - 2)
    return int(tokens / step) * step


def _round_up(amount: float) -> float:
    """Rounds up to two significant digits."""
    step = 10.0 ** (math.floor(math.log10(amount)) - 1)
    return math.ceil(amount / step - 1e-9) * step


def _format_minimum(amount: float) -> str:
    return f"{amount:,.3g}" if amount < 1000 else f"{amount:,.0f}"


def _compute_lr_trial_share(lr_trials: int, seeds: int) -> float:
    """Returns the share of one seed's budget that one learning rate gets."""
    return min(SEARCH_SHARE * seeds / lr_trials, MAX_LR_TRIAL_SHARE) if lr_trials > 1 else 0.0


def _format_amount(amount: float, unit: str) -> str:
    """Formats whole tokens or hundredths of seconds for `Budget.parse`, rounded down to keep within the total."""
    if unit == "tokens":
        return f"{math.floor(amount + ROUNDING_ERROR)}-tokens"
    return f"{math.floor(100 * amount + ROUNDING_ERROR) / 100:.2f}".rstrip("0").rstrip(".") + "s"
