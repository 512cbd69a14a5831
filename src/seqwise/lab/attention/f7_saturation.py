"""F7: without scaling by 1/√d, do the gradients of attention explode?

    ∂w/∂score = diag(w) − w wᵀ,   of norm at most 1/2

Notes reason that scores of variance d are large, so gradients must be large. But gradients do not pass through the size
of the scores; they pass through the Jacobian of the softmax, which depends on the weights alone. It is bounded, and it
approaches 0 when one weight approaches 1. Scores of standard deviation √d differ by so much that this is the rule: the
softmax is saturated, and the query learns almost nothing (Vaswani et al. 2017, §3.2.1: "extremely small gradients").
The verdict is about the median query, whose gradient falls exponentially in √d. As d grows the gradient vanishes for
more and more queries, in the limit for almost every one; the few whose best two keys are nearly tied keep theirs, so
that the mean of ∂L/∂score falls only as 1/√d. And ∂score/∂q = k has norm √d without scaling: it enlarges the gradients
of queries at middle widths, before saturation, and those of near-ties at any width. So the mean gradient of queries is
larger without scaling than with it, but it stays bounded, as √d · 1/√d = 1: nothing explodes.
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
from seqwise.layers import Dot, ScaledDot
from seqwise.page.figures import Figure, LineChart, Reference, Series


@dataclass(frozen=True, kw_only=True)
class Saturation(Experiment):
    id = "F7"
    claim = "Without scaling gradients explode."
    equation = "‖∂L/∂q‖ → ∞ for score = qᵀk and d → ∞"
    measurement = "Norms of ∂L/∂score and ∂L/∂q with and without 1/√d against the width; L is linear in the context."
    rule = "Holds if the median gradient of scores or queries without scaling is over 10 times that with it, at d."
    try_next = "seqwise lab run F7 --d 16: before the softmax saturates, the factor √d of the keys is still visible."
    seconds = 0.2
    minimums: ClassVar = {"keys": 2}

    d: int = 1024
    """Largest width of queries and keys."""
    keys: int = 64
    """Number of keys."""
    queries: int = 32
    """Number of queries per set of keys."""
    sets: int = 16
    """Number of independent sets of keys and values."""

    def measure(self) -> Measured:
        widths = np.unique(np.append(4 ** np.arange(10), self.d))
        widths = widths[widths <= self.d]
        numbers, arrays = {}, {}
        for name, score in (("scaled", ScaledDot()), ("unscaled", Dot())):
            rows = [self.measure_gradients(int(width), score) for width in widths]
            for key in rows[0]:
                numbers[f"{key}_{name}"] = rows[-1][key]
                plural = key.replace("gradient", "gradients").replace("weight", "weights")
                arrays[f"{plural}_{name}"] = np.array([row[key] for row in rows])
        return {**numbers, "widths": widths, **arrays}

    def measure_gradients(self, width: int, score: Dot) -> dict[str, float]:
        """Returns statistics over queries of the gradients of a random linear function of the context."""
        generator = make_generator(self.seed, width)
        shapes = ((self.sets, self.queries, width), (self.sets, self.keys, width), (self.sets, self.keys, width))
        q, k, v = (torch.randn(shape, generator=generator) for shape in shapes)
        direction = torch.randn(q.shape, generator=generator) / width**0.5
        q.requires_grad_()
        scores = score(q, k)
        weights = self.compute_weights(scores)
        grad_scores, grad_q = torch.autograd.grad((weights @ v * direction).sum(), (scores, q))
        norms_scores, norms_q = grad_scores.norm(dim=-1).double(), grad_q.norm(dim=-1).double()
        return {
            "median_gradient_of_scores": float(norms_scores.median()),
            "mean_gradient_of_scores": float(norms_scores.mean()),
            "median_gradient_of_queries": float(norms_q.median()),
            "mean_gradient_of_queries": float(norms_q.mean()),
            "largest_weight": float(weights.detach().amax(-1).mean()),
        }

    def compute_weights(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)

    def judge(self, measured: Measured) -> Verdict:
        key = "{}_gradient_of_{}_{}"
        ratios = {
            (kind, part): measured[key.format(kind, part, "unscaled")] / measured[key.format(kind, part, "scaled")]
            for kind, part in (("median", "scores"), ("median", "queries"), ("mean", "queries"))
        }
        scores, queries, mean = ratios.values()
        return decide(
            max(scores, queries) > 10,
            evidence=f"At d = {self.d} the median gradient without scaling is {scores:.2g} times that with it for "
            f"scores and {queries:.2g} times for queries, whose mean gradient is {mean:.2g} times as large; the "
            f"largest weight is {measured['largest_weight_unscaled']:.3g} on average, with scaling "
            f"{measured['largest_weight_scaled']:.3g}.",
            instead="Without scaling, gradients vanish for more and more queries as d grows, in the limit for almost "
            "every one, while a few near-ties get large gradients; their mean stays bounded.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = [(kind, name) for kind in ("median", "mean") for name in ("scaled", "unscaled")]
        gradients = LineChart(
            title="Gradient of a query against the width d, with and without 1/√d",
            series=[
                Series(name=f"{kind}, {name}", x=measured["widths"], y=measured[f"{kind}_gradients_of_queries_{name}"])
                for kind, name in names
            ],
            x_label="width d",
            y_label="norm of ∂L/∂q over queries",
            x_log=True,
            y_log=True,
            note="The median is the typical query; the mean is kept up by queries whose best keys are nearly tied. The "
            "more the softmax saturates, the fewer these are, and the larger their gradients.",
        )
        largest = LineChart(
            title=f"Largest of {self.keys} attention weights against the width d",
            series=[
                Series(name=name, x=measured["widths"], y=measured[f"largest_weights_{name}"])
                for name in ("scaled", "unscaled")
            ],
            x_label="width d",
            y_label="largest weight (mean over queries)",
            x_log=True,
            references=[Reference(axis="y", value=1.0, label="saturated")],
            note=f"At 1 a single key has all the weight; {1 / self.keys:.3g} is an equal share.",
        )
        return [gradients, largest]
