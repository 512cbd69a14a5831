"""Chooses a tokeniser if the user set none, from a sample of the text and its size."""

from __future__ import annotations

import re

from seqwise.text.patterns import UNKNOWN

MIN_SUBWORD_BYTES = 2_000_000  # in smaller texts each subword is too rare to learn its vector
BYTES_PER_ENTRY = 1_000  # text per vocabulary entry
MIN_SUBWORDS, MAX_SUBWORDS = 1_024, 16_384
MAX_WORDS = 50_000

_UNKNOWN_WORD = re.compile(rf"(?:^|\s){re.escape(UNKNOWN)}(?:\s|$)")


def choose_tokenizer(sample: str, size_bytes: int, words: bool = False) -> tuple[str, int | None, str]:
    """Return (kind, vocabulary size or None for no limit, the rule as a sentence).

    With `words` the tokens are words, because pretrained word vectors are used.
    """
    if _UNKNOWN_WORD.search(sample):
        return "spaces", None, f"spaces, because the text is already tokenised: it contains {UNKNOWN}."
    if words:
        return "words", MAX_WORDS, f"words, at most {MAX_WORDS:,}, because --vectors has vectors of words."
    if size_bytes < MIN_SUBWORD_BYTES:
        return "characters", None, f"characters, because the text is smaller than {MIN_SUBWORD_BYTES / 1e6:g} MB."
    entries = min(MAX_SUBWORDS, max(MIN_SUBWORDS, size_bytes // BYTES_PER_ENTRY))
    size = 1 << (entries.bit_length() - 1)
    return (
        "bpe",
        size,
        f"bpe with {size:,} tokens: one per {BYTES_PER_ENTRY:,} bytes of text, rounded down to a power of two, "
        f"between {MIN_SUBWORDS:,} and {MAX_SUBWORDS:,}.",
    )
