"""ROUGE equals hand-computed values."""

from __future__ import annotations

import itertools
import random

import pytest

from seqwise.tasks.translate.evaluation import compute_rouge, measure_common_subsequence, split_words


def test_words_are_runs_of_letters_and_digits_in_lower_case():
    assert split_words("The café's 3.5-litre CAR_7!") == ["the", "café", "s", "3", "5", "litre", "car", "7"]


def test_rouge_of_the_example_of_lin_2004_equals_hand_computed_values():
    # Lin 2004, §3.1: S2 shares "police … the gunman" with S1 in order, S3 only "the gunman".
    reference = "police killed the gunman"
    second, third = (
        compute_rouge(["police kill the gunman"], [[reference]]),
        compute_rouge(["the gunman kill police"], [[reference]]),
    )
    assert (second["rouge_l"], third["rouge_l"]) == (0.75, 0.5)
    assert second["rouge_1"] == third["rouge_1"] == 0.75
    assert second["rouge_2"] == third["rouge_2"] == pytest.approx(1 / 3)


def test_f1_combines_precision_and_recall():
    # 2 of 2 words are correct, of 6: P = 1, R = 1/3, F1 = 1/2
    assert compute_rouge(["a b"], [["a b c d e f"]])["rouge_1"] == 0.5


def test_the_most_similar_of_several_references_counts():
    assert compute_rouge(["a b", "c d"], [["x y", "a b"], ["c d e f g h"]])["rouge_1"] == (1 + 0.5) / 2


def test_a_repeated_word_counts_as_often_as_in_the_reference():
    # "the" 3 times against 1: 1 of 3 and 1 of 2, F1 = 2 · 1 / 5
    assert compute_rouge(["the the the"], [["the cat"]])["rouge_1"] == pytest.approx(0.4)


def test_the_score_is_the_mean_over_pairs_and_an_empty_text_has_zero():
    assert compute_rouge(["a b", ""], [["a b"], ["c"]]) == {"rouge_1": 0.5, "rouge_2": 0.5, "rouge_l": 0.5}
    assert compute_rouge([], []) == {"rouge_1": 0.0, "rouge_2": 0.0, "rouge_l": 0.0}


def test_the_longest_common_subsequence_equals_exhaustive_search():
    rng = random.Random(0)
    for _ in range(60):
        first, second = (rng.choices("abc", k=rng.randint(0, 7)) for _ in range(2))
        subsequences = {c for size in range(len(second) + 1) for c in itertools.combinations(second, size)}
        longest = next(
            size
            for size in range(len(first), -1, -1)
            if any(c in subsequences for c in itertools.combinations(first, size))
        )
        assert measure_common_subsequence(first, second) == longest
