"""Encodes a text: its vocabulary, and its words as ids in an unnamed temporary file. It knows nothing of training.

The text is read once. Words get provisional *numbers* in the order of their first occurrence, which are written to
disk; when all words are counted, the corpus is written again with final *ids* by frequency, without words that are too
rare. Neither the text nor the ids are ever in memory as a whole, only the list of distinct words.
"""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import BinaryIO

import numpy as np

from seqwise.callbacks import ProgressCallback
from seqwise.data.corpus.sources import Corpus
from seqwise.data.limits import release_memory
from seqwise.errors import DataError, SaveError
from seqwise.files import explain_cause
from seqwise.text.patterns import split_into_chunks
from seqwise.vectors.settings import WordTokenizer

CHUNK_CHARACTERS = 1 << 18  # characters split into words at once
CHUNK_IDS = 1 << 18  # ids renumbered at once
LINE_END = "\0"  # stands for a line break among the words
LINE_END_ID, RARE_WORD_ID = -1, -2  # the second only until rare words are removed
MIN_PUNCTUATION_SHARE = 0.05  # of the words that end in punctuation: from this share on, it is split off
SAMPLE_CHARACTERS = 50_000  # characters from which this share is estimated
MAX_FILE_NAMES = 5  # in a message


@dataclass(frozen=True)
class Vocabulary:
    """The words that are frequent enough, most frequent first."""

    words: list[str]
    counts: np.ndarray  # (V,) int64
    num_distinct: int  # distinct words in the corpus, including the rare ones

    def __len__(self) -> int:
        return len(self.words)


class EncodedCorpus:
    """The ids of a corpus, int32, in a file; -1 ends a line, which training takes as a sentence.

    Several threads may read blocks at once.
    """

    def __init__(self, file: BinaryIO, vocabulary: Vocabulary, num_words: int, num_items: int):
        self.file, self.vocabulary = file, vocabulary
        self.num_words = num_words  # words in the corpus, including the rare ones
        self.num_items = num_items  # ids and line ends in the file

    def __enter__(self) -> EncodedCorpus:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def iterate_blocks(self, size: int = 1 << 20) -> Iterator[np.ndarray]:
        """Yields flat arrays of whole lines with at most `size` items each; a longer line is cut."""
        start = 0
        while start < self.num_items:
            # pread, because a memory map of the file would count as memory of the process.
            ids = np.frombuffer(os.pread(self.file.fileno(), 4 * size, 4 * start), dtype=np.int32)
            ends = np.flatnonzero(ids < 0)
            if start + len(ids) < self.num_items and len(ends):
                ids = ids[: ends[-1] + 1]
            yield ids
            start += len(ids)


def choose_tokenizer(corpus: Corpus, tokenizer: WordTokenizer | None) -> tuple[WordTokenizer, str]:
    """Returns the tokeniser, by default the one that suits the text, and the reason in words, for the log."""
    if tokenizer is not None:
        return tokenizer, f"{tokenizer}, as set"
    sample = corpus.sample("all")[:SAMPLE_CHARACTERS].split()
    share = sum(len(word) > 1 and word[-1] in ".,;:!?)\"'”’" for word in sample) / max(1, len(sample))
    if share < MIN_PUNCTUATION_SHARE:
        return "spaces", "split at whitespace, because few words end in punctuation"
    return "words", f"punctuation is split off, because {share:.0%} of the words end in it"


def describe_files(corpus: Corpus) -> str:
    """Returns "; 2 files: …" for the log, "" for one file: a folder may contain a held-out split by mistake."""
    names = [Path(name).name for name in corpus.files]
    if len(names) < 2:
        return ""
    more = ", …" if len(names) > MAX_FILE_NAMES else ""
    return f"; {len(names):,} files: {', '.join(names[:MAX_FILE_NAMES])}{more}"


def encode_corpus(
    corpus: Corpus,
    tokenizer: WordTokenizer = "spaces",
    lowercase: bool = False,
    min_count: int = 5,
    folder: Path | None = None,
    progress: ProgressCallback | None = None,
) -> EncodedCorpus:
    """Reads and encodes a corpus, without words that occur fewer than `min_count` times.

    `folder` is the one for temporary files.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as numbers_file:
            numbers_by_word, counts = _number_words(corpus, tokenizer, lowercase, numbers_file, progress)
            numbers_by_frequency = _sort_by_frequency(counts, min_count, corpus)
            words = list(numbers_by_word)
            frequent_words = [words[number] for number in numbers_by_frequency]
            vocabulary = Vocabulary(frequent_words, counts[numbers_by_frequency], len(counts) - 1)
            del numbers_by_word, words
            ids_by_number = np.full(len(counts), RARE_WORD_ID, dtype=np.int32)
            ids_by_number[numbers_by_frequency] = np.arange(len(numbers_by_frequency), dtype=np.int32)
            ids_by_number[0] = LINE_END_ID
            file, num_items = _write_ids(numbers_file, ids_by_number, folder, corpus)
        return EncodedCorpus(file, vocabulary, int(counts[1:].sum()), num_items)
    except OSError as error:
        cause, fix = explain_cause(error, "Or name another folder in the environment variable TMPDIR.")
        problem = f"cannot write the ids of the corpus: {cause}."
        raise SaveError(problem, fix=fix, file=folder or tempfile.gettempdir()) from error
    finally:
        release_memory()  # 20 MB after six million words


def _number_words(
    corpus: Corpus, tokenizer: WordTokenizer, lowercase: bool, file: BinaryIO, progress: ProgressCallback | None
) -> tuple[dict[str, int], np.ndarray]:
    """Writes the corpus as provisional numbers; returns the number of each word, and the count of each number.

    Number 0 is the line end.
    """
    numbers_by_word = defaultdict(count(1).__next__, {LINE_END: 0})  # a new word gets the next number
    counts, bytes_read, total_bytes = np.zeros(1, dtype=np.int64), 0, corpus.size("all")
    split: Callable[[str], list[str]] = str.split
    if tokenizer == "words":
        from seqwise.text.pipelines import split_words  # imports a library that splitting at whitespace does not need

        split = split_words
    for text in corpus.texts("all"):
        for chunk in split_into_chunks(text, CHUNK_CHARACTERS):
            lines = chunk.replace(LINE_END, " ")  # JSON text may contain even that character
            lines = lines.replace("\n", f" {LINE_END} ")
            words = split(lines.lower() if lowercase else lines)
            numbers = np.fromiter(map(numbers_by_word.__getitem__, words), dtype=np.int32, count=len(words))
            if len(numbers_by_word) > len(counts):
                # At least twice as long.
                counts = np.concatenate([counts, np.zeros(len(numbers_by_word), dtype=np.int64)])
            np.add.at(counts, numbers, 1)
            file.write(numbers.data)
            bytes_read += len(chunk) if chunk.isascii() else len(chunk.encode())
            if progress is not None:
                progress(bytes_read, total_bytes)
    file.flush()
    return numbers_by_word, counts[: len(numbers_by_word)]


def _sort_by_frequency(counts: np.ndarray, min_count: int, corpus: Corpus) -> np.ndarray:
    """Returns the provisional numbers of the frequent words, most frequent first; equal counts keep their order.

    Raises `DataError` if there are none.
    """
    frequent = np.flatnonzero(counts[1:] >= min_count) + 1
    if not len(frequent):
        max_count = int(counts[1:].max(initial=0))
        problem = (
            f"no word occurs {min_count} times: the most frequent of {len(counts) - 1:,} occurs {max_count:,} times."
        )
        fix = f"Train with --min-count {max(1, min(max_count, 5))}, or give more text."
        raise DataError(problem, fix=fix, file=corpus.name)
    return frequent[np.argsort(-counts[frequent], kind="stable")]


def _write_ids(
    numbers_file: BinaryIO, ids_by_number: np.ndarray, folder: Path | None, corpus: Corpus
) -> tuple[BinaryIO, int]:
    """Writes the provisional numbers as ids, without rare words; returns the file and the number of items in it.

    Raises `DataError` if no line has two words.
    """
    file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  `EncodedCorpus` closes it
    num_items, max_length, last_end = 0, 0, -1  # max_length: words of the longest line; last_end: before this chunk
    numbers_file.seek(0)
    while data := numbers_file.read(4 * CHUNK_IDS):
        ids = ids_by_number[np.frombuffer(data, dtype=np.int32)]
        ids = ids[ids != RARE_WORD_ID]
        ends = np.flatnonzero(ids < 0)
        max_length = max(max_length, int(np.diff(ends, prepend=last_end, append=len(ids)).max(initial=0)) - 1)
        last_end = int(ends[-1]) - len(ids) if len(ends) else last_end - len(ids)
        num_items += len(ids)
        file.write(ids.data)
    file.flush()
    if max_length < 2:
        problem = "no line has two words that are frequent enough, so no word has a context."
        fix = "The context of a word is taken from its line: put whole sentences on a line, or lower --min-count."
        raise DataError(problem, fix=fix, file=corpus.name)
    return file, num_items
