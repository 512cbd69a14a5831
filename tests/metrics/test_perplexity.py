from __future__ import annotations

import math

import pytest

from seqwise.metrics.evaluation import DEFINITIONS, Perplexity


def test_uniform_guessing_scores_the_size_of_the_vocabulary():
    result = Perplexity(nats=10 * math.log(50), tokens=10, words=5, characters=40)
    per_character = 10 * math.log2(50) / 40
    expected = {"perplexity": 50, "word_perplexity": 2500, "bits_per_character": per_character, "tokens": 10}
    assert result.metrics() == pytest.approx(expected | {"unknown_tokens": 0})
    assert result.loss == pytest.approx(math.log(50))


def test_every_metric_has_a_definition():
    assert Perplexity(1.0, 1, 1, 1).metrics().keys() == DEFINITIONS.keys()


def test_a_hopeless_model_does_not_overflow():
    assert Perplexity(1e6, 1, 1, 1).metrics()["perplexity"] == math.inf
