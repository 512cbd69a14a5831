"""H15: is perplexity the exponential of the model's own entropy, so that low means confident?

    entropy of predictions   H(q) = −Σ_w q(w) log q(w)          needs no data
    perplexity               2^H(p, q),  H(p, q) = −Σ_w p(w) log q(w) = H(p) + KL(p ‖ q)

The exponent of a perplexity is the cross-entropy with the data. The entropy of the model's predictions only says how
confident it is. The two agree if the model equals the distribution of the data; any other model has a larger
cross-entropy (Gibbs' inequality). Here the data come from a Markov chain, and the models are its true transition
probabilities at a softmax temperature: below 1 they become more confident and their entropy falls, yet perplexity
rises, because tokens that do occur now have tiny probabilities. A model that is equally confident, but of the wrong
tokens, has the same low entropy and by far the highest perplexity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import make_generator
from seqwise.lab.words.grammar import draw_markov_chain
from seqwise.page.figures import Figure, LineChart, Reference, Series


@dataclass(frozen=True, kw_only=True)
class EntropyAndPerplexity(Experiment):
    id = "H15"
    claim = "Perplexity is 2 to the entropy of the model's own predictions: low means confident."
    equation = "2^H(q) = 2^H(p, q)"
    measurement = (
        "2^entropy of the predictions and perplexity on text of a Markov chain, for its true probabilities at "
    )
    measurement += "several temperatures and for a confident model that predicts wrong tokens."
    rule = "Holds if 2^entropy is within 25 % of the perplexity for every model, however confident."
    try_next = "seqwise lab run H15 --sharpness 1: a chain closer to uniform; the curves still cross at temperature 1."
    seconds = 0.5
    minimums: ClassVar = {"vocabulary": 2, "tokens": 100, "sharpness": 0.0}
    maximums: ClassVar = {"sharpness": 20.0}

    vocabulary: int = 20
    """Tokens, which are also the states of the chain."""
    tokens: int = 10_000
    """Length of the text."""
    sharpness: float = 2.0
    """Standard deviation of the chain's logits: larger makes the next token more certain."""

    def measure(self) -> Measured:
        generator = make_generator(self.seed)
        logits = self.sharpness * torch.randn(
            self.vocabulary, self.vocabulary, dtype=torch.float64, generator=generator
        )
        temperatures = np.geomspace(0.2, 5.0, 21)  # 1 is in the middle
        scores = np.array([self.score(torch.log_softmax(logits / t, -1), logits) for t in temperatures])
        wrong = self.score(torch.log_softmax(logits.roll(1, dims=-1) / 0.2, -1), logits)
        true, confident = scores[10], scores[0]
        return {
            "perplexity_of_true_model": true[1],
            "two_to_the_entropy_of_true_model": true[0],
            "perplexity_of_confident_model": confident[1],
            "two_to_the_entropy_of_confident_model": confident[0],
            "perplexity_of_confident_wrong_model": wrong[1],
            "two_to_the_entropy_of_confident_wrong_model": wrong[0],
            "perplexity_of_uniform_guessing": self.vocabulary,
            "temperatures": temperatures,
            "powers": scores[:, 0],
            "perplexities": scores[:, 1],
        }

    def score(self, log_q: Tensor, logits: Tensor) -> tuple[float, float]:
        """Returns 2^entropy of a model's predictions and its perplexity, both over the same text.

        log_q: log-probabilities (V, V) of the model; logits: of the chain
        """
        text = torch.from_numpy(draw_markov_chain(self.choose_source(log_q, logits).numpy(), self.tokens, self.seed))
        entropies = -(log_q.exp() * log_q).sum(dim=-1)[text[:-1]]  # nats, of each prediction
        losses = -log_q[text[:-1], text[1:]]
        return 2 ** float(entropies.mean() / np.log(2)), 2 ** float(losses.mean() / np.log(2))

    def choose_source(self, log_q: Tensor, logits: Tensor) -> Tensor:
        """Returns the transition probabilities of the text: those of the chain, whatever the model is."""
        return torch.softmax(logits, -1)

    def judge(self, measured: Measured) -> Verdict:
        ratios = np.asarray(measured["perplexities"]) / np.asarray(measured["powers"])
        wrong = measured["perplexity_of_confident_wrong_model"], measured["two_to_the_entropy_of_confident_wrong_model"]
        is_true = bool((abs(np.append(ratios, wrong[0] / wrong[1]) - 1) < 0.25).all())
        return decide(
            is_true,
            evidence=f"The true model has 2^entropy {measured['two_to_the_entropy_of_true_model']:.3g} and perplexity "
            f"{measured['perplexity_of_true_model']:.3g}; a confident and wrong one has 2^entropy {wrong[1]:.3g} and "
            f"perplexity {float(f'{wrong[0]:.2g}'):,.0f}.",
            instead="Perplexity is 2 to the cross-entropy with the data; that is 2 to the model's own entropy if it "
            "predicts the true distribution, not in general.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = {"perplexity on the text": "perplexities", "2^entropy of predictions": "powers"}
        chart = LineChart(
            title="Confidence and perplexity of the true model at several softmax temperatures",
            series=[Series(name=name, x=measured["temperatures"], y=measured[key]) for name, key in names.items()],
            x_label="softmax temperature (1: the true probabilities)",
            y_label="perplexity or 2^entropy (tokens)",
            x_log=True,
            y_log=True,
            references=[Reference(axis="x", value=1.0, label="true model")],
            note="A lower temperature lowers the entropy; the perplexity is, in expectation, lowest at the true model.",
        )
        return [chart]
