"""C6: clipping by norm keeps the direction of a gradient, clipping by value does not. C7: neither enlarges a small one.

    by norm:  g ← g · min(1, θ/‖g‖)              by value:  g_i ← min(max(g_i, −θ), θ)

Clipping by norm multiplies the whole gradient, over all parameters, by one number of at most 1 (Pascanu et al. 2013,
algorithm 1): a step of gradient descent goes the same way, but not as far. Clipping by value treats each entry by
itself: large entries shrink, small ones do not, and the direction turns towards a diagonal (Mikolov 2012).

Both are upper limits. A gradient below the threshold passes unchanged, so clipping helps against exploding gradients
and does nothing against vanishing ones; those need another architecture (gates, attention) or initialisation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.layers import Recurrent, RNNCell
from seqwise.page.figures import Figure, LineChart, Reference, Series
from seqwise.training.optimizers import clip_gradients


@dataclass(frozen=True, kw_only=True)
class Clipping(Experiment):
    """What both experiments share: the gradients of an RNN, and clipping."""

    units: int = 16
    """Hidden units of the RNN."""
    steps: int = 30
    """Length of its sequence."""

    def clip(self, gradients: Sequence[Tensor], method: str, threshold: float) -> Tensor:
        """Returns the clipped gradients as one vector; the originals are kept."""
        parameters = [torch.zeros_like(gradient) for gradient in gradients]
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient.clone()
        clip_gradients(parameters, method, threshold)
        return torch.cat([parameter.grad.flatten() for parameter in parameters if parameter.grad is not None])


def flatten(gradients: Sequence[Tensor]) -> Tensor:
    """Returns all gradients as one vector."""
    return torch.cat([gradient.flatten() for gradient in gradients])


@dataclass(frozen=True, kw_only=True)
class ClippingDirection(Clipping):
    id = "C6"
    claim = "Clipping by norm keeps the direction and caps the size; clipping by value does not keep the direction."
    equation = "by norm: g ← g · min(1, θ/‖g‖);  by value: g_i ← clamp(g_i, −θ, θ)"
    measurement = (
        "The cosine between the gradient of an RNN before and after clipping, and the norm after it, for "
        "thresholds that are a fraction of the norm (by norm) or of the largest entry (by value)."
    )
    rule = (
        "Holds if clipping by norm has a cosine of 1 and a norm of at most θ (to 1e-6) at every threshold, and "
        "clipping by value has a cosine below 0.98 at the smallest."
    )
    try_next = "seqwise lab run C6 --smallest 0.0001: clipping by value approaches the sign of the gradient."
    seconds = 0.1
    minimums: ClassVar = {"smallest": 1e-9}

    smallest: float = 0.01
    """Smallest threshold, as a fraction of the norm or of the largest entry."""

    def measure(self) -> Measured:
        gradients = self.compute_gradients()
        before = flatten(gradients)
        fractions = np.geomspace(self.smallest, 1.0, 25)
        largest = {"norm": float(before.norm()), "value": float(before.abs().max())}
        cosines: dict[str, list[float]] = {"norm": [], "value": []}
        excess = []
        for fraction in fractions:
            for method in cosines:
                after = self.clip(gradients, method, fraction * largest[method])
                cosines[method].append(float(torch.cosine_similarity(before, after, dim=0)))
                if method == "norm":
                    excess.append(float(after.norm()) / (fraction * largest[method]))
        return {
            "norm_before": largest["norm"],
            "lowest_cosine_by_norm": min(cosines["norm"]),
            "largest_norm_divided_by_threshold": max(excess),
            "cosine_by_value_at_smallest_threshold": cosines["value"][0],
            "fractions": fractions,
            "cosines_norm": np.array(cosines["norm"]),
            "cosines_value": np.array(cosines["value"]),
        }

    def compute_gradients(self) -> list[Tensor]:
        """Returns the gradient with respect to each weight of a loss at the last step."""
        layer = Recurrent(RNNCell(4, self.units)).double()
        outputs, _ = layer(torch.randn(8, self.steps, 4, dtype=torch.float64))
        outputs[:, -1].square().sum().backward()
        return [parameter.grad for parameter in layer.parameters() if parameter.grad is not None]

    def judge(self, measured: Measured) -> Verdict:
        norm, value = measured["lowest_cosine_by_norm"], measured["cosine_by_value_at_smallest_threshold"]
        excess = measured["largest_norm_divided_by_threshold"]
        return decide(
            norm > 1 - 1e-6 and excess < 1 + 1e-6 and value < 0.98,
            evidence=f"Clipping by norm: cosine at least {norm:.6f}, norm at most {excess:.6f} θ. Clipping by value: "
            f"cosine {value:.3g} at the smallest threshold.",
            instead="Clipping by norm turns the gradient or leaves it too long, or clipping by value does not turn it.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        chart = LineChart(
            title="Direction of a gradient after clipping: cosine with the gradient before",
            series=[
                Series(name=f"by {method}", x=measured["fractions"], y=measured[f"cosines_{method}"])
                for method in ("norm", "value")
            ],
            x_label="threshold, as a fraction of the norm or of the largest entry",
            y_label="cosine (1: the same direction)",
            x_log=True,
            note="Clipping by norm only shortens; clipping by value turns the gradient, more so at low thresholds.",
        )
        return [chart]


@dataclass(frozen=True, kw_only=True)
class ClippingSmallGradients(Clipping):
    id = "C7"
    claim = "Clipping also prevents gradients from becoming too small."
    equation = "‖g‖ ≪ θ  ⇒  ‖clip(g)‖ > ‖g‖"
    measurement = (
        "The norm, before and after clipping by norm and by value, of the gradient with respect to the first word's "
        "vector in a linear RNN, from recurrent matrices so small that it vanishes to ones so large that it explodes."
    )
    rule = "Holds if clipping enlarges the smallest of the gradients by at least 1 %."
    try_next = "seqwise lab run C7 --threshold 0.001: a lower threshold only makes more gradients smaller."
    seconds = 0.2
    minimums: ClassVar = {"threshold": 0.0}

    threshold: float = 1.0
    """The threshold θ of clipping, for the norm and for each entry."""
    scales: tuple[float, ...] = (0.1, 0.3, 0.5, 1.0, 1.5, 2.0, 3.0)
    """Factors of the orthogonal recurrent matrix."""

    def measure(self) -> Measured:
        gradients = [self.compute_first_gradient(scale) for scale in self.scales]
        before = np.array([float(gradient.norm()) for gradient in gradients])
        after = {
            method: np.array([float(self.clip([gradient], method, self.threshold).norm()) for gradient in gradients])
            for method in ("norm", "value")
        }
        smallest = int(before.argmin())
        return {
            "smallest_norm_before": float(before[smallest]),
            "smallest_norm_after_clipping_by_norm": float(after["norm"][smallest]),
            "smallest_norm_after_clipping_by_value": float(after["value"][smallest]),
            "largest_norm_before": float(before.max()),
            "largest_norm_after_clipping_by_norm": float(after["norm"].max()),
            "norms_before": before,
            "norms_after_norm": after["norm"],
            "norms_after_value": after["value"],
        }

    def compute_first_gradient(self, scale: float) -> Tensor:
        """Returns the gradient of a loss at the last step with respect to the first word's vector."""
        layer = Recurrent(RNNCell(4, self.units, "identity")).double()
        layer.cell.weight_hidden.data *= scale
        word = torch.randn(1, 1, 4, dtype=torch.float64).requires_grad_()
        outputs, _ = layer(torch.cat([word, torch.randn(1, self.steps - 1, 4, dtype=torch.float64)], dim=1))
        (gradient,) = torch.autograd.grad(outputs[:, -1].sum(), word)
        return gradient

    def judge(self, measured: Measured) -> Verdict:
        before = measured["smallest_norm_before"]
        after = max(measured[f"smallest_norm_after_clipping_by_{method}"] for method in ("norm", "value"))
        return decide(
            after > 1.01 * before,
            evidence=f"The smallest gradient has norm {before:.3g} before clipping and {after:.3g} after it; the "
            f"largest has {measured['largest_norm_before']:.3g} before and "
            f"{measured['largest_norm_after_clipping_by_norm']:.3g} after clipping by norm.",
            instead="Clipping is an upper limit: a gradient below the threshold passes unchanged, however small it is.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        before = measured["norms_before"]
        chart = LineChart(
            title="Norm of a gradient through an RNN before and after clipping",
            series=[
                Series(name="without clipping", x=before, y=before),
                Series(name="by norm", x=before, y=measured["norms_after_norm"]),
                Series(name="by value", x=before, y=measured["norms_after_value"]),
            ],
            x_label="norm before",
            y_label="norm after",
            x_log=True,
            y_log=True,
            references=[Reference(axis="x", value=self.threshold, label="threshold")],
            note="Left of the threshold the three lines coincide: vanishing gradients stay as small as they are.",
        )
        return [chart]
