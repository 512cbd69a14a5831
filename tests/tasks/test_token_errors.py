"""Errors of tokens by frequency, context and kind."""

import numpy as np
import pytest
import torch

from seqwise.tasks.error_report import Metric, ScoredItems
from seqwise.tasks.language.token_errors import CHARACTER_KINDS, KINDS, classify_token, group_by_decade, score_targets
from seqwise.text.tokenizer import Tokenizer

TEXT = "The cats sat, in 1984.\nThe unbelievable cats sat on mats.\n" * 20


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("words", {"cats": "words", "1984": "numbers", ",": "punctuation marks"}),
        ("characters", {"c": "letters", "1": "digits", ",": "punctuation marks", " ": "spaces", "\n": "line breaks"}),
    ],
)
def test_tokens_have_a_kind(kind: str, expected: dict[str, str]):
    tokenizer = Tokenizer.train(kind, [TEXT], None, 1)
    names = CHARACTER_KINDS if kind == "characters" else KINDS
    assert {token: names[classify_token(tokenizer, tokenizer.id(token))] for token in expected} == expected


def test_subwords_begin_or_continue_a_word():
    tokenizer = Tokenizer.train("bpe", [TEXT], 290, 1)
    ids = [int(token) for token in tokenizer.encode("The unlikely cats").ids]
    pieces = {tokenizer.decode([token]): KINDS[classify_token(tokenizer, token)] for token in ids}
    letters = {piece: kind for piece, kind in pieces.items() if piece.strip()}
    assert len(set(letters.values())) == 2
    for piece, kind in letters.items():
        assert kind == ("words" if piece[0].isspace() else "continuations of words")
    line_break = tokenizer.encode("\n").ids[-1]
    assert KINDS[classify_token(tokenizer, int(line_break))] == "line breaks"


def test_losses_and_probabilities_are_those_of_the_distribution():
    scores = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.2, 0.7]]).log()
    result = score_targets(np.array([7, 9]), np.array([1, 2]), np.array([1, 2]), scores)
    assert result.losses == pytest.approx([-np.log(0.25), -np.log(0.7)], rel=1e-6)
    assert result.predicted.tolist() == [0, 2]
    assert result.probabilities == pytest.approx([0.5, 0.7], rel=1e-6)


def test_bands_are_powers_of_ten():
    values = np.array([0, 1, 9, 10, 99, 12_345])
    sums = np.stack([np.arange(6.0), np.ones(6)], axis=1)
    items = ScoredItems(Metric("loss"), "tokens", sums, np.arange(6), 6, "blocks")
    group = group_by_decade(items, "frequency", "seen {} times", values)
    assert [(each.name, each.count) for each in group.slices] == [
        ("seen 0 times", 1), ("seen 1 to 9 times", 2), ("seen 10 to 99 times", 2), ("seen 10,000 or more times", 1),
    ]  # fmt: skip
