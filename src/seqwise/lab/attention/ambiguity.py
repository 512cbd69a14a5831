"""Small sentences with ambiguous words, and a model of one attention layer that is trained on them.

A sentence is an ambiguous word, some words of one of its two senses and some function words:

    bank  river boat mud  the was a           bank  loan cash debt  of the and

The model predicts, from the vector of each word, another word of the same sense that is not in the sentence.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqwise.layers import Embedding, FullSoftmax, MultiHeadAttention

SENSES = {  # ambiguous word → words of its two senses
    "bank": ("river water boat fish shore mud", "money loan account cash credit debt"),
    "apple": ("juice pie orange tree sweet ripe", "phone laptop screen software app store"),
    "it": ("dog cat hungry tail fur asleep", "soup bread delicious salt plate cooked"),
}
TOPICS = [(word, sense.split()) for word, senses in SENSES.items() for sense in senses]  # 2n and 2n + 1 share a word
FUNCTION_WORDS = ("the", "a", "of", "was", "and", "near")
VOCABULARY = [*SENSES, *(word for _, words in TOPICS for word in words), *FUNCTION_WORDS]
IDS = {word: index for index, word in enumerate(VOCABULARY)}


def draw_sentences(
    topic: int, number: int, content_words: int, function_words: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Returns sentences (B, T) whose first word is the ambiguous one, and the word of the topic that is left out."""
    word, others = TOPICS[topic]
    order = torch.rand(number, len(others), generator=generator).argsort(1)[:, : content_words + 1]
    content = torch.tensor([IDS[each] for each in others])[order]
    function = torch.randint(len(FUNCTION_WORDS), (number, function_words), generator=generator)
    function += IDS[FUNCTION_WORDS[0]]
    first = torch.full((number, 1), IDS[word])
    return torch.cat([first, content[:, 1:], function], dim=1), content[:, 0]


class ContextModel(nn.Module):
    """Word vectors, one attention layer that is added to them, and a softmax with tied weights."""

    def __init__(self, width: int):
        super().__init__()
        self.embedding, self.attention = Embedding(len(VOCABULARY), width), MultiHeadAttention(width, heads=1)
        self.output = FullSoftmax(width, len(VOCABULARY), tied=self.embedding.weight)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns the vectors before and after attention, (B, T, D) each."""
        x = self.embedding(ids)
        return x, x + self.attention(x, mask=mask)[0]

    def compute_loss(self, ids: Tensor, left_out: Tensor, mask: Tensor | None = None) -> Tensor:
        _, y = self(ids, mask)
        return self.output.loss(y.flatten(0, 1), left_out.repeat_interleave(ids.shape[1]))

    def get_sense(self, topic: int) -> Tensor:
        """Returns the mean word vector (D,) of a topic."""
        return self.embedding.weight[[IDS[word] for word in TOPICS[topic][1]]].mean(0)
