"""F2: are the attention weights of a query positive, and do they sum to 1?

    w_s = exp(score_s) / Σ_r exp(score_r) > 0,   Σ_s w_s = 1

Both follow from the softmax, whatever the scores are: exponentials are positive, and each is divided by their sum. So
the context is a weighted mean of the values, inside their convex hull: attention can average values, but neither add
nor subtract them. The statement is about the keys that may be attended to; a masked key gets the weight 0, and the rest
still sums to 1. A computer adds one more limit: exp(−x) underflows to 0 beyond x ≈ 104 in float32 and 745 in float64. A
weight that is 0 there is positive in exact arithmetic, but it passes no gradient either way (see F7).
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
from seqwise.layers import attend_with_weights
from seqwise.page.figures import Figure, LineChart, Reference, Series

TOLERANCE = 1e-12


@dataclass(frozen=True, kw_only=True)
class WeightsSumToOne(Experiment):
    id = "F2"
    claim = "Weights of a row are positive and sum to 1."
    equation = "wₛ = exp(scoreₛ) / Σᵣ exp(scoreᵣ) > 0,  Σₛ wₛ = 1"
    measurement = "The smallest weight and the sum of each row over random shapes, scales of scores and masks."
    rule = "Holds if in float64 every weight that is not masked is above 0 and every sum is within 1e-12 of 1."
    try_next = "seqwise lab run F2 --largest-scale 1000: weights underflow to 0, so the rule fails in float64 as well."
    seconds = 0.2
    minimums: ClassVar = {"largest_scale": 0.1, "masked": 0.0}
    maximums: ClassVar = {"masked": 1.0}

    trials: int = 200
    """Number of random cases."""
    keys: int = 40
    """Largest number of keys; each case draws its own."""
    largest_scale: float = 40.0
    """Largest standard deviation of the scores; each case draws its own, from 0.1 up."""
    masked: float = 0.3
    """Share of keys that are masked, in every second case."""

    def measure(self) -> Measured:
        generator = make_generator(self.seed)
        scales = torch.logspace(-1, np.log10(self.largest_scale), self.trials, dtype=torch.float64)
        smallest, smallest_32, errors, masked_weights = [], [], [], []
        for trial, scale in enumerate(scales.tolist()):
            queries, keys, mask = self.draw_case(scale, is_masked=trial % 2 == 1, generator=generator)
            weights = self.compute_weights(queries, keys, mask)
            smallest.append(float(weights[mask].min()))
            masked_weights.append(float(weights[~mask].abs().max()) if (~mask).any() else 0.0)
            errors.append(float((weights.sum(-1) - 1).abs().max()))
            smallest_32.append(float(self.compute_weights(queries.float(), keys.float(), mask)[mask].min()))
        return {
            "smallest_weight": min(smallest),
            "largest_error_of_sum": max(errors),
            "largest_masked_weight": max(masked_weights),
            "cases_with_underflow_in_float32": sum(value == 0 for value in smallest_32),
            "scales": scales.numpy(),
            "smallest_by_case": np.array(smallest),
            "smallest_by_case_float32": np.array(smallest_32),
        }

    def draw_case(self, scale: float, is_masked: bool, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Returns queries (T, K), keys (S, K) and a mask (T, S) that allows at least one key to each query."""
        time, source, width = (int(torch.randint(1, self.keys + 1, (), generator=generator)) for _ in range(3))
        queries = torch.randn(time, width, dtype=torch.float64, generator=generator) * scale
        keys = torch.randn(source, width, dtype=torch.float64, generator=generator)
        mask = torch.rand(time, source, generator=generator) >= (self.masked if is_masked else 0.0)
        mask[:, 0] = True
        return queries, keys, mask

    def compute_weights(self, queries: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        return attend_with_weights(queries, keys, keys, mask)[1]

    def judge(self, measured: Measured) -> Verdict:
        smallest, error = measured["smallest_weight"], measured["largest_error_of_sum"]
        return decide(
            smallest > 0 and error <= TOLERANCE,
            evidence=f"Over {self.trials} cases the smallest weight is {smallest:.2g}, and no sum differs from 1 "
            f"by more than {error:.2g}.",
            instead="Some weights are 0 in float64: exp underflows."
            if smallest <= 0
            else "The sums differ from 1, as they do if weights are masked after the softmax.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = {"float64": "smallest_by_case", "float32": "smallest_by_case_float32"}
        groups = np.array_split(np.arange(self.trials), min(20, self.trials))
        lowest = {name: np.array([measured[key][group].min() for group in groups]) for name, key in names.items()}
        scales = np.array([measured["scales"][group].mean() for group in groups])
        chart = LineChart(
            title="Smallest attention weight against the scale of the scores",
            series=[Series(name=name, x=scales, y=np.where(y > 0, y, np.nan)) for name, y in lowest.items()],
            x_label="standard deviation of the scores",
            y_label="smallest weight",
            x_log=True,
            y_log=True,
            references=[Reference(axis="y", value=1.4e-45, label="smallest float32")],
            note="Minima over groups of cases; a line has gaps, or ends, where weights underflow to exactly 0.",
        )
        return [chart]
