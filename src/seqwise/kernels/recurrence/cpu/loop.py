"""The loop over time of one compiled cell, forwards or backwards in time. It knows no cell's equation.

Steps are packed: at step t, rows with n_t ≥ 1 entries stand one after the other, the longest first, and after them step
t + 1. No step of padding exists. A worker has some of the rows for the whole sequence and waits for nobody, so a scan
is as fast as its rows allow. Nothing is added up across rows here, so no result depends on the number of workers.

What an equation says in terms of rows (`Step`) becomes addresses here. A buffer is one of:

    packed    one row per real step: gates, what is kept for the way back
    state     one row per sequence: the state that runs along
    sum       one row per sequence, zero before the first step: what is added up over its steps
    vector    one row for all: a bias, the weight of a norm
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from seqwise.kernels.recurrence.cpu.code import Code, Compiled, Int, Vec

HEAD = ("steps", "first", "every", "reverse", "starts", "order", "units", "multiply", "outside", "by_step", "by_row")


@dataclass(frozen=True)
class Buffer:
    """Rows of `blocks` times the units (or, with `single`, of one number).

    What is written only for the way `back` or for somebody who wants a `look` has one row per worker otherwise.
    """

    kind: str
    blocks: int = 1
    single: bool = False
    only_for: str = ""

    def width(self, units: int) -> int:
        return 1 if self.single else self.blocks * units


Summed = dict[int, tuple[str, int, int]]


class Equation(Protocol):
    """What is compiled of a cell, and what those who call it must know. Blocks are `units` numbers wide."""

    buffers: dict[str, Buffer]  # of the way there
    buffers_back: dict[str, Buffer]  # of the way back

    @property
    def blocks(self) -> int: ...  # of the projected input

    @property
    def states(self) -> int: ...  # 2 for h and c

    @property
    def packs(self) -> tuple[tuple[int, int], ...]: ...  # blocks of the matrix that one product uses: (first, end)

    @property
    def extras(self) -> tuple[int, ...]: ...  # widths, in blocks, of the vectors beside the matrix

    @property
    def summed(self) -> Summed: ...  # vectors whose gradient is the sum of all packed rows: buffer, first block, end

    @property
    def weighted(self) -> tuple[tuple[str, int, str], ...]:
        """The matrix's gradient, product by product: the gradient after it, its first block, what was multiplied."""

    @property
    def seen(self) -> tuple[tuple[str, str, int, int], ...]: ...  # of a look inside: name, buffer, first block, end

    def forward(self, step: Step) -> None: ...

    def backward(self, step: Step) -> None: ...


def layout(buffers: dict[str, Buffer], packs: int) -> dict[str, int]:
    """Name → place in a worker's list of words. A buffer has two: its address and the step from row to row."""
    places = {name: place for place, name in enumerate(HEAD)}
    for name in buffers:
        places[name] = len(HEAD) + 2 * (len(places) - len(HEAD))
    after = len(HEAD) + 2 * len(buffers)
    return places | {f"pack {one}": after + one for one in range(packs)}


def compile_loop(equation: Equation, kind: str, back: bool) -> Compiled:
    """A C function of a list of words: all steps for one worker."""
    code, buffers = Code(kind), equation.buffers_back if back else equation.buffers
    places = layout(buffers, len(equation.packs))
    with code.function("scan", 1) as (words,):
        values = {name: code.word(words, place) for name, place in places.items()}
        steps = {name: code.word(words, places[name] + 1) for name in buffers}
        with code.loop(0, values["steps"]) as count:
            last = values["steps"] - 1
            # Back through time means from the last step of the scan to its first.
            towards_start = values["reverse"] < 1 if back else values["reverse"] >= 1
            t = code.choose(towards_start, last - count, count)
            start = code.word(values["starts"], t)
            alive = code.word(values["starts"], t + 1) - start  # rows that are not over yet
            rows = (alive - values["first"] + values["every"] - 1) // values["every"]
            with code.when(rows >= 1):
                step = Step(code, buffers, values, steps, start, t, rows)
                (equation.backward if back else equation.forward)(step)
    return code.build()["scan"]


class Step:
    """One step in time, for the rows of one worker that are still there."""

    def __init__(
        self, code: Code, buffers: dict[str, Buffer], values: dict[str, Int], steps: dict[str, Int], *now: Int
    ):
        self.code, self.buffers, self.values, self.steps = code, buffers, values, steps
        self.start, self.time, self.count = now
        self.units = values["units"]

    def address(self, name: str, row: Int | int) -> Int:
        """Where this worker's row of a buffer begins."""
        buffer, code = self.buffers[name], self.code
        if buffer.kind == "vector":
            return self.values[name]
        index = self.values["first"] + self.values["every"] * row
        index = self.start + index if buffer.kind == "packed" else index
        return self.values[name] + index * self.steps[name] * code.size

    def product(self, left: str, pack: int, result: str, depth: int = 1, width: int = 1, **options: Any) -> None:
        """result += left · weight, for all rows. Depth and width are in blocks of units."""
        size, units, every = self.code.size, self.units, self.values["every"]
        from_block, to_block = options.get("left_block", 0), options.get("result_block", 0)
        place, step = self.address(result, 0) + units * (to_block * size), self.steps[result] * every
        self.code.call(
            self.values["multiply"],
            *(self.address(left, 0) + units * (from_block * size), self.steps[left] * every),
            self.values[f"pack {pack}"],
            *(place, step, self.count, units * depth, units * width),
            *((0, 0) if options.get("fresh") else (place, step)),
        )

    @contextmanager
    def rows(self) -> Iterator[Row]:
        with self.code.loop(0, self.count) as row:
            yield Row(self, row)

    def units_of_rows(self, body: Callable[[LoopPosition], None]) -> None:
        """`body` for all units of all rows."""
        with self.rows() as row:
            row.over(body)


class Row:
    """One row at one step."""

    def __init__(self, step: Step, index: Int):
        self.step, self.code = step, step.code
        self.addresses = {name: step.address(name, index) for name in step.buffers}
        values = step.values
        place = self.code.word(values["order"], values["first"] + values["every"] * index)
        outside = step.time * values["by_step"] + place * values["by_row"]
        self.addresses["outside"] = values["outside"] + outside * self.code.size

    def over(self, body: Callable[[LoopPosition], None]) -> None:
        self.code.over(self.step.units, lambda u: body(LoopPosition(self, u)))

    def number(self, name: str) -> Vec:
        """The only number of a row, in every lane."""
        return self.code.spread(self.code.one(self.addresses[name]))

    def keep_number(self, name: str, value: Vec) -> None:
        first = self.code.builder.extract_element(value.value, self.code.whole(0).value)
        self.code.put_one(first, self.addresses[name])


class LoopPosition:
    """A vector of units in a row. Block b of a buffer begins b · units behind its row's beginning."""

    def __init__(self, row: Row, unit: Int):
        self.row, self.unit, self.code = row, unit, row.code

    def get(self, name: str, block: int = 0) -> Vec:
        return self.code.load(self.row.addresses[name], self.unit + self.row.step.units * block)

    def put(self, value: Vec, name: str, block: int = 0) -> None:
        self.code.store(value, self.row.addresses[name], self.unit + self.row.step.units * block)

    def add(self, value: Vec, name: str, block: int = 0) -> None:
        self.put(self.get(name, block) + value, name, block)
