"""How much of the validation split is evaluated, so that validation takes at most a tenth of the budget.

During training it is a fixed part of the split, evenly spread, so that all validations of a run can be compared. Its
size is chosen before the first update. For a budget in tokens or epochs it follows from numbers of tokens, so a
repeated run has the same one. For a budget in time the speed is measured. At the end the best weights are evaluated on
as much of the split as another tenth of the budget allows. A small split is always evaluated as a whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from seqwise.budget import Budget
from seqwise.tasks.task import Size
from seqwise.training.distribution import World

NUM_VALIDATIONS = 20  # per budget, unless `validate_every` says otherwise
MAX_VALIDATION_SHARE = 0.1  # of a budget, not counting the last validation
FORWARD_COST = 1 / 3  # of training on a token: a backward pass takes about twice as long as a forward pass
# On less, validations differ by chance: 2 % of perplexity or of accuracy. A larger part means fewer validations.
MIN_TOKENS, MIN_EXAMPLES = 50_000, 500
MAX_PART = 0.8  # of a split; beyond it, all of it is evaluated
FIRST_TOKENS = 2_000  # evaluated to measure the speed, then four times as many, and so on
GROWTH = 4


def choose_minimum(split: Size) -> float:
    """Return the smallest share of the split that tells good weights from better ones."""
    examples = MIN_EXAMPLES / split.examples if split.examples else 0.0
    return _round_up(max(MIN_TOKENS / max(1, split.tokens), examples))


def choose_share(split: Size, budget_tokens: float) -> float:
    """Return the share of the split to evaluate during training on this many tokens."""
    return _round_up(max(choose_minimum(split), estimate_share(split, budget_tokens) / NUM_VALIDATIONS))


def estimate_share(split: Size, budget_tokens: float) -> float:
    """Return the share of the split that takes as long as `MAX_VALIDATION_SHARE` of the training; it may exceed 1."""
    return MAX_VALIDATION_SHARE * budget_tokens / FORWARD_COST / max(1, split.tokens)


def measure_share(split: Size, seconds: float, world: World, validate: Callable[[float], object]) -> float:
    """Return the share of the split to evaluate during `seconds` of training, by the speed of `validate(share)`.

    It is at most what takes `GROWTH` times the mean time per validation, of which there are fewer then.
    """
    mean = MAX_VALIDATION_SHARE * seconds / NUM_VALIDATIONS
    share = min(1.0, FIRST_TOKENS / max(1, split.tokens))
    validate(share)  # kernels are compiled
    while True:
        start = time.perf_counter()
        validate(share)
        (duration,) = world.sum((time.perf_counter() - start) * world.is_first)  # the same in all processes
        if share == 1 or duration >= mean:
            break
        share = min(1.0, share * GROWTH)
    affordable = share * mean / max(1e-9, duration)
    return _round_up(max(affordable, min(choose_minimum(split), affordable * GROWTH)))


def count_budget_tokens(budget: Budget, tokens_per_epoch: int) -> float | None:
    """Return a budget in tokens or epochs as tokens; None for a budget in time."""
    if budget.unit == "seconds":
        return None
    return budget.amount * (tokens_per_epoch if budget.unit == "epochs" else 1)


def _round_up(share: float) -> float:
    return 1.0 if share > MAX_PART else share
