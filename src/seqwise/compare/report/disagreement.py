"""The test examples on which families disagree most, for people to look at. It knows nothing of how they are drawn."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqwise.compare.plan.plan import Plan
from seqwise.metrics.example_scores import ExampleScores, compute_metric

RUNNING = frozenset({"language", "masked", "forecast"})  # tasks whose examples are pieces of something long


def disagreements(plan: Plan, scores: dict[str, dict[int, ExampleScores]]) -> list[dict[str, Any]]:
    """At most `plan.examples` of them, the most telling first: input, what was expected, each family's answer.

    A family's value of an example is the mean over its seeds; its answer is that of the first seed. They disagree as
    far as these values are apart. Where many are equally far, as right and wrong are, examples on which about half of
    the families are right come first, and otherwise the order of the data.

    Of a long text or a series at most one comes from each of as many stretches: next to each other they are all alike.
    """
    tested = {name: seeds for name, seeds in scores.items() if seeds}
    if len(tested) < 2 or not plan.examples:
        return []
    values = np.stack([_values(plan.metric, list(seeds.values())) for seeds in tested.values()])
    finite = np.isfinite(values).all(axis=0)
    ranks = np.where(finite, values, np.nan)
    # Perplexities are compared by their logarithm, or single words that nobody could guess would fill the page.
    scale = np.log(np.maximum(ranks, 1e-12)) if plan.metric == "perplexity" else ranks
    spread = np.where(finite, np.ptp(scale, axis=0), -1.0)
    evenness = np.where(finite, np.std(scale, axis=0), -1.0)
    order = np.lexsort((np.arange(spread.shape[0]), -evenness.round(9), -spread.round(9)))
    if plan.task in RUNNING:
        order = _one_per_stretch(order, plan.examples)
    first = {name: next(iter(seeds.values())) for name, seeds in tested.items()}
    shown = next(iter(first.values())).texts
    return [
        {
            "input": shown[at].input,
            "expected": shown[at].expected,
            "answers": {
                name: {"text": each.texts[at].answer, "value": float(values[number, at])}
                for number, (name, each) in enumerate(first.items())
            },
        }
        for at in order[: plan.examples].tolist()
        if spread[at] > 0
    ]


def _one_per_stretch(order: np.ndarray, count: int) -> np.ndarray:
    """Of examples in an order the first of each of `count` equal stretches of the data, in that order."""
    stretches = order * min(count, len(order)) // len(order)
    _, firsts = np.unique(stretches, return_index=True)
    return order[np.sort(firsts)]


def _values(metric: str, seeds: list[ExampleScores]) -> np.ndarray:
    """(examples,) the mean over seeds."""
    return np.mean([compute_metric(metric, each.sums) for each in seeds], axis=0)
