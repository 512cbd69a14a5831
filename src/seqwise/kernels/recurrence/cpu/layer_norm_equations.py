"""The cells with layer normalisation (Ba et al. 2016) as compiled equations, forward and backward.

A norm needs the mean and variance of a whole row, so each row is passed several times. Norms of the input are not here:
they do not depend on the state, so PyTorch computes them with the projection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from seqwise.kernels.recurrence.cpu.activations import activation, derivative, sigmoid, tanh
from seqwise.kernels.recurrence.cpu.code import Vec
from seqwise.kernels.recurrence.cpu.equations import (
    LSTM,
    PACKED,
    PREVIOUS,
    RECORDED,
    RNN,
    STATE,
    Gated,
    incoming_gradient,
    store_state,
)
from seqwise.kernels.recurrence.cpu.loop import Buffer, LoopPosition, Row, Step, Summed

EPSILON = 1e-5  # as in `layers.norm`
ONE = Buffer("packed", single=True)


@dataclass(frozen=True)
class Norm:
    """y = w (a − mean) / deviation + b over some blocks of a row; afterwards the row holds (a − mean) / deviation.

    The attributes are names of buffers. `scale` holds 1 / deviation, one number per row. `weight` and `bias` are the
    norm's vectors; in the backward loop these buffers sum their gradients, and the weight is in `forward_weight`.
    """

    name: str
    blocks: tuple[int, ...]
    scale: str
    weight: str
    bias: str
    forward_weight: str = ""

    def standardize(self, row: Row) -> None:
        code, total, squares = row.code, row.code.variable(), row.code.variable()
        width = code.number(row.step.units * len(self.blocks))

        def collect(at: LoopPosition) -> None:
            for block in self.blocks:
                total.add(at.get(self.name, block))

        row.over(collect)
        mean = total.spread() / width

        def deviate(at: LoopPosition) -> None:
            for block in self.blocks:
                deviation = at.get(self.name, block) - mean
                squares.add(deviation * deviation)
                at.put(deviation, self.name, block)

        row.over(deviate)
        scale = 1.0 / code.root(squares.spread() / width + EPSILON)
        row.keep_number(self.scale, scale)

        def shrink(at: LoopPosition) -> None:
            for block in self.blocks:
                at.put(at.get(self.name, block) * scale, self.name, block)

        row.over(shrink)

    def value(self, at: LoopPosition, place: int = 0) -> Vec:
        """y, in the `place`-th of the blocks."""
        return at.get(self.name, self.blocks[place]) * at.get(self.weight, place) + at.get(self.bias, place)


class NormGradient:
    """The gradient of a norm, for one row: gradients of y are collected first, then those of a can be computed.

    a's gradient is (d − mean(d) − â mean(d â)) / deviation, with d = w grad_y and â the standardised row.
    """

    def __init__(self, norm: Norm, row: Row):
        self.norm, self.row = norm, row
        self.plain, self.along = row.code.variable(), row.code.variable()

    def collect(self, at: LoopPosition, grad_y: Vec, place: int = 0) -> Vec:
        """grad_y in the `place`-th of the blocks → d."""
        norm, standard = self.norm, at.get(self.norm.name, self.norm.blocks[place])
        at.add(grad_y * standard, norm.weight, place)
        if norm.bias in self.row.step.buffers:  # otherwise it is summed elsewhere, see `summed`
            at.add(grad_y, norm.bias, place)
        d = grad_y * at.get(norm.forward_weight, place)
        self.plain.add(d)
        self.along.add(d * standard)
        return d

    def means(self) -> None:
        """Compute the means, after all gradients of the row are collected."""
        width = self.row.code.number(self.row.step.units * len(self.norm.blocks))
        self.mean, self.mean_along = self.plain.spread() / width, self.along.spread() / width
        self.scale = self.row.number(self.norm.scale)

    def before(self, at: LoopPosition, d: Vec, place: int = 0) -> Vec:
        """The gradient of a."""
        standard = at.get(self.norm.name, self.norm.blocks[place])
        return (d - self.mean - standard * self.mean_along) * self.scale


def vectors(widths: tuple[int, ...], summed: Summed) -> tuple[dict[str, Buffer], dict[str, Buffer]]:
    """Forward and backward buffers of the vectors beside the matrix.

    The backward loop has the vectors and the sums of their gradients, except those that are summed elsewhere."""
    ahead = {f"vector {place}": Buffer("vector", width) for place, width in enumerate(widths)}
    back = {f"vector {place}": Buffer("sum", width) for place, width in enumerate(widths) if place not in summed}
    return ahead, back | {f"forward vector {place}": Buffer("vector", width) for place, width in enumerate(widths)}


class LayerNormRNN(RNN):
    """h = φ(LN(x + U h)). The buffer `gates` holds the standardised sum."""

    extras = (1, 1)
    recorded = (
        ("preactivation", "preactivation", 0, 1),
        ("norm.norm", "normed", 0, 1),
        ("hidden", "outputs", 0, 1),
    )
    norm = Norm("gates", (0,), "scale", "vector 0", "vector 1", "forward vector 0")

    def __init__(self, phi: str = "tanh"):
        self.phi = phi
        ahead, back = vectors(self.extras, self.summed)
        saved = {"gates": PACKED, "scale": ONE}
        self.buffers = {
            **saved,
            "previous_h": PREVIOUS,
            "preactivation": RECORDED,
            "normed": RECORDED,
            "h": STATE,
            **ahead,
        }
        self.backward_buffers = {**saved, "grad_gates": PACKED, "grad_h": STATE, **back}

    def forward(self, step: Step) -> None:
        step.product("h", 0, "gates")

        def unit(at: LoopPosition) -> None:
            y = self.norm.value(at)
            at.put(y, "normed")
            store_state(at, activation(at.code, self.phi, y))

        with step.rows() as row:
            row.over(lambda at: at.put(at.get("gates"), "preactivation"))
            self.norm.standardize(row)
            row.over(unit)

    def backward(self, step: Step) -> None:
        with step.rows() as row:
            back = NormGradient(self.norm, row)

            def collect(at: LoopPosition) -> None:
                y = at.get("gates") * at.get("forward vector 0") + at.get("forward vector 1")
                h = activation(at.code, self.phi, y)
                at.put(back.collect(at, incoming_gradient(at) * derivative(at.code, self.phi, h)), "grad_h")

            row.over(collect)
            back.means()
            row.over(lambda at: at.put(back.before(at, at.get("grad_h")), "grad_gates"))
        step.product("grad_gates", 0, "grad_h", fresh=True)


class LayerNormLSTM(LSTM):
    """The product and the cell are normalised: gates of x + LN(U h), h = o tanh(LN(c))."""

    extras = (4, 4, 1, 1)
    summed: ClassVar[Summed] = {1: ("grad_gates", 0, 4)}
    weighted = (("grad_product", 0, "previous_h"),)
    recorded = (
        ("hidden_norm.norm", "normed", 0, 4),
        *LSTM.inside,
        ("cell_norm.norm", "normed_cell", 0, 1),
        ("hidden", "outputs", 0, 1),
    )
    product_norm = Norm("product", (0, 1, 2, 3), "scale", "vector 0", "vector 1", "forward vector 0")
    cell_norm = Norm("normed_c", (0,), "cell_scale", "vector 2", "vector 3", "forward vector 2")

    def __init__(self) -> None:
        ahead, back = vectors(self.extras, self.summed)
        wide = Buffer("packed", 4)
        saved = {
            "gates": wide,
            "product": wide,
            "normed_c": PACKED,
            "scale": ONE,
            "cell_scale": ONE,
            "previous_c": PREVIOUS,
        }
        recorded = {
            "normed": Buffer("packed", 4, only_for="record"),
            "cell": RECORDED,
            "normed_cell": RECORDED,
            "previous_h": PREVIOUS,
        }
        self.buffers = {**saved, **recorded, "h": STATE, "c": STATE, **ahead}
        self.backward_buffers = {
            **saved,
            "grad_gates": wide,
            "grad_product": wide,
            "grad_h": STATE,
            "grad_c": STATE,
            **back,
        }

    def forward(self, step: Step) -> None:
        step.product("h", 0, "product", width=4, fresh=True)

        def gates(at: LoopPosition) -> None:
            u = [self.product_norm.value(at, block) for block in range(4)]
            a = [at.get("gates", block) + u[block] for block in range(4)]
            i, f, o = (sigmoid(at.code, a[block]) for block in (0, 1, 3))
            g, c = tanh(at.code, a[2]), at.get("c")
            at.put(c, "previous_c")
            c = f * c + i * g
            for block, gate in enumerate((i, f, g, o)):
                at.put(u[block], "normed", block)
                at.put(gate, "gates", block)
            for name in ("c", "cell", "normed_c"):
                at.put(c, name)

        def show(at: LoopPosition) -> None:
            y = self.cell_norm.value(at)
            at.put(y, "normed_cell")
            store_state(at, at.get("gates", 3) * tanh(at.code, y))

        with step.rows() as row:
            self.product_norm.standardize(row)
            row.over(gates)
            self.cell_norm.standardize(row)
            row.over(show)

    def backward(self, step: Step) -> None:
        with step.rows() as row:
            cell_norm, product_norm = NormGradient(self.cell_norm, row), NormGradient(self.product_norm, row)

            def output(at: LoopPosition) -> None:
                o, grad_h = at.get("gates", 3), incoming_gradient(at)
                activated = tanh(at.code, at.get("normed_c") * at.get("forward vector 2") + at.get("forward vector 3"))
                at.put(grad_h * activated * (o * (1.0 - o)), "grad_gates", 3)
                at.put(cell_norm.collect(at, grad_h * o * (1.0 - activated * activated)), "grad_h")

            def gates(at: LoopPosition) -> None:
                i, f, g = (at.get("gates", block) for block in range(3))
                grad_c = at.get("grad_c") + cell_norm.before(at, at.get("grad_h"))
                at.put(grad_c * g * (i * (1.0 - i)), "grad_gates", 0)
                at.put(grad_c * at.get("previous_c") * (f * (1.0 - f)), "grad_gates", 1)
                at.put(grad_c * i * (1.0 - g * g), "grad_gates", 2)
                at.put(grad_c * f, "grad_c")
                for block in range(4):
                    product_norm.collect(at, at.get("grad_gates", block), block)

            def product(at: LoopPosition) -> None:
                for block in range(4):
                    d = at.get("grad_gates", block) * at.get("forward vector 0", block)
                    at.put(product_norm.before(at, d, block), "grad_product", block)

            row.over(output)
            cell_norm.means()
            row.over(gates)
            product_norm.means()
            row.over(product)
        step.product("grad_product", 0, "grad_h", depth=4, fresh=True)


class LayerNormGRU(Gated):
    """Gates of x + LN(U h), n = tanh(x_n + r LN(U_n h)): two norms, the reset gate after the product."""

    packs = ((0, 3),)
    extras = (2, 2, 1, 1)
    summed: ClassVar[Summed] = {1: ("grad_gates", 0, 2)}
    weighted = (("grad_product", 0, "previous_h"),)
    recorded = (("gates_norm.norm", "normed", 0, 2), ("candidate_norm.norm", "normed", 2, 3), *Gated.recorded)
    gates_norm = Norm("product", (0, 1), "scale", "vector 0", "vector 1", "forward vector 0")
    candidate_norm = Norm("product", (2,), "candidate_scale", "vector 2", "vector 3", "forward vector 2")

    def __init__(self, keeps: bool = True):
        super().__init__(keeps)
        ahead, back = vectors(self.extras, self.summed)
        wide = Buffer("packed", 3)
        saved = {"gates": wide, "product": wide, "scale": ONE, "candidate_scale": ONE, "previous_h": PREVIOUS}
        self.buffers = {**saved, "normed": Buffer("packed", 3, only_for="record"), "h": STATE, **ahead}
        self.backward_buffers = {
            **saved,
            "grad_gates": wide,
            "grad_product": wide,
            "grad_h": STATE,
            "spare": STATE,
            **back,
        }

    def forward(self, step: Step) -> None:
        step.product("h", 0, "product", width=3, fresh=True)

        def unit(at: LoopPosition) -> None:
            u_r, u_z, u_n = self.gates_norm.value(at, 0), self.gates_norm.value(at, 1), self.candidate_norm.value(at)
            r, z = sigmoid(at.code, at.get("gates", 0) + u_r), sigmoid(at.code, at.get("gates", 1) + u_z)
            n = tanh(at.code, at.get("gates", 2) + r * u_n)
            for block, (value, gate) in enumerate(((u_r, r), (u_z, z), (u_n, n))):
                at.put(value, "normed", block)
                at.put(gate, "gates", block)
            store_state(at, self.blend(z, at.get("h"), n))

        with step.rows() as row:
            self.gates_norm.standardize(row)
            self.candidate_norm.standardize(row)
            row.over(unit)

    def backward(self, step: Step) -> None:
        with step.rows() as row:
            gates, candidate = NormGradient(self.gates_norm, row), NormGradient(self.candidate_norm, row)

            def collect(at: LoopPosition) -> None:
                r, z, n = (at.get("gates", block) for block in range(3))
                grad_h, grad_z, grad_n = self.split_gradient(incoming_gradient(at), z, at.get("previous_h"), n)
                u_n = at.get("product", 2) * at.get("forward vector 2") + at.get("forward vector 3")
                grad_r = grad_n * u_n * (r * (1.0 - r))
                gates.collect(at, grad_r, 0)
                gates.collect(at, grad_z, 1)
                at.put(candidate.collect(at, grad_n * r), "spare")
                for block, value in enumerate((grad_r, grad_z, grad_n)):
                    at.put(value, "grad_gates", block)
                at.put(grad_h, "grad_h")

            def product(at: LoopPosition) -> None:
                for block in (0, 1):
                    d = at.get("grad_gates", block) * at.get("forward vector 0", block)
                    at.put(gates.before(at, d, block), "grad_product", block)
                at.put(candidate.before(at, at.get("spare")), "grad_product", 2)

            row.over(collect)
            gates.means()
            candidate.means()
            row.over(product)
        step.product("grad_product", 0, "grad_h", depth=3)
