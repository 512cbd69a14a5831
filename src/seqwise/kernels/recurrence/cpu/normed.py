"""The cells with layer normalisation (Ba et al. 2016) as compiled equations, there and back.

A norm needs a whole row before its first unit is known, so a row is passed several times. Norms of the input are not
here: they know nothing of time, and come with the projection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from seqwise.kernels.recurrence.cpu.activations import activation, sigmoid, slope, tanh
from seqwise.kernels.recurrence.cpu.code import Vec
from seqwise.kernels.recurrence.cpu.equations import BEFORE, LSTM, PACKED, RNN, SEEN, STATE, Gated, arriving, leave
from seqwise.kernels.recurrence.cpu.loop import Buffer, LoopPosition, Row, Step, Summed

EPSILON = 1e-5  # as in `layers.norm`
ONE = Buffer("packed", single=True)


@dataclass(frozen=True)
class Norm:
    """y = w (a − mean) / deviation + b over some blocks of a row; afterwards the row holds (a − mean) / deviation.

    `scale` is a packed number, 1 / deviation; `weight` and `bias` are the names of the vectors, and on the way back of
    the sums of their gradients, whose weight is found under `given`.
    """

    name: str
    blocks: tuple[int, ...]
    scale: str
    weight: str
    bias: str
    given: str = ""

    def standardise(self, row: Row) -> None:
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


class Back:
    """The way back through a norm, for one row: gradients of y are collected, then those of a are known.

    a's gradient is (d − mean(d) − â mean(d â)) / deviation, with d = w dy and â the standardised row.
    """

    def __init__(self, norm: Norm, row: Row):
        self.norm, self.row = norm, row
        self.plain, self.along = row.code.variable(), row.code.variable()

    def collect(self, at: LoopPosition, dy: Vec, place: int = 0) -> Vec:
        """dy in the `place`-th of the blocks → d."""
        norm, standard = self.norm, at.get(self.norm.name, self.norm.blocks[place])
        at.add(dy * standard, norm.weight, place)
        if norm.bias in self.row.step.buffers:  # else somebody else sums it
            at.add(dy, norm.bias, place)
        d = dy * at.get(norm.given, place)
        self.plain.add(d)
        self.along.add(d * standard)
        return d

    def means(self) -> None:
        """All is collected."""
        width = self.row.code.number(self.row.step.units * len(self.norm.blocks))
        self.mean, self.mean_along = self.plain.spread() / width, self.along.spread() / width
        self.scale = self.row.number(self.norm.scale)

    def before(self, at: LoopPosition, d: Vec, place: int = 0) -> Vec:
        """The gradient of a."""
        standard = at.get(self.norm.name, self.norm.blocks[place])
        return (d - self.mean - standard * self.mean_along) * self.scale


def vectors(widths: tuple[int, ...], summed: Summed) -> tuple[dict[str, Buffer], dict[str, Buffer]]:
    """Buffers of the vectors beside the matrix: ahead, and on the way back with the sums of their gradients, unless
    they are summed elsewhere."""
    ahead = {f"extra {place}": Buffer("vector", width) for place, width in enumerate(widths)}
    back = {f"extra {place}": Buffer("sum", width) for place, width in enumerate(widths) if place not in summed}
    return ahead, back | {f"given {place}": Buffer("vector", width) for place, width in enumerate(widths)}


class NormedRNN(RNN):
    """h = φ(LN(x + U h)). The gates' place holds the standardised sum."""

    extras = (1, 1)
    seen = (
        ("preactivation", "preactivation", 0, 1),
        ("norm.norm", "normed", 0, 1),
        ("hidden", "outputs", 0, 1),
    )
    norm = Norm("gates", (0,), "scale", "extra 0", "extra 1", "given 0")

    def __init__(self, phi: str = "tanh"):
        self.phi = phi
        ahead, back = vectors(self.extras, self.summed)
        kept = {"gates": PACKED, "scale": ONE}
        self.buffers = {**kept, "before_h": BEFORE, "preactivation": SEEN, "normed": SEEN, "h": STATE, **ahead}
        self.buffers_back = {**kept, "d_gates": PACKED, "dh": STATE, **back}

    def forward(self, step: Step) -> None:
        step.product("h", 0, "gates")

        def unit(at: LoopPosition) -> None:
            y = self.norm.value(at)
            at.put(y, "normed")
            leave(at, activation(at.code, self.phi, y))

        with step.rows() as row:
            row.over(lambda at: at.put(at.get("gates"), "preactivation"))
            self.norm.standardise(row)
            row.over(unit)

    def backward(self, step: Step) -> None:
        with step.rows() as row:
            back = Back(self.norm, row)

            def collect(at: LoopPosition) -> None:
                y = at.get("gates") * at.get("given 0") + at.get("given 1")
                h = activation(at.code, self.phi, y)
                at.put(back.collect(at, arriving(at) * slope(at.code, self.phi, h)), "dh")

            row.over(collect)
            back.means()
            row.over(lambda at: at.put(back.before(at, at.get("dh")), "d_gates"))
        step.product("d_gates", 0, "dh", fresh=True)


class NormedLSTM(LSTM):
    """The product and the cell are normalised: gates of x + LN(U h), h = o tanh(LN(c))."""

    extras = (4, 4, 1, 1)
    summed: ClassVar[Summed] = {1: ("d_gates", 0, 4)}
    weighted = (("d_product", 0, "before_h"),)
    seen = (
        ("hidden_norm.norm", "normed", 0, 4),
        *LSTM.inside,
        ("cell_norm.norm", "normed_cell", 0, 1),
        ("hidden", "outputs", 0, 1),
    )
    inner = Norm("product", (0, 1, 2, 3), "scale", "extra 0", "extra 1", "given 0")
    outer = Norm("shown", (0,), "shown_scale", "extra 2", "extra 3", "given 2")

    def __init__(self) -> None:
        ahead, back = vectors(self.extras, self.summed)
        wide = Buffer("packed", 4)
        kept = {"gates": wide, "product": wide, "shown": PACKED, "scale": ONE, "shown_scale": ONE, "before_c": BEFORE}
        seen = {"normed": Buffer("packed", 4, only_for="look"), "cell": SEEN, "normed_cell": SEEN, "before_h": BEFORE}
        self.buffers = {**kept, **seen, "h": STATE, "c": STATE, **ahead}
        self.buffers_back = {**kept, "d_gates": wide, "d_product": wide, "dh": STATE, "dc": STATE, **back}

    def forward(self, step: Step) -> None:
        step.product("h", 0, "product", width=4, fresh=True)

        def gates(at: LoopPosition) -> None:
            u = [self.inner.value(at, block) for block in range(4)]
            a = [at.get("gates", block) + u[block] for block in range(4)]
            i, f, o = (sigmoid(at.code, a[block]) for block in (0, 1, 3))
            g, c = tanh(at.code, a[2]), at.get("c")
            at.put(c, "before_c")
            c = f * c + i * g
            for block, gate in enumerate((i, f, g, o)):
                at.put(u[block], "normed", block)
                at.put(gate, "gates", block)
            for name in ("c", "cell", "shown"):
                at.put(c, name)

        def show(at: LoopPosition) -> None:
            y = self.outer.value(at)
            at.put(y, "normed_cell")
            leave(at, at.get("gates", 3) * tanh(at.code, y))

        with step.rows() as row:
            self.inner.standardise(row)
            row.over(gates)
            self.outer.standardise(row)
            row.over(show)

    def backward(self, step: Step) -> None:
        with step.rows() as row:
            outer, inner = Back(self.outer, row), Back(self.inner, row)

            def output(at: LoopPosition) -> None:
                o, dh = at.get("gates", 3), arriving(at)
                shown = tanh(at.code, at.get("shown") * at.get("given 2") + at.get("given 3"))
                at.put(dh * shown * (o * (1.0 - o)), "d_gates", 3)
                at.put(outer.collect(at, dh * o * (1.0 - shown * shown)), "dh")

            def gates(at: LoopPosition) -> None:
                i, f, g = (at.get("gates", block) for block in range(3))
                dc = at.get("dc") + outer.before(at, at.get("dh"))
                at.put(dc * g * (i * (1.0 - i)), "d_gates", 0)
                at.put(dc * at.get("before_c") * (f * (1.0 - f)), "d_gates", 1)
                at.put(dc * i * (1.0 - g * g), "d_gates", 2)
                at.put(dc * f, "dc")
                for block in range(4):
                    inner.collect(at, at.get("d_gates", block), block)

            def product(at: LoopPosition) -> None:
                for block in range(4):
                    d = at.get("d_gates", block) * at.get("given 0", block)
                    at.put(inner.before(at, d, block), "d_product", block)

            row.over(output)
            outer.means()
            row.over(gates)
            inner.means()
            row.over(product)
        step.product("d_product", 0, "dh", depth=4, fresh=True)


class NormedGRU(Gated):
    """Gates of x + LN(U h), n = tanh(x_n + r LN(U_n h)): two norms, the reset gate after the product."""

    packs = ((0, 3),)
    extras = (2, 2, 1, 1)
    summed: ClassVar[Summed] = {1: ("d_gates", 0, 2)}
    weighted = (("d_product", 0, "before_h"),)
    seen = (("gates_norm.norm", "normed", 0, 2), ("candidate_norm.norm", "normed", 2, 3), *Gated.seen)
    gates_norm = Norm("product", (0, 1), "scale", "extra 0", "extra 1", "given 0")
    candidate_norm = Norm("product", (2,), "candidate_scale", "extra 2", "extra 3", "given 2")

    def __init__(self, keeps: bool = True):
        super().__init__(keeps)
        ahead, back = vectors(self.extras, self.summed)
        wide = Buffer("packed", 3)
        kept = {"gates": wide, "product": wide, "scale": ONE, "candidate_scale": ONE, "before_h": BEFORE}
        self.buffers = {**kept, "normed": Buffer("packed", 3, only_for="look"), "h": STATE, **ahead}
        self.buffers_back = {**kept, "d_gates": wide, "d_product": wide, "dh": STATE, "spare": STATE, **back}

    def forward(self, step: Step) -> None:
        step.product("h", 0, "product", width=3, fresh=True)

        def unit(at: LoopPosition) -> None:
            u_r, u_z, u_n = self.gates_norm.value(at, 0), self.gates_norm.value(at, 1), self.candidate_norm.value(at)
            r, z = sigmoid(at.code, at.get("gates", 0) + u_r), sigmoid(at.code, at.get("gates", 1) + u_z)
            n = tanh(at.code, at.get("gates", 2) + r * u_n)
            for block, (value, gate) in enumerate(((u_r, r), (u_z, z), (u_n, n))):
                at.put(value, "normed", block)
                at.put(gate, "gates", block)
            leave(at, self.blend(z, at.get("h"), n))

        with step.rows() as row:
            self.gates_norm.standardise(row)
            self.candidate_norm.standardise(row)
            row.over(unit)

    def backward(self, step: Step) -> None:
        with step.rows() as row:
            gates, candidate = Back(self.gates_norm, row), Back(self.candidate_norm, row)

            def collect(at: LoopPosition) -> None:
                r, z, n = (at.get("gates", block) for block in range(3))
                dh, dz, dn = self.apart(arriving(at), z, at.get("before_h"), n)
                u_n = at.get("product", 2) * at.get("given 2") + at.get("given 3")
                dr = dn * u_n * (r * (1.0 - r))
                gates.collect(at, dr, 0)
                gates.collect(at, dz, 1)
                at.put(candidate.collect(at, dn * r), "spare")
                for block, value in enumerate((dr, dz, dn)):
                    at.put(value, "d_gates", block)
                at.put(dh, "dh")

            def product(at: LoopPosition) -> None:
                for block in (0, 1):
                    d = at.get("d_gates", block) * at.get("given 0", block)
                    at.put(gates.before(at, d, block), "d_product", block)
                at.put(candidate.before(at, at.get("spare")), "d_product", 2)

            row.over(collect)
            gates.means()
            candidate.means()
            row.over(product)
        step.product("d_product", 0, "dh", depth=3)
