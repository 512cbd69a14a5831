"""The tagger: words and their characters → encoder → a score per tag → the best tag sequence.

    word vector ┐
                ├ concatenated → dropout → encoder → dropout → head
    characters  ┘

It knows nothing of files; `tasks/tag/task.py` connects it to the data.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.backbones.encoder import build_encoder
from seqwise.backbones.states import ModelState
from seqwise.decoding.viterbi import forbid, viterbi
from seqwise.heads.tag import IndependentTagHead, LinearChainCRF
from seqwise.layers.embedding import CharacterCNN, Embedding
from seqwise.losses import Loss
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.tag.batches import TagBatch, TagVocabulary
from seqwise.tasks.tag.schemes import allowed_transitions

SINGLETON_DROPOUT = 0.5  # Lample et al. 2016, section 4.3


class TagModel(nn.Module):
    """A tagger. `counts` (V,) are the frequencies of the words in training; only training needs them.

    In training, words that occur once are replaced by the unknown word with probability SINGLETON_DROPOUT: so the
    vector of the unknown word is learned, and the model learns to rely on characters.
    """

    word_dropout: Tensor

    def __init__(self, settings: ResolvedSettings, vocabulary: TagVocabulary, counts: Tensor | None = None):
        super().__init__()
        tag, dropout, width = settings.tag, settings.network.dropout, settings.network.embedding
        num_words = len(vocabulary.tokenizer)
        self.unknown = vocabulary.tokenizer.unknown
        self.embedding = Embedding(num_words, width)
        self.characters = CharacterCNN(vocabulary.num_characters, tag.characters) if tag.characters else None
        self.encoder = build_encoder(settings, width + tag.characters, settings.data.max_length)
        encoder_width: int = self.encoder.width  # type: ignore[assignment]
        self.head = (LinearChainCRF if tag.crf else IndependentTagHead)(encoder_width, len(vocabulary.tags))
        self.drop_in, self.drop_out = nn.Dropout(dropout), nn.Dropout(dropout)
        self.allowed_transitions = allowed_transitions(vocabulary.tags) if vocabulary.has_spans else None
        probabilities = torch.zeros(num_words) if counts is None else SINGLETON_DROPOUT * (counts <= 1).float()
        self.register_buffer("word_dropout", probabilities, persistent=False)

    def forward(self, batch: TagBatch, state: ModelState = None) -> tuple[Loss, ModelState]:
        """-log P of the tags, summed over the sentences and counted per token. There is no state."""
        losses = self.head.losses(self.states(batch), batch.tag_ids, batch.lengths)
        return Loss(losses.sum(), batch.num_targets), None

    def states(self, batch: TagBatch) -> Tensor:
        """Returns the encoder's state of each word in its sentence, (B, T, D)."""
        vectors = self.embedding(self._drop_words(batch.word_ids))
        if self.characters is not None:
            # Each distinct word once; by an embedding lookup, whose gradient is summed in a fixed order.
            word_features = F.embedding(batch.character_rows, self.characters(batch.characters))
            vectors = torch.cat([vectors, word_features], dim=-1)
        return self.drop_out(self.encoder(self.drop_in(vectors), lengths=batch.lengths).vectors)

    def _drop_words(self, word_ids: Tensor) -> Tensor:
        if not self.training or self.unknown is None:
            return word_ids
        probabilities = self.word_dropout[word_ids]
        return word_ids.masked_fill(torch.rand_like(probabilities) < probabilities, self.unknown)

    @torch.no_grad()
    def decode(self, batch: TagBatch) -> Tensor:
        """Returns the best tags (B, T) of a batch."""
        return self.decode_scores(self.head.scores(self.states(batch)), batch.lengths)

    def decode_scores(self, scores: Tensor, lengths: Tensor) -> Tensor:
        """Returns the best sequence that the scheme allows, or the best tag of each word where neither links tags."""
        transitions = self.head.transitions()
        if self.allowed_transitions is not None:
            transitions = forbid(*transitions, self.allowed_transitions)
        elif not isinstance(self.head, LinearChainCRF):
            return scores.argmax(dim=2)
        return viterbi(scores, lengths, *transitions)[0]
