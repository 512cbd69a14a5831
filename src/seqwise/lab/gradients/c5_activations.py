"""C5: how do sigmoid, tanh and ReLU treat a gradient that passes through them many times?

    σ' = σ(1 − σ) ≤ 1/4,        tanh' = 1 − tanh² ≤ 1,        ReLU' ∈ {0, 1}

One step of an RNN multiplies a gradient by W and by the derivative of each unit. A sigmoid passes at most a quarter, so
with an orthogonal W the gradient loses at least a factor of 4 per step. Tanh passes nearly all of it while its units
are near zero. ReLU passes all of it where a unit is active: nothing bounds the state or the gradient once W is large
enough, and both grow without limit (Pascanu et al. 2013, section 2; Le et al. 2015). The gradient of tanh can grow
too, but not its state. "Saturates first" is true in this sense only. Since tanh(a) = 2σ(2a) − 1, a tanh needs half the
input of a sigmoid to lose the same share of its own largest derivative: measured by its input, tanh saturates first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide_condition
from seqwise.lab.fitting import make_generator
from seqwise.layers import RNNCell, orthogonal_
from seqwise.layers.cells import ACTIVATIONS
from seqwise.lens.jacobians import Trajectory
from seqwise.page.figures import Figure, LineChart, Reference, Series

NAMES = {"sigmoid": "sigmoid", "tanh": "tanh", "relu": "ReLU"}


@dataclass(frozen=True, kw_only=True)
class Activations(Experiment):
    id = "C5"
    claim = "Sigmoid saturates first, tanh carries further, ReLU can explode."
    equation = "max σ' = 1/4,  max tanh' = 1,  max ReLU' = 1;  growth per step = ‖∂h_T/∂h_0‖^(1/T)"
    measurement = (
        "The largest derivative of each function, the input at which a tenth of it remains, and the growth of the "
        "gradient per step of an RNN whose W is orthogonal times a gain."
    )
    rule = (
        "True of gradients if at gain 1 sigmoid passes less than half of tanh per step, and ReLU's growth at the "
        "largest gain exceeds 1.2; true of inputs if sigmoid loses 90 % of its derivative at a smaller input than tanh."
    )
    try_next = "seqwise lab run C5 --input-scale 2: saturated tanh units, and the distance to sigmoid shrinks."
    seconds = 0.5
    minimums: ClassVar = {"steps": 2, "input_scale": 0.01}

    units: int = 32
    """Hidden units."""
    steps: int = 20
    """Time steps over which the gradient passes."""
    input_scale: float = 0.3
    """Standard deviation of the inputs."""
    gains: tuple[float, ...] = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
    """Gains of W; 1 is always measured too."""

    def measure(self) -> Measured:
        gains = sorted({*self.gains, 1.0})
        q = orthogonal_(torch.empty(self.units, self.units, dtype=torch.float64))
        growth = {name: np.array([self.compute_growth(name, gain * q) for gain in gains]) for name in NAMES}
        a = torch.linspace(-6, 6, 241, dtype=torch.float64)
        derivatives = {name: self.compute_derivatives(name, a).numpy() for name in NAMES}
        return {
            **{f"largest_derivative_{name}": float(derivatives[name].max()) for name in NAMES},
            **{f"growth_at_gain_1_{name}": float(growth[name][gains.index(1.0)]) for name in NAMES},
            **{f"growth_at_largest_gain_{name}": float(growth[name][-1]) for name in NAMES},
            **{f"saturation_input_{name}": self.find_saturation(name) for name in ("sigmoid", "tanh")},
            "gains": np.array(gains),
            "inputs": a.numpy(),
            **{f"growth_{name}": growth[name] for name in NAMES},
            **{f"derivatives_{name}": derivatives[name] for name in NAMES},
        }

    def compute_derivatives(self, name: str, a: Tensor) -> Tensor:
        """Returns the derivative of an activation function at each input."""
        a = a.clone().requires_grad_()
        return torch.autograd.grad(ACTIVATIONS[name](a).sum(), a)[0]

    def find_saturation(self, name: str) -> float:
        """Returns the smallest positive input at which a tenth of the largest derivative remains."""
        a = torch.linspace(0, 6, 6001, dtype=torch.float64)
        derivatives = self.compute_derivatives(name, a)
        return float(a[derivatives < derivatives.max() / 10].min())

    def compute_growth(self, name: str, weight: Tensor) -> float:
        """Returns ‖∂h_T/∂h_0‖^(1/T) of an RNN, the mean factor per step."""
        cell = RNNCell(self.units, self.units, name).double().requires_grad_(False)
        cell.weight_hidden.copy_(weight)
        noise = torch.randn(self.steps, self.units, dtype=torch.float64, generator=make_generator(self.seed))
        x, states = self.input_scale * noise, [cell.start(1, noise)]
        for x_t in x:
            states.append(cell.step(x_t[None], states[-1], weight))
        trajectory = Trajectory(cell, x, [(h[0],) for (h,) in states])
        jacobians = [trajectory.compute_jacobian(step) for step in reversed(range(self.steps))]
        return float(torch.linalg.matrix_norm(torch.linalg.multi_dot(jacobians), ord=2)) ** (1 / self.steps)

    def judge(self, measured: Measured) -> Verdict:
        sigmoid, tanh = measured["growth_at_gain_1_sigmoid"], measured["growth_at_gain_1_tanh"]
        relu = measured["growth_at_largest_gain_relu"]
        inputs = [measured[f"saturation_input_{name}"] for name in ("sigmoid", "tanh")]
        return decide_condition(
            sigmoid < tanh / 2 and relu > 1.2,
            inputs[0] < inputs[1],
            condition='"saturates first" means that its gradient vanishes first; measured by the input, tanh '
            "saturates first, at half of sigmoid's",
            evidence=f"With an orthogonal W a step multiplies the gradient by {sigmoid:.2g} (sigmoid) and {tanh:.2g} "
            f"(tanh); at gain {max(*self.gains, 1.0):g} ReLU multiplies it by {relu:.2g}. Sigmoid loses 90 % of its "
            f"derivative at an input of {inputs[0]:.3g}, tanh at {inputs[1]:.3g}.",
            instead="Sigmoid does not pass less gradient than tanh, or ReLU does not explode.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        growth = LineChart(
            title="Factor by which the gradient grows per step of an RNN, by activation function",
            series=[Series(name=NAMES[name], x=measured["gains"], y=measured[f"growth_{name}"]) for name in NAMES],
            x_label="gain of W (orthogonal matrix times this number)",
            y_label="growth per time step",
            references=[Reference(axis="y", value=1.0, label="steady")],
            note="Below 1 the gradient vanishes exponentially, above 1 it explodes.",
        )
        derivatives = LineChart(
            title="Derivative of three activation functions",
            series=[Series(name=NAMES[key], x=measured["inputs"], y=measured[f"derivatives_{key}"]) for key in NAMES],
            x_label="input a",
            y_label="derivative",
            note="Sigmoid is lower but wider: tanh loses its derivative at half the input.",
        )
        return [growth, derivatives]
