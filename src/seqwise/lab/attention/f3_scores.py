"""F3: four ways to compare a query with a key, side by side.

    dot q·k      scaled dot q·k/√d      general q·W k      additive v·tanh(W q + U k)

Attention needs one number per query and key; the softmax and the weighted mean are the same for all scores. The dot
product has no weights and needs queries and keys of equal width (Luong et al. 2015, eq. 8). Scaling keeps its variance
independent of d (Vaswani et al. 2017, eq. 1; see F6). "General" puts a matrix in between, so the widths may differ
(Luong et al. 2015). The additive score is a small network (Bahdanau et al. 2015, A.1.2), which holds (T, S, units)
values where the others need one matrix product. Its tanh is essential: in v·(W q + U k) the part of the query is the
same for all keys, so the softmax cancels it. All four learn associative recall here: the value of a given symbol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.errors import UsageError
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import fit, make_generator
from seqwise.layers import Additive, Dot, Embedding, FullSoftmax, General, ScaledDot, attend
from seqwise.page.figures import Figure, LineChart, Series

NAMES = {"dot": "dot", "scaled_dot": "scaled dot", "general": "general", "additive": "additive"}


class Recall(nn.Module):
    """Reads a symbol, then pairs of symbol and value; predicts the value of the first symbol's pair by attention."""

    def __init__(self, score: Any, symbols: int, values: int, width: int):
        super().__init__()
        self.score = score
        self.query, self.key, self.value = (Embedding(size, width) for size in (symbols, symbols, values))
        self.output = FullSoftmax(width, values)

    def forward(self, ids: Tensor) -> Tensor:
        symbols, values = ids[:, 1:].chunk(2, dim=1)
        return attend(self.query(ids[:, :1]), self.key(symbols), self.value(values), score=self.score)[:, 0]


def compute_loss(model: Any, x: Tensor, y: Tensor) -> Tensor:
    return model.output.loss(model(x), y)


@dataclass(frozen=True, kw_only=True)
class Scores(Experiment):
    id = "F3"
    claim = "Dot, scaled dot, general and additive scores are interchangeable: all learn to attend."
    equation = "score = q·k,  q·k/√d,  q·W k,  v·tanh(W q + U k)"
    measurement = "Each score's difference from its formula, and the accuracy of associative recall after training."
    rule = "Holds if each score is within 1e-12 of its formula in float64 and recalls over 90 % of unseen examples."
    try_next = "seqwise lab run F3 --width 2 --steps 400: in two dimensions not every score can tell 16 symbols apart."
    seconds = 2.0
    quick: ClassVar = {"steps": 80}

    symbols: int = 16
    """Number of symbols that serve as keys."""
    pairs: int = 8
    """Number of pairs of symbol and value in an example, and of different values."""
    width: int = 32
    """Width of queries, keys and values, and units of the additive score."""
    steps: int = 200
    """Training steps of each model, of 64 examples."""

    def measure(self) -> Measured:
        numbers: dict[str, Any] = {}
        for name, score in self.build_scores().items():
            numbers[f"difference_from_formula_of_{name}"] = self.compare_with_formula(name)
            numbers[f"parameters_of_{name}"] = sum(parameter.numel() for parameter in score.parameters())
            model = Recall(score, self.symbols, self.pairs, self.width)
            losses = fit(model, self.draw_batch, compute_loss, steps=self.steps, learning_rate=2e-2, seed=self.seed)
            numbers[f"losses_{name}"] = np.array(losses)
            x, y = self.draw_batch(make_generator(self.seed, self.steps), count=1000)
            with torch.no_grad():
                numbers[f"accuracy_with_{name}"] = float((model.output(model(x)).argmax(-1) == y).double().mean())
        return {"accuracy_of_guessing": 1 / self.pairs, **numbers}

    def build_scores(self) -> dict[str, Any]:
        d = self.width
        return {"dot": Dot(), "scaled_dot": ScaledDot(), "general": General(d, d), "additive": Additive(d, d, d)}

    def compare_with_formula(self, name: str) -> float:
        """Returns the largest difference between a score of 5 queries and 7 keys and its formula, in float64."""
        q, k = (torch.randn(n, self.width, dtype=torch.float64) for n in (5, 7))
        score = self.build_scores()[name].double()
        formulas = {
            "dot": lambda a, b: a @ b,
            "scaled_dot": lambda a, b: a @ b / self.width**0.5,
            "general": lambda a, b: a @ (score.weight @ b),
            "additive": lambda a, b: score.v @ torch.tanh(score.W @ a + score.U @ b),
        }
        with torch.no_grad():
            expected = torch.stack([torch.stack([formulas[name](a, b) for b in k]) for a in q])
            return float((score(q, k) - expected).abs().max())

    def draw_batch(self, generator: torch.Generator, count: int = 64) -> tuple[Tensor, Tensor]:
        if self.pairs > self.symbols:
            raise UsageError(f"F3 needs a symbol for each pair; received {self.symbols} for {self.pairs} pairs.")
        symbols = torch.rand(count, self.symbols, generator=generator).argsort(1)[:, : self.pairs]
        values = torch.randint(self.pairs, (count, self.pairs), generator=generator)
        # The order of the pairs is random, so the pair to find may always be the first: no score knows positions.
        return torch.cat((symbols[:, :1], symbols, values), 1), values[:, 0]

    def judge(self, measured: Measured) -> Verdict:
        difference = max(measured[f"difference_from_formula_of_{name}"] for name in NAMES)
        accuracies = [measured[f"accuracy_with_{name}"] for name in NAMES]
        listed = ", ".join(f"{100 * measured[f'accuracy_with_{key}']:.0f} % ({name})" for key, name in NAMES.items())
        return decide(
            difference <= 1e-12 and min(accuracies) > 0.9,
            evidence=f"The accuracies are {listed}; guessing gets {100 * measured['accuracy_of_guessing']:.0f} %. "
            f"No score differs from its formula by more than {difference:.2g}.",
            instead="At this width and after these steps, not every score can select a key by a query.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        steps = np.arange(1, self.steps + 1)
        chart = LineChart(
            title="Training loss of associative recall with four scores",
            series=[Series(name=name, x=steps, y=measured[f"losses_{key}"]) for key, name in NAMES.items()],
            x_label="training step",
            y_label="cross-entropy (nats)",
            y_log=True,
            note="Every batch is new, so this is also the loss on unseen examples.",
        )
        return [chart]
