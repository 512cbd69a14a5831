"""F19: does attention move a word's vector towards its context?

    y_i = x_i + W_o Σ_j α_ij v_j        cos(x_i, sense)  →  cos(y_i, sense)

An embedding gives "bank" one vector, whatever stands beside it. Self-attention adds a weighted sum of the values of all
words in the sentence, so that the new vector depends on them: beside "river" and "boat" it comes closer to words about
rivers, beside "loan" and "cash" to words about money. The same for "apple", and for "it" beside "hungry" or
"delicious", where the pronoun takes the meaning of what it refers to. One attention layer is trained on the small
sentences of `ambiguity.py`, and vectors are compared with the two senses, the mean embeddings of their words. The pull
towards the context is learned, not a law: W_o and the values can be any linear map. Training adds to each word what
helps to predict its neighbours, and that is the topic; an untrained layer moves vectors in arbitrary directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seqwise.lab.attention.ambiguity import TOPICS, VOCABULARY, ContextModel, draw_sentences
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import fit, make_generator
from seqwise.page.figures import Figure, ScatterPlot

NUM_TEST, NUM_SHOWN = 100, 8  # sentences per sense: measured, and drawn in the figure


@dataclass(frozen=True, kw_only=True)
class ContextVectors(Experiment):
    id = "F19"
    claim = "Attention moves a word's vector towards its context."
    equation = "cos(y_i, context) > cos(x_i, context),  y_i = x_i + W_o Σ_j α_ij v_j"
    measurement = (
        "Cosine of ambiguous words to the sense of their sentence and to the other, with and without attention."
    )
    rule = "Holds if for every word and sense the difference of the two cosines rises by more than 0.1."
    try_next = "seqwise lab run F19 --steps 1: an untrained layer moves the vectors, but not towards their senses."
    seconds = 2.0
    minimums: ClassVar = {"learning_rate": 0.0}
    maximums: ClassVar = {"content_words": 5}
    quick: ClassVar = {"steps": 120}

    width: int = 24
    """Entries of a word vector."""
    content_words: int = 3
    """Words of one sense in each sentence."""
    function_words: int = 3
    """Words without a sense in each sentence."""
    steps: int = 250
    """Training steps, of 66 sentences."""
    learning_rate: float = 0.01
    """Learning rate of AdamW."""

    def measure(self) -> Measured:
        model, mask = ContextModel(self.width), self.build_mask()
        settings: dict[str, Any] = {"steps": self.steps, "learning_rate": self.learning_rate, "seed": self.seed}
        fit(model, self.draw_batch, lambda _, ids, left_out: model.compute_loss(ids, left_out, mask), **settings)
        parts = [self.compare(model, topic, mask) for topic in range(len(TOPICS))]
        cosines = np.stack([cosines for _, cosines in parts])  # (topics, before and after, sentences, own and other)
        margins = (cosines[..., 0] - cosines[..., 1]).mean(-1)  # (topics, before and after)
        return {
            "cosine_to_own_sense_before": float(cosines[:, 0, :, 0].mean()),
            "cosine_to_own_sense_after": float(cosines[:, 1, :, 0].mean()),
            "cosine_to_other_sense_after": float(cosines[:, 1, :, 1].mean()),
            "smallest_rise_of_difference": float((margins[:, 1] - margins[:, 0]).min()),
            "share_nearer_to_own_sense": float((cosines[:, 1, :, 0] > cosines[:, 1, :, 1]).mean()),
            "cosines": cosines[:, :, :NUM_SHOWN],
            "sentences": [text for texts, _ in parts for text in texts[:NUM_SHOWN]],
        }

    def build_mask(self) -> Tensor | None:
        """Returns which words each word may attend to; None for all."""
        return None

    def draw_batch(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        sizes = 11, self.content_words, self.function_words
        parts = [draw_sentences(topic, *sizes, generator) for topic in range(len(TOPICS))]
        return torch.cat([ids for ids, _ in parts]), torch.cat([left_out for _, left_out in parts])

    @torch.no_grad()
    def compare(self, model: ContextModel, topic: int, mask: Tensor | None) -> tuple[list[str], np.ndarray]:
        """Returns sentences, and the cosines (before and after, sentences, own and other sense) of their first word."""
        sizes = NUM_TEST, self.content_words, self.function_words
        ids, _ = draw_sentences(topic, *sizes, make_generator(self.seed, topic, 1))
        senses = [model.get_sense(each) for each in (topic, topic ^ 1)]
        vectors = [each[:, :1] for each in model(ids, mask)]  # (B, 1, D) before and after
        cosines = [F.cosine_similarity(each, torch.stack(senses), dim=-1) for each in vectors]
        texts = [" ".join(VOCABULARY[each] for each in row[: 1 + self.content_words]) for row in ids]
        return texts, torch.stack(cosines).double().numpy()

    def judge(self, measured: Measured) -> Verdict:
        rise = measured["smallest_rise_of_difference"]
        return decide(
            rise > 0.1,
            evidence=f"The mean cosine to the sense of the sentence is {measured['cosine_to_own_sense_before']:.2f} "
            f"before and {measured['cosine_to_own_sense_after']:.2f} after attention, that to the other sense "
            f"{measured['cosine_to_other_sense_after']:.2f}; {100 * measured['share_nearer_to_own_sense']:.0f} % of "
            f"the vectors are nearer to their own sense. The smallest rise of the difference is {rise:.2f}.",
            instead="Attention does not move every ambiguous word towards the sense of its sentence.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        before, after = measured["cosines"].swapaxes(0, 1)  # (topics, sentences, own and other) each
        flipped = [each[:, ::-1] if topic % 2 else each for topic, each in enumerate(after)]
        points = np.concatenate([before[::2, 0], *flipped])  # columns: first and second sense of the word
        names = [f"{word} before attention" for word, _ in TOPICS[::2]] + measured["sentences"]
        groups = ["before attention"] * len(before[::2])
        groups += [f"after, {('first', 'second')[topic % 2]} sense" for topic in range(len(TOPICS)) for _ in flipped[0]]
        plot = ScatterPlot(
            title="Ambiguous words (bank, apple, it) before and after attention",
            x=points[:, 0],
            y=points[:, 1],
            names=names,
            groups=groups,
            x_label="cosine to the first sense (river, fruit, animal)",
            y_label="cosine to the second sense (money, computer, food)",
            note="Before attention a word has one vector, whatever the sentence; after it, one in each sentence.",
        )
        return [plot]
