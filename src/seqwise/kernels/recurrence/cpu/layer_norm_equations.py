"""The cells with layer normalisation (Ba et al. 2016) as compiled equations, forward and backward.

A norm needs the mean and variance of a whole row, so each row is read several times. Norms of the input are not here:
they do not depend on the state, so PyTorch computes them with the projection.
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
    incoming_gradient,
    sigmoid,
    store_state,
    tanh,
)
from seqwise.kernels.recurrence.cpu.loop import Buffer, LoopPosition, Row, Step

EPSILON = 1e-5  # as in `layers.norm`
SINGLE = Buffer("packed", single=True)


@dataclass(frozen=True)
class Norm:
    """y = w (a − mean) / std + b over some blocks of a row; afterwards the row holds (a − mean) / std.

    `scale_buffer` names the buffer that holds 1 / std, one number per row; `vector` is the number of the weight
    among the vectors, and the bias is the next.
    """

    buffer: str
    blocks: tuple[int, ...]
    scale_buffer: str
    vector: int

    def standardize(self, row: Row) -> None:
        total, squares = Sum(row.code), Sum(row.code)
        width = row.code.broadcast_int(row.step.units * len(self.blocks))
        for at in row.each_unit():
            for block in self.blocks:
                total.add(at.load(self.buffer, block))
        mean = total.broadcast() / width
        for at in row.each_unit():
            for block in self.blocks:
                deviation = at.load(self.buffer, block) - mean
                squares.add(deviation * deviation)
                at.store(deviation, self.buffer, block)
        scale = 1.0 / row.code.sqrt(squares.broadcast() / width + EPSILON)
        row.store_number(self.scale_buffer, scale)
        for at in row.each_unit():
            for block in self.blocks:
                at.store(at.load(self.buffer, block) * scale, self.buffer, block)

    def output(self, at: LoopPosition, index: int = 0, prefix: str = "vector") -> Vec:
        """y, in the `index`-th of the blocks. In the backward loop the vectors have the prefix "forward vector"."""
        weight, bias = (f"{prefix} {number}" for number in (self.vector, self.vector + 1))
        return at.load(self.buffer, self.blocks[index]) * at.load(weight, index) + at.load(bias, index)


class NormGradient:
    """The gradient of a norm, for one row: gradients of y are collected first, then those of a can be computed.

    a's gradient is (d − mean(d) − â mean(d â)) / std, with d = w grad_y and â the standardised row.
    """

    def __init__(self, norm: Norm, row: Row):
        self.norm, self.row = norm, row
        self.sum_d, self.sum_d_standardized = Sum(row.code), Sum(row.code)

    def collect(self, at: LoopPosition, grad_y: Vec, index: int = 0) -> Vec:
        """grad_y in the `index`-th of the blocks → d."""
        norm, standardized = self.norm, at.load(self.norm.buffer, self.norm.blocks[index])
        at.add(grad_y * standardized, f"vector {norm.vector}", index)
        if (bias := f"vector {norm.vector + 1}") in self.row.step.buffers:  # else `scan.py` sums it: `summed_gradients`
            at.add(grad_y, bias, index)
        d = grad_y * at.load(f"forward vector {norm.vector}", index)
        self.sum_d.add(d)
        self.sum_d_standardized.add(d * standardized)
        return d

    def compute_means(self) -> None:
        """Compute the means, after all gradients of the row are collected."""
        width = self.row.code.broadcast_int(self.row.step.units * len(self.norm.blocks))
        self.mean_d = self.sum_d.broadcast() / width
        self.mean_d_standardized = self.sum_d_standardized.broadcast() / width
        self.scale = self.row.load_number(self.norm.scale_buffer)

    def compute_grad_input(self, at: LoopPosition, d: Vec, index: int = 0) -> Vec:
        """The gradient of a."""
        standardized = at.load(self.norm.buffer, self.norm.blocks[index])
        return (d - self.mean_d - standardized * self.mean_d_standardized) * self.scale


class LayerNormRNN(RNN):
    """h = φ(LN(x + U h)). The buffer `gates` holds the standardised sum."""

    vector_widths = (1, 1)
    saves_vectors = True
    saved_buffers: ClassVar = {"gates": PACKED, "scale": SINGLE, "previous_h": PREVIOUS}
    forward_only: ClassVar = {"preactivation": RECORDED, "norm_output": RECORDED, "h": STATE}
    recorded_values = (RNN.recorded_values[0], ("norm.norm", "norm_output", 0, 1), ("hidden", "outputs", 0, 1))
    norm = Norm("gates", (0,), "scale", 0)

    def forward(self, step: Step) -> None:
        step.product("h", 0, "gates")
        with step.rows() as row:
            for at in row.each_unit():
                at.store(at.load("gates"), "preactivation")
            self.norm.standardize(row)
            for at in row.each_unit():
                y = self.norm.output(at)
                at.store(y, "norm_output")
                store_state(at, ACTIVATIONS[self.phi][0](y))

    def backward(self, step: Step) -> None:
        with step.rows() as row:
            gradient, (activate, differentiate) = NormGradient(self.norm, row), ACTIVATIONS[self.phi]
            for at in row.each_unit():
                h = activate(self.norm.output(at, prefix="forward vector"))
                at.store(gradient.collect(at, incoming_gradient(at) * differentiate(h)), "grad_h")
            gradient.compute_means()
            for at in row.each_unit():
                at.store(gradient.compute_grad_input(at, at.load("grad_h")), "grad_gates")
        step.product("grad_gates", 0, "grad_h", overwrite=True)


class LayerNormLSTM(LSTM):
    """The product and the cell are normalised: gates of x + LN(U h), h = o tanh(LN(c))."""

    vector_widths = (4, 4, 1, 1)
    saves_vectors = True
    previous: ClassVar = {"previous_h": PREVIOUS, "previous_c": PREVIOUS}
    scales: ClassVar = {"scale": SINGLE, "cell_scale": SINGLE}
    saved_buffers: ClassVar = {"gates": PACKED_4, "product": PACKED_4, "standardized_c": PACKED, **scales, **previous}
    recorded_buffers: ClassVar = {
        "norm_output": Buffer("packed", 4, only_for="record"),
        "cell": RECORDED,
        "cell_norm_output": RECORDED,
    }
    forward_only: ClassVar = {**recorded_buffers, "h": STATE, "c": STATE}
    backward_only: ClassVar = {"grad_gates": PACKED_4, "grad_product": PACKED_4, "grad_h": STATE, "grad_c": STATE}
    summed_gradients: ClassVar = {1: ("grad_gates", 0, 4)}
    weight_gradients = (("grad_product", 0, "previous_h"),)
    recorded_values = (
        ("hidden_norm.norm", "norm_output", 0, 4),
        *LSTM.recorded_gates,
        ("cell_norm.norm", "cell_norm_output", 0, 1),
        ("hidden", "outputs", 0, 1),
    )
    product_norm = Norm("product", (0, 1, 2, 3), "scale", 0)
    cell_norm = Norm("standardized_c", (0,), "cell_scale", 2)

    def forward(self, step: Step) -> None:
        step.product("h", 0, "product", width=4, overwrite=True)
        with step.rows() as row:
            self.product_norm.standardize(row)
            for at in row.each_unit():
                u = [self.product_norm.output(at, block) for block in range(4)]
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
            for at in row.each_unit():
                y = self.cell_norm.output(at)
                at.store(y, "cell_norm_output")
                store_state(at, at.load("gates", 3) * tanh(y))

    def backward(self, step: Step) -> None:
        with step.rows() as row:
            cell_norm, product_norm = NormGradient(self.cell_norm, row), NormGradient(self.product_norm, row)
            for at in row.each_unit():
                o, grad_h = at.load("gates", 3), incoming_gradient(at)
                tanh_c = tanh(self.cell_norm.output(at, prefix="forward vector"))
                at.store(grad_h * tanh_c * (o * (1.0 - o)), "grad_gates", 3)
                at.store(cell_norm.collect(at, grad_h * o * (1.0 - tanh_c * tanh_c)), "grad_h")
            cell_norm.compute_means()
            for at in row.each_unit():
                i, f, g = (at.load("gates", block) for block in range(3))
                grad_c = at.load("grad_c") + cell_norm.compute_grad_input(at, at.load("grad_h"))
                at.store(grad_c * g * (i * (1.0 - i)), "grad_gates", 0)
                at.store(grad_c * at.load("previous_c") * (f * (1.0 - f)), "grad_gates", 1)
                at.store(grad_c * i * (1.0 - g * g), "grad_gates", 2)
                at.store(grad_c * f, "grad_c")
                for block in range(4):
                    product_norm.collect(at, at.load("grad_gates", block), block)
            product_norm.compute_means()
            for at in row.each_unit():
                for block in range(4):
                    d = at.load("grad_gates", block) * at.load("forward vector 0", block)
                    at.store(product_norm.compute_grad_input(at, d, block), "grad_product", block)
        step.product("grad_product", 0, "grad_h", depth=4, overwrite=True)


class LayerNormGRU(GRUBase):
    """Gates of x + LN(U h), n = tanh(x_n + r LN(U_n h)): two norms, the reset gate after the product."""

    weight_blocks = ((0, 3),)
    vector_widths = (2, 2, 1, 1)
    saves_vectors = True
    scales: ClassVar = {"scale": SINGLE, "candidate_scale": SINGLE}
    saved_buffers: ClassVar = {"gates": PACKED_3, "product": PACKED_3, **scales, "previous_h": PREVIOUS}
    forward_only: ClassVar = {"norm_output": Buffer("packed", 3, only_for="record"), "h": STATE}
    backward_only: ClassVar = {"grad_gates": PACKED_3, "grad_product": PACKED_3, "grad_h": STATE, "candidate_d": STATE}
    summed_gradients: ClassVar = {1: ("grad_gates", 0, 2)}
    weight_gradients = (("grad_product", 0, "previous_h"),)
    recorded_values = (
        ("gates_norm.norm", "norm_output", 0, 2),
        ("candidate_norm.norm", "norm_output", 2, 3),
        *GRUBase.recorded_values,
    )
    gates_norm = Norm("product", (0, 1), "scale", 0)
    candidate_norm = Norm("product", (2,), "candidate_scale", 2)

    def forward(self, step: Step) -> None:
        step.product("h", 0, "product", width=3, overwrite=True)
        with step.rows() as row:
            self.gates_norm.standardize(row)
            self.candidate_norm.standardize(row)
            for at in row.each_unit():
                u_r, u_z = (self.gates_norm.output(at, block) for block in (0, 1))
                u_n = self.candidate_norm.output(at)
                r, z = sigmoid(at.load("gates", 0) + u_r), sigmoid(at.load("gates", 1) + u_z)
                n = tanh(at.load("gates", 2) + r * u_n)
                for block, (value, gate) in enumerate(((u_r, r), (u_z, z), (u_n, n))):
                    at.store(value, "norm_output", block)
                    at.store(gate, "gates", block)
                store_state(at, self.blend(z, at.load("h"), n))

    def backward(self, step: Step) -> None:
        with step.rows() as row:
            gates, candidate = NormGradient(self.gates_norm, row), NormGradient(self.candidate_norm, row)
            for at in row.each_unit():
                r, z, n = (at.load("gates", block) for block in range(3))
                grad_h, grad_z, grad_n = self.split_gradient(incoming_gradient(at), z, at.load("previous_h"), n)
                u_n = self.candidate_norm.output(at, prefix="forward vector")
                grad_r = grad_n * u_n * (r * (1.0 - r))
                gates.collect(at, grad_r, 0)
                gates.collect(at, grad_z, 1)
                at.store(candidate.collect(at, grad_n * r), "candidate_d")
                at.store_blocks((grad_r, grad_z, grad_n), "grad_gates")
                at.store(grad_h, "grad_h")
            gates.compute_means()
            candidate.compute_means()
            for at in row.each_unit():
                for block in (0, 1):
                    d = at.load("grad_gates", block) * at.load("forward vector 0", block)
                    at.store(gates.compute_grad_input(at, d, block), "grad_product", block)
                at.store(candidate.compute_grad_input(at, at.load("candidate_d")), "grad_product", 2)
        step.product("grad_product", 0, "grad_h", depth=3)
