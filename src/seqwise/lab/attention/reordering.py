"""A toy language pair whose words change their order, with known alignment, and a small model that translates it.

    today small dog red ball chases    →    chien petit chasse balle rouge aujourd'hui

The source puts the adverb first, adjectives before their nouns and the verb last; the target puts adjectives after
their nouns, the verb in second place and the adverb last. Adverb and adjectives may be absent.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.layers import Bidirectional, Embedding, FullSoftmax, GRUCell, Recurrent
from seqwise.layers.attention import Score, attend_with_weights

WORDS = {
    "adverb": "today:aujourd'hui often:souvent soon:bientôt never:jamais",
    "adjective": "small:petit red:rouge old:vieux white:blanc young:jeune sad:triste",
    "noun": "dog:chien ball:balle car:voiture child:enfant tree:arbre house:maison",
    "verb": "chases:chasse sees:voit likes:aime finds:trouve",
}
PAIRS = [(kind, *pair.split(":")) for kind, pairs in WORDS.items() for pair in pairs.split()]  # the id is the index
START = len(PAIRS)  # the target token before the first word
SOURCE_ORDER = ("adverb", "adjective 1", "noun 1", "adjective 2", "noun 2", "verb")
TARGET_ORDER = ("noun 1", "adjective 1", "verb", "noun 2", "adjective 2", "adverb")
OPTIONAL, PROBABILITY = ("adverb", "adjective 1", "adjective 2"), 0.6


def draw_sentences(number: int, generator: torch.Generator, is_full: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Returns sources and targets (B, T) of one structure, and for each target word its position in the source.

    is_full: every optional word is present
    """
    is_absent = torch.rand(len(OPTIONAL), generator=generator) >= PROBABILITY
    absent = {role for role, each in zip(OPTIONAL, is_absent.tolist(), strict=True) if each and not is_full}
    roles = [role for role in SOURCE_ORDER if role not in absent]
    alignment = torch.tensor([roles.index(role) for role in TARGET_ORDER if role not in absent])
    columns = []
    for role in roles:
        ids = [index for index, pair in enumerate(PAIRS) if pair[0] == role.split()[0]]
        columns.append(torch.randint(ids[0], ids[-1] + 1, (number,), generator=generator))
    source = torch.stack(columns, dim=1)
    return source, source[:, alignment], alignment


class Translator(nn.Module):
    """A bidirectional encoder, and a decoder that attends to its states (Bahdanau et al. 2015, §3).

    encoder_units: hidden units of the encoder in each direction
    """

    def __init__(self, width: int, encoder_units: int, score: Score):
        super().__init__()
        self.score = score
        self.source_embedding, self.target_embedding = Embedding(START, width), Embedding(START + 1, width)
        self.encoder = Bidirectional(*(Recurrent(GRUCell(width, encoder_units)) for _ in range(2)))
        self.decoder = Recurrent(GRUCell(width, width))
        self.output = FullSoftmax(width + 2 * encoder_units, START)

    def forward(self, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Returns states with contexts (B, T, …) from the targets before each, and the attention weights (B, T, S)."""
        memory, _ = self.encoder(self.source_embedding(source))
        states, _ = self.decoder(self.target_embedding(F.pad(target[:, :-1], (1, 0), value=START)))
        context, weights = attend_with_weights(states, memory, memory, score=self.score)
        return torch.cat([states, context], dim=-1), weights

    def compute_loss(self, source: Tensor, target: Tensor) -> Tensor:
        vectors, _ = self(source, target)
        return self.output.loss(vectors.flatten(0, 1), target.flatten())
