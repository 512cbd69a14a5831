"""A corpus becomes a vocabulary and ids on disk; a corpus that cannot be trained on is refused with one message."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from seqwise.data.corpus.sources import open_unsplit
from seqwise.errors import DataError
from seqwise.vectors import corpus
from seqwise.vectors.corpus import EncodedCorpus, choose_tokenizer, encode_corpus

TEXT = "the cat sat\nthe dog sat on the mat\n\ncat\n"


def write_and_read(tmp_path, text: str, name: str = "text.txt", **options):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return read_file(path, **options)


def read_file(path, tokenizer=None, min_count: int = 1, **options) -> tuple[EncodedCorpus, str]:
    """Returns the encoded file, and the reason for the choice of the tokeniser."""
    source = open_unsplit(path)
    tokenizer, reason = choose_tokenizer(source, tokenizer)
    return encode_corpus(source, tokenizer, min_count=min_count, **options), reason


def to_lines(encoded: EncodedCorpus) -> list[list[str]]:
    """Returns the words of each line."""
    ids = np.concatenate(list(encoded.iterate_blocks()))
    words = encoded.vocabulary.words
    parts = np.split(ids, np.flatnonzero(ids < 0) + 1)
    return [[words[number] for number in part if number >= 0] for part in parts if len(part)]


def test_ids_are_ranks_by_frequency_and_lines_are_separate_sentences(tmp_path):
    encoded, reason = write_and_read(tmp_path, TEXT)
    assert encoded.vocabulary.words == ["the", "cat", "sat", "dog", "on", "mat"]
    assert encoded.vocabulary.counts.tolist() == [3, 2, 2, 1, 1, 1]
    assert to_lines(encoded) == [line.split() for line in TEXT.splitlines()]
    assert (encoded.num_words, encoded.vocabulary.counts.sum(), encoded.num_items) == (10, 10, 14)
    assert "whitespace" in reason


def test_rare_words_are_left_out_of_the_vocabulary_and_the_sentences(tmp_path):
    encoded, _ = write_and_read(tmp_path, TEXT, min_count=2)
    assert to_lines(encoded) == [["the", "cat", "sat"], ["the", "sat", "the"], [], ["cat"]]
    assert (encoded.num_words, encoded.vocabulary.counts.sum()) == (10, 7)
    assert encoded.vocabulary.num_distinct == 6


def test_the_chunk_size_does_not_change_the_ids(tmp_path, monkeypatch):
    text = "\n".join(" ".join(f"w{(i * j) % 17}" for j in range(i % 9)) for i in range(60)) + "\n"
    expected = to_lines(write_and_read(tmp_path, text)[0])
    monkeypatch.setattr(corpus, "CHUNK_CHARACTERS", 20)
    monkeypatch.setattr(corpus, "CHUNK_IDS", 7)
    assert to_lines(write_and_read(tmp_path, text)[0]) == expected


def test_blocks_are_whole_sentences_and_together_the_corpus(tmp_path):
    encoded, _ = write_and_read(tmp_path, "a b c\nd e\nf g h i j k l\nm\n")
    everything = np.concatenate(list(encoded.iterate_blocks()))
    for size in (1, 4, 5, 100):
        blocks = list(encoded.iterate_blocks(size))
        assert np.array_equal(np.concatenate(blocks), everything)
        assert all(len(block) <= size for block in blocks)
    assert [len(block) for block in encoded.iterate_blocks(7)] == [7, 7, 3]  # a b c . d e .  f … l  . m .


@pytest.mark.parametrize("name", ["text.txt", "text.txt.gz", "text.jsonl"])
def test_text_jsonl_and_gzip_give_the_same_ids(tmp_path, name):
    path = tmp_path / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(TEXT.encode()))
    elif name.endswith(".jsonl"):
        path.write_text("".join(json.dumps({"text": line}) + "\n" for line in TEXT.splitlines()))
    else:
        path.write_text(TEXT)
    encoded, _ = read_file(path)
    assert [line for line in to_lines(encoded) if line] == [line.split() for line in TEXT.splitlines() if line]


def test_punctuation_is_split_off_if_it_is_attached_to_words(tmp_path):
    encoded, reason = write_and_read(tmp_path, "The cat, it's said, sat.\nThe cat sat.\n" * 5)
    assert to_lines(encoded)[1] == ["The", "cat", "sat", "."]
    assert "it" in encoded.vocabulary.words
    assert "punctuation" in reason
    by_spaces, _ = write_and_read(tmp_path, "The cat, it's said, sat.\n" * 5, tokenizer="spaces", lowercase=True)
    assert to_lines(by_spaces)[0] == ["the", "cat,", "it's", "said,", "sat."]


@pytest.mark.parametrize(
    ("text", "options", "messages"),
    [
        ("", {}, ["text.txt", "empty"]),
        (" \n \n", {}, ["text.txt", "empty"]),
        ("one\ntwo\none\ntwo\n", {}, ["no line has two words", "on a line"]),
        ("a b\nc d\n", {"min_count": 5}, ["no word occurs 5 times", "--min-count 1"]),
        ("a b a\n", {"min_count": 5}, ["the most frequent of 2 occurs 2 times", "--min-count 2"]),
        ("a x\na y\na z\n", {"min_count": 2}, ["no line has two words", "lower --min-count"]),
    ],
)
def test_a_corpus_without_frequent_neighbours_raises_an_error(tmp_path, text, options, messages):
    with pytest.raises(DataError) as excinfo:
        write_and_read(tmp_path, text, **options)
    for part in messages:
        assert part in str(excinfo.value)


def test_a_missing_or_binary_corpus_raises_an_error(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.txt"):
        read_file(tmp_path / "nowhere.txt")
    (tmp_path / "bad.txt").write_bytes(b"good line\n\x00\x01\x02 bad\n" * 9)
    with pytest.raises(DataError, match=r"bad\.txt:2"):
        read_file(tmp_path / "bad.txt")


def test_progress_reaches_the_size_of_the_corpus(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT * 50)
    reports: list[tuple[int, int]] = []
    read_file(tmp_path / "text.txt", progress=lambda *numbers: reports.append(numbers))
    assert reports[-1] == (len(TEXT) * 50, len(TEXT) * 50)
