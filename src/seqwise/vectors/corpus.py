"""Text → a vocabulary, and the corpus as ids in a nameless file on disk. It knows nothing of what is learned from them.

The text is checked first, as all data is, and then read once. Words get numbers as they come, and the numbers are
written down; when all words are counted, they are written again as ids by frequency, without the words that are too
rare. Neither the text nor the ids are ever in memory as a whole, only the list of different words. The files have no
name: they vanish with the process.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from seqwise.data.corpus.sources import Corpus, open_unsplit
from seqwise.errors import DataError, SaveError

PIECE = 1 << 18  # characters split into words at once
ITEMS = 1 << 18  # ids renumbered at once
END = "\0"  # ends a line
PUNCTUATED = 0.05  # share of words that end in punctuation from which on the text is not split at blanks alone
SAMPLE = 50_000  # characters that decide it
SHOWN = 5  # names of files that are listed

ProgressCallback = Callable[[int, int], None]  # bytes read, how many there are


@dataclass(frozen=True)
class Vocabulary:
    """The words that are frequent enough, most frequent first."""

    words: list[str]
    counts: np.ndarray  # (V,) int64
    different: int  # words of the corpus, the rare ones too

    def __len__(self) -> int:
        return len(self.words)


@dataclass(frozen=True)
class Reading:
    """How text becomes words, and which are kept."""

    tokenizer: str | None = None
    lowercase: bool = False
    min_count: int = 5


class Sentences:
    """Ids of a corpus, int32, in a file; -1 ends a sentence. Blocks can be read by several threads at once."""

    def __init__(self, file: BinaryIO, vocabulary: Vocabulary, words: int, items: int):
        self.file, self.vocabulary = file, vocabulary
        self.words = words  # of the corpus, all
        self.items = items  # ids and ends
        self.tokenizer = "spaces"  # how the text was split into words
        self.kept = int(vocabulary.counts.sum())

    def __enter__(self) -> Sentences:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def blocks(self, size: int = 1 << 20, start: int = 0, stop: int | None = None) -> Iterator[np.ndarray]:
        """Whole sentences, at most `size` items at a time; a sentence longer than that is cut."""
        stop = self.items if stop is None else min(stop, self.items)
        while start < stop:
            ids = self._read(start, min(size, stop - start))
            ends = np.flatnonzero(ids < 0)
            if start + len(ids) < stop and len(ends):
                ids = ids[: ends[-1] + 1]
            yield ids
            start += len(ids)

    def _read(self, start: int, count: int) -> np.ndarray:
        # pread, because a map of the file would count as memory of the process.
        return np.frombuffer(os.pread(self.file.fileno(), 4 * count, 4 * start), dtype=np.int32)


def read_sentences(
    spec: str | Path, reading: Reading, folder: Path | None = None, progress: ProgressCallback | None = None
) -> tuple[Sentences, str]:
    """Read a corpus; returns it as ids, and the sentence that says how it was split into words."""
    corpus = open_unsplit(spec)
    try:
        return _read(corpus, reading, folder, progress)
    except OSError as error:
        place = folder or tempfile.gettempdir()
        raise SaveError(
            f"cannot write the ids of the corpus: {error.strerror}.",
            repair="Make room there, or name another folder in the environment variable TMPDIR.",
            file=place,
        ) from error
    finally:
        _give_back()


def _read(
    corpus: Corpus, reading: Reading, folder: Path | None, progress: ProgressCallback | None
) -> tuple[Sentences, str]:
    kind, why = _choose(corpus, reading.tokenizer)
    with tempfile.TemporaryFile(dir=folder) as first:
        index, counts, words = _number(corpus, kind, reading.lowercase, first, progress)
        order = _by_frequency(index, counts, reading.min_count, corpus)
        rank = np.full(len(counts), -2, dtype=np.int32)  # -2: too rare
        rank[order] = np.arange(len(order), dtype=np.int32)
        rank[0] = -1  # the end of a line
        names = list(index)
        vocabulary = Vocabulary([names[number] for number in order], counts[order], len(counts) - 1)
        del index, names
        sentences = _renumber(first, rank, vocabulary, words, folder, corpus)
    sentences.tokenizer = kind
    return sentences, why + _listed(corpus)


def _listed(corpus: Corpus) -> str:
    """Which files were read, where there are several: some may be splits that the user wants to keep apart."""
    names = [Path(name).name for name in corpus.files]
    if len(names) < 2:
        return ""
    return f"; {len(names):,} files: {', '.join(names[:SHOWN])}" + (", …" if len(names) > SHOWN else "")


def _give_back() -> None:
    """Return to the system what was freed: C's library keeps it otherwise, some 20 MB after six million words."""
    with suppress(OSError, AttributeError, TypeError):  # a library without such a function
        ctypes.CDLL(None).malloc_trim(0)


class _Index(dict):
    """Words numbered in the order in which they come; the end of a line is 0."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


def _number(
    corpus: Corpus, kind: str, lowercase: bool, file: BinaryIO, progress: ProgressCallback | None
) -> tuple[_Index, np.ndarray, int]:
    """Write the corpus down in provisional numbers; returns the words, their counts and how many words there are."""
    index, counts, done, size = _Index({END: 0}), np.zeros(1, dtype=np.int64), 0, corpus.size("all")
    split = _splitter(kind)
    number = index.__getitem__
    for text in corpus.texts("all"):
        for piece in _pieces(text):
            lines = piece.replace(END, " ").replace("\n", f" {END} ")  # JSON can spell even that character
            words = split(lines.lower() if lowercase else lines)
            numbers = np.fromiter(map(number, words), dtype=np.int32, count=len(words))
            if len(index) > len(counts):
                counts = np.concatenate([counts, np.zeros(len(index), dtype=np.int64)])  # at least twice as long
            np.add.at(counts, numbers, 1)
            file.write(numbers.data)
            done += len(piece) if piece.isascii() else len(piece.encode())
            if progress is not None:
                progress(done, size)
    file.flush()
    counts = counts[: len(index)]
    return index, counts, int(counts[1:].sum())


def _pieces(text: str) -> Iterator[str]:
    """A text in parts that end at a line break, or where there is none at a blank."""
    start = 0
    while len(text) - start > PIECE:
        stop = text.rfind("\n", start, start + PIECE) + 1 or text.rfind(" ", start, start + PIECE) + 1
        if not stop:
            stop = start + PIECE
        yield text[start:stop]
        start = stop
    yield text[start:]


def _splitter(kind: str) -> Callable[[str], list[str]]:
    if kind == "spaces":
        return str.split
    from seqwise.text.words import split_words  # brings in a library that blanks do not need

    return split_words


def _choose(corpus: Corpus, asked: str | None) -> tuple[str, str]:
    """spaces or words, and why."""
    if asked is not None:
        return asked, f"{asked}, as asked"
    sample = corpus.sample("all")[:SAMPLE].split()
    ended = sum(len(word) > 1 and word[-1] in ".,;:!?)\"'”’" for word in sample) / max(1, len(sample))
    if ended < PUNCTUATED:
        return "spaces", "split at blanks: no punctuation is attached to words"
    return "words", f"words apart from punctuation, which {ended:.0%} of the words between blanks end in"


def _by_frequency(index: _Index, counts: np.ndarray, min_count: int, corpus: Corpus) -> np.ndarray:
    """Numbers of the words that are kept, most frequent first; words equally frequent as they came."""
    kept = np.flatnonzero(counts[1:] >= min_count) + 1
    if not len(kept):
        most = int(counts[1:].max(initial=0))
        raise DataError(
            f"no word occurs {min_count} times: the most frequent of {len(counts) - 1:,} occurs {most:,} times.",
            repair=f"Train with --min-count {max(1, min(most, 5))}, or give more text.",
            file=corpus.name,
        )
    return kept[np.argsort(-counts[kept], kind="stable")]


def _renumber(
    first: BinaryIO, rank: np.ndarray, vocabulary: Vocabulary, words: int, folder: Path | None, corpus: Corpus
) -> Sentences:
    """Provisional numbers → ids by frequency, without rare words."""
    file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  the sentences close it
    items, longest, last = 0, 0, -1
    first.seek(0)
    while data := first.read(4 * ITEMS):
        ids = rank[np.frombuffer(data, dtype=np.int32)]
        ids = ids[ids > -2]
        ends = np.flatnonzero(ids < 0)
        longest = max(longest, int(np.diff(ends, prepend=last, append=len(ids)).max(initial=0)) - 1)
        last = int(ends[-1]) - len(ids) if len(ends) else last - len(ids)
        items += len(ids)
        file.write(ids.data)
    file.flush()
    if longest < 2:
        raise DataError(
            f"no line has two words that are frequent enough: nothing stands beside anything in {words:,} words.",
            repair="Words of one line are neighbours: put whole sentences on a line, or lower --min-count.",
            file=corpus.name,
        )
    return Sentences(file, vocabulary, words, items)
