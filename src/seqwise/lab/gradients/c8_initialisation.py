"""C8: do Xavier, He and orthogonal initialisation keep signals and gradients at a steady size?

    Xavier:  Var(w) = 2 / (inputs + outputs)        He:  Var(w) = 2 / inputs        orthogonal:  QᵀQ = 1

A layer y = φ(W x) multiplies the variance of its input by inputs · Var(w), and by what φ leaves of it; the gradient, on
its way back, by outputs · Var(w). Xavier makes the mean of both factors 1, for a φ that is nearly linear, as tanh near
zero (Glorot & Bengio 2010, eq. 10–12). ReLU halves the second moment, hence He's factor of 2 (He et al. 2015, eq. 10).
An orthogonal matrix keeps all lengths, at every step of an RNN (Saxe et al. 2014). A fixed standard deviation fits one
width only, for tanh 1/√width (0.088 at 128 units): below it signals vanish, above it gradients explode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.layers import RNNCell, he_, orthogonal_, xavier_
from seqwise.page.figures import Figure, LineChart, Series

Initialise = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Initialisation(Experiment):
    id = "C8"
    claim = "Xavier, He, orthogonal initialisation steady the signal."
    equation = "inputs · Var(w) · E[φ(z)²] / E[z²] ≈ 1 for every layer and step"
    measurement = (
        "The root mean square of the signal after each layer or step, and of the gradient on its way back: Xavier with "
        "tanh and He with ReLU over depth, orthogonal with tanh over time, each beside a fixed standard deviation."
    )
    rule = "Holds if signal and gradient change < 100-fold with each of the three, > 1000-fold with a fixed deviation."
    try_next = "seqwise lab run C8 --std 0.2: a fixed standard deviation that is too large for this width."
    seconds = 0.2
    minimums: ClassVar = {"width": 8, "std": 1e-4}

    width: int = 128
    """Units per layer."""
    depth: int = 40
    """Number of layers, and of time steps."""
    std: float = 0.03
    """Standard deviation of the weights that ignore the width."""
    batch: int = 32
    """Number of random inputs."""

    def measure(self) -> Measured:
        fixed = partial(torch.nn.init.normal_, std=self.std)
        pairs = {
            "xavier_tanh": (xavier_, "tanh", False),
            "he_relu": (self.initialise_for_relu, "relu", False),
            "orthogonal_rnn": (orthogonal_, "tanh", True),
            "fixed_tanh": (fixed, "tanh", False),
            "fixed_relu": (fixed, "relu", False),
            "fixed_rnn": (fixed, "tanh", True),
            "xavier_relu": (xavier_, "relu", False),
        }
        measured: dict[str, object] = {}
        for name, (initialise, activation, is_shared) in pairs.items():
            signal, gradient = self.propagate(initialise, activation, is_shared)
            measured |= {f"signal_{name}": signal, f"gradient_{name}": gradient}
            measured[f"{name}_change"] = max(signal.max() / signal.min(), gradient.max() / gradient.min())
        return measured

    def initialise_for_relu(self, weight: Tensor) -> Tensor:
        return he_(weight)

    def propagate(self, initialise: Initialise, activation: str, is_shared: bool) -> tuple[np.ndarray, np.ndarray]:
        """Returns the root mean square of the signal, and of its gradient, at the input and after each layer.

        is_shared: use the same matrix everywhere, so that the layers are the steps of an RNN
        """
        h = torch.randn(self.batch, self.width, dtype=torch.float64).requires_grad_()
        cell = RNNCell(self.width, self.width, activation).double()
        weight, signals = torch.empty(self.width, self.width, dtype=torch.float64), [h]
        for index in range(self.depth):
            if index == 0 or not is_shared:
                weight = initialise(torch.empty_like(weight))
            (h,) = cell.step(torch.zeros_like(h), (h,), weight)
            signals.append(h)
        gradients = torch.autograd.grad(h, signals, torch.randn_like(h))
        return compute_sizes(signals), compute_sizes(gradients)

    def judge(self, measured: Measured) -> Verdict:
        xavier, he, orthogonal = (measured[f"{name}_change"] for name in ("xavier_tanh", "he_relu", "orthogonal_rnn"))
        fixed = min(measured[f"fixed_{name}_change"] for name in ("tanh", "relu", "rnn"))
        return decide(
            max(xavier, he, orthogonal) < 100 and fixed > 1000,
            evidence=f"Over {self.depth} layers or steps signal and gradient change at most {xavier:.2g}-fold (Xavier, "
            f"tanh), {he:.2g}-fold (He, ReLU) and {orthogonal:.2g}-fold (orthogonal, RNN), with a fixed standard "
            f"deviation by at least {np.log10(fixed):.0f} orders of magnitude; Xavier with ReLU by "
            f"{np.log10(measured['xavier_relu_change']):.0f}.",
            instead="One of the three does not keep signal and gradient within a factor of 100, or a fixed standard "
            "deviation does as well.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        names = {
            "Xavier, tanh": "xavier_tanh",
            "He, ReLU": "he_relu",
            "orthogonal, RNN": "orthogonal_rnn",
            "Xavier, ReLU": "xavier_relu",
            f"σ = {self.std:g}, tanh": "fixed_tanh",
        }
        layers = np.arange(self.depth + 1)
        return [
            LineChart(
                title=f"Root mean square of the {what} at each layer or time step, by initialisation",
                series=[Series(name=name, x=layers, y=measured[f"{what}_{key}"]) for name, key in names.items()],
                x_label="layer (feed-forward) or time step (RNN)",
                y_label=f"{what} (root mean square)",
                y_log=True,
                note=note,
            )
            for what, note in (
                ("signal", "A horizontal line is a signal of steady size."),
                ("gradient", "The gradient starts at the last layer, on the right, and moves to the left."),
            )
        ]


def compute_sizes(values: Sequence[Tensor]) -> np.ndarray:
    """Returns the root mean square of each tensor."""
    return np.array([float(value.detach().square().mean().sqrt()) for value in values])
