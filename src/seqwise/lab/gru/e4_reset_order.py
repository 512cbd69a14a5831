"""E4: is it the same to reset the state of a GRU before or after the matrix product?

    before   n = tanh(W x + U (r ⊙ h) + b)             Cho et al. 2014, eq. 8
    after    n = tanh(W x + r ⊙ (U h + b_h) + b)       PyTorch, Keras (reset_after), cuDNN

U (r ⊙ h) weights what each unit contributes to all others; r ⊙ (U h) weights what each unit receives from all others.
The two are equal if r is the same for all units, or if U is diagonal, and different otherwise: weights trained in one
cell are wrong in the other. "After" is the faster one: the products with U_r, U_z and U_n all need only h, so one
product with the stacked matrix computes them. "Before" has to wait for r, so U_n needs a product of its own after the
others (the cell of this package takes one product per gate); the number of multiplications is the same.
"""

from __future__ import annotations

import timeit
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide
from seqwise.lab.lstm.unroll import Replacement, unroll
from seqwise.layers import EarlyResetGRUCell, GRUCell
from seqwise.layers.cells import GatedCell
from seqwise.page.figures import Figure, LineChart, Series


class ProductCounter(TorchFunctionMode):
    """Counts matrix products, and their multiplications for one sequence."""

    products, multiplications = 0, 0

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        if function is F.linear:
            self.products += 1
            self.multiplications += arguments[1].numel()
        return function(*arguments, **(keywords or {}))


@dataclass(frozen=True, kw_only=True)
class ResetOrder(Experiment):
    id = "E4"
    claim = "Reset before or after the product are different cells."
    equation = "U (r ⊙ h) ≠ r ⊙ (U h)"
    measurement = "The outputs of both cells with the same weights, also with a diagonal U_n; products per step."
    rule = "Holds if the outputs differ by more than 5 % of their norm, and with a diagonal U_n by less than 1e-10."
    try_next = "seqwise lab run E4 --units 1: with one unit U is a number, and the two cells are the same."
    seconds = 0.1

    units: int = 64
    """Units, and width of the input."""
    steps: int = 40
    """Length of the sequence."""

    def measure(self) -> Measured:
        with torch.no_grad():
            after, before = self.build_cells()
            x = torch.randn(1, self.steps, self.units, dtype=torch.float64)
            norms = unroll(after, x)[0]["hidden"].norm(dim=-1)[0]
            difference = self.compute_difference(after, before, x)
            open_reset = self.compute_difference(after, before, x, {"reset": 1.0})
            cells = {"before": before, "after": after}
            counts = {name: self.count_products(cell, x) for name, cell in cells.items()}
            seconds = {name: self.time_steps(cell, x) for name, cell in cells.items()}
            for cell in (after, before):
                U_n = cell.weight_hidden.chunk(3)[2]
                U_n.copy_(U_n.diagonal().diag())
            diagonal = self.compute_difference(after, before, x)
        return {
            "relative_difference": float(difference.norm() / norms.norm()),
            "relative_difference_with_diagonal_matrix": float(diagonal.norm() / norms.norm()),
            "relative_difference_with_open_reset_gate": float(open_reset.norm() / norms.norm()),
            **{f"products_per_step_with_reset_{name}": each[0] for name, each in counts.items()},
            **{f"multiplications_per_step_with_reset_{name}": each[1] for name, each in counts.items()},
            **{f"microseconds_per_step_with_reset_{name}": each * 1e6 for name, each in seconds.items()},
            "differences": (difference / norms).numpy(),
        }

    def build_cells(self) -> tuple[GatedCell, GatedCell]:
        """Returns both cells with the same weights; the bias b_h that only "after" has is 0."""
        after, before = GRUCell(self.units, self.units), EarlyResetGRUCell(self.units, self.units)
        before.load_state_dict({key: value for key, value in after.state_dict().items() if key != "bias_hidden"})
        return after.double(), before.double()

    def compute_difference(
        self, after: GatedCell, before: GatedCell, x: Tensor, replace: dict[str, Replacement] | None = None
    ) -> Tensor:
        """Returns the norm of the difference between the two states at each step."""
        first, second = (unroll(cell, x, replace=replace)[0]["hidden"][0] for cell in (after, before))
        return (first - second).norm(dim=-1)

    def count_products(self, cell: GatedCell, x: Tensor) -> tuple[int, int]:
        """Returns the recurrent matrix products of one step, and their multiplications."""
        inputs = cell.project(x[:, 0])
        with ProductCounter() as counter:
            cell.step(inputs, cell.start(1, x), cell.weight_hidden)
        return counter.products, counter.multiplications

    def time_steps(self, cell: GatedCell, x: Tensor) -> float:
        """Returns the seconds per step of the reference implementation, the minimum of five repeats."""
        return min(timeit.repeat(lambda: unroll(cell, x), number=1, repeat=5)) / self.steps

    def judge(self, measured: Measured) -> Verdict:
        difference, diagonal = measured["relative_difference"], measured["relative_difference_with_diagonal_matrix"]
        names = [f"{what}_per_step_with_reset_{{}}" for what in ("products", "multiplications")]
        products, multiplications = ([measured[name.format(key)] for key in ("before", "after")] for name in names)
        return decide(
            difference > 0.05 and diagonal < 1e-10,
            evidence=f"With the same weights the states differ by {100 * difference:.0f} % of their norm, with a "
            f"diagonal U_n by {diagonal:.1g}. Reset before takes {products[0]} matrix products per step with "
            f"{multiplications[0]:,} multiplications, reset after {products[1]} with {multiplications[1]:,}.",
            instead="The two orders give nearly the same states here, or differ even with a diagonal U_n.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        steps = np.arange(1, self.steps + 1)
        return [
            LineChart(
                title="Difference between a GRU that resets before and one that resets after the product",
                series=[Series(name="same weights", x=steps, y=measured["differences"], role="reset")],
                x_label="time step",
                y_label="norm of the difference / norm of the state",
                note="The state before the first step is 0, so there the cells agree, whatever the weights.",
            )
        ]
