"""Long texts: tokenising each distinct segment once gives what tokenising the whole text gives."""

from __future__ import annotations

import _thread
import random
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from seqwise.text import pipelines
from seqwise.text.segment_encoder import SegmentEncoder
from seqwise.text.segments import SegmentTable, count_segments
from seqwise.text.tokenizer import Tokenizer

# Words of many scripts, all whitespace of Unicode, and strings that the rules of words treat in a special way.
PIECES = [
    *(
        "a",
        "b",
        "the",
        "The",
        "n't",
        "don't",
        "'s",
        "é",
        "ß",
        "ж",
        "中文",
        "日本",
        "İ",
        "Σ",
        "ǅ",
        "x_y",
        "😀",
        "\u0301",
    ),
    *("<eos>", "<unk>", "=====", "-----", "--", "...", "3.14", "1,000", "U.S.", "state-of-the-art"),
    *(" ", " ", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\t", "\t ", "\r", "\x0b", "\x0c", "\x1c", "\x1d ", "\x85"),
    *(f"{character} " for character in "\xa0\u1680\u180e\u2003\u2028\u202f\u205f\u3000\u200b\ufeff"),
]


def make_text(length: int, seed: int) -> str:
    return "".join(random.Random(seed).choices(PIECES, k=length))


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize(("kind", "size"), [("bpe", 600), ("words", None), ("spaces", None), ("wordpiece", 400)])
def test_vocabulary_and_ids_equal_those_of_the_whole_text(
    kind: str, size: int | None, lowercase: bool, monkeypatch: pytest.MonkeyPatch
):
    texts = [make_text(3_000, seed) for seed in range(8)]
    expected = Tokenizer.train(kind, texts, size, lowercase=lowercase)
    for min_characters in (0, 20_000):  # all texts, or those after the first, are divided into segments
        monkeypatch.setattr(pipelines, "MIN_COMPILED_CHARACTERS", min_characters)
        tokenizer = Tokenizer.train(kind, texts, size, lowercase=lowercase)
        assert tokenizer.fingerprint == expected.fingerprint
    encoder = SegmentEncoder(tokenizer)
    for text in [*texts, *(make_text(50, seed) for seed in range(100))]:
        ids, encoded = expected.encode(text).ids, encoder.encode(text)
        assert np.array_equal(encoded.ids, ids), repr(text)
        assert encoded.words == len(text.split())
        assert encoded.unknown == (0 if kind == "bpe" else np.count_nonzero(ids == expected.unknown))


def test_segments_end_before_blanks_and_at_line_breaks():
    table = SegmentTable()
    text = "a b\nc  d\t e é f  \n\nx\xa0 y"
    indices, segments = table.index_texts(text), table.list_segments()
    assert [segments[index] for index in indices] == [
        "a", " b", "\n", "c", "  d\t e", " é", " f", "  ", "\n", "\n", "x\xa0 y",
    ]  # fmt: skip
    assert table.num_segments == len(set(segments)) == 9


def test_a_table_of_200_000_segments_numbers_them_in_order():
    segments = [f" {number}" for number in range(200_000)]
    table = SegmentTable()
    assert table.index_texts("".join(segments)).tolist() == list(range(200_000))
    assert table.index_texts("".join(reversed(segments))).tolist() == list(reversed(range(200_000)))
    assert table.list_segments(199_998) == [" 199998", " 199999"]


def test_very_many_distinct_segments_are_counted_in_several_lists(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("seqwise.text.segments.MAX_POOL_BYTES", 3)
    assert list(count_segments([["a a b"], ["b"], ["a"]])) == [(["a", " a", " b"], [1, 1, 1]), (["b", "a"], [1, 1])]


def test_ctrl_c_interrupts_training():
    """The library itself returns to Python only at the end, which never comes here."""

    def repeat() -> Iterator[str]:
        threading.Timer(0.1, _thread.interrupt_main).start()
        while True:
            yield "a b c"

    pipeline = tokenizers.Tokenizer(models.BPE())
    pipeline.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    with pytest.raises(KeyboardInterrupt):
        pipelines._train_interruptibly(pipeline, repeat(), trainers.BpeTrainer(show_progress=False))
