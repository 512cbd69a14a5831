"""Splits text into words and punctuation by the rules of `patterns.py`, without a vocabulary."""

from __future__ import annotations

from functools import cache
from typing import Any

import tokenizers
from tokenizers import pre_tokenizers

from seqwise.text.patterns import WORD


def find_word_offsets(text: str) -> list[tuple[int, int]]:
    """Return (start, stop) of each word or punctuation mark: `text[start:stop]`."""
    return [offsets for _, offsets in _splitter().pre_tokenize_str(text)]


def split_words(text: str) -> list[str]:
    """Return the words and punctuation marks."""
    return [word for word, _ in _splitter().pre_tokenize_str(text)]


@cache
def _splitter() -> Any:
    return pre_tokenizers.Split(tokenizers.Regex(WORD), "removed", invert=True)
