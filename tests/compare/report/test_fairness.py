"""What the report says about the conditions of a comparison."""

from __future__ import annotations

from seqwise.compare.report.fairness import _list_edge_rates
from seqwise.compare.report.schema import Family, LearningRateTrial


def test_a_learning_rate_at_the_edge_of_the_search_is_named():
    lr_trials = tuple(LearningRateTrial(rate, 3.0, "done", "") for rate in (0.01, 0.004, 0.025))
    families = tuple(
        Family(name, name, "done", "", 3.0, 2.9, 3.1, learning_rate=rate, lr_trials=lr_trials if rate else ())
        for name, rate in (("gru", 0.01), ("lstm", 0.025), ("rnn", 0.004), ("ngram", None))
    )
    (sentence,) = _list_edge_rates(families)
    assert "lstm (highest) and rnn (lowest)" in sentence
    assert _list_edge_rates(families[:1]) == []
