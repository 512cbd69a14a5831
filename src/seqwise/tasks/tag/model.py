"""The tagger: batches of ids, the network, and its default settings.

    word vector ┐
    characters  ├ concatenated → dropout → encoder → dropout → head
    features    ┘

The module knows nothing of files; `tasks/tag/task.py` connects it to the data.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.backbones.encoder import build_encoder
from seqwise.backbones.states import ModelState
from seqwise.config import TextSettings
from seqwise.data.batch import Batch, pad_sequences
from seqwise.decoding.viterbi import forbid_transitions, viterbi
from seqwise.families import RECURRENT_FAMILIES
from seqwise.heads.tag import IndependentTagHead, LinearChainCRF
from seqwise.layers.embedding import CharacterCNN, Embedding
from seqwise.losses import Loss
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.defaults import (
    DefaultsContext,
    SetDefault,
    describe_epochs,
    estimate_epochs,
    set_batch_size,
    set_max_epochs,
    set_transformer_defaults,
)
from seqwise.tasks.tag.features import FeatureVectors, find_casings, list_features
from seqwise.tasks.tag.spans import (
    Sentence,
    compute_allowed_transitions,
    convert_to_bioes,
    extract_spans,
    replace_whitespace,
    split_long_sentences,
)
from seqwise.tasks.task import Preprocessor
from seqwise.text.tokenizer import Tokenizer

MAX_CHARACTERS = 32  # of a longer word only the first and the last 16 are read
PADDING, UNKNOWN_CHARACTER = 0, 1  # ids of characters
MIN_CHARACTER_COUNT = 2  # characters that are rarer in training are read as the unknown character
SINGLETON_DROPOUT = 0.5  # Lample et al. 2016, section 4.3
CPU_WORDS_PER_SECOND, GPU_WORDS_PER_SECOND = 6_000, 60_000  # in training, per core and on a GPU
LARGE_DATASET = 50_000  # sentences from which the epochs are not limited by rule; not measured


@dataclass(frozen=True)
class TagBatch(Batch):
    """Sentences. `characters` has one row for each distinct word; `character_rows` are the rows of the words."""

    word_ids: Tensor  # (B, T) int64
    character_rows: Tensor  # (B, T) int64
    tag_ids: Tensor  # (B, T) int64
    lengths: Tensor  # (B,) int64
    characters: Tensor  # (W, L) int64, padded with 0
    features: Tensor  # (W, F) int64, padded with 0
    casings: Tensor  # (B, T) int64: of the word elsewhere in its document; see tasks/tag/features.py

    @property
    def length(self) -> int:
        return self.word_ids.shape[1]

    @property
    def num_targets(self) -> int:
        return int(self.lengths.sum())

    def slice(self, start: int, stop: int) -> Self:
        """Returns some sentences. What belongs to words stays whole, because `character_rows` are indices into it."""
        return replace(super().slice(start, stop), characters=self.characters, features=self.features)


def normalize_word(word: str) -> str:
    """Returns the word in lower case with every digit as 0; its characters keep case and digits."""
    return replace_whitespace(re.sub(r"\d", "0", word.lower()))


class TagVocabulary:
    """Maps words, characters and tags to ids.

    With `normalizes`, words are looked up by `normalize_word`. `tags` are the tags that the model predicts: BIOES if
    they mark spans (`has_spans`), whatever the scheme of the data. `features` are those that have a vector.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        alphabet: str,
        tags: Sequence[str],
        has_spans: bool,
        normalizes: bool = True,
        features: Sequence[str] = (),
    ):
        self.tokenizer, self.tags = tokenizer, list(tags)
        self.num_features = len(features)
        self._feature_ids = {feature: i for i, feature in enumerate(features, start=1)}
        self.has_spans, self.normalizes = has_spans, normalizes
        self.num_characters = len(alphabet) + 2  # with padding and the unknown character
        self._character_ids = {character: i for i, character in enumerate(alphabet, start=UNKNOWN_CHARACTER + 1)}
        self._tag_ids = {tag: i for i, tag in enumerate(self.tags)}

    @classmethod
    def from_preprocessor(cls, preprocessor: Preprocessor) -> Self:
        attributes = preprocessor.attributes
        return cls(
            preprocessor.tokenizer,
            attributes["alphabet"],
            attributes["tags"],
            attributes["spans"],
            attributes["folds"],
            attributes.get("features", ()),
        )

    def get_word_id(self, word: str) -> int:
        """Returns the id of a word; without normalisation an unknown word is looked up in lower case too."""
        if self.normalizes:
            return self.tokenizer.id(normalize_word(word))
        word_id = self.tokenizer.id(replace_whitespace(word))
        if word_id == self.tokenizer.unknown:
            return self.tokenizer.id(replace_whitespace(word.lower()))
        return word_id

    def get_character_ids(self, word: str) -> list[int]:
        """Returns the ids of a word's characters; of a long word only of its beginning and its end."""
        if len(word) > MAX_CHARACTERS:
            word = word[: MAX_CHARACTERS // 2] + word[-MAX_CHARACTERS // 2 :]
        return [self._character_ids.get(character, UNKNOWN_CHARACTER) for character in word]

    def get_feature_ids(self, word: str) -> list[int]:
        """Returns the ids of a word's features, without those that no vector belongs to."""
        if not self._feature_ids:
            return []
        return [self._feature_ids[feature] for feature in list_features(word) if feature in self._feature_ids]

    def get_tag_ids(self, tags: Sequence[str]) -> list[int]:
        """Returns the ids of a sentence's tags; a tag that does not occur in training gets id 0."""
        if self.has_spans:
            tags = convert_to_bioes(extract_spans(tags), len(tags))
        return [self._tag_ids.get(tag, 0) for tag in tags]


def find_document_casings(
    vocabulary: TagVocabulary, sentences: Sequence[Sentence], documents: Sequence[Sentence], max_length: int
) -> list[np.ndarray] | None:
    """Returns the casings of sentences, given all sentences of their split; None if the model has no features."""
    if not vocabulary.num_features:
        return None
    return find_casings(sentences, split_long_sentences(documents, max_length))


class EncodedSentences:
    """Sentences as ids. Each distinct word is encoded once.

    `casings` are those of `find_casings`, where `sentences` are only parts of their documents.
    """

    def __init__(
        self, sentences: Sequence[Sentence], vocabulary: TagVocabulary, casings: list[np.ndarray] | None = None
    ):
        rows: dict[str, int] = {}  # distinct word → its row in `word_ids` and `characters`
        self.word_rows = [
            np.array([rows.setdefault(word, len(rows)) for word in sentence.words], dtype=np.int64)
            for sentence in sentences
        ]
        self.word_ids = np.array([vocabulary.get_word_id(word) for word in rows], dtype=np.int64)
        self.characters = pad_sequences([np.array(vocabulary.get_character_ids(word)) for word in rows], PADDING)
        self.num_characters = (self.characters != PADDING).sum(axis=1)
        self.features = pad_sequences([np.array(vocabulary.get_feature_ids(word), dtype=np.int64) for word in rows])
        self.casings = None
        if vocabulary.num_features:
            self.casings = find_casings(sentences) if casings is None else casings
        self.tag_ids = [np.array(vocabulary.get_tag_ids(sentence.tags), dtype=np.int64) for sentence in sentences]
        self.lengths = np.array([len(sentence.words) for sentence in sentences], dtype=np.int64)

    def collate(self, indices: np.ndarray) -> TagBatch:
        """Returns the batch of these sentences."""
        word_rows = pad_sequences([self.word_rows[index] for index in indices])
        distinct_rows, character_rows = np.unique(word_rows, return_inverse=True)
        max_characters = int(self.num_characters[distinct_rows].max(initial=1))
        return TagBatch(
            word_ids=torch.from_numpy(self.word_ids[word_rows]),
            character_rows=torch.from_numpy(character_rows.reshape(word_rows.shape)),
            tag_ids=torch.from_numpy(pad_sequences([self.tag_ids[index] for index in indices])),
            lengths=torch.from_numpy(self.lengths[indices]),
            characters=torch.from_numpy(self.characters[distinct_rows, :max_characters]),
            features=torch.from_numpy(self.features[distinct_rows]),
            casings=torch.from_numpy(
                np.zeros_like(word_rows)
                if self.casings is None
                else pad_sequences([self.casings[index] for index in indices])
            ),
            positions=torch.from_numpy(np.asarray(indices, dtype=np.int64)),
        )


def build_word_vocabulary(
    sentences: Sequence[Sentence], settings: TextSettings, normalizes: bool, extra_words: Sequence[str] = ()
) -> Tokenizer:
    """Returns the vocabulary of the training sentences and of the `extra_words` that lookup does not change."""
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


def compute_word_dropout(counts: Tensor, alpha: float) -> Tensor:
    """Returns the probability (V,) of replacing each word, by its `counts` in training, by the unknown word.

    It is α / (α + count) (Kiperwasser & Goldberg 2016, section 4.1), or, with α = 0, SINGLETON_DROPOUT for words
    that occur once.
    """
    return alpha / (alpha + counts) if alpha else SINGLETON_DROPOUT * (counts <= 1).float()


class TagModel(nn.Module):
    """A tagger. `counts` (V,) are the frequencies of the words in training; only training needs them.

    In training, rare words are replaced by the unknown word at random (`compute_word_dropout`), so that the vector of
    the unknown word is learned, and the model learns to use characters.
    """

    word_dropout: Tensor

    def __init__(self, settings: ResolvedSettings, vocabulary: TagVocabulary, counts: Tensor | None = None):
        super().__init__()
        tag, dropout, width = settings.tag, settings.network.dropout, settings.network.embedding
        num_words = len(vocabulary.tokenizer)
        self.unknown = vocabulary.tokenizer.unknown
        self.embedding = Embedding(num_words, width)
        self.characters = CharacterCNN(vocabulary.num_characters, tag.characters) if tag.characters else None
        self.features = FeatureVectors(vocabulary.num_features, tag.features) if tag.features else None
        self.encoder = build_encoder(settings, width + tag.characters + tag.features, settings.data.max_length)
        encoder_width: int = self.encoder.width  # type: ignore[assignment]
        self.head = (LinearChainCRF if tag.crf else IndependentTagHead)(encoder_width, len(vocabulary.tags))
        self.input_dropout, self.output_dropout = nn.Dropout(dropout), nn.Dropout(dropout)
        self.allowed_transitions = compute_allowed_transitions(vocabulary.tags) if vocabulary.has_spans else None
        alpha = tag.word_dropout_alpha
        probabilities = torch.zeros(num_words) if counts is None else compute_word_dropout(counts, alpha)
        self.register_buffer("word_dropout", probabilities, persistent=False)

    def forward(self, batch: TagBatch, state: ModelState = None) -> tuple[Loss, ModelState]:
        """Returns -log P of the tags, summed over the sentences, with the number of tokens; and no state."""
        losses = self.head.losses(self.states(batch), batch.tag_ids, batch.lengths)
        return Loss(losses.sum(), batch.num_targets), None

    def states(self, batch: TagBatch) -> Tensor:
        """Returns the encoder's state of each word in its sentence, (B, T, D)."""
        vectors = self.embedding(self.drop_words(batch.word_ids))
        if self.characters is not None:
            # Each distinct word is computed once; the gradient of an embedding lookup is summed in a fixed order.
            word_features = F.embedding(batch.character_rows, self.characters(batch.characters))
            vectors = torch.cat([vectors, word_features], dim=-1)
        if self.features is not None:
            features = self.features(batch.features, batch.character_rows, batch.casings)
            vectors = torch.cat([vectors, features], dim=-1)
        return self.output_dropout(self.encoder(self.input_dropout(vectors), lengths=batch.lengths).vectors)

    def drop_words(self, word_ids: Tensor) -> Tensor:
        """Returns the ids with some words replaced by the unknown word, in training."""
        if not self.training or self.unknown is None:
            return word_ids
        probabilities = self.word_dropout[word_ids]
        return word_ids.masked_fill(torch.rand_like(probabilities) < probabilities, self.unknown)

    @torch.no_grad()
    def decode(self, batch: TagBatch) -> Tensor:
        """Returns the best tags (B, T) of a batch."""
        return self.decode_scores(self.head.scores(self.states(batch)), batch.lengths)

    def decode_scores(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """Returns the best tag sequence, of those that BIOES allows if tags mark spans.

        Without spans and without a CRF, that is the best tag of each word.
        """
        transitions = self.head.transitions()
        if self.allowed_transitions is not None:
            transitions = forbid_transitions(*transitions, self.allowed_transitions)
        elif not isinstance(self.head, LinearChainCRF):
            return scores.argmax(dim=2)
        return viterbi(scores, lengths, *transitions)[0]


# Default settings


def set_tag_defaults(settings: ResolvedSettings, context: DefaultsContext, set_default: SetDefault) -> None:
    """Chooses the settings that are not set: data sets are small, so networks are small.

    The numbers come from the searches in docs/log.md.
    """
    set_default("network.width", 256 if context.cuda else 200, f"tagged data sets are small; {context.machine}")
    depth = 2 if settings.model in ("transformer", "feedforward") else 1
    set_default("network.depth", depth, f"{settings.model} on a small data set")
    set_default("network.embedding", 100, "tagged data sets are small")
    reason = "a pre-trained encoder reads word vectors only" if settings.init else "endings and capitals tell a tag"
    set_default("tag.characters", 0 if settings.init else 64, reason)
    set_default("tag.crf", False)  # `Tag.fit_preprocessor` has set it to True if the tags mark spans
    if settings.model in RECURRENT_FAMILIES:
        reason = "the words after a word are as informative as those before it"
        set_default("recurrent.bidirectional", True, reason)
    if settings.model == "transformer":
        set_transformer_defaults(settings, set_default, settings.network.width // 4)
    # Small enough that an epoch of few sentences has some updates.
    reason = f"an epoch of {context.num_examples:,} sentences has some updates"
    set_batch_size(max(4, min(32, context.num_examples // 32)), context, set_default, reason)
    if context.num_examples < LARGE_DATASET:
        set_max_epochs(16, 1500, settings, context, set_default)
    set_default("data.max_tokens", 8192 if context.cuda else 2048, f"what {context.machine} reads at once")
    # More epochs need more dropout.
    words_per_second = GPU_WORDS_PER_SECOND if context.cuda else CPU_WORDS_PER_SECOND * context.cores
    epochs = estimate_epochs(settings, context, words_per_second)
    level = 0 if epochs < 2 else 1 if epochs < 6 else 2
    dropout = (0.1, 0.15, 0.2)[level] if settings.model == "transformer" else (0.2, 0.35, 0.5)[level]
    set_default("network.dropout", dropout, describe_epochs(epochs))
    if settings.model in RECURRENT_FAMILIES:
        set_default("recurrent.weight_dropout", 0.0, "the dropout of the layers is enough")
    is_adam = settings.training.is_adam
    # CoNLL-2003, six minutes of a GPU, validation F1: 0.005 → 91.1, 0.007 → 90.2.
    rate = (1e-3 if settings.model == "transformer" else 5e-3) if is_adam else 0.1
    reason = f"for {settings.model} with {settings.training.optimizer}"
    set_default("training.learning_rate", rate, reason)
    set_default("training.weight_decay", 0.01 if is_adam else 1e-6, reason)
