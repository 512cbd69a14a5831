"""Selects the test examples on which the families disagree most. It knows nothing of how they are displayed."""

from __future__ import annotations

import numpy as np

from seqwise.compare.plan.plan import Plan
from seqwise.compare.report.schema import Answer, Example
from seqwise.metrics.evaluation import ExampleScores, compute_metric

STREAM_TASKS = frozenset({"language", "masked", "forecast"})  # whose examples are pieces of a long text or series

ScoresBySeed = dict[int, ExampleScores]


def select_disagreements(plan: Plan, scores: dict[str, ScoresBySeed]) -> tuple[int | None, tuple[Example, ...]]:
    """Returns the number of examples on which the families disagree, and `plan.num_examples` of them, largest first.

    With fewer than two tested families the number is None.

    The value of a family on an example is the mean over its seeds; its answer is that of the first seed. The
    disagreement is the range of these values. Among equal ranges, as of correct and wrong answers, examples on which
    about half of the families are right come first, then the order of the data.

    Of a long text or a series at most one example comes from each of `plan.num_examples` segments, since neighbours
    are alike.
    """
    tested = {name: by_seed for name, by_seed in scores.items() if by_seed}
    if len(tested) < 2:
        return None, ()
    by_family = ([compute_metric(plan.metric, each.sums) for each in by_seed.values()] for by_seed in tested.values())
    values = np.stack([np.mean(by_seed, axis=0) for by_seed in by_family])  # (families, examples)
    is_finite = np.isfinite(values).all(axis=0)
    scaled = np.where(is_finite, values, np.nan)
    if plan.metric == "perplexity":  # on a linear scale single unpredictable words would dominate
        scaled = np.log(np.maximum(scaled, 1e-12))
    spread = np.where(is_finite, np.ptp(scaled, axis=0), -1.0)
    evenness = np.where(is_finite, np.std(scaled, axis=0), -1.0)
    num_disagreements = int((spread > 0).sum())
    if not plan.num_examples:
        return num_disagreements, ()
    order = np.lexsort((np.arange(spread.shape[0]), -evenness.round(9), -spread.round(9)))
    if plan.task in STREAM_TASKS:
        segments = order * min(plan.num_examples, len(order)) // len(order)
        _, firsts = np.unique(segments, return_index=True)
        order = order[np.sort(firsts)]
    first_seeds = {name: next(iter(by_seed.values())) for name, by_seed in tested.items()}
    texts = next(iter(first_seeds.values())).texts
    examples = tuple(
        Example(
            texts[index].input,
            texts[index].expected,
            {
                name: Answer(
                    each.texts[index].answer,
                    float(values[row, index]),
                    values=tuple(each.texts[index].values.get("answer", ())),
                )
                for row, (name, each) in enumerate(first_seeds.items())
            },
            history=tuple(texts[index].values.get("input", ())),
            actual=tuple(texts[index].values.get("expected", ())),
        )
        for index in order[: plan.num_examples].tolist()
        if spread[index] > 0
    )
    return num_disagreements, examples
