"""Perplexity equals hand-computed values."""

from __future__ import annotations

import math

import pytest

from seqwise.metrics.evaluation import DEFINITIONS, Perplexity


def test_the_perplexity_of_uniform_predictions_is_the_vocabulary_size():
    result = Perplexity(nats=10 * math.log(50), tokens=10, words=5, characters=40)
    per_character = 10 * math.log2(50) / 40
    expected = {"perplexity": 50, "word_perplexity": 2500, "bits_per_character": per_character, "tokens": 10}
    assert result.compute_metrics() == pytest.approx(expected | {"unknown_tokens": 0})
    assert result.loss == pytest.approx(math.log(50))


def test_every_metric_has_a_definition():
    assert Perplexity(1.0, 1, 1, 1).compute_metrics().keys() == DEFINITIONS.keys()


def test_the_perplexity_of_a_huge_loss_is_infinite():
    assert Perplexity(1e6, 1, 1, 1).compute_metrics()["perplexity"] == math.inf
