"""B6: what is the loss of a whole sequence?

    p(w₁ … w_T) = Πₜ p(wₜ | w_<t)            L = −log p(w₁ … w_T) = Σₜ −log p(wₜ | w_<t) = Σₜ Lₜ

The probability of a sequence factorises by the chain rule, for every distribution and without any assumption; its
negative logarithm is therefore a sum of one cross-entropy per step (Goodfellow et al. 2016, §10.2). The gradient of the
sum is the sum of the gradients. That the factors of a language model really are a distribution over sequences can be
checked by adding up all V^T of them. Training code usually divides by the number of steps: the mean has the same
direction for one sequence, but weighs sequences of a batch differently if their lengths differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.errors import UsageError
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import make_generator
from seqwise.layers import Embedding, FullSoftmax, LSTMCell, Recurrent
from seqwise.page.figures import Figure, LineChart, Series

MAX_SEQUENCES = 100_000  # all of them are evaluated at once


class LanguageModel(torch.nn.Module):
    """An LSTM that begins every sequence with token 0; tokens of text are 1 … V."""

    def __init__(self, vocabulary: int, units: int):
        super().__init__()
        self.embedding = Embedding(vocabulary + 1, units)
        self.layer = Recurrent(LSTMCell(units, units))
        self.softmax = FullSoftmax(units, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Returns the vectors (B, T, U) from which each of the tokens (B, T) is predicted."""
        return self.layer(self.embedding(torch.nn.functional.pad(tokens[:, :-1], (1, 0))))[0]


@dataclass(frozen=True, kw_only=True)
class SumOfLosses(Experiment):
    id = "B6"
    claim = "The loss of a sequence is the sum of its steps' losses."
    equation = "−log p(w₁ … w_T) = Σₜ −log p(wₜ | w_<t)"
    measurement = "−log of the product of probabilities of all sequences of T tokens, against the sum of step losses."
    rule = "Holds if probabilities of all V^T sequences sum to 1 and no loss or gradient differs by 1e-9 (relative)."
    try_next = "seqwise lab run B6 --length 6: 4,096 sequences, whose probabilities still sum to 1."
    seconds = 0.2
    minimums: ClassVar = {"vocabulary": 2, "length": 2}

    vocabulary: int = 4
    """Number of different tokens."""
    length: int = 4
    """Tokens of a sequence; vocabulary to the power of length sequences are evaluated."""
    units: int = 8
    """Hidden units."""

    def measure(self) -> Measured:
        if self.vocabulary ** min(self.length, 20) > MAX_SEQUENCES:
            raise UsageError(f"expected at most {MAX_SEQUENCES:,} sequences; {self.vocabulary}^{self.length} are more.")
        model = LanguageModel(self.vocabulary, self.units).double()
        with torch.no_grad():
            model.softmax.weight.mul_(3)  # so that some sequences are much likelier than others
        tokens = torch.cartesian_prod(*[torch.arange(1, self.vocabulary + 1)] * self.length)  # (V^T, T)
        steps = self.compute_step_losses(model, tokens)
        with torch.no_grad():
            joint = self.multiply_probabilities(model, tokens)
        chosen = int(torch.randint(len(tokens), (1,), generator=make_generator(self.seed)))
        weight = [model.layer.cell.weight_hidden]
        grad_total = torch.autograd.grad(self.combine(steps)[chosen], weight, retain_graph=True)[0]
        grad_steps = [torch.autograd.grad(each, weight, retain_graph=True)[0] for each in steps[chosen]]
        losses = self.combine(steps).detach()
        order = joint.argsort(descending=True)
        return {
            "sequences": len(tokens),
            "total_probability": float(joint.sum()),
            "largest_loss_difference": float((losses + joint.log()).abs().max()),
            "gradient_error": float((grad_total - torch.stack(grad_steps).sum(0)).norm() / grad_total.norm()),
            "smallest_loss": float(losses.min()),
            "largest_loss": float(losses.max()),
            "cumulative_losses": steps.detach()[order[[0, -1]]].cumsum(1).numpy(),
            "logarithms": -joint[order[[0, -1]]].log().numpy(),
        }

    def compute_step_losses(self, model: LanguageModel, tokens: Tensor) -> Tensor:
        """Returns the cross-entropy of each step (B, T), as in training: all steps in one pass."""
        return model.softmax.loss(model(tokens).flatten(0, 1), (tokens - 1).flatten()).view(tokens.shape)

    def multiply_probabilities(self, model: LanguageModel, tokens: Tensor) -> Tensor:
        """Returns p(w₁ … w_T), (B,), as a product; each factor comes from the prefix alone."""
        joint = torch.ones(len(tokens), dtype=torch.float64)
        for t in range(1, self.length + 1):
            probabilities = model.softmax(model(tokens[:, :t])[:, -1]).exp()
            joint = joint * probabilities.gather(1, tokens[:, t - 1 : t] - 1)[:, 0]
        return joint

    def combine(self, step_losses: Tensor) -> Tensor:
        return step_losses.sum(1)

    def judge(self, measured: Measured) -> Verdict:
        total, difference = measured["total_probability"], measured["largest_loss_difference"]
        return decide(
            abs(total - 1) < 1e-9 and difference < 1e-9 and measured["gradient_error"] < 1e-9,
            evidence=f"For all {measured['sequences']:,} sequences the sum of step losses and −log p differ by at most "
            f"{difference:.1g} nats; gradients have a relative error of {measured['gradient_error']:.1g}, and the "
            f"probabilities sum to 1 within {abs(total - 1):.1g}.",
            instead="The loss of a sequence is not the sum of its steps' losses.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        steps = np.arange(self.length + 1)
        series = []
        for index, name in enumerate(("likeliest", "least likely")):
            cumulative = np.append(0.0, measured["cumulative_losses"][index])
            level = np.full(self.length + 1, measured["logarithms"][index])
            series.append(Series(name=f"{name}: loss so far", x=steps, y=cumulative))
            series.append(Series(name=f"{name}: −log p", x=steps, y=level))
        chart = LineChart(
            title="Sum of step losses of two sequences, and the negative logarithm of their probability",
            series=series,
            x_label="steps read",
            y_label="loss (nats)",
            note="Each sum reaches −log p of the whole sequence at its last step.",
        )
        return [chart]
