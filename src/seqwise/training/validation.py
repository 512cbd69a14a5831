"""Chooses the share of the validation split that is evaluated, so that it takes at most a tenth of the training.

During training it is a fixed subset, evenly spaced, so that all validations of a run can be compared. Its size is
chosen before the first update. For a budget in tokens or epochs it depends only on numbers of tokens, so a repeated run
has the same subset. For a budget in time the speed is measured; if `max_epochs` may end training earlier, its tokens
count too. At the end the best weights are evaluated on as much of the split as another tenth of the training allows. A
small split is evaluated as a whole, unless a budget in time is too short for it. However short the budget, no less is
evaluated than what has a meaningful result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from seqwise.budget import Budget
from seqwise.clock import read_clock

if TYPE_CHECKING:
    from seqwise.tasks.task import Size
    from seqwise.training.distribution import World

NUM_VALIDATIONS = 20  # per budget, unless `validate_every` says otherwise
MAX_VALIDATION_SHARE = 0.1  # of a budget, not counting the last validation
FORWARD_COST = 1 / 3  # of training on a token: a backward pass takes about twice as long as a forward pass
# On less, two validations differ by chance, by 2 % of perplexity or of accuracy. If evaluating so much takes too long,
# there are fewer validations instead.
MIN_TOKENS, MIN_EXAMPLES = 50_000, 500
# On a twenty-fifth of that, chance is five times as large, 10 %. On less, the number says nothing.
MEANINGFUL_TOKENS, MEANINGFUL_EXAMPLES = 2_000, 20
MAX_PARTIAL_SHARE = 0.8  # of a split; a larger share becomes the whole split
GROWTH = 4  # from one share that is evaluated to measure the speed to the next


def choose_minimum_share(split: Size) -> float:
    """Returns the smallest share of the split on which two validations can be compared reliably."""
    return _choose_share_of(split, MIN_TOKENS, MIN_EXAMPLES)


def choose_meaningful_share(split: Size) -> float:
    """Returns the smallest share of the split that is ever evaluated."""
    return _choose_share_of(split, MEANINGFUL_TOKENS, MEANINGFUL_EXAMPLES)


def _choose_share_of(split: Size, num_tokens: int, num_examples: int) -> float:
    """Returns the share of the split that has at least so many tokens and examples."""
    share_by_examples = num_examples / split.num_examples if split.num_examples else 0.0
    return _round_up(max(num_tokens / max(1, split.num_tokens), share_by_examples))


def choose_share(split: Size, budget_tokens: float) -> float:
    """Returns the share of the split to evaluate during training on `budget_tokens`."""
    return _round_up(max(choose_minimum_share(split), estimate_share(split, budget_tokens) / NUM_VALIDATIONS))


def estimate_share(split: Size, budget_tokens: float) -> float:
    """Returns the share of the split that takes as long as `MAX_VALIDATION_SHARE` of the training; it may exceed 1."""
    return MAX_VALIDATION_SHARE * budget_tokens / FORWARD_COST / max(1, split.num_tokens)


def measure_share(
    split: Size, seconds: float, world: World, validate: Callable[[float], object], max_tokens: float = math.inf
) -> tuple[float, float]:
    """Returns the share of the split to evaluate during `seconds` of training, and about how long that takes.

    The speed is that of `validate(share)`. A validation takes at most `GROWTH` times its part of the training, unless
    the share would not be meaningful; if it takes more than its part, there are fewer. Training ends earlier after
    `max_tokens`.
    """
    max_share = estimate_share(split, max_tokens) / NUM_VALIDATIONS
    seconds_per_validation = MAX_VALIDATION_SHARE * seconds / NUM_VALIDATIONS
    share = choose_meaningful_share(split)
    validate(share)  # compiles kernels, which is not measured
    while True:
        start = read_clock()
        validate(share)
        (duration,) = world.sum((read_clock() - start) * world.is_first)  # the same in all processes
        if share == 1 or share >= max_share or duration >= seconds_per_validation:
            break
        share = min(1.0, share * GROWTH)
    affordable_share = min(max_share, share * seconds_per_validation / max(1e-9, duration))
    required_share = max(min(choose_minimum_share(split), affordable_share * GROWTH), choose_meaningful_share(split))
    chosen_share = _round_up(max(affordable_share, required_share))
    return chosen_share, duration * chosen_share / share


def count_tokens(budget: Budget, tokens_per_epoch: int) -> float:
    """Returns the tokens after which training ends, by its budget or `max_epochs`; infinity if only time limits it."""
    epochs = min(budget.amount if budget.unit == "epochs" else math.inf, budget.max_epochs or math.inf)
    return min(budget.amount if budget.unit == "tokens" else math.inf, epochs * max(1, tokens_per_epoch))


def describe_part(share: float) -> str:
    """Returns a share of a split as a percentage, or "all"."""
    return "all" if share == 1 else f"{min(99, 100 * share):.2g}%"


def describe_share(share: float, num_tokens: int, unit: str) -> str:
    """Returns a share of the split in words."""
    return f"{describe_part(share)} of the split" + (f", {share * num_tokens:,.0f} {unit}," if share < 1 else "")


def is_too_long(seconds: float, budget: Budget) -> bool:
    """Returns whether a single validation takes more of a budget in time than all of them may take."""
    return budget.unit == "seconds" and seconds > MAX_VALIDATION_SHARE * budget.amount


def explain_share(share: float, split: Size, has_interval: bool, seconds: float, budget: Budget) -> str:
    """Returns why this share, which takes `seconds`, is evaluated during training, as the end of a sentence.

    With an interval between validations that the user has set, they may take more of the training.
    """
    if share == choose_meaningful_share(split):
        reason = ", the minimum for a meaningful result"
        if is_too_long(seconds, budget):
            reason += f". It takes about {seconds:.1f} s, more than {MAX_VALIDATION_SHARE:.0%} of the budget"
            reason += "" if has_interval else ": only the end of the training is validated, beyond the budget"
        return reason
    if share == choose_minimum_share(split):
        return ", the minimum with which two validations can be compared"
    return "" if has_interval else f", so that it takes at most {MAX_VALIDATION_SHARE:.0%} of the training"


def _round_up(share: float) -> float:
    """Returns the share, or 1 for nearly the whole split."""
    return 1.0 if share > MAX_PARTIAL_SHARE else share
