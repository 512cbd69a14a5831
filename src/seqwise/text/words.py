"""Text → words with their places, without a vocabulary: the words of `patterns.py`."""

from __future__ import annotations

from functools import cache
from typing import Any

import tokenizers
from tokenizers import pre_tokenizers

from seqwise.text.patterns import WORD


def find_word_offsets(text: str) -> list[tuple[int, int]]:
    """(begin, end) of each word or mark: `text[begin:end]`."""
    return [place for _, place in _splitter().pre_tokenize_str(text)]


def split_words(text: str) -> list[str]:
    """The words and marks themselves."""
    return [word for word, _ in _splitter().pre_tokenize_str(text)]


@cache
def _splitter() -> Any:
    return pre_tokenizers.Split(tokenizers.Regex(WORD), "removed", invert=True)
