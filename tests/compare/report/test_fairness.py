"""What the report says about the conditions of a comparison."""

from __future__ import annotations

from dataclasses import replace

from seqwise.compare.report.fairness import _list_edge_rates, describe_waiting
from seqwise.compare.report.schema import Family, LearningRateTrial


def test_a_learning_rate_at_the_edge_of_the_search_is_named():
    validations = {0.01: 0.9, 0.004: 0.9, 0.025: 0.9}
    lr_trials = tuple(LearningRateTrial(rate, value, "done", "") for rate, value in validations.items())
    families = tuple(
        Family(name, name, "done", "", 3.0, 2.9, 3.1, learning_rate=rate, lr_trials=lr_trials if rate else ())
        for name, rate in (("gru", 0.01), ("lstm", 0.025), ("rnn", 0.004), ("ngram", None))
    )
    (sentence,) = _list_edge_rates("accuracy", families)
    assert "lstm (highest) and rnn (lowest)" in sentence
    assert _list_edge_rates("accuracy", families[:1]) == []
    perfect = tuple(replace(trial, validation=1.0) for trial in lr_trials)
    assert _list_edge_rates("accuracy", (replace(families[1], lr_trials=perfect),)) == []


def test_a_busy_machine_is_described():
    waiting = describe_waiting([0.3, None, 0.5], 0.12)
    assert (waiting.training, waiting.latency) == (0.4, 0.12)
    assert waiting.text == (
        "The machine was busy: waiting for processor cores took 40 % of the training time and 12 % of the latency "
        "measurement. On an idle machine these times are shorter."
    )
    assert " took 30 % of the training time. On" in describe_waiting([0.3], 0.01).text
    assert describe_waiting([0.02], None).text == describe_waiting([], None).text == ""
