"""Chooses the share of the validation split that is evaluated, so that validation takes at most a tenth of the budget.

During training it is a fixed subset, evenly spaced, so that all validations of a run can be compared. Its size is
chosen before the first update. For a budget in tokens or epochs it depends only on numbers of tokens, so a repeated run
has the same subset. For a budget in time the speed is measured. At the end the best weights are evaluated on as much of
the split as another tenth of the budget allows. A small split is evaluated as a whole, unless a budget in time is too
short for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from seqwise.budget import Budget
from seqwise.training.clock import read_clock

if TYPE_CHECKING:
    from seqwise.tasks.task import Size
    from seqwise.training.distribution import World

NUM_VALIDATIONS = 20  # per budget, unless `validate_every` says otherwise
MAX_VALIDATION_SHARE = 0.1  # of a budget, not counting the last validation
FORWARD_COST = 1 / 3  # of training on a token: a backward pass takes about twice as long as a forward pass
# On less, two validations differ by chance, by 2 % of perplexity or of accuracy. If evaluating so much takes too long,
# there are fewer validations instead.
MIN_TOKENS, MIN_EXAMPLES = 50_000, 500
MAX_PARTIAL_SHARE = 0.8  # of a split; a larger share becomes the whole split
FIRST_MEASURED_TOKENS = 2_000  # evaluated first to measure the speed, then GROWTH times as many, and so on
GROWTH = 4


def choose_minimum_share(split: Size) -> float:
    """Returns the smallest share of the split on which two validations can be compared reliably."""
    share_by_examples = MIN_EXAMPLES / split.num_examples if split.num_examples else 0.0
    return _round_up(max(MIN_TOKENS / max(1, split.num_tokens), share_by_examples))


def choose_share(split: Size, budget_tokens: float) -> float:
    """Returns the share of the split to evaluate during training on `budget_tokens`."""
    return _round_up(max(choose_minimum_share(split), estimate_share(split, budget_tokens) / NUM_VALIDATIONS))


def estimate_share(split: Size, budget_tokens: float) -> float:
    """Returns the share of the split that takes as long as `MAX_VALIDATION_SHARE` of the training; it may exceed 1."""
    return MAX_VALIDATION_SHARE * budget_tokens / FORWARD_COST / max(1, split.num_tokens)


def measure_share(split: Size, seconds: float, world: World, validate: Callable[[float], object]) -> float:
    """Returns the share of the split to evaluate during `seconds` of training, by the speed of `validate(share)`.

    A validation takes at most `GROWTH` times its part of the budget; if it takes more than its part, there are fewer.
    """
    seconds_per_validation = MAX_VALIDATION_SHARE * seconds / NUM_VALIDATIONS
    share = min(1.0, FIRST_MEASURED_TOKENS / max(1, split.num_tokens))
    validate(share)  # compiles kernels, which is not measured
    while True:
        start = read_clock()
        validate(share)
        (duration,) = world.sum((read_clock() - start) * world.is_first)  # the same in all processes
        if share == 1 or duration >= seconds_per_validation:
            break
        share = min(1.0, share * GROWTH)
    affordable_share = share * seconds_per_validation / max(1e-9, duration)
    return _round_up(max(affordable_share, min(choose_minimum_share(split), affordable_share * GROWTH)))


def count_budget_tokens(budget: Budget, tokens_per_epoch: int) -> float | None:
    """Returns a budget in tokens or epochs as tokens; None for a budget in time."""
    if budget.unit == "seconds":
        return None
    return budget.amount * (tokens_per_epoch if budget.unit == "epochs" else 1)


def describe_share(share: float, num_tokens: int, unit: str) -> str:
    """Returns a share of the split in words."""
    return f"{100 * share:.2g}% of the split, {share * num_tokens:,.0f} {unit}," if share < 1 else "all of the split"


def explain_share(share: float, split: Size, has_interval: bool) -> str:
    """Returns why this share is evaluated during training, as the end of a sentence.

    With an interval between validations that the user has set, they may take more of the budget.
    """
    if share == choose_minimum_share(split):
        return ", the minimum with which two validations can be compared"
    return "" if has_interval else f", so that it takes at most {MAX_VALIDATION_SHARE:.0%} of the budget"


def _round_up(share: float) -> float:
    """Returns the share, or 1 for nearly the whole split."""
    return 1.0 if share > MAX_PARTIAL_SHARE else share
