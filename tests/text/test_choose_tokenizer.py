"""The default tokeniser depends on the size and the content of the text."""

from __future__ import annotations

import pytest

from seqwise.text.pipelines import choose_tokenizer


@pytest.mark.parametrize(
    ("sample", "size", "kind", "vocabulary"),
    [
        ("the <unk> cat", 10**9, "spaces", None),
        ("the<unk>cat", 1000, "characters", None),
        ("plain", 1_999_999, "characters", None),
        ("plain", 2_000_000, "bpe", 1024),
        ("plain", 10_000_000, "bpe", 8192),
        ("plain", 10**12, "bpe", 16384),
    ],
)
def test_the_kind_depends_on_the_size_of_the_text(sample: str, size: int, kind: str, vocabulary: int | None) -> None:
    assert choose_tokenizer(sample, size)[:2] == (kind, vocabulary)


def test_the_reason_is_a_sentence_with_the_numbers() -> None:
    assert choose_tokenizer("plain", 10_000_000)[2].startswith("bpe with 8,192 tokens: one per 1,000 bytes")
