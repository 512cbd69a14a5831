"""The recurrent cells as compiled equations, forward and backward, with the letters of `layers/cells.py`.

These functions run once per cell and precision, and generate code: each `at.load` is a load instruction, each operator
an instruction on a vector of units, each `at.store` a store. `step.multiply(x, n, y)` adds to the buffer y the product
of x and part n of U, the recurrent weight `weight_hidden`; `weight_blocks` lists its parts. This module has one step;
the loop over steps is in `loop.py`, sums over all steps are in `gradients.py`.

`forward` computes the state after a step from the state before it, and saves what the gradient needs in packed buffers,
which have rows for all steps as in `PackedSequence`. `backward` gets the gradient of the state after the step
(`grad_h`, `grad_c`), replaces it by the gradient of the state before the step, and writes the gradients of the gates'
pre-activations (`grad_gates`), which are also the gradients of the projected input. The buffer `gates` holds the
projected input, then the gates.

Sigmoid and tanh have relative errors below 3e-7 (float) and 1e-15 (double), also near zero; a sigmoid of less than
−87 (−708) is 0. NaN stays NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from llvmlite import ir

from seqwise.kernels.recurrence.cpu.code import INT32, INT64, Vec
from seqwise.kernels.recurrence.cpu.loop import Buffer, Equation, LoopPosition, RecordedActivation, Step

PACKED, PACKED_3, PACKED_4, STATE = Buffer("packed"), Buffer("packed", 3), Buffer("packed", 4), Buffer("state")
PREVIOUS, RECORDED = Buffer("packed", only_for="backward"), Buffer("packed", only_for="record")
# Precision → terms of the series, smallest x, bits of the fraction, bias of the exponent, log 2 as two summands.
EXP_CONSTANTS: dict[str, tuple[int, float, int, int, float, float]] = {
    "float": (7, -87.0, 23, 127, 0.693359375, -2.12194440054690583e-4),
    "double": (14, -708.0, 52, 1023, 0.693147180369123816490, 1.90821492927058770002e-10),
}


class RNN(Equation):
    """h = φ(x + U h)."""

    saved_buffers: ClassVar = {"gates": PACKED, "previous_h": PREVIOUS}
    forward_only: ClassVar = {"preactivation": RECORDED, "h": STATE}
    backward_only: ClassVar = {"grad_gates": PACKED, "grad_h": STATE}
    recorded_activations: tuple[RecordedActivation, ...] = (
        ("preactivation", "preactivation", 0, 1),
        ("hidden", "gates", 0, 1),
    )

    def forward(self, step: Step) -> None:
        step.multiply("h", 0, "gates")
        for at in step.loop_over_units():
            a = at.load("gates")
            h = ACTIVATIONS[self.activation][0](a)
            at.store(a, "preactivation")
            at.store(h, "gates")
            store_state(at, h)

    def backward(self, step: Step) -> None:
        for at in step.loop_over_units():
            h = at.load("gates")
            at.store(load_total_grad_h(at) * ACTIVATIONS[self.activation][1](h), "grad_gates")
        step.multiply("grad_gates", 0, "grad_h", overwrite=True)


class LSTM(Equation):
    """c = f c + i g, h = o tanh(c)."""

    blocks, num_states = 4, 2
    weight_blocks = ((0, 4),)
    saved_buffers: ClassVar = {"gates": PACKED_4, "previous_h": PREVIOUS, "previous_c": PREVIOUS}
    forward_only: ClassVar = {"cell": RECORDED, "h": STATE, "c": STATE}
    backward_only: ClassVar = {"grad_gates": PACKED_4, "grad_h": STATE, "grad_c": STATE}
    gates_and_cell = (
        *((name, "gates", block, block + 1) for block, name in enumerate(("input", "forget", "candidate", "output"))),
        ("cell", "cell", 0, 1),
    )
    recorded_activations = (*gates_and_cell, ("hidden", "outputs", 0, 1))

    def forward(self, step: Step) -> None:
        step.multiply("h", 0, "gates", width=4)
        for at in step.loop_over_units():
            i, f, o = (sigmoid(at.load("gates", block)) for block in (0, 1, 3))
            g, c = tanh(at.load("gates", 2)), at.load("c")
            at.store(c, "previous_c")
            c = f * c + self.limit_input_gate(i, f) * g
            at.store_blocks((i, f, g, o), "gates")
            at.store(c, "c")
            at.store(c, "cell")
            store_state(at, o * tanh(c))

    def backward(self, step: Step) -> None:
        for at in step.loop_over_units():
            i, f, g, o = (at.load("gates", block) for block in range(4))
            previous_c, grad_h = at.load("previous_c"), load_total_grad_h(at)
            input_share = self.limit_input_gate(i, f)
            tanh_c = tanh(f * previous_c + input_share * g)
            grad_c = at.load("grad_c") + grad_h * o * (1.0 - tanh_c * tanh_c)
            grad_i, grad_f = self.split_gradient(grad_c * g, grad_c * previous_c, i, f)
            at.store(grad_i * (i * (1.0 - i)), "grad_gates", 0)
            at.store(grad_f * (f * (1.0 - f)), "grad_gates", 1)
            at.store(grad_c * input_share * (1.0 - g * g), "grad_gates", 2)
            at.store(grad_h * tanh_c * (o * (1.0 - o)), "grad_gates", 3)
            at.store(grad_c * f, "grad_c")
        step.multiply("grad_gates", 0, "grad_h", depth=4, overwrite=True)

    def limit_input_gate(self, i: Vec, f: Vec) -> Vec:
        """Returns the share of the candidate that is written."""
        return i

    def split_gradient(self, grad_i: Vec, grad_f: Vec, i: Vec, f: Vec) -> tuple[Vec, Vec]:
        """Returns the gradients of i and f, given that of the written share (grad_i) and that of f in f c (grad_f)."""
        return grad_i, grad_f


class CappedLSTM(LSTM):
    """c = f c + min(i, 1 − f) g, h = o tanh(c)."""

    def limit_input_gate(self, i: Vec, f: Vec) -> Vec:
        return (1.0 - f).select_less(i, 1.0 - f, i)

    def split_gradient(self, grad_i: Vec, grad_f: Vec, i: Vec, f: Vec) -> tuple[Vec, Vec]:
        limit = 1.0 - f
        return limit.select_less(i, 0.0, grad_i), limit.select_less(i, grad_f - grad_i, grad_f)


class GRUBase(Equation):
    """The base of all GRUs: the update gate z blends the old state h and the candidate n."""

    blocks = 3
    weight_blocks: tuple[tuple[int, int], ...] = ((0, 2), (2, 3))
    recorded_activations = (
        *((name, "gates", block, block + 1) for block, name in enumerate(("reset", "update", "candidate"))),
        ("hidden", "outputs", 0, 1),
    )

    def blend(self, z: Vec, h: Vec, n: Vec) -> Vec:
        """Returns the new state."""
        return n + z * (h - n) if self.update_keeps else h + z * (n - h)

    def split_gradient(self, grad_h: Vec, z: Vec, h: Vec, n: Vec) -> tuple[Vec, Vec, Vec]:
        """Returns the gradients of the old state, without the recurrent product, and of the pre-activations of z and n,
        given the gradient of the new state."""
        old_share, new_share = (z, 1.0 - z) if self.update_keeps else (1.0 - z, z)
        difference = h - n if self.update_keeps else n - h
        return grad_h * old_share, grad_h * difference * (z * (1.0 - z)), grad_h * new_share * (1.0 - n * n)


class GRUResetAfter(GRUBase):
    """n = tanh(x_n + r (U_n h + b)): the reset gate acts after the product."""

    saved_buffers: ClassVar = {"gates": PACKED_3, "product": PACKED, "previous_h": PREVIOUS}
    forward_only: ClassVar = {"h": STATE}
    backward_only: ClassVar = {"grad_gates": PACKED_3, "grad_product": PACKED, "grad_h": STATE}
    weight_gradients = (("grad_gates", 0, "previous_h"), ("grad_product", 0, "previous_h"))
    parameter_widths = (1,)
    summed_gradients: ClassVar = {0: ("grad_product", 0, 1)}

    def forward(self, step: Step) -> None:
        step.multiply("h", 0, "gates", width=2)
        step.multiply("h", 1, "product", overwrite=True)
        for at in step.loop_over_units():
            r, z = (sigmoid(at.load("gates", block)) for block in (0, 1))
            u = at.load("product") + at.load("parameter 0")
            n = tanh(at.load("gates", 2) + r * u)
            at.store(u, "product")
            at.store_blocks((r, z, n), "gates")
            store_state(at, self.blend(z, at.load("h"), n))

    def backward(self, step: Step) -> None:
        for at in step.loop_over_units():
            r, z, n = (at.load("gates", block) for block in range(3))
            grad_h, grad_z, grad_n = self.split_gradient(load_total_grad_h(at), z, at.load("previous_h"), n)
            grad_u = grad_n * r
            at.store_blocks((grad_n * at.load("product") * (r * (1.0 - r)), grad_z, grad_n), "grad_gates")
            at.store(grad_u, "grad_product")
            at.store(grad_h, "grad_h")
        step.multiply("grad_gates", 0, "grad_h", depth=2)
        step.multiply("grad_product", 1, "grad_h")


class GRUResetBefore(GRUBase):
    """n = tanh(x_n + U_n (r h)): the reset gate acts before the product."""

    saved_buffers: ClassVar = {"gates": PACKED_3, "reset_h": PACKED, "previous_h": PREVIOUS}
    forward_only: ClassVar = {"h": STATE}
    backward_only: ClassVar = {"grad_gates": PACKED_3, "grad_h": STATE, "grad_reset_h": STATE}
    weight_gradients = (("grad_gates", 0, "previous_h"), ("grad_gates", 2, "reset_h"))

    def forward(self, step: Step) -> None:
        step.multiply("h", 0, "gates", width=2)
        for at in step.loop_over_units():
            r, z = (sigmoid(at.load("gates", block)) for block in (0, 1))
            at.store_blocks((r, z), "gates")
            at.store(r * at.load("h"), "reset_h")
        step.multiply("reset_h", 1, "gates", result_block=2)
        for at in step.loop_over_units():
            n = tanh(at.load("gates", 2))
            at.store(n, "gates", 2)
            store_state(at, self.blend(at.load("gates", 1), at.load("h"), n))

    def backward(self, step: Step) -> None:
        for at in step.loop_over_units():
            z, n = at.load("gates", 1), at.load("gates", 2)
            grad_h, grad_z, grad_n = self.split_gradient(load_total_grad_h(at), z, at.load("previous_h"), n)
            at.store(grad_z, "grad_gates", 1)
            at.store(grad_n, "grad_gates", 2)
            at.store(grad_h, "grad_h")
        step.multiply("grad_gates", 1, "grad_reset_h", left_block=2, overwrite=True)
        for at in step.loop_over_units():
            r, grad_reset_h = at.load("gates", 0), at.load("grad_reset_h")
            at.add(grad_reset_h * r, "grad_h")
            at.store(grad_reset_h * at.load("previous_h") * (r * (1.0 - r)), "grad_gates", 0)
        step.multiply("grad_gates", 0, "grad_h", depth=2)


def store_state(at: LoopPosition, h: Vec) -> None:
    """Stores the new state for the next step, and as output."""
    at.store(at.load("h"), "previous_h")
    at.store(h, "h")
    at.store(h, "outputs")


def load_total_grad_h(at: LoopPosition) -> Vec:
    """Returns the gradient of the state after a step: from the next step, and from the step's output."""
    return at.load("grad_h") + at.load("grad_outputs")


def exp_and_expm1(x: Vec) -> tuple[Vec, Vec]:
    """Returns e^x and e^x − 1 for x ≤ 0, neither as a difference of nearly equal numbers; 0 and −1 for x < `minimum`.

    e^x = 2^whole · e^rest with |rest| ≤ log(2) / 2 and the Taylor series of e^rest − 1.
    """
    code, original = x.code, x
    terms, minimum, fraction, bias, log2_high, log2_low = EXP_CONSTANTS[code.precision]
    x = x.select_less(minimum, minimum, x)
    # Added to a large number, x / log 2 is rounded to whole numbers, and its last bits are that whole number.
    large = 1.5 * 2.0**fraction
    shifted = code.fma(x, 1 / math.log(2), large)
    whole = Vec(code, code.builder.fsub(shifted.value, code.as_vec(large).value))
    rest = code.fma(whole, -log2_low, code.fma(whole, -log2_high, x))
    series = code.as_vec(1 / math.factorial(terms))
    for n in range(terms - 1, 0, -1):
        series = code.fma(series, rest, 1 / math.factorial(n))
    expm1_rest = series * rest  # e^rest − 1
    integers: Any = ir.VectorType(INT32 if code.precision == "float" else INT64, code.lanes)
    bits = code.builder.bitcast(shifted.value, integers)
    exponent = code.builder.add(bits, integers([bias] * code.lanes))
    power = Vec(code, code.builder.bitcast(code.builder.shl(exponent, integers([fraction] * code.lanes)), code.vector))
    exp = original.select_less(minimum, 0.0, code.fma(power, expm1_rest, power))
    return exp, code.fma(power, expm1_rest, power - 1.0)


def sigmoid(x: Vec) -> Vec:
    """Returns 1 / (1 + e^−x), computed from e^−|x|."""
    e, _ = exp_and_expm1(0.0 - x.code.abs(x))
    positive = 1.0 / (e + 1.0)  # the sigmoid of |x|
    return x.select_less(0.0, e * positive, positive)


def tanh(x: Vec) -> Vec:
    """Returns tanh(x), computed as (1 − e) / (1 + e) with e = e^−2|x|, and the sign of x."""
    _, expm1 = exp_and_expm1(x.code.abs(x) * -2.0)
    negative = expm1 / (expm1 + 2.0)  # tanh of −|x|
    return x.select_less(0.0, negative, 0.0 - negative)


# Name → the activation, and its derivative as a function of its value.
ACTIVATIONS: dict[str, tuple[Callable[[Vec], Vec], Callable[[Vec], Vec]]] = {
    "tanh": (tanh, lambda y: 1.0 - y * y),
    "sigmoid": (sigmoid, lambda y: y * (1.0 - y)),
    "relu": (lambda x: x.select_less(0.0, 0.0, x), lambda y: (0.0 - y).select_less(0.0, 1.0, 0.0)),
    "identity": (lambda x: x, lambda y: y.code.as_vec(1.0)),
}
