"""F6: does dividing by √d keep the variance of the scores at 1?

    Var(qᵀk / √d) = 1

qᵀk is a sum of d products. If all entries are independent with mean 0 and variance 1, each product has variance 1, the
sum has variance d, and 1/√d undoes exactly that (Vaswani et al. 2017, §3.2.1, footnote 4). The softmax then works in
the same range at any width; without the factor its entropy falls to 0 as d grows. Each condition is needed: a variance
σ² gives σ⁴, a mean m adds 2m² (F5), and a common correlation ρ gives 1 + (d−1)ρ². Trained vectors need not meet any.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide_condition
from seqwise.layers import Dot, ScaledDot, attend_with_weights
from seqwise.page.figures import Figure, LineChart, Series

CHUNK = 4_000_000  # random numbers that are held at a time
CASES = ("independent", "shifted", "rescaled", "correlated")


@dataclass(frozen=True, kw_only=True)
class Scaling(Experiment):
    id = "F6"
    claim = "Dividing by √d keeps the variance at 1."
    equation = "Var(qᵀk / √d) = 1"
    measurement = "The variance of scaled scores against d for four kinds of entries, and the entropy of the softmax."
    rule = "True of a kind of entries if the variance is within 15 % of 1 at every width; tested for four kinds."
    try_next = "seqwise lab run F6 --d 1024 --samples 100000: only correlated entries get worse with the width."
    seconds = 0.3
    minimums: ClassVar = {"samples": 2, "correlation": 0.0}
    maximums: ClassVar = {"correlation": 1.0}

    d: int = 512
    """Largest width of queries and keys."""
    samples: int = 20_000
    """Number of pairs of a query and a key."""
    keys: int = 64
    """Number of keys over which the softmax runs."""
    mean: float = 0.5
    """Mean of the entries, where it is not 0."""
    sigma: float = 1.5
    """Standard deviation of the entries, where it is not 1."""
    correlation: float = 0.2
    """Correlation of any two entries of a vector, where they are not independent."""

    def measure(self) -> Measured:
        widths = np.array([*(4**n for n in range(1, 10) if 4**n < self.d), self.d])
        variances = self.measure_variances(widths)
        scores = self.build_scores().items()
        entropies = {n: np.array([self.measure_entropy(w, score) for w in widths.tolist()]) for n, score in scores}
        return {
            **{f"variance_of_{case}_entries": float(values[-1]) for case, values in variances.items()},
            **{f"entropy_{name}": float(values[-1]) for name, values in entropies.items()},
            "widths": widths,
            **{f"variances_{case}": values for case, values in variances.items()},
            **{f"entropies_{name}": values for name, values in entropies.items()},
        }

    def build_scores(self) -> dict[str, Dot]:
        return {"scaled": ScaledDot(), "unscaled": Dot()}

    def measure_variances(self, widths: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the variance of the scores at each width; narrow vectors are the first entries of wide ones."""
        score = self.build_scores()["scaled"]
        scores: dict[str, list[Tensor]] = {case: [] for case in CASES}
        for start in range(0, self.samples, rows := max(1, CHUNK // self.d)):
            count = min(rows, self.samples - start)
            q, k, shared_q, shared_k = (torch.randn(count, width) for width in (self.d, self.d, 1, 1))
            for case in CASES:
                a, b = self.transform(case, q, shared_q), self.transform(case, k, shared_k)
                scores[case].append(torch.stack([score(a[:, None, :w], b[:, None, :w]).flatten() for w in widths]))
        return {case: torch.cat(parts, 1).double().var(1).numpy() for case, parts in scores.items()}

    def name_cases(self) -> dict[str, str]:
        deviations = f"mean {self.mean:g}", f"variance {self.sigma**2:.4g}", f"correlation {self.correlation:g}"
        return dict(zip(CASES, ("mean 0, variance 1", *deviations), strict=True))

    def transform(self, case: str, entries: Tensor, shared: Tensor) -> Tensor:
        """Returns entries that violate one condition; they come in independent, with mean 0 and variance 1."""
        if case == "correlated":
            return entries * (1 - self.correlation) ** 0.5 + shared * self.correlation**0.5
        mean, sigma = {"shifted": (self.mean, 1.0), "rescaled": (0.0, self.sigma)}.get(case, (0.0, 1.0))
        return mean + sigma * entries

    def measure_entropy(self, width: int, score: Dot) -> float:
        """Returns the mean entropy of the attention weights of random queries, in nats."""
        queries, keys = (torch.randn(n, width) for n in (256, self.keys))
        weights = attend_with_weights(queries, keys, keys, score=score)[1]
        return float(torch.special.entr(weights).sum(-1).mean())

    def judge(self, measured: Measured) -> Verdict:
        expected, *others = (bool((abs(measured[f"variances_{case}"] - 1) < 0.15).all()) for case in CASES)
        variances = [f"{measured[f'variance_of_{key}_entries']:.3g} ({n})" for key, n in self.name_cases().items()]
        return decide_condition(
            expected,
            all(others),
            condition="the entries are independent of each other, with mean 0 and variance 1",
            evidence=f"At d = {self.d} the variance is {', '.join(variances)}. The entropy of the softmax is "
            f"{measured['entropy_scaled']:.3g} nats with scaling and {measured['entropy_unscaled']:.3g} without.",
            instead="The variance is not 1 even for independent entries of mean 0 and variance 1.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = self.name_cases().items()
        variances = LineChart(
            title="Variance of qᵀk/√d against the width d",
            series=[Series(name=name, x=measured["widths"], y=measured[f"variances_{case}"]) for case, name in names],
            x_label="width d",
            y_label="variance of qᵀk/√d",
            x_log=True,
            y_log=True,
            note="Expected: 1 + 2m² for a mean m, σ⁴ for a variance σ², and 1 + (d − 1)ρ² for a correlation ρ.",
        )
        entropies = LineChart(
            title=f"Entropy of the attention weights over {self.keys} keys (at most {np.log(self.keys):.2f} nats)",
            series=[Series(name=n, x=measured["widths"], y=measured[f"entropies_{n}"]) for n in self.build_scores()],
            x_label="width d",
            y_label="entropy (nats)",
            x_log=True,
            note="The lower the entropy, the fewer keys the softmax attends to.",
        )
        return [variances, entropies]
