"""The cells with layer normalisation (Ba et al. 2016) as compiled equations, forward and backward.

A norm needs the mean and variance of a whole row, so each row is read several times. Standardised values are
(a − mean) · rstd, before weight and bias; rstd is 1 / √(variance + ε), as PyTorch calls it. Norms of the input are not
here: they do not depend on the state, so PyTorch computes them with the projection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from seqwise.kernels.recurrence.cpu.code import Sum, Vec
from seqwise.kernels.recurrence.cpu.equations import (
    ACTIVATIONS,
    LSTM,
    PACKED,
    PACKED_3,
    PACKED_4,
    PREVIOUS,
    RECORDED,
    RNN,
    STATE,
    GRUBase,
    load_total_grad_h,
    sigmoid,
    store_state,
    tanh,
)
from seqwise.kernels.recurrence.cpu.loop import Buffer, LoopPosition, Row, Step

EPSILON = 1e-5  # as in `layers.norm`
SINGLE = Buffer("packed", is_single=True)


@dataclass(frozen=True)
class Norm:
    """y = w â + b over some blocks of a row of a buffer, where â is the standardised row."""

    buffer: str  # holds a, then â
    blocks: tuple[int, ...]
    rstd_buffer: str  # holds rstd, one number per row
    weight_index: int  # of w among the vector parameters; b is the next

    def standardize(self, row: Row) -> None:
        """Replaces a by â, and stores rstd."""
        total, squares = Sum(row.code), Sum(row.code)
        width = row.code.broadcast_int(row.step.units * len(self.blocks))
        for at in row.loop_over_units():
            for block in self.blocks:
                total.add(at.load(self.buffer, block))
        mean = total.broadcast() / width
        for at in row.loop_over_units():
            for block in self.blocks:
                deviation = at.load(self.buffer, block) - mean
                squares.add(deviation * deviation)
                at.store(deviation, self.buffer, block)
        rstd = 1.0 / row.code.sqrt(squares.broadcast() / width + EPSILON)
        row.store_number(self.rstd_buffer, rstd)
        for at in row.loop_over_units():
            for block in self.blocks:
                at.store(at.load(self.buffer, block) * rstd, self.buffer, block)

    def compute_output(self, at: LoopPosition, index: int = 0, prefix: str = "parameter") -> Vec:
        """Returns y in the `index`-th of the blocks. In the backward loop the prefix is "forward parameter"."""
        weight, bias = (f"{prefix} {number}" for number in (self.weight_index, self.weight_index + 1))
        return at.load(self.buffer, self.blocks[index]) * at.load(weight, index) + at.load(bias, index)


class NormGradient:
    """The gradient of a norm's input a, for one row: (d − mean(d) − â mean(d â)) · rstd with d = w grad_y.

    First `accumulate` takes grad_y of all units, then `compute_means` the means.
    """

    def __init__(self, norm: Norm, row: Row):
        self.norm, self.row = norm, row
        self.sum_d, self.sum_d_standardized = Sum(row.code), Sum(row.code)

    def accumulate(self, at: LoopPosition, grad_y: Vec, index: int = 0) -> Vec:
        """Adds grad_y of the `index`-th block to the sums and to the gradients of weight and bias; returns d."""
        norm, standardized = self.norm, at.load(self.norm.buffer, self.norm.blocks[index])
        at.add(grad_y * standardized, f"parameter {norm.weight_index}", index)
        bias = f"parameter {norm.weight_index + 1}"
        if bias in self.row.step.buffers:  # otherwise it is one of the equation's `summed_gradients`
            at.add(grad_y, bias, index)
        d = grad_y * at.load(f"forward parameter {norm.weight_index}", index)
        self.sum_d.add(d)
        self.sum_d_standardized.add(d * standardized)
        return d

    def compute_means(self) -> None:
        """Computes the means over the row, after `accumulate` for all its units."""
        width = self.row.code.broadcast_int(self.row.step.units * len(self.norm.blocks))
        self.mean_d = self.sum_d.broadcast() / width
        self.mean_d_standardized = self.sum_d_standardized.broadcast() / width
        self.rstd = self.row.load_number(self.norm.rstd_buffer)

    def compute_grad_input(self, at: LoopPosition, d: Vec, index: int = 0) -> Vec:
        """Returns the gradient of a."""
        standardized = at.load(self.norm.buffer, self.norm.blocks[index])
        return (d - self.mean_d - standardized * self.mean_d_standardized) * self.rstd


class LayerNormRNN(RNN):
    """h = φ(LN(x + U h)). The buffer `gates` holds the standardised sum."""

    parameter_widths = (1, 1)
    saves_parameters = True
    saved_buffers: ClassVar = {"gates": PACKED, "rstd": SINGLE, "previous_h": PREVIOUS}
    forward_only: ClassVar = {"preactivation": RECORDED, "norm_output": RECORDED, "h": STATE}
    recorded_activations = (
        RNN.recorded_activations[0],
        ("norm.norm", "norm_output", 0, 1),
        ("hidden", "outputs", 0, 1),
    )
    norm = Norm("gates", (0,), "rstd", 0)

    def forward(self, step: Step) -> None:
        step.multiply("h", 0, "gates")
        with step.loop_over_rows() as row:
            for at in row.loop_over_units():
                at.store(at.load("gates"), "preactivation")
            self.norm.standardize(row)
            for at in row.loop_over_units():
                y = self.norm.compute_output(at)
                at.store(y, "norm_output")
                store_state(at, ACTIVATIONS[self.activation][0](y))

    def backward(self, step: Step) -> None:
        with step.loop_over_rows() as row:
            gradient, (activate, differentiate) = NormGradient(self.norm, row), ACTIVATIONS[self.activation]
            for at in row.loop_over_units():
                h = activate(self.norm.compute_output(at, prefix="forward parameter"))
                at.store(gradient.accumulate(at, load_total_grad_h(at) * differentiate(h)), "grad_h")
            gradient.compute_means()
            for at in row.loop_over_units():
                at.store(gradient.compute_grad_input(at, at.load("grad_h")), "grad_gates")
        step.multiply("grad_gates", 0, "grad_h", overwrite=True)


class LayerNormLSTM(LSTM):
    """Gates of x + LN(U h), h = o tanh(LN(c)): the product and the cell are normalised."""

    parameter_widths = (4, 4, 1, 1)
    saves_parameters = True
    previous: ClassVar = {"previous_h": PREVIOUS, "previous_c": PREVIOUS}
    rstds: ClassVar = {"rstd": SINGLE, "cell_rstd": SINGLE}
    saved_buffers: ClassVar = {"gates": PACKED_4, "product": PACKED_4, "standardized_c": PACKED, **rstds, **previous}
    recorded_buffers: ClassVar = {
        "norm_output": Buffer("packed", 4, only_for="record"),
        "cell": RECORDED,
        "cell_norm_output": RECORDED,
    }
    forward_only: ClassVar = {**recorded_buffers, "h": STATE, "c": STATE}
    backward_only: ClassVar = {"grad_gates": PACKED_4, "grad_product": PACKED_4, "grad_h": STATE, "grad_c": STATE}
    summed_gradients: ClassVar = {1: ("grad_gates", 0, 4)}
    weight_gradients = (("grad_product", 0, "previous_h"),)
    recorded_activations = (
        ("hidden_norm.norm", "norm_output", 0, 4),
        *LSTM.gates_and_cell,
        ("cell_norm.norm", "cell_norm_output", 0, 1),
        ("hidden", "outputs", 0, 1),
    )
    product_norm = Norm("product", (0, 1, 2, 3), "rstd", 0)
    cell_norm = Norm("standardized_c", (0,), "cell_rstd", 2)

    def forward(self, step: Step) -> None:
        step.multiply("h", 0, "product", width=4, overwrite=True)
        with step.loop_over_rows() as row:
            self.product_norm.standardize(row)
            for at in row.loop_over_units():
                u = [self.product_norm.compute_output(at, block) for block in range(4)]
                a = [at.load("gates", block) + u[block] for block in range(4)]
                i, f, o = (sigmoid(a[block]) for block in (0, 1, 3))
                g, c = tanh(a[2]), at.load("c")
                at.store(c, "previous_c")
                c = f * c + i * g
                for block, gate in enumerate((i, f, g, o)):
                    at.store(u[block], "norm_output", block)
                    at.store(gate, "gates", block)
                for name in ("c", "cell", "standardized_c"):
                    at.store(c, name)
            self.cell_norm.standardize(row)
            for at in row.loop_over_units():
                y = self.cell_norm.compute_output(at)
                at.store(y, "cell_norm_output")
                store_state(at, at.load("gates", 3) * tanh(y))

    def backward(self, step: Step) -> None:
        with step.loop_over_rows() as row:
            cell_norm, product_norm = NormGradient(self.cell_norm, row), NormGradient(self.product_norm, row)
            for at in row.loop_over_units():
                o, grad_h = at.load("gates", 3), load_total_grad_h(at)
                tanh_c = tanh(self.cell_norm.compute_output(at, prefix="forward parameter"))
                at.store(grad_h * tanh_c * (o * (1.0 - o)), "grad_gates", 3)
                at.store(cell_norm.accumulate(at, grad_h * o * (1.0 - tanh_c * tanh_c)), "grad_h")
            cell_norm.compute_means()
            for at in row.loop_over_units():
                i, f, g = (at.load("gates", block) for block in range(3))
                grad_c = at.load("grad_c") + cell_norm.compute_grad_input(at, at.load("grad_h"))
                at.store(grad_c * g * (i * (1.0 - i)), "grad_gates", 0)
                at.store(grad_c * at.load("previous_c") * (f * (1.0 - f)), "grad_gates", 1)
                at.store(grad_c * i * (1.0 - g * g), "grad_gates", 2)
                at.store(grad_c * f, "grad_c")
                for block in range(4):
                    product_norm.accumulate(at, at.load("grad_gates", block), block)
            product_norm.compute_means()
            for at in row.loop_over_units():
                for block in range(4):
                    d = at.load("grad_gates", block) * at.load("forward parameter 0", block)
                    at.store(product_norm.compute_grad_input(at, d, block), "grad_product", block)
        step.multiply("grad_product", 0, "grad_h", depth=4, overwrite=True)


class LayerNormGRU(GRUBase):
    """Gates of x + LN(U h), n = tanh(x_n + r LN(U_n h)): two norms, the reset gate after the product."""

    weight_blocks = ((0, 3),)
    parameter_widths = (2, 2, 1, 1)
    saves_parameters = True
    rstds: ClassVar = {"rstd": SINGLE, "candidate_rstd": SINGLE}
    saved_buffers: ClassVar = {"gates": PACKED_3, "product": PACKED_3, **rstds, "previous_h": PREVIOUS}
    forward_only: ClassVar = {"norm_output": Buffer("packed", 3, only_for="record"), "h": STATE}
    backward_only: ClassVar = {"grad_gates": PACKED_3, "grad_product": PACKED_3, "grad_h": STATE, "candidate_d": STATE}
    summed_gradients: ClassVar = {1: ("grad_gates", 0, 2)}
    weight_gradients = (("grad_product", 0, "previous_h"),)
    recorded_activations = (
        ("gates_norm.norm", "norm_output", 0, 2),
        ("candidate_norm.norm", "norm_output", 2, 3),
        *GRUBase.recorded_activations,
    )
    gates_norm = Norm("product", (0, 1), "rstd", 0)
    candidate_norm = Norm("product", (2,), "candidate_rstd", 2)

    def forward(self, step: Step) -> None:
        step.multiply("h", 0, "product", width=3, overwrite=True)
        with step.loop_over_rows() as row:
            self.gates_norm.standardize(row)
            self.candidate_norm.standardize(row)
            for at in row.loop_over_units():
                u_r, u_z = (self.gates_norm.compute_output(at, block) for block in (0, 1))
                u_n = self.candidate_norm.compute_output(at)
                r, z = sigmoid(at.load("gates", 0) + u_r), sigmoid(at.load("gates", 1) + u_z)
                n = tanh(at.load("gates", 2) + r * u_n)
                for block, (value, gate) in enumerate(((u_r, r), (u_z, z), (u_n, n))):
                    at.store(value, "norm_output", block)
                    at.store(gate, "gates", block)
                store_state(at, self.blend(z, at.load("h"), n))

    def backward(self, step: Step) -> None:
        with step.loop_over_rows() as row:
            gates, candidate = NormGradient(self.gates_norm, row), NormGradient(self.candidate_norm, row)
            for at in row.loop_over_units():
                r, z, n = (at.load("gates", block) for block in range(3))
                grad_h, grad_z, grad_n = self.split_gradient(load_total_grad_h(at), z, at.load("previous_h"), n)
                u_n = self.candidate_norm.compute_output(at, prefix="forward parameter")
                grad_r = grad_n * u_n * (r * (1.0 - r))
                gates.accumulate(at, grad_r, 0)
                gates.accumulate(at, grad_z, 1)
                at.store(candidate.accumulate(at, grad_n * r), "candidate_d")
                at.store_blocks((grad_r, grad_z, grad_n), "grad_gates")
                at.store(grad_h, "grad_h")
            gates.compute_means()
            candidate.compute_means()
            for at in row.loop_over_units():
                for block in (0, 1):
                    d = at.load("grad_gates", block) * at.load("forward parameter 0", block)
                    at.store(gates.compute_grad_input(at, d, block), "grad_product", block)
                at.store(candidate.compute_grad_input(at, at.load("candidate_d")), "grad_product", 2)
        step.multiply("grad_product", 0, "grad_h", depth=3)
