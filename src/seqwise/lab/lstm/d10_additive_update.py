"""D10: is it the addition in c = f ⊙ c + i ⊙ g that lets gradients pass through time?

    LSTM              c_t = f ⊙ c_(t−1) + i ⊙ g             ∂c_t/∂c_(t−1) = f
    product           c_t = f ⊙ c_(t−1) ⊙ (i ⊙ g)           ∂c_t/∂c_(t−1) = f ⊙ i ⊙ g
    product near 1    c_t = f ⊙ c_(t−1) ⊙ (1 + i ⊙ g)       ∂c_t/∂c_(t−1) = f ⊙ (1 + i ⊙ g)

(on the direct path, see D5). The three cells have the same weights and differ in this equation alone; those with a
product start at c = 1. The product with the content i ⊙ g, whose magnitude is far below 1, loses value and gradient
within a few steps. The product with 1 + i ⊙ g is multiplicative as well, but its factors are near 1, and it remembers
as well as the LSTM; log c is then a sum. So what makes the highway is a derivative near 1 at every step. Addition is
the simplest way to get it, since it leaves f as the only factor, and f itself is a multiplication: with f far from 1
the additive update vanishes too (D6). This shows at recall over 20 steps with forget gates that start at σ(3) = 0.95;
over 2 steps all three learn, and with a forget bias near 0 the sum is the slower of the two that learn.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, sigmoid, tanh

from seqwise.lab.experiment import Experiment, Measured, Verdict, decide_condition
from seqwise.lab.fitting import make_generator
from seqwise.lab.lstm.small_tasks import LastStepModel, draw_recall, train_on_task
from seqwise.lab.lstm.unroll import compute_derivatives, compute_norms
from seqwise.layers import LSTMCell
from seqwise.layers.cells import Cell, RecordFunction, State, record_nothing
from seqwise.page.figures import Figure, LineChart, Series


class ProductCell(LSTMCell):
    """Multiplies the cell by its content instead of adding it."""

    def start(self, batch: int, like: Tensor) -> State:
        return like.new_zeros(batch, self.units), like.new_ones(batch, self.units)

    def step(self, x: Tensor, state: State, weight_hidden: Tensor, record: RecordFunction = record_nothing) -> State:
        h, c = state
        a_i, a_f, a_g, a_o = (x + F.linear(h, weight_hidden)).chunk(4, dim=-1)
        i, f, g, o = sigmoid(a_i), sigmoid(a_f), tanh(a_g), sigmoid(a_o)
        c = f * c * self.compute_factor(i * g)
        return o * tanh(c), c

    def compute_factor(self, content: Tensor) -> Tensor:
        return content


class NearOneProductCell(ProductCell):
    """An LSTM that multiplies the cell by 1 + its content."""

    def compute_factor(self, content: Tensor) -> Tensor:
        return 1 + content


CELLS: dict[str, type[LSTMCell]] = {"sum": LSTMCell, "product": ProductCell, "product_near_1": NearOneProductCell}
NAMES = {"sum": "f ⊙ c + i ⊙ g", "product": "f ⊙ c ⊙ (i ⊙ g)", "product_near_1": "f ⊙ c ⊙ (1 + i ⊙ g)"}


@dataclass(frozen=True, kw_only=True)
class AdditiveUpdate(Experiment):
    id = "D10"
    claim = "Additive updates, not multiplicative ones, make the highway."
    equation = "c_t = f ⊙ c_(t−1) + i ⊙ g  against  c_t = f ⊙ c_(t−1) ⊙ (i ⊙ g)  and  f ⊙ c_(t−1) ⊙ (1 + i ⊙ g)"
    measurement = "∂c_T/∂c_k before training, and the error of recalling the first value of a sequence after training."
    rule = "A cell has a highway if its error is below 30 % of guessing's; the sum must have one, the products none."
    try_next = "seqwise lab run D10 --forget-bias 0.1: f begins near ½, and now the sum learns more slowly as well."
    seconds = 2
    quick: ClassVar = {"length": 15, "steps": 100}

    units: int = 16
    """Units of each cell."""
    length: int = 20
    """Length of the sequences; the first value has to be recalled after the last step."""
    steps: int = 150
    """Training steps."""
    forget_bias: float = 3.0
    """Initial bias of the forget gate; σ(3) = 0.95."""

    def measure(self) -> Measured:
        measured: dict[str, float | np.ndarray] = {}
        for name in CELLS:
            torch.manual_seed(self.seed)  # the same weights for all cells
            model = LastStepModel(self.build_cell(name))
            gradients = self.compute_gradients(model.layer.cell)
            errors, _ = train_on_task(model, draw_recall, length=self.length, steps=self.steps, seed=self.seed)
            measured |= {f"{name}_gradient": float(gradients[-1]), f"{name}_error": float(errors.mean())}
            measured[f"gradients_{name}"] = gradients
        return measured

    def compute_gradients(self, cell: Cell) -> np.ndarray:
        """Returns the norm of ∂c_T/∂c_k for T − k = 1, 2, …, in double precision because some are tiny."""
        x, _ = draw_recall(make_generator(self.seed), 1, self.length)
        return compute_norms(compute_derivatives(deepcopy(cell).double(), x.double(), part=1)).flip(0).numpy()

    def build_cell(self, name: str) -> LSTMCell:
        cell = CELLS[name](2, self.units)
        cell.bias.data.chunk(4)[1].fill_(self.forget_bias)
        return cell

    def judge(self, measured: Measured) -> Verdict:
        is_highway = {name: measured[f"{name}_error"] < 0.3 for name in CELLS}
        return decide_condition(
            is_highway["sum"] and not is_highway["product"],
            is_highway["sum"] and not is_highway["product_near_1"],
            condition="the factors of the product are far from 1; a product with factors near 1 is a highway too",
            evidence="Relative to guessing, the error after training is "
            + ", ".join(f"{measured[f'{name}_error']:.2g} with {NAMES[name]}" for name in CELLS)
            + f"; before training ∂c_T/∂c_0 (T = {self.length}) has, in this order, the norms "
            + ", ".join(f"{measured[f'{name}_gradient']:.2g}" for name in CELLS)
            + ".",
            instead="The additive update is not what makes the difference on this task.",
        )

    def draw(self, measured: Measured) -> Sequence[Figure]:
        lag = np.arange(1, self.length + 1)
        chart = LineChart(
            title="Gradient of the cell through time for three ways to update it, before training",
            series=[Series(name=NAMES[key], x=lag, y=measured[f"gradients_{key}"]) for key in CELLS],
            x_label="lag T − k (time steps)",
            y_label="norm of ∂c_T/∂c_k / √units",
            y_log=True,
            note=f"All cells have the same weights and a forget bias of {self.forget_bias:g}.",
        )
        return [chart]
