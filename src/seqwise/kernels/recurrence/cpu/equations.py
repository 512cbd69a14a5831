"""The recurrent cells as compiled equations, there and back, with the letters of `layers/cells.py`.

`forward` goes from the state before a step to the state after it; what the way back needs lies in packed buffers.
`backward` gets the gradient of the state after (`dh`, `dc`), leaves that of the state before, and writes those of the
gates before their activations (`d_gates`), which are also those of the projected input. Here is one step only: loops
are in `loop`, sums over all steps in `scan`.
"""

from __future__ import annotations

from typing import ClassVar

from seqwise.kernels.recurrence.cpu.activations import activation, sigmoid, slope, tanh
from seqwise.kernels.recurrence.cpu.code import Vec
from seqwise.kernels.recurrence.cpu.loop import Buffer, LoopPosition, Step, Summed

Seen = tuple[str, str, int, int]  # name, buffer, first block, end
PACKED, STATE = Buffer("packed"), Buffer("state")
BEFORE, SEEN = Buffer("packed", only_for="back"), Buffer("packed", only_for="look")


class RNN:
    """h = φ(x + U h)."""

    blocks, states = 1, 1
    packs: tuple[tuple[int, int], ...] = ((0, 1),)
    extras: tuple[int, ...] = ()
    summed: ClassVar[Summed] = {}
    weighted: tuple[tuple[str, int, str], ...] = (("d_gates", 0, "before_h"),)
    seen: tuple[Seen, ...] = (("preactivation", "preactivation", 0, 1), ("hidden", "gates", 0, 1))

    def __init__(self, phi: str = "tanh"):
        self.phi = phi
        self.buffers = {"gates": PACKED, "before_h": BEFORE, "preactivation": SEEN, "h": STATE}
        self.buffers_back = {"gates": PACKED, "d_gates": PACKED, "dh": STATE}

    def forward(self, step: Step) -> None:
        step.product("h", 0, "gates")

        def unit(at: LoopPosition) -> None:
            a = at.get("gates")
            h = activation(at.code, self.phi, a)
            at.put(a, "preactivation")
            at.put(h, "gates")
            leave(at, h)

        step.units_of_rows(unit)

    def backward(self, step: Step) -> None:
        def unit(at: LoopPosition) -> None:
            h = at.get("gates")
            at.put(arriving(at) * slope(at.code, self.phi, h), "d_gates")

        step.units_of_rows(unit)
        step.product("d_gates", 0, "dh", fresh=True)


class LSTM:
    """c = f c + i g, h = o tanh(c)."""

    blocks, states = 4, 2
    packs = ((0, 4),)
    extras: tuple[int, ...] = ()
    summed: ClassVar[Summed] = {}
    weighted = (("d_gates", 0, "before_h"),)
    inside = (
        *((name, "gates", block, block + 1) for block, name in enumerate(("input", "forget", "candidate", "output"))),
        ("cell", "cell", 0, 1),
    )
    seen: tuple[Seen, ...] = (*inside, ("hidden", "outputs", 0, 1))

    def __init__(self) -> None:
        kept = {"gates": Buffer("packed", 4), "before_h": BEFORE, "before_c": BEFORE}
        self.buffers = {**kept, "cell": SEEN, "h": STATE, "c": STATE}
        self.buffers_back = {**kept, "d_gates": Buffer("packed", 4), "dh": STATE, "dc": STATE}

    def forward(self, step: Step) -> None:
        step.product("h", 0, "gates", width=4)

        def unit(at: LoopPosition) -> None:
            code = at.code
            i, f, o = (sigmoid(code, at.get("gates", block)) for block in (0, 1, 3))
            g, c = tanh(code, at.get("gates", 2)), at.get("c")
            at.put(c, "before_c")
            c = f * c + i * g
            for block, gate in enumerate((i, f, g, o)):
                at.put(gate, "gates", block)
            at.put(c, "c")
            at.put(c, "cell")
            leave(at, o * tanh(code, c))

        step.units_of_rows(unit)

    def backward(self, step: Step) -> None:
        def unit(at: LoopPosition) -> None:
            i, f, g, o = (at.get("gates", block) for block in range(4))
            before, dh = at.get("before_c"), arriving(at)
            shown = tanh(at.code, f * before + i * g)
            dc = at.get("dc") + dh * o * (1.0 - shown * shown)
            at.put(dc * g * (i * (1.0 - i)), "d_gates", 0)
            at.put(dc * before * (f * (1.0 - f)), "d_gates", 1)
            at.put(dc * i * (1.0 - g * g), "d_gates", 2)
            at.put(dh * shown * (o * (1.0 - o)), "d_gates", 3)
            at.put(dc * f, "dc")

        step.units_of_rows(unit)
        step.product("d_gates", 0, "dh", depth=4, fresh=True)


class Gated:
    """What the gated units share: how z blends, and what that sends back."""

    blocks, states = 3, 1
    summed: ClassVar[Summed] = {}
    seen: tuple[Seen, ...] = (
        *((name, "gates", block, block + 1) for block, name in enumerate(("reset", "update", "candidate"))),
        ("hidden", "outputs", 0, 1),
    )

    def __init__(self, keeps: bool):
        self.keeps = keeps

    def blend(self, z: Vec, h: Vec, n: Vec) -> Vec:
        return n + z * (h - n) if self.keeps else h + z * (n - h)

    def apart(self, dh: Vec, z: Vec, h: Vec, n: Vec) -> tuple[Vec, Vec, Vec]:
        """dh → what goes straight to the state before, and the gradients of z and n before their activations."""
        straight, new = (z, 1.0 - z) if self.keeps else (1.0 - z, z)
        other = h - n if self.keeps else n - h
        return dh * straight, dh * other * (z * (1.0 - z)), dh * new * (1.0 - n * n)


class LateReset(Gated):
    """n = tanh(x_n + r (U_n h + b)): the reset gate acts after the product."""

    packs = ((0, 2), (2, 3))
    extras = (1,)
    summed: ClassVar[Summed] = {0: ("d_product", 0, 1)}
    weighted = (("d_gates", 0, "before_h"), ("d_product", 0, "before_h"))

    def __init__(self, keeps: bool = True):
        super().__init__(keeps)
        kept = {"gates": Buffer("packed", 3), "product": PACKED, "before_h": BEFORE}
        self.buffers = {**kept, "h": STATE, "extra 0": Buffer("vector")}
        self.buffers_back = {**kept, "d_gates": Buffer("packed", 3), "d_product": PACKED, "dh": STATE}

    def forward(self, step: Step) -> None:
        step.product("h", 0, "gates", width=2)
        step.product("h", 1, "product", fresh=True)

        def unit(at: LoopPosition) -> None:
            r, z = (sigmoid(at.code, at.get("gates", block)) for block in (0, 1))
            u = at.get("product") + at.get("extra 0")
            n = tanh(at.code, at.get("gates", 2) + r * u)
            at.put(u, "product")
            for block, gate in enumerate((r, z, n)):
                at.put(gate, "gates", block)
            leave(at, self.blend(z, at.get("h"), n))

        step.units_of_rows(unit)

    def backward(self, step: Step) -> None:
        def unit(at: LoopPosition) -> None:
            r, z, n = (at.get("gates", block) for block in range(3))
            dh, dz, dn = self.apart(arriving(at), z, at.get("before_h"), n)
            du = dn * r
            at.put(dn * at.get("product") * (r * (1.0 - r)), "d_gates", 0)
            at.put(dz, "d_gates", 1)
            at.put(dn, "d_gates", 2)
            at.put(du, "d_product")
            at.put(dh, "dh")

        step.units_of_rows(unit)
        step.product("d_gates", 0, "dh", depth=2)
        step.product("d_product", 1, "dh")


class EarlyReset(Gated):
    """n = tanh(x_n + U_n (r h)): the reset gate acts before the product."""

    packs = ((0, 2), (2, 3))
    extras: tuple[int, ...] = ()
    weighted = (("d_gates", 0, "before_h"), ("d_gates", 2, "reset_h"))

    def __init__(self, keeps: bool = True):
        super().__init__(keeps)
        kept = {"gates": Buffer("packed", 3), "reset_h": PACKED, "before_h": BEFORE}
        self.buffers = {**kept, "h": STATE}
        self.buffers_back = {**kept, "d_gates": Buffer("packed", 3), "dh": STATE, "reset_dh": STATE}

    def forward(self, step: Step) -> None:
        step.product("h", 0, "gates", width=2)

        def reset(at: LoopPosition) -> None:
            r, z = (sigmoid(at.code, at.get("gates", block)) for block in (0, 1))
            at.put(r, "gates", 0)
            at.put(z, "gates", 1)
            at.put(r * at.get("h"), "reset_h")

        def unit(at: LoopPosition) -> None:
            n = tanh(at.code, at.get("gates", 2))
            at.put(n, "gates", 2)
            leave(at, self.blend(at.get("gates", 1), at.get("h"), n))

        step.units_of_rows(reset)
        step.product("reset_h", 1, "gates", result_block=2)
        step.units_of_rows(unit)

    def backward(self, step: Step) -> None:
        def unit(at: LoopPosition) -> None:
            z, n = at.get("gates", 1), at.get("gates", 2)
            dh, dz, dn = self.apart(arriving(at), z, at.get("before_h"), n)
            at.put(dz, "d_gates", 1)
            at.put(dn, "d_gates", 2)
            at.put(dh, "dh")

        def reset(at: LoopPosition) -> None:
            r, change = at.get("gates", 0), at.get("reset_dh")
            at.add(change * r, "dh")
            at.put(change * at.get("before_h") * (r * (1.0 - r)), "d_gates", 0)

        step.units_of_rows(unit)
        step.product("d_gates", 1, "reset_dh", left_block=2, fresh=True)
        step.units_of_rows(reset)
        step.product("d_gates", 0, "dh", depth=2)


def leave(at: LoopPosition, h: Vec) -> None:
    """The step's end: the new state runs on, and goes outside."""
    at.put(at.get("h"), "before_h")
    at.put(h, "h")
    at.put(h, "outside")


def arriving(at: LoopPosition) -> Vec:
    """What reaches a step's output: from the step that follows, and from outside."""
    return at.get("dh") + at.get("outside")
