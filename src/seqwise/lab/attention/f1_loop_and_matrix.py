"""F1: attention is the same function for one query or many, in loops or as matrix products.

    context_t = Σ_s w_ts v_s,   w_ts = exp(q_t·k_s / √d) / Σ_r exp(q_t·k_r / √d)
    context   = softmax(Q Kᵀ / √d) V          the softmax is over the keys: over each row

The loops are the definition: a query is compared with every key, the scores become weights, and the weights average the
values (Vaswani et al. 2017, eq. 1). The matrix form stacks the queries as rows. As no query sees another one, a row of
the result is the same whether its query is alone or one of many; so a decoder may compute its newest row only. The
forms differ in speed and memory, not in the result: fused kernels do not even store the weights. What can go wrong is
the axis of the softmax, which must run over keys, and the factor 1/√d, where d is the width of the keys.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import make_generator
from seqwise.layers import attend, attend_with_weights
from seqwise.page.figures import BarChart, Figure, Heatmap

TOLERANCE = 1e-12  # float64 has a rounding error of 1e-16; sums of some hundred terms stay far below this


@dataclass(frozen=True, kw_only=True)
class LoopAndMatrix(Experiment):
    id = "F1"
    claim = "softmax(QKᵀ/√d)V is the same for one query or many, as loops or as matrix products."
    equation = "Σₛ exp(qₜ·kₛ/√d) vₛ / Σᵣ exp(qₜ·kᵣ/√d) = [softmax(QKᵀ/√d) V]ₜ"
    measurement = "The largest difference between loops over scalars and three matrix forms, in float64."
    rule = "Holds if no entry of any matrix form differs from the loops by more than 1e-12."
    try_next = "seqwise lab run F1 --d 256 --keys 64: more terms per sum, yet the differences remain rounding errors."
    seconds = 0.1

    d: int = 16
    """Width of queries, keys and values."""
    queries: int = 8
    """Number of queries."""
    keys: int = 12
    """Number of keys and values."""

    def measure(self) -> Measured:
        generator = make_generator(self.seed)
        lengths = (self.queries, self.keys, self.keys)
        q, k, v = (torch.randn(n, self.d, dtype=torch.float64, generator=generator) for n in lengths)
        context, weights = attend_with_weights(q, k, v)
        expected = torch.tensor(self.attend_by_loops(q.tolist(), k.tolist(), v.tolist()), dtype=torch.float64)
        one_by_one = torch.cat([attend(q[t : t + 1], k, v) for t in range(self.queries)])
        return {
            "largest_entry": float(expected.abs().max()),
            "difference_with_all_queries_at_once": self.compare(context, expected),
            "difference_with_the_fused_kernel": self.compare(attend(q[None], k[None], v[None])[0], expected),
            "difference_with_one_query_at_a_time": self.compare(one_by_one, expected),
            "weights": weights.numpy(),
        }

    def attend_by_loops(self, q: list, k: list, v: list) -> list:
        """Returns the context of each query by the definition, one scalar at a time."""
        contexts = []
        for query in q:
            scores = [sum(a * b for a, b in zip(query, key, strict=True)) / math.sqrt(self.d) for key in k]
            total = sum(math.exp(score) for score in scores)
            weights = [math.exp(score) / total for score in scores]
            contexts.append([sum(w * value[i] for w, value in zip(weights, v, strict=True)) for i in range(self.d)])
        return contexts

    def compare(self, context: Tensor, expected: Tensor) -> float:
        return float((context - expected).abs().max())

    def judge(self, measured: Measured) -> Verdict:
        largest = max(value for name, value in measured.items() if name.startswith("difference"))
        return decide(
            largest <= TOLERANCE,
            evidence=f"The largest difference is {largest:.2g}, in entries of up to {measured['largest_entry']:.3g}.",
            instead="Loops and matrix form are different functions: compare the axis of the softmax and the scale.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = {
            "all queries, weights stored": "difference_with_all_queries_at_once",
            "all queries, fused kernel": "difference_with_the_fused_kernel",
            "one query at a time": "difference_with_one_query_at_a_time",
        }
        weights = Heatmap(
            title="Attention weights softmax(QKᵀ/√d) of random queries and keys",
            values=measured["weights"],
            rows=[f"q{t + 1}" for t in range(self.queries)],
            columns=[f"k{s + 1}" for s in range(self.keys)],
            row_label="query",
            column_label="key",
            value_label="attention weight",
            low=0.0,
            note="Each row is computed from one query alone and sums to 1; columns need not.",
        )
        differences = BarChart(
            title="Largest difference between the matrix forms and the loops",
            names=list(names),
            values=np.array([measured[key] for key in names.values()]) * 1e16,
            value_label="largest |difference| (10⁻¹⁶)",
            note="Each form adds in another order; float64 rounds each sum to about 10⁻¹⁶ of its size.",
        )
        return [weights, differences]
