"""Sentences → batches of ids: of the words, of their characters, and of their tags. It knows nothing of models."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from seqwise.config import TextSettings
from seqwise.data.batch import Batch
from seqwise.data.buckets import pad_sequences
from seqwise.tasks.tag.reader import Sentence
from seqwise.tasks.tag.schemes import as_bioes, spans_of
from seqwise.text.tokenizer import Tokenizer

LETTERS = 32  # of a longer word the first and the last 16 characters are read
PADDING, UNKNOWN_LETTER = 0, 1
SEEN = 2  # a character that occurs less often in training stands for all that never do


@dataclass(frozen=True)
class TagBatch(Batch):
    """Sentences. `letters` has a row for each different word of the batch, `spellings` says which is whose."""

    words: Tensor  # (B, T) int64
    spellings: Tensor  # (B, T) int64, rows of `letters`
    tags: Tensor  # (B, T) int64
    lengths: Tensor  # (B,) int64
    letters: Tensor  # (W, L) int64; 0 behind the last

    @property
    def length(self) -> int:
        return self.words.shape[1]

    @property
    def num_targets(self) -> int:
        return int(self.lengths.sum())

    def slice(self, start: int, stop: int) -> Self:
        """Some rows; the table of spellings stays whole, for they point into it."""
        return replace(super().slice(start, stop), letters=self.letters)


def fold(word: str) -> str:
    """The spelling under which a word is looked up: case and digits are left to its characters."""
    return unbroken(re.sub(r"\d", "0", word.lower()))


def unbroken(word: str) -> str:
    """The word without blanks, for places where a blank ends a word."""
    return re.sub(r"\s", "_", word)


class Lexicon:
    """What was learned of words, characters and tags: spelling → ids.

    With `folds` words are looked up without case and digits. `tags` are those of the model; where they mark spans they
    are BIOES, whatever the data has.
    """

    def __init__(self, tokenizer: Tokenizer, alphabet: str, tags: Sequence[str], spans: bool, folds: bool = True):
        self.tokenizer, self.alphabet, self.tags, self.spans, self.folds = tokenizer, alphabet, list(tags), spans, folds
        self._letters = {letter: number for number, letter in enumerate(alphabet, start=UNKNOWN_LETTER + 1)}
        self._tags = {tag: number for number, tag in enumerate(self.tags)}

    @property
    def characters(self) -> int:
        """Ids of characters, padding and the unknown one among them."""
        return len(self.alphabet) + 2

    def word(self, word: str) -> int:
        """The id of a word, that of the unknown one where training had none."""
        if self.folds:
            return self.tokenizer.id(fold(word))
        known = self.tokenizer.id(unbroken(word))
        return self.tokenizer.id(unbroken(word.lower())) if known == self.tokenizer.unknown else known

    def letters(self, word: str) -> list[int]:
        half = LETTERS // 2
        shown = word if len(word) <= LETTERS else word[:half] + word[-half:]
        return [self._letters.get(letter, UNKNOWN_LETTER) for letter in shown]

    def tag_ids(self, tags: Sequence[str]) -> list[int]:
        """Ids of the tags of a sentence; of one never seen in training, the first."""
        inner = as_bioes(spans_of(tags), len(tags)) if self.spans else tags
        return [self._tags.get(tag, 0) for tag in inner]


class Encoded:
    """Sentences as ids, each different word encoded once."""

    def __init__(self, sentences: Sequence[Sentence], lexicon: Lexicon):
        numbers: dict[str, int] = {}
        spellings = [[numbers.setdefault(word, len(numbers)) for word in sentence.words] for sentence in sentences]
        self.spellings = [np.array(row, dtype=np.int64) for row in spellings]
        self.words = np.array([lexicon.word(word) for word in numbers], dtype=np.int64)
        self.letters = pad_sequences([np.array(lexicon.letters(word)) for word in numbers], PADDING)
        self.sizes = (self.letters != PADDING).sum(axis=1)
        self.tags = [np.array(lexicon.tag_ids(sentence.tags), dtype=np.int64) for sentence in sentences]
        self.lengths = np.array([len(row) for row in self.spellings], dtype=np.int64)

    def collate(self, numbers: np.ndarray) -> TagBatch:
        """The batch of some sentences."""
        rows = pad_sequences([self.spellings[number] for number in numbers])
        different, places = np.unique(rows, return_inverse=True)
        longest = int(self.sizes[different].max(initial=1))
        return TagBatch(
            words=torch.from_numpy(self.words[rows]),
            spellings=torch.from_numpy(places.reshape(rows.shape)),
            tags=torch.from_numpy(pad_sequences([self.tags[number] for number in numbers])),
            lengths=torch.from_numpy(self.lengths[numbers]),
            letters=torch.from_numpy(self.letters[different, :longest]),
            positions=torch.from_numpy(np.asarray(numbers, dtype=np.int64)),
        )


def learn_words(
    sentences: Sequence[Sentence], text: TextSettings, folds: bool, extra_words: Sequence[str] = ()
) -> Tokenizer:
    """The vocabulary of the training sentences, and those of the words offered that could be looked up."""
    texts = (" ".join(fold(w) if folds else unbroken(w) for w in s.words) for s in sentences)
    extra_words = [word for word in extra_words if not folds or word == fold(word)]
    return Tokenizer.train("spaces", texts, text.vocabulary, text.min_count, text.lowercase, extra_words=extra_words)


def learn_alphabet(counts: Counter[str]) -> str:
    """The characters of the training words, without the rarest."""
    letters: Counter[str] = Counter()
    for word, count in counts.items():
        for letter in word:
            letters[letter] += count
    return "".join(sorted(letter for letter, count in letters.items() if count >= SEEN))


def tags_of(sentences: Iterable[Sentence]) -> list[str]:
    """The different tags, the most frequent first."""
    counts = Counter(tag for sentence in sentences for tag in sentence.tags)
    return sorted(counts, key=lambda tag: (-counts[tag], tag))
