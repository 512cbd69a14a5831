"""Which unit of text suits a corpus when the user did not say. It sees a sample and a size, never the corpus."""

from __future__ import annotations

import re

from seqwise.text.patterns import UNKNOWN

CHARACTERS_BELOW = 2_000_000  # bytes; below, subwords would each be seen too rarely to learn their vectors
BYTES_PER_ENTRY = 1_000  # text per vocabulary entry
SMALLEST, LARGEST = 1_024, 16_384

_MARKED = re.compile(rf"(?:^|\s){re.escape(UNKNOWN)}(?:\s|$)")


def choose_kind(sample: str, size_bytes: int) -> tuple[str, int | None, str]:
    """(kind, vocabulary size or None for all, the rule as a sentence for the user)."""
    if _MARKED.search(sample):
        return "spaces", None, f"spaces, because the text is already tokenised: it contains {UNKNOWN}."
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
