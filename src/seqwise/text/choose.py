"""Which unit of text suits a corpus when the user did not say. It sees a sample and a size, never the corpus."""

from __future__ import annotations

import re

from seqwise.text.patterns import UNKNOWN

CHARACTERS_BELOW = 2_000_000  # bytes; below, subwords would each be seen too rarely to learn their vectors
BYTES_PER_ENTRY = 1_000  # text per vocabulary entry
SMALLEST, LARGEST = 1_024, 16_384
MOST_WORDS = 50_000  # where words are wanted

_MARKED = re.compile(rf"(?:^|\s){re.escape(UNKNOWN)}(?:\s|$)")


def choose_tokenizer(sample: str, size_bytes: int, words: bool = False) -> tuple[str, int | None, str]:
    """(kind, vocabulary size or None for all, the rule as a sentence for the user).

    With `words` the tokens are to be words, because there are vectors for such.
    """
    if _MARKED.search(sample):
        return "spaces", None, f"spaces, because the text is already tokenised: it contains {UNKNOWN}."
    if words:
        return "words", MOST_WORDS, f"words, at most {MOST_WORDS:,}, because --vectors has vectors of words."
    if size_bytes < CHARACTERS_BELOW:
        return "characters", None, f"characters, because the text is smaller than {CHARACTERS_BELOW / 1e6:g} MB."
    entries = min(LARGEST, max(SMALLEST, size_bytes // BYTES_PER_ENTRY))
    size = 1 << (entries.bit_length() - 1)
    return (
        "bpe",
        size,
        f"bpe with {size:,} tokens: one per {BYTES_PER_ENTRY:,} bytes of text, rounded down to a power of two, "
        f"between {SMALLEST:,} and {LARGEST:,}.",
    )
