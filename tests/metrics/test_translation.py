"""BLEU by hand, its counts, chrF's signature and exact matches."""

from __future__ import annotations

import math

import pytest

from seqwise.metrics.translation import (
    compute_bleu,
    compute_bleu_from_counts,
    compute_chrf,
    compute_exact_match,
    count_bleu_ngrams,
)

OUTPUTS = ["the cat sat on the mat today", "a dog ran"]
REFERENCES = ["the cat sat on a mat today", "a dog ran away"]


def test_bleu_is_the_geometric_mean_of_precisions_times_the_brevity_penalty():
    # matches of 1 to 4 words: 6+3 of 10, 4+2 of 8, 2+1 of 6, 1 of 4; 10 words against 11
    by_hand = 100 * math.exp(1 - 11 / 10) * (9 / 10 * 6 / 8 * 3 / 6 * 1 / 4) ** 0.25
    score = compute_bleu(OUTPUTS, [[text] for text in REFERENCES])
    assert score.value == pytest.approx(by_hand)
    assert score.signature.startswith("sacreBLEU nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")


def test_counts_of_parts_add_up_to_the_score_of_the_whole():
    references = [[text] for text in REFERENCES]
    counts = count_bleu_ngrams(OUTPUTS, references).sum(axis=0)
    assert counts.tolist() == [9, 6, 3, 1, 10, 8, 6, 4, 10, 11]
    assert compute_bleu_from_counts(counts) == pytest.approx(compute_bleu(OUTPUTS, references).value)
    assert compute_bleu_from_counts(count_bleu_ngrams([], []).sum(axis=0)) == 0.0


def test_bleu_is_cased_and_separates_punctuation():
    assert compute_bleu(["Ein Hund rennt weg."], [["ein hund rennt weg."]]).value < 50
    assert compute_bleu(["Ein Hund rennt weg ."], [["Ein Hund rennt weg."]]).value == pytest.approx(100)


def test_any_of_several_references_may_match():
    outputs, references = ["a b c d", "e f g h"], [["x", "a b c d"], ["e f g h"]]
    assert compute_bleu(outputs, references).value == pytest.approx(100)
    assert compute_exact_match(outputs, references) == 1.0


def test_chrf_is_100_for_equal_texts_and_has_a_signature():
    score = compute_chrf(["abc def"], [["abc def"]])
    assert score.value == pytest.approx(100)
    assert "nc:6|nw:0" in score.signature


def test_exact_match_ignores_blanks_at_the_ends():
    assert compute_exact_match(["a ", "b", "C"], [["a"], ["b"], ["c"]]) == pytest.approx(2 / 3)
    assert compute_exact_match([], []) == 0.0


def test_a_wrong_number_of_references_is_rejected():
    with pytest.raises(ValueError, match="2 outputs"):
        compute_bleu(["a", "b"], [["a"]])


def test_lower_cased_bleu_ignores_case_and_says_so():
    outputs, references = ["ein Hund läuft über den Rasen ."], [["Ein Hund läuft über den rasen."]]
    score = compute_bleu(outputs, references, lowercase=True)
    assert score.value == pytest.approx(100)
    assert "case:lc|eff:no|tok:13a" in score.signature
    assert compute_bleu(outputs, references).value < 60
