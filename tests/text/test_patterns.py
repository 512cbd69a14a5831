"""Splitting English text into words, and joining them again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqwise.text.patterns import join_words
from seqwise.text.tokenizer import Tokenizer


def split_words(text: str) -> list[str]:
    tokenizer = Tokenizer.train("words", [text, " a b"])
    return tokenizer.tokens(tokenizer.encode(text).ids)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("doesn't", "does n't"),
        ("can't won't", "ca n't wo n't"),
        ("DON'T", "DO N'T"),
        ("it's we're I'll he'd I'm they've John's", "it 's we 're I 'll he 'd I 'm they 've John 's"),
        ("it’s isn’t", "it ’s is n’t"),
        ("o'clock rock'n'roll", "o'clock rock'n'roll"),
        ("3.14 1,000 1990s 5%", "3.14 1,000 1990s 5 %"),
        ("He paid $3.50.", "He paid $ 3.50 ."),
        ("state-of-the-art", "state-of-the-art"),
        ("the U.S. economy", "the U.S. economy"),
        ("wait... no--yes", "wait ... no -- yes"),
        ('"Yes," (he said)!', '" Yes , " ( he said ) !'),
        ("one\ntwo\n\n", "one <eos> two <eos> <eos>"),
        ("a <unk> b", "a <unk> b"),
        ("cannot", "cannot"),
        ("naïve café", "naïve café"),
    ],
)
def test_words_are_split_as_in_the_penn_treebank(text: str, expected: str) -> None:
    assert split_words(text) == expected.split()


@pytest.mark.parametrize(
    "text",
    [
        "It doesn't matter; we're at 3.14 (about $1,000).\nYes!",
        'He said: "I can\'t." Then "nothing" more.',
        "John's state-of-the-art U.S. car, isn't it?\n\nNo...",
    ],
)
def test_split_english_is_joined_to_the_same_text(text: str) -> None:
    assert join_words(split_words(text)) == text


@given(st.lists(st.sampled_from(["a", "n't", "'s", '"', ".", "(", ")", "<eos>", "$", "--"]), max_size=20))
def test_joining_more_words_never_changes_the_beginning(sequence: list[str]) -> None:
    assert join_words(sequence).startswith(join_words(sequence[:-1]))
