"""H10: can one vector per word separate "bank" and "bank"?

    static        v = E[bank], the same in every sentence
    contextual    v = state of a bidirectional model at "bank", a function of the whole sentence

A table of vectors (word2vec, GloVe, the input embedding of a network) has one row for "bank", a compromise between its
senses. The state of a network that has read the sentence differs from one occurrence to the next. Here a language is
generated in which "bank" stands among words of money or of rivers, a bidirectional LSTM is trained to predict masked
words, and skip-gram on the same sentences. Neither is told the senses. Then each occurrence is assigned to the nearer
of two prototypes, the mean vectors of either sense in other sentences: equal vectors can only be assigned by chance.
Even an untrained LSTM does better than chance, because its states depend on the context too; training does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from seqwise.lab.experiment import Measured, Verdict, decide
from seqwise.lab.words.grammar import SenseLanguage
from seqwise.lab.words.sense_models import BidirectionalLSTM, MaskedModel, SenseExperiment, measure_separation, train
from seqwise.page.figures import Figure, ScatterPlot
from seqwise.vectors import train_vectors

SENSES = ("money", "river")


@dataclass(frozen=True, kw_only=True)
class Senses(SenseExperiment):
    id = "H10"
    claim = 'One vector per word cannot separate "bank" and "bank"; context can.'
    equation = "static: v = E[bank];  contextual: v = h(sentence) at bank"
    measurement = 'The accuracy of assigning occurrences of "bank" to the prototype of the nearer sense, by skip-gram '
    measurement += "vectors and by the states of a bidirectional LSTM, before and after training on masked words."
    rule = "Holds if the static vectors are right in at most 60 % and the contextual ones in at least 90 %."
    try_next = (
        "seqwise lab run H10 --topic-share 0.2: with so few words of a topic, masked words do not teach the sense."
    )
    seconds = 1.0
    quick: ClassVar = {"steps": 80}

    steps: int = 200
    """Training steps, of 32 sentences each."""

    def measure(self) -> Measured:
        ids, positions, senses = self.draw_occurrences()
        size = self.language.vocabulary_size
        model = MaskedModel(BidirectionalLSTM(size, self.width), size, self.width).eval()
        untrained = measure_separation(self.get_contextual(model, ids, positions), senses)
        train(model, self.language, self.steps, self.seed)
        static, contextual = self.get_static(ids), self.get_contextual(model, ids, positions)
        units = F.normalize(contextual, dim=-1)
        prototypes = F.normalize(torch.stack([units[senses == sense].mean(dim=0) for sense in (0, 1)]), dim=-1)
        return {
            "accuracy_of_static_vectors": measure_separation(static, senses),
            "accuracy_of_contextual_vectors": measure_separation(contextual, senses),
            "accuracy_of_untrained_model": untrained,
            "cosine_of_the_senses_in_static_vectors": float(F.cosine_similarity(static[0], static[-1], dim=0)),
            "cosine_of_the_senses_in_contextual_vectors": float(prototypes[0] @ prototypes[1]),
            "cosines": (units @ prototypes.T).numpy(),
            "senses": senses.numpy(),
        }

    def get_static(self, ids: Tensor) -> Tensor:
        """Returns the skip-gram vector of "bank" for each sentence: one and the same."""
        sentences = [" ".join(map(str, sentence)) for sentence in ids.tolist()]
        vectors = train_vectors(
            sentences, dim=self.width, min_count=1, subsample=0.0, threads=1, device="cpu", seed=self.seed
        )
        return torch.tensor(vectors[str(SenseLanguage.BANK)]).expand(len(ids), -1)

    @torch.no_grad()
    def get_contextual(self, model: MaskedModel, ids: Tensor, positions: Tensor) -> Tensor:
        """Returns the state at "bank" in each sentence, (occurrences, D)."""
        return model.encode(self.read(ids))[torch.arange(len(ids)), positions]

    def read(self, ids: Tensor) -> Tensor:
        """Returns what the model reads of the sentences: all words."""
        return ids

    def judge(self, measured: Measured) -> Verdict:
        static, contextual = measured["accuracy_of_static_vectors"], measured["accuracy_of_contextual_vectors"]
        return decide(
            static <= 0.6 and contextual >= 0.9,
            evidence=f"Static vectors assign {100 * static:.0f} % of the occurrences correctly, where chance is 50 %; "
            f"states of the trained LSTM {100 * contextual:.0f} %, of an untrained one "
            f"{100 * measured['accuracy_of_untrained_model']:.0f} %.",
            instead="The contextual vectors do not separate the senses reliably here, or the static ones do too.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        cosines, senses = measured["cosines"], measured["senses"]
        chart = ScatterPlot(
            title='Occurrences of "bank": states of a bidirectional LSTM, by the true sense',
            x=cosines[:, 0],
            y=cosines[:, 1],
            names=[f"occurrence {number}" for number in range(len(senses))],
            groups=[SENSES[sense] for sense in senses],
            x_label='cosine to the mean state of "bank" with money',
            y_label='cosine to the mean state of "bank" with rivers',
            note="The model was never told the senses. As a static vector all of these would be a single point.",
        )
        return [chart]
