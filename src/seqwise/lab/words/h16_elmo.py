"""H16: do contextual vectors come from attention?

    ELMo    v = [→h ; ←h]            states of two LSTM language models, one per reading direction; no attention
    BERT    v = Transformer(x)       self-attention over the sentence

A contextual vector is a vector of a word in its sentence. Whatever lets a position depend on others can produce one.
ELMo (Peters et al. 2018), which made contextual vectors popular, has two stacks of LSTMs, trained as a forward and a
backward language model. In a Transformer attention is indeed the only path between positions: if each position attends
to itself alone, its output is a function of its own word, as static as the embedding. Here small versions of all three
are trained on sentences in which "bank" has two senses, without being told the senses, and their vectors of "bank" are
assigned to the prototype of the nearer sense (as in H10).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from seqwise.lab.experiment import Measured, Verdict, decide
from seqwise.lab.words.sense_models import (
    MaskedModel,
    SelfAttention,
    SenseExperiment,
    TwoDirectionModel,
    measure_separation,
    train,
)
from seqwise.layers import MultiHeadAttention
from seqwise.page.figures import BarChart, Figure

NAMES = {
    "elmo": "LSTMs, as in ELMo",
    "transformer": "Transformer",
    "isolated_positions": "isolated positions",
}


@dataclass(frozen=True, kw_only=True)
class WithoutAttention(SenseExperiment):
    id = "H16"
    claim = "Contextual vectors (ELMo, BERT) come from attention."
    equation = "ELMo: v = [→h ; ←h];  BERT: v = Transformer(x)"
    measurement = (
        'The accuracy of assigning "bank" to the nearer sense, by the states of two LSTM language models without '
    )
    measurement += "attention, of a Transformer, and of a Transformer whose positions cannot attend to each other."
    rule = "Holds if the LSTM language models, which have no attention layer, are right in less than 75 %."
    try_next = "seqwise lab run H16 --steps 20: after few steps the LSTM language models separate the senses already."
    seconds = 2.0
    quick: ClassVar = {"steps": 60}

    def measure(self) -> Measured:
        ids, positions, senses = self.draw_occurrences()
        measured: dict[str, float | int | np.ndarray] = {}
        for name, build in self.get_builders(self.language.vocabulary_size).items():
            model = build()
            losses = train(model, self.language, self.steps, self.seed)
            with torch.no_grad():
                vectors = model.encode(ids)[torch.arange(len(ids)), positions]
            measured[f"accuracy_of_{name}"] = measure_separation(vectors, senses)
            measured[f"loss_of_{name}"] = float(np.mean(losses[-10:]))
            layers = sum(isinstance(module, MultiHeadAttention) for module in model.modules())
            measured[f"attention_layers_of_{name}"] = layers
        return measured

    def get_builders(self, size: int) -> dict[str, Callable[[], TwoDirectionModel | MaskedModel]]:
        """Returns a function for each model that builds it."""
        return {
            "elmo": lambda: TwoDirectionModel(size, self.width),
            "transformer": lambda: MaskedModel(SelfAttention(size, self.width), size, self.width),
            "isolated_positions": lambda: MaskedModel(
                SelfAttention(size, self.width, is_isolated=True), size, self.width
            ),
        }

    def judge(self, measured: Measured) -> Verdict:
        elmo, transformer, isolated = (measured[f"accuracy_of_{name}"] for name in NAMES)
        return decide(
            elmo < 0.75,
            evidence=f"Two LSTM language models with {measured['attention_layers_of_elmo']} attention layers assign "
            f"{100 * elmo:.0f} % of the occurrences correctly, a Transformer {100 * transformer:.0f} %, and without "
            f"attention between positions {100 * isolated:.0f} %; chance is 50 %.",
            instead="Recurrence gives contextual vectors too, as in ELMo; attention is their source in a Transformer.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        chart = BarChart(
            title='Senses of "bank" that are told apart by the vectors of three models',
            names=list(NAMES.values()),
            values=np.array([measured[f"accuracy_of_{name}"] for name in NAMES]),
            value_label="share of the occurrences assigned to the right sense (0.5: chance)",
            note="Isolated positions: a Transformer in which each attends to itself alone. A contextual vector needs a "
            "path from the other words, by recurrence or attention.",
        )
        return [chart]
