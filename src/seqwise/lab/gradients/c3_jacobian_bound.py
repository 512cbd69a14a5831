"""C3: how large can the gradient through n steps of a tanh RNN be?

    ‖∂h_t/∂h_(t−n)‖  =  ‖ D_t W · … · D_(t−n+1) W ‖  ≤  ‖W‖ⁿ · (max tanh')ⁿ,        D = diag(1 − h²)

The norm of a product is at most the product of the norms. ‖W‖ is the largest singular value, not the largest
|eigenvalue|, and ‖D‖ the largest derivative of any unit, at most 1. It follows that ‖W‖ < 1 is sufficient for vanishing
gradients, and ‖W‖ > 1 necessary, but not sufficient, for exploding ones (Pascanu et al. 2013, section 2). The bound
is loose in two ways: only a unit near zero has derivative 1, and the direction that one factor enlarges most is
rarely the one that the next enlarges most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from seqwise.errors import UsageError, pluralize
from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.fitting import make_generator
from seqwise.layers import RNNCell
from seqwise.lens.jacobians import Trajectory
from seqwise.page.figures import Figure, LineChart, Series


@dataclass(frozen=True, kw_only=True)
class JacobianBound(Experiment):
    id = "C3"
    claim = "The norm of the Jacobian product is at most ‖W‖^n·max|tanh'|^n."
    equation = "‖∂h_t/∂h_(t−n)‖ ≤ ‖W‖ⁿ · (max |tanh'|)ⁿ"
    measurement = (
        "The norm of the product of the first n Jacobians, divided by the bound, for several ‖W‖; max |tanh'| is the "
        "largest derivative of any unit at any step."
    )
    rule = "Holds if no product of any length exceeds its bound by more than rounding (a factor of 1 + 1e-9)."
    try_next = "seqwise lab run C3 --input-scale 3: inputs that saturate the units, and the bound is far too high."
    seconds = 0.3
    minimums: ClassVar = {"input_scale": 0.0}

    units: int = 16
    """Hidden units."""
    steps: int = 40
    """Longest product."""
    input_scale: float = 0.5
    """Standard deviation of the inputs."""
    norms: tuple[float, ...] = (0.8, 1.0, 2.0, 4.0)
    """Values of ‖W‖, the largest singular value of the recurrent matrix."""

    def measure(self) -> Measured:
        if min(self.norms) <= 0:
            raise UsageError(f"expected positive norms; received {min(self.norms):g}.")
        products, bounds = [], []
        for norm in self.norms:
            trajectory = self.build_trajectory(norm)
            jacobians = [trajectory.compute_jacobian(step) for step in range(self.steps)]
            derivative = float(max((1 - h.square()).max() for (h,) in trajectory.states[1:]))
            factor = self.compute_matrix_norm(trajectory.cell.weight_hidden) * derivative
            products.append(compute_product_norms(jacobians))
            bounds.append(factor ** np.arange(1, self.steps + 1))
        ratios = np.array(products) / np.array(bounds)
        return {
            "largest_ratio_to_bound": float(ratios.max()),
            "median_ratio_at_the_last_step": float(np.median(ratios[:, -1])),
            "product_norms": np.array(products),
            "bounds": np.array(bounds),
            "ratios": ratios,
        }

    def build_trajectory(self, norm: float) -> Trajectory:
        """Runs a tanh RNN with a Gaussian W of this largest singular value on random inputs."""
        generator = make_generator(self.seed)
        cell = RNNCell(self.units, self.units).double().requires_grad_(False)
        weight = torch.randn(self.units, self.units, dtype=torch.float64, generator=generator)
        cell.weight_hidden.copy_(weight * norm / torch.linalg.matrix_norm(weight, ord=2))
        x = self.input_scale * torch.randn(self.steps, self.units, dtype=torch.float64, generator=generator)
        states = [cell.start(1, x)]
        for step in range(self.steps):
            states.append(cell.step(x[step][None], states[-1], cell.weight_hidden))
        return Trajectory(cell, x, [(h[0],) for (h,) in states])

    def compute_matrix_norm(self, weight: Tensor) -> float:
        """Returns ‖W‖, the largest singular value."""
        return float(torch.linalg.matrix_norm(weight, ord=2))

    def judge(self, measured: Measured) -> Verdict:
        ratio, last = measured["largest_ratio_to_bound"], measured["median_ratio_at_the_last_step"]
        orders = abs(np.log10(max(last, 1e-300)))
        return decide(
            ratio <= 1 + 1e-9,
            evidence=f"The largest ratio of a product to its bound is {ratio:.3g}, for "
            f"{pluralize(len(self.norms), 'values')} of ‖W‖ and lengths up to {self.steps}; at the last step the "
            f"median product is {orders:.0f} orders of magnitude below its bound.",
            instead="A product of Jacobians can be larger than this bound.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        steps = np.arange(1, self.steps + 1)
        series = []
        for norm, products, bounds in zip(self.norms, measured["product_norms"], measured["bounds"]):
            if norm in (self.norms[0], self.norms[-1]):
                series.append(Series(name=f"product, ‖W‖ = {norm:g}", x=steps, y=products))
                series.append(Series(name=f"bound, ‖W‖ = {norm:g}", x=steps, y=bounds))
        lines = LineChart(
            title="Norm of the product of n Jacobians of a tanh RNN, and its bound",
            series=series,
            x_label="length n of the product (time steps)",
            y_label="largest singular value",
            y_log=True,
            note=f"‖W‖ = {self.norms[-1]:g}: after {pluralize(self.steps, 'steps')} the bound is "
            f"{measured['bounds'][-1, -1]:.3g} and the product {measured['product_norms'][-1, -1]:.3g}.",
        )
        return [lines]


def compute_product_norms(jacobians: Sequence[Tensor]) -> np.ndarray:
    """Returns the largest singular value of J_n · … · J_1 for n = 1 … the number of Jacobians."""
    product, norms = torch.eye(len(jacobians[0]), dtype=torch.float64), []
    for jacobian in jacobians:
        product = jacobian @ product
        norms.append(float(torch.linalg.matrix_norm(product, ord=2)))
    return np.array(norms)
