"""The network of the tag task: words and their characters → encoder → a score per tag → the best sequence.

    word vector ┐
                ├ side by side → dropout → encoder → dropout → head
    characters  ┘

It knows nothing of files; `tasks/tag/task.py` wires it to the data.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.backbones.encoder import build_encoder
from seqwise.backbones.states import ModelState
from seqwise.decoding.viterbi import forbid, viterbi
from seqwise.heads.tag import IndependentTags, LinearChain
from seqwise.layers.characters import CharacterFeatures
from seqwise.layers.embedding import Embedding
from seqwise.losses import Loss
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.tag.batches import Lexicon, TagBatch
from seqwise.tasks.tag.schemes import allowed

FORGOTTEN = 0.5  # how often a word seen once in training is read as the unknown one (Lample et al. 2016, section 4.3)


class TagModel(nn.Module):
    """A tagger. `counts` (V,) say how often each word occurs in training; a model whose weights are loaded needs none.

    Words that training has once are sometimes read as unknown, so that the vector of the unknown word is learned and
    the model learns to rely on the characters where there is nothing else.
    """

    forgotten: Tensor

    def __init__(self, settings: ResolvedSettings, lexicon: Lexicon, counts: Tensor | None = None):
        super().__init__()
        network, tag = settings.network, settings.tag
        width, dropout = network.embedding, network.dropout
        vocabulary, tags = len(lexicon.tokenizer), len(lexicon.tags)
        self.unknown = lexicon.tokenizer.unknown
        self.embedding = Embedding(vocabulary, width)
        self.characters = CharacterFeatures(lexicon.characters, tag.characters) if tag.characters else None
        self.encoder = build_encoder(settings, width + tag.characters, settings.data.max_length)
        states: int = self.encoder.width  # type: ignore[assignment]
        self.head = (LinearChain if tag.crf else IndependentTags)(states, tags)
        self.drop_in, self.drop_out = nn.Dropout(dropout), nn.Dropout(dropout)
        self.allowed = allowed(lexicon.tags) if lexicon.spans else None
        once = torch.zeros(vocabulary) if counts is None else FORGOTTEN * (counts <= 1).float()
        self.register_buffer("forgotten", once, persistent=False)

    def forward(self, batch: TagBatch, carry: ModelState = None) -> tuple[Loss, ModelState]:
        """-log P of the tags, summed over the sentences; counted per token. There is nothing to carry."""
        losses = self.head.losses(self.states(batch), batch.tags, batch.lengths)
        return Loss(losses.sum(), batch.num_targets), None

    def states(self, batch: TagBatch) -> Tensor:
        """What the encoder makes of each word in its sentence, (B, T, D)."""
        vectors = self.embedding(self._forget(batch.words))
        if self.characters is not None:
            # Each different word once; by an embedding lookup, whose gradient is summed in a fixed order.
            vectors = torch.cat([vectors, F.embedding(batch.spellings, self.characters(batch.letters))], dim=-1)
        return self.drop_out(self.encoder(self.drop_in(vectors), lengths=batch.lengths).vectors)

    def _forget(self, words: Tensor) -> Tensor:
        if not self.training or self.unknown is None:
            return words
        chance = self.forgotten[words]
        return words.masked_fill(torch.rand_like(chance) < chance, self.unknown)

    @torch.no_grad()
    def best(self, batch: TagBatch) -> Tensor:
        """The best tags (B, T): the best sequence that the scheme allows, or the best tag of each word."""
        return self.best_of(self.head.scores(self.states(batch)), batch.lengths)

    def best_of(self, scores: Tensor, lengths: Tensor) -> Tensor:
        links = self.head.links()
        if self.allowed is not None:
            links = forbid(*links, self.allowed)
        elif not isinstance(self.head, LinearChain):
            return scores.argmax(dim=2)
        return viterbi(scores, lengths, *links)[0]
