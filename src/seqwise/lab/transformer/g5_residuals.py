"""G5: do residuals let gradients reach early layers?

    hₗ₊₁ = hₗ + f(norm(hₗ))      ∂hₗ₊₁/∂hₗ = I + ∂f/∂hₗ      the identity passes the gradient on, whatever f does
    hₗ₊₁ = f(norm(hₗ))           ∂hₗ₊₁/∂hₗ = ∂f/∂hₗ          without: a product of Jacobians alone

Textbooks draw the norm of the gradient, which vanishes without residuals. In a Transformer it falls, but does not
vanish: layer norm rescales the activations and with them the gradient, as batch norm does in the networks of He et al.
(2016, section 4.1: plain networks have "healthy norms" of gradients). What vanishes is its content. Attention is an
average over positions; without residuals repeated averages make all positions equal, for attention alone doubly
exponentially with depth (rank collapse, Dong et al. 2021). The last layer then averages equal positions, so on the way
back this one layer removes all differences: each position gets the same sum over all positions.

Two errors at the outputs show it: a random one at each position, and the same with its mean over positions subtracted,
so that only differences between positions are left. Residuals pass on both. Without them about a hundredth of the first
arrives, at 24 layers and at 48, and nothing of the second. If layer norm is removed as well, the first vanishes too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.errors import pluralize
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide_condition
from seqwise.lab.fitting import make_generator
from seqwise.layers import Encoder, EncoderLayer, LayerNorm, PreNormEncoderLayer
from seqwise.page.figures import Figure, LineChart, Reference, Series

VANISHED = 1e-4  # of the norm at the last layer
KINDS = ("with_residuals", "without_residuals", "without_norms")


class LayerWithoutResidual(PreNormEncoderLayer):
    def add_residual(self, norm: LayerNorm, x: Tensor, result: Tensor) -> Tensor:
        return result


class LayerWithoutResidualAndNorm(EncoderLayer):
    def add_residual(self, norm: LayerNorm, x: Tensor, result: Tensor) -> Tensor:
        return result  # post-norm layers normalise the sum, and nothing else


@dataclass(frozen=True, kw_only=True)
class ResidualGradients(Experiment):
    id = "G5"
    claim = "Residuals let gradients reach early layers."
    equation = "∂hₗ₊₁/∂hₗ = I + ∂f/∂hₗ"
    measurement = "Norm of the gradient with respect to each layer's input, with and without residuals, for two errors."
    rule = "True of an error if its gradient keeps over 10⁻⁴ of its norm with residuals, and less without."
    try_next = "seqwise lab run G5 --depth 1: a single layer needs no residuals, so the claim fails for both errors."
    seconds = 0.3
    minimums: ClassVar = {"length": 2}

    depth: int = 24
    """Layers of the stack."""
    width: int = 32
    """Width of the model."""
    length: int = 16
    """Positions of a sequence."""
    batch_size: int = 8
    """Sequences."""

    def measure(self) -> Measured:
        shape, generator = (self.batch_size, self.length, self.width), make_generator(self.seed)
        x, error = (torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(2))
        errors = {"whole_error": error, "differences": error - error.mean(1, keepdim=True)}
        layers = PreNormEncoderLayer, self.get_layer_without_residual(), LayerWithoutResidualAndNorm
        norms = {}
        for name, kind in zip(KINDS, layers, strict=True):
            torch.manual_seed(self.seed)
            encoder = Encoder([kind(self.width, 4, 4 * self.width, "relu") for _ in range(self.depth)]).double()
            for key, each in errors.items():
                norms[f"{key}_{name}"] = self.compute_norms(encoder, x, each)
        return {
            **{f"gradient_of_{name}": float(values[0]) for name, values in norms.items()},
            **{f"norms_{name}": values for name, values in norms.items()},
        }

    def get_layer_without_residual(self) -> type[EncoderLayer]:
        return LayerWithoutResidual

    def compute_norms(self, encoder: Encoder, x: Tensor, error: Tensor) -> np.ndarray:
        """Returns the norm of the gradient with respect to each layer's input and the output, relative to the last."""
        values = [x.clone().requires_grad_()]
        for layer in encoder.layer:
            values.append(layer(values[-1])[0])
        gradients = torch.autograd.grad(values[-1], values, error)
        norms = np.array([float(each.norm()) for each in gradients])
        return norms / norms[-1]

    def judge(self, measured: Measured) -> Verdict:
        shares = {
            key: [measured[f"gradient_of_{key}_{name}_residuals"] for name in ("with", "without")]
            for key in ("whole_error", "differences")
        }
        total, differences = ((residual > VANISHED > without) for residual, without in shares.values())
        return decide_condition(
            differences,
            total,
            condition="the gradient has to tell positions apart; layer norm does not let other gradients vanish anyway",
            evidence=f"Of the gradient of differences between positions, {shares['differences'][0]:.2g} times its norm "
            f"at the output arrives at the input of {pluralize(self.depth, 'layers')} with residuals, "
            f"{shares['differences'][1]:.1g} without; of that of the whole error {shares['whole_error'][0]:.2g} and "
            f"{shares['whole_error'][1]:.2g}.",
            instead="Here gradients reach the first layer without residuals too, or not even with them.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = {
            "differences, residuals": "differences_with_residuals",
            "whole error, no residuals": "whole_error_without_residuals",
            "differences, no residuals": "differences_without_residuals",
            "whole error, no norms": "whole_error_without_norms",
        }
        layers = np.arange(self.depth + 1)
        chart = LineChart(
            title=f"Gradient on its way back through {pluralize(self.depth, 'Transformer layers')}",
            series=[Series(name=n, x=layers, y=measured[f"norms_{k}"]) for n, k in names.items()],
            x_label="layer (0: input of the stack)",
            y_label="gradient norm / that at the output",
            y_log=True,
            references=[Reference(axis="y", value=VANISHED, label="vanished")],
            note="Read from right to left. Differences: between positions; no norms: without residuals and layer norm.",
        )
        return [chart]
