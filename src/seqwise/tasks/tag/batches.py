"""Turns tagged sentences into batches of ids: of words, their characters, and tags. It knows nothing of models."""

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
from seqwise.tasks.tag.schemes import extract_spans, to_bioes
from seqwise.tasks.task import Preprocessor
from seqwise.text.tokenizer import Tokenizer

MAX_CHARACTERS = 32  # of a longer word the first and the last 16 characters are read
PADDING, UNKNOWN_CHARACTER = 0, 1
MIN_CHARACTER_COUNT = 2  # characters that are rarer in training are read as the unknown character


@dataclass(frozen=True)
class TagBatch(Batch):
    """Sentences. `characters` has one row for each distinct word; `character_rows` maps each word to its row."""

    word_ids: Tensor  # (B, T) int64
    character_rows: Tensor  # (B, T) int64
    tag_ids: Tensor  # (B, T) int64
    lengths: Tensor  # (B,) int64
    characters: Tensor  # (W, L) int64, padded with 0

    @property
    def length(self) -> int:
        return self.word_ids.shape[1]

    @property
    def num_targets(self) -> int:
        return int(self.lengths.sum())

    def slice(self, start: int, stop: int) -> Self:
        """Returns some sentences; `characters` stays whole, because `character_rows` index into it."""
        return replace(super().slice(start, stop), characters=self.characters)


def normalize_word(word: str) -> str:
    """Returns the word in lower case with every digit as 0: the characters tell case and digits."""
    return replace_whitespace(re.sub(r"\d", "0", word.lower()))


def replace_whitespace(word: str) -> str:
    """Returns the word with "_" for whitespace, for formats in which whitespace ends a word."""
    return re.sub(r"\s", "_", word)


class TagVocabulary:
    """Maps words, characters and tags to ids.

    With `normalizes` words are looked up by `normalize_word`. `tags` are those the model predicts; if they mark spans
    (`has_spans`) they are BIOES, whatever the scheme of the data.
    """

    def __init__(
        self, tokenizer: Tokenizer, alphabet: str, tags: Sequence[str], has_spans: bool, normalizes: bool = True
    ):
        self.tokenizer, self.tags = tokenizer, list(tags)
        self.has_spans, self.normalizes = has_spans, normalizes
        self.num_characters = len(alphabet) + 2  # with padding and the unknown character
        self._character_ids = {character: i for i, character in enumerate(alphabet, start=UNKNOWN_CHARACTER + 1)}
        self._tag_ids = {tag: i for i, tag in enumerate(self.tags)}

    @classmethod
    def from_preprocessor(cls, preprocessor: Preprocessor) -> Self:
        facts = preprocessor.facts
        return cls(preprocessor.tokenizer, facts["alphabet"], facts["tags"], facts["spans"], facts["folds"])

    def word_id(self, word: str) -> int:
        """Returns the id of a word; without normalisation an unknown word is looked up in lower case too."""
        if self.normalizes:
            return self.tokenizer.id(normalize_word(word))
        word_id = self.tokenizer.id(replace_whitespace(word))
        if word_id == self.tokenizer.unknown:
            return self.tokenizer.id(replace_whitespace(word.lower()))
        return word_id

    def character_ids(self, word: str) -> list[int]:
        if len(word) > MAX_CHARACTERS:
            word = word[: MAX_CHARACTERS // 2] + word[-MAX_CHARACTERS // 2 :]
        return [self._character_ids.get(character, UNKNOWN_CHARACTER) for character in word]

    def tag_ids(self, tags: Sequence[str]) -> list[int]:
        """Returns the ids of a sentence's tags; a tag that training does not have gets id 0."""
        if self.has_spans:
            tags = to_bioes(extract_spans(tags), len(tags))
        return [self._tag_ids.get(tag, 0) for tag in tags]


class EncodedSentences:
    """Sentences as ids. Each distinct word is encoded once."""

    def __init__(self, sentences: Sequence[Sentence], vocabulary: TagVocabulary):
        rows: dict[str, int] = {}  # distinct word → its row in the tables below
        self.word_rows = [
            np.array([rows.setdefault(word, len(rows)) for word in sentence.words], dtype=np.int64)
            for sentence in sentences
        ]
        self.word_ids = np.array([vocabulary.word_id(word) for word in rows], dtype=np.int64)
        self.characters = pad_sequences([np.array(vocabulary.character_ids(word)) for word in rows], PADDING)
        self.num_characters = (self.characters != PADDING).sum(axis=1)
        self.tag_ids = [np.array(vocabulary.tag_ids(sentence.tags), dtype=np.int64) for sentence in sentences]
        self.lengths = np.array([len(sentence.words) for sentence in sentences], dtype=np.int64)

    def collate(self, indices: np.ndarray) -> TagBatch:
        """Returns the batch of these sentences."""
        word_rows = pad_sequences([self.word_rows[index] for index in indices])
        distinct, character_rows = np.unique(word_rows, return_inverse=True)
        max_characters = int(self.num_characters[distinct].max(initial=1))
        return TagBatch(
            word_ids=torch.from_numpy(self.word_ids[word_rows]),
            character_rows=torch.from_numpy(character_rows.reshape(word_rows.shape)),
            tag_ids=torch.from_numpy(pad_sequences([self.tag_ids[index] for index in indices])),
            lengths=torch.from_numpy(self.lengths[indices]),
            characters=torch.from_numpy(self.characters[distinct, :max_characters]),
            positions=torch.from_numpy(np.asarray(indices, dtype=np.int64)),
        )


def build_word_vocabulary(
    sentences: Sequence[Sentence], settings: TextSettings, normalizes: bool, extra_words: Sequence[str] = ()
) -> Tokenizer:
    """Returns the vocabulary of the training sentences, with those `extra_words` that a lookup can find."""
    normalize = normalize_word if normalizes else replace_whitespace
    texts = (" ".join(map(normalize, sentence.words)) for sentence in sentences)
    extra_words = [word for word in extra_words if not normalizes or word == normalize_word(word)]
    return Tokenizer.train(
        "spaces", texts, settings.vocabulary, settings.min_count, settings.lowercase, extra_words=extra_words
    )


def build_alphabet(word_counts: Counter[str]) -> str:
    """Returns the characters of the training words, without the rarest."""
    counts: Counter[str] = Counter()
    for word, count in word_counts.items():
        for character in word:
            counts[character] += count
    return "".join(sorted(character for character, count in counts.items() if count >= MIN_CHARACTER_COUNT))


def list_tags(sentences: Iterable[Sentence]) -> list[str]:
    """Returns the distinct tags, the most frequent first."""
    counts = Counter(tag for sentence in sentences for tag in sentence.tags)
    return sorted(counts, key=lambda tag: (-counts[tag], tag))
