"""F7: without scaling by 1/√d, do the gradients of attention explode?

    ∂w/∂score = diag(w) − w wᵀ,   of norm at most 1/2

Notes reason that scores of variance d are large, so gradients must be large. But gradients do not pass through the size
of the scores; they pass through the Jacobian of the softmax, which depends on the weights alone. It is bounded, and it
approaches 0 when one weight approaches 1. Scores of standard deviation √d differ by so much that this is the rule: the
softmax is saturated, and the query learns almost nothing (Vaswani et al. 2017, §3.2.1: "extremely small gradients").
The verdict is about the median query. Its gradient falls exponentially in √d; the mean over queries, which comes from
the few whose best two keys are nearly tied, falls only as 1/√d. And ∂score/∂q = k has norm √d without scaling: it
enlarges the gradients of queries at middle widths, before saturation, and those of near ties at any width. So the mean
gradient of queries is larger without scaling than with it, but it stays bounded, as √d · 1/√d = 1: nothing explodes.
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
                arrays[f"{key}_by_width_{name}"] = np.array([row[key] for row in rows])
                numbers[f"{key}_{name}"] = rows[-1][key]
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
            "median_grad_scores": float(norms_scores.median()),
            "mean_grad_scores": float(norms_scores.mean()),
            "median_grad_queries": float(norms_q.median()),
            "mean_grad_queries": float(norms_q.mean()),
            "largest_weight": float(weights.detach().amax(-1).mean()),
        }

    def compute_weights(self, scores: Tensor) -> Tensor:
        return scores.softmax(-1)

    def judge(self, measured: Measured) -> Verdict:
        ratios = {
            part: measured[f"median_grad_{part}_unscaled"] / measured[f"median_grad_{part}_scaled"]
            for part in ("scores", "queries")
        }
        mean = measured["mean_grad_queries_unscaled"] / measured["mean_grad_queries_scaled"]
        return decide(
            max(ratios.values()) > 10,
            evidence=f"At d = {self.d} the median gradient without scaling is {ratios['scores']:.2g} times that with "
            f"it for scores and {ratios['queries']:.2g} times for queries (the mean: {mean:.2g} times); the largest "
            f"weight is {measured['largest_weight_unscaled']:.3g} on average, with scaling "
            f"{measured['largest_weight_scaled']:.3g}.",
            instead="Gradients through a softmax are bounded; as d grows it saturates, and most of them vanish.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = {
            "scores, scaled (median)": "median_grad_scores_by_width_scaled",
            "scores, unscaled (median)": "median_grad_scores_by_width_unscaled",
            "queries, unscaled (median)": "median_grad_queries_by_width_unscaled",
            "queries, unscaled (mean)": "mean_grad_queries_by_width_unscaled",
        }
        gradients = LineChart(
            title="Gradient through the softmax against the width d, with and without 1/√d",
            series=[Series(name=name, x=measured["widths"], y=measured[key]) for name, key in names.items()],
            x_label="width d",
            y_label="gradient norm of a query",
            x_log=True,
            y_log=True,
            note="Without scaling the medians vanish; the mean is kept up by the few queries with near ties.",
        )
        largest = LineChart(
            title=f"Largest of {self.keys} attention weights against the width d",
            series=[
                Series(name=name, x=measured["widths"], y=measured[f"largest_weight_by_width_{name}"])
                for name in ("scaled", "unscaled")
            ],
            x_label="width d",
            y_label="largest weight (mean over queries)",
            x_log=True,
            references=[Reference(axis="y", value=1.0, label="saturated")],
            note="Without scaling one key gets almost all the weight, whatever the query would need.",
        )
        return [gradients, largest]
