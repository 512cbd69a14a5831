"""The recurrent cells as compiled equations, forward and backward, with the letters of `layers/cells.py`.

These functions run once per cell and precision, and generate code: each `at.get` is a load instruction, each operator
an instruction on a vector of units, each `at.put` a store. Here is one step; the loop over steps is in `loop.py`, sums
over all steps in `scan.py`.

`forward` computes the state after a step from the state before it, and saves what the gradient needs in packed buffers.
`backward` gets the gradient of the state after the step (`grad_h`, `grad_c`), replaces it by that of the state before,
and writes the gradients of the gates before their activations (`grad_gates`), which are also those of the projected
input.
"""

from __future__ import annotations

from typing import ClassVar

from seqwise.kernels.recurrence.cpu.activations import activation, derivative, sigmoid, tanh
from seqwise.kernels.recurrence.cpu.code import Vec
from seqwise.kernels.recurrence.cpu.loop import Buffer, LoopPosition, Step, SummedGradients

Recorded = tuple[str, str, int, int]  # name, buffer, first block, end
PACKED, STATE = Buffer("packed"), Buffer("state")
PREVIOUS, RECORDED = Buffer("packed", only_for="backward"), Buffer("packed", only_for="record")


class RNN:
    """h = φ(x + U h)."""

    blocks, states = 1, 1
    weight_blocks: tuple[tuple[int, int], ...] = ((0, 1),)
    vector_widths: tuple[int, ...] = ()
    summed_gradients: ClassVar[SummedGradients] = {}
    weight_gradients: tuple[tuple[str, int, str], ...] = (("grad_gates", 0, "previous_h"),)
    recorded: tuple[Recorded, ...] = (("preactivation", "preactivation", 0, 1), ("hidden", "gates", 0, 1))

    def __init__(self, phi: str = "tanh"):
        self.phi = phi
        self.buffers = {"gates": PACKED, "previous_h": PREVIOUS, "preactivation": RECORDED, "h": STATE}
        self.backward_buffers = {"gates": PACKED, "grad_gates": PACKED, "grad_h": STATE}

    def forward(self, step: Step) -> None:
        step.product("h", 0, "gates")

        def unit(at: LoopPosition) -> None:
            a = at.load("gates")
            h = activation(at.code, self.phi, a)
            at.store(a, "preactivation")
            at.store(h, "gates")
            store_state(at, h)

        step.for_each_unit(unit)

    def backward(self, step: Step) -> None:
        def unit(at: LoopPosition) -> None:
            h = at.load("gates")
            at.store(incoming_gradient(at) * derivative(at.code, self.phi, h), "grad_gates")

        step.for_each_unit(unit)
        step.product("grad_gates", 0, "grad_h", overwrite=True)


class LSTM:
    """c = f c + i g, h = o tanh(c)."""

    blocks, states = 4, 2
    weight_blocks = ((0, 4),)
    vector_widths: tuple[int, ...] = ()
    summed_gradients: ClassVar[SummedGradients] = {}
    weight_gradients = (("grad_gates", 0, "previous_h"),)
    recorded_gates = (
        *((name, "gates", block, block + 1) for block, name in enumerate(("input", "forget", "candidate", "output"))),
        ("cell", "cell", 0, 1),
    )
    recorded: tuple[Recorded, ...] = (*recorded_gates, ("hidden", "outputs", 0, 1))

    def __init__(self) -> None:
        saved = {"gates": Buffer("packed", 4), "previous_h": PREVIOUS, "previous_c": PREVIOUS}
        self.buffers = {**saved, "cell": RECORDED, "h": STATE, "c": STATE}
        self.backward_buffers = {**saved, "grad_gates": Buffer("packed", 4), "grad_h": STATE, "grad_c": STATE}

    def forward(self, step: Step) -> None:
        step.product("h", 0, "gates", width=4)

        def unit(at: LoopPosition) -> None:
            code = at.code
            i, f, o = (sigmoid(code, at.load("gates", block)) for block in (0, 1, 3))
            g, c = tanh(code, at.load("gates", 2)), at.load("c")
            at.store(c, "previous_c")
            c = f * c + i * g
            for block, gate in enumerate((i, f, g, o)):
                at.store(gate, "gates", block)
            at.store(c, "c")
            at.store(c, "cell")
            store_state(at, o * tanh(code, c))

        step.for_each_unit(unit)

    def backward(self, step: Step) -> None:
        def unit(at: LoopPosition) -> None:
            i, f, g, o = (at.load("gates", block) for block in range(4))
            c_before, grad_h = at.load("previous_c"), incoming_gradient(at)
            activated = tanh(at.code, f * c_before + i * g)
            grad_c = at.load("grad_c") + grad_h * o * (1.0 - activated * activated)
            at.store(grad_c * g * (i * (1.0 - i)), "grad_gates", 0)
            at.store(grad_c * c_before * (f * (1.0 - f)), "grad_gates", 1)
            at.store(grad_c * i * (1.0 - g * g), "grad_gates", 2)
            at.store(grad_h * activated * (o * (1.0 - o)), "grad_gates", 3)
            at.store(grad_c * f, "grad_c")

        step.for_each_unit(unit)
        step.product("grad_gates", 0, "grad_h", depth=4, overwrite=True)


class GRUBase:
    """The base of all GRUs: the update gate z blends old and new state; and the gradient of that."""

    blocks, states = 3, 1
    summed_gradients: ClassVar[SummedGradients] = {}
    recorded: tuple[Recorded, ...] = (
        *((name, "gates", block, block + 1) for block, name in enumerate(("reset", "update", "candidate"))),
        ("hidden", "outputs", 0, 1),
    )

    def __init__(self, keeps: bool):
        self.keeps = keeps

    def blend(self, z: Vec, h: Vec, n: Vec) -> Vec:
        return n + z * (h - n) if self.keeps else h + z * (n - h)

    def split_gradient(self, grad_h: Vec, z: Vec, h: Vec, n: Vec) -> tuple[Vec, Vec, Vec]:
        """grad_h → the direct gradient of the state before, and those of z and n before their activations."""
        straight, new = (z, 1.0 - z) if self.keeps else (1.0 - z, z)
        other = h - n if self.keeps else n - h
        return grad_h * straight, grad_h * other * (z * (1.0 - z)), grad_h * new * (1.0 - n * n)


class GRUResetAfter(GRUBase):
    """n = tanh(x_n + r (U_n h + b)): the reset gate acts after the product."""

    weight_blocks = ((0, 2), (2, 3))
    vector_widths = (1,)
    summed_gradients: ClassVar[SummedGradients] = {0: ("grad_product", 0, 1)}
    weight_gradients = (("grad_gates", 0, "previous_h"), ("grad_product", 0, "previous_h"))

    def __init__(self, keeps: bool = True):
        super().__init__(keeps)
        saved = {"gates": Buffer("packed", 3), "product": PACKED, "previous_h": PREVIOUS}
        self.buffers = {**saved, "h": STATE, "vector 0": Buffer("vector")}
        self.backward_buffers = {**saved, "grad_gates": Buffer("packed", 3), "grad_product": PACKED, "grad_h": STATE}

    def forward(self, step: Step) -> None:
        step.product("h", 0, "gates", width=2)
        step.product("h", 1, "product", overwrite=True)

        def unit(at: LoopPosition) -> None:
            r, z = (sigmoid(at.code, at.load("gates", block)) for block in (0, 1))
            u = at.load("product") + at.load("vector 0")
            n = tanh(at.code, at.load("gates", 2) + r * u)
            at.store(u, "product")
            for block, gate in enumerate((r, z, n)):
                at.store(gate, "gates", block)
            store_state(at, self.blend(z, at.load("h"), n))

        step.for_each_unit(unit)

    def backward(self, step: Step) -> None:
        def unit(at: LoopPosition) -> None:
            r, z, n = (at.load("gates", block) for block in range(3))
            grad_h, grad_z, grad_n = self.split_gradient(incoming_gradient(at), z, at.load("previous_h"), n)
            grad_u = grad_n * r
            at.store(grad_n * at.load("product") * (r * (1.0 - r)), "grad_gates", 0)
            at.store(grad_z, "grad_gates", 1)
            at.store(grad_n, "grad_gates", 2)
            at.store(grad_u, "grad_product")
            at.store(grad_h, "grad_h")

        step.for_each_unit(unit)
        step.product("grad_gates", 0, "grad_h", depth=2)
        step.product("grad_product", 1, "grad_h")


class GRUResetBefore(GRUBase):
    """n = tanh(x_n + U_n (r h)): the reset gate acts before the product."""

    weight_blocks = ((0, 2), (2, 3))
    vector_widths: tuple[int, ...] = ()
    weight_gradients = (("grad_gates", 0, "previous_h"), ("grad_gates", 2, "reset_h"))

    def __init__(self, keeps: bool = True):
        super().__init__(keeps)
        saved = {"gates": Buffer("packed", 3), "reset_h": PACKED, "previous_h": PREVIOUS}
        self.buffers = {**saved, "h": STATE}
        self.backward_buffers = {**saved, "grad_gates": Buffer("packed", 3), "grad_h": STATE, "grad_reset_h": STATE}

    def forward(self, step: Step) -> None:
        step.product("h", 0, "gates", width=2)

        def reset(at: LoopPosition) -> None:
            r, z = (sigmoid(at.code, at.load("gates", block)) for block in (0, 1))
            at.store(r, "gates", 0)
            at.store(z, "gates", 1)
            at.store(r * at.load("h"), "reset_h")

        def unit(at: LoopPosition) -> None:
            n = tanh(at.code, at.load("gates", 2))
            at.store(n, "gates", 2)
            store_state(at, self.blend(at.load("gates", 1), at.load("h"), n))

        step.for_each_unit(reset)
        step.product("reset_h", 1, "gates", result_block=2)
        step.for_each_unit(unit)

    def backward(self, step: Step) -> None:
        def unit(at: LoopPosition) -> None:
            z, n = at.load("gates", 1), at.load("gates", 2)
            grad_h, grad_z, grad_n = self.split_gradient(incoming_gradient(at), z, at.load("previous_h"), n)
            at.store(grad_z, "grad_gates", 1)
            at.store(grad_n, "grad_gates", 2)
            at.store(grad_h, "grad_h")

        def reset(at: LoopPosition) -> None:
            r, change = at.load("gates", 0), at.load("grad_reset_h")
            at.add(change * r, "grad_h")
            at.store(change * at.load("previous_h") * (r * (1.0 - r)), "grad_gates", 0)

        step.for_each_unit(unit)
        step.product("grad_gates", 1, "grad_reset_h", left_block=2, overwrite=True)
        step.for_each_unit(reset)
        step.product("grad_gates", 0, "grad_h", depth=2)


def store_state(at: LoopPosition, h: Vec) -> None:
    """Store the new state for the next step, and as output."""
    at.store(at.load("h"), "previous_h")
    at.store(h, "h")
    at.store(h, "external")


def incoming_gradient(at: LoopPosition) -> Vec:
    """The gradient of a step's output: from the next step, and from the output itself."""
    return at.load("grad_h") + at.load("external")
