"""Generates the loop over time of one cell, forward or backward. It knows nothing of the cells' equations.

The rows of a batch are packed: the rows of step 0, longest sequence first, then the rows of the sequences that have a
step 1, and so on, without padding. Each worker (thread) computes some of the sequences for all steps and never waits
for another. Nothing is summed across sequences here, so no result depends on the number of workers.

`Step`, `Row` and `LoopPosition` turn names of buffers into addresses. The kinds of buffers are:

    packed    one row per valid step: gates, values saved for the gradient
    state     one row per sequence: the current state
    sum       one row per sequence, zero before the first step: a sum over its steps
    vector    one row for all: a bias, the weight of a norm

The generated function has one argument, the address of a list of 64-bit words; `layout` says what each word is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from seqwise.kernels.recurrence.cell_spec import CellSpec
from seqwise.kernels.recurrence.cpu.code import Code, CompiledFunction, Int, Vec

# The first words of a worker's list. `multiply` is the address of the compiled matrix product; `external` that of the
# outputs (forward) or their gradients (backward), with the strides `step_stride` and `row_stride`. A worker computes
# every sequence whose rank is `worker` modulo `num_workers`.
HEADER = (
    *("steps", "worker", "num_workers", "reverse", "step_offsets", "sorted_indices", "units"),
    *("multiply", "external", "step_stride", "row_stride"),
)


@dataclass(frozen=True)
class Buffer:
    """Rows of `blocks` times the units (or, with `single`, of one number).

    A buffer that is needed `only_for` "backward" or "record" has one row per worker when it is not needed.
    """

    kind: str
    blocks: int = 1
    single: bool = False
    only_for: str = ""

    def width(self, units: int) -> int:
        return 1 if self.single else self.blocks * units


RecordedGate = tuple[str, str, int, int]  # a gate: name, buffer, first block, end


class Equation:
    """The equation of a cell, and what `scan.py` needs to know of it. Blocks are `units` wide.

    Vector n, a bias or the weight of a norm, is the buffer "vector n" of the forward loop. In the backward loop that is
    the sum of its gradient, unless `summed_gradients` has it; with `saves_vectors` its value is "forward vector n".
    """

    blocks = 1  # of the projected input
    num_states = 1  # 2 for h and c
    saved_buffers: ClassVar[dict[str, Buffer]]  # buffers of both loops, and of the sums over all steps
    forward_only: ClassVar[dict[str, Buffer]]
    backward_only: ClassVar[dict[str, Buffer]]
    # For each product, the blocks (first, end) of the recurrent matrix that it uses.
    weight_blocks: tuple[tuple[int, int], ...] = ((0, 1),)
    # For each product: the buffer with the gradient of its result, the first block in it, and the factor's buffer.
    weight_gradients: tuple[tuple[str, int, str], ...] = (("grad_gates", 0, "previous_h"),)
    vector_widths: tuple[int, ...] = ()  # in blocks, of the vectors beside the matrix
    saves_vectors = False
    # Vectors whose gradient is the sum of all packed rows: number → buffer, first block, end.
    summed_gradients: ClassVar[dict[int, tuple[str, int, int]]] = {}
    recorded_values: tuple[RecordedGate, ...] = ()

    def __init__(self, spec: CellSpec):
        self.phi, self.update_keeps = spec.activation, spec.update == "keeps"
        widths = dict(enumerate(self.vector_widths))
        vectors = {n: Buffer("vector", width) for n, width in widths.items()}
        self.buffers = {**self.saved_buffers, **self.forward_only, **{f"vector {n}": vectors[n] for n in vectors}}
        self.backward_buffers = {**self.saved_buffers, **self.backward_only}
        self.backward_buffers |= {
            f"vector {n}": Buffer("sum", width) for n, width in widths.items() if n not in self.summed_gradients
        }
        if self.saves_vectors:
            self.backward_buffers |= {f"forward vector {n}": vectors[n] for n in vectors}

    def forward(self, step: Step) -> None:
        raise NotImplementedError

    def backward(self, step: Step) -> None:
        raise NotImplementedError


def layout(buffers: dict[str, Buffer], num_weights: int) -> dict[str, int]:
    """Name → index in a worker's list of words. A buffer has two words: its address and the stride of its rows."""
    indices = {name: index for index, name in enumerate(HEADER)}
    for name in buffers:
        indices[name] = len(HEADER) + 2 * (len(indices) - len(HEADER))
    first_weight = len(HEADER) + 2 * len(buffers)
    return indices | {f"packed weight {number}": first_weight + number for number in range(num_weights)}


def compile_loop(equation: Equation, precision: str, backward: bool) -> CompiledFunction:
    """Compile the loop over all steps for one worker; `backward` means the gradient."""
    code, buffers = Code(precision), equation.backward_buffers if backward else equation.buffers
    indices = layout(buffers, len(equation.weight_blocks))
    with code.function("scan", 1) as (words,):
        values = {name: code.load_word(words, index) for name, index in indices.items()}
        row_strides = {name: code.load_word(words, indices[name] + 1) for name in buffers}
        with code.loop(0, values["steps"]) as count:
            last = values["steps"] - 1
            # The gradient runs from the last step of the scan to its first.
            towards_start = values["reverse"] < 1 if backward else values["reverse"] >= 1
            t = code.select(towards_start, last - count, count)
            start = code.load_word(values["step_offsets"], t)
            active = code.load_word(values["step_offsets"], t + 1) - start  # sequences that have this step
            rows = (active - values["worker"] + values["num_workers"] - 1) // values["num_workers"]
            with code.builder.if_then(rows >= 1):
                step = Step(code, buffers, values, row_strides, t, start, rows)
                (equation.backward if backward else equation.forward)(step)
    return code.build()["scan"]


@dataclass
class Step:
    """One step in time, for the sequences of one worker that have this step."""

    code: Code
    buffers: dict[str, Buffer]
    values: dict[str, Int]
    row_strides: dict[str, Int]
    time: Int
    first_row: Int
    num_rows: Int

    def __post_init__(self) -> None:
        self.units = self.values["units"]

    def address(self, name: str, row: Int | int) -> Int:
        """The address of a row of a buffer, counted among the rows of this worker."""
        buffer, code = self.buffers[name], self.code
        if buffer.kind == "vector":
            return self.values[name]
        index = self.values["worker"] + self.values["num_workers"] * row
        index = self.first_row + index if buffer.kind == "packed" else index
        return self.values[name] + index * self.row_strides[name] * code.size

    def product(
        self,
        left: str,
        weight: int,
        result: str,
        depth: int = 1,
        width: int = 1,
        left_block: int = 0,
        result_block: int = 0,
        overwrite: bool = False,
    ) -> None:
        """result += left · weight, for all rows; with `overwrite` result = left · weight. Sizes are in blocks.

        `weight` is the number of the weight among the equation's `weight_blocks`.
        """
        size, units, num_workers = self.code.size, self.units, self.values["num_workers"]
        address = self.address(result, 0) + units * (result_block * size)
        stride = self.row_strides[result] * num_workers
        self.code.call(
            self.values["multiply"],
            *(self.address(left, 0) + units * (left_block * size), self.row_strides[left] * num_workers),
            self.values[f"packed weight {weight}"],
            *(address, stride, self.num_rows, units * depth, units * width),
            *((0, 0) if overwrite else (address, stride)),
        )

    @contextmanager
    def rows(self) -> Iterator[Row]:
        with self.code.loop(0, self.num_rows) as row:
            yield Row(self, row)

    def each_unit(self) -> Iterator[LoopPosition]:
        """Generate a loop over all units of all rows."""
        with self.rows() as row:
            yield from row.each_unit()


class Row:
    """One row at one step."""

    def __init__(self, step: Step, index: Int):
        self.step, self.code = step, step.code
        self.addresses = {name: step.address(name, index) for name in step.buffers}
        values = step.values
        sequence = self.code.load_word(values["sorted_indices"], values["worker"] + values["num_workers"] * index)
        offset = step.time * values["step_stride"] + sequence * values["row_stride"]
        self.addresses["external"] = values["external"] + offset * self.code.size

    def each_unit(self) -> Iterator[LoopPosition]:
        """Generate a loop over all units of the row."""
        return (LoopPosition(self, unit) for unit in self.code.each_vector(self.step.units))

    def load_number(self, name: str) -> Vec:
        """The number of a `single` row, in every lane."""
        return self.code.broadcast(self.code.builder.load(self.code.pointer(self.addresses[name])))

    def store_number(self, name: str, value: Vec) -> None:
        first = self.code.builder.extract_element(value.value, self.code.as_int(0).value)
        self.code.builder.store(first, self.code.pointer(self.addresses[name]))


class LoopPosition:
    """A vector of units in a row. Block b of a buffer begins at unit b · units of its row."""

    def __init__(self, row: Row, unit: Int):
        self.row, self.unit, self.code = row, unit, row.code

    def load(self, name: str, block: int = 0) -> Vec:
        return self.code.load(self.row.addresses[name], self.unit + self.row.step.units * block)

    def store(self, value: Vec, name: str, block: int = 0) -> None:
        self.code.store(value, self.row.addresses[name], self.unit + self.row.step.units * block)

    def store_blocks(self, values: Sequence[Vec], name: str) -> None:
        """Store the values in the first blocks of a buffer."""
        for block, value in enumerate(values):
            self.store(value, name, block)

    def add(self, value: Vec, name: str, block: int = 0) -> None:
        self.store(self.load(name, block) + value, name, block)
