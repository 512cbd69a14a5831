"""Generates the loop over time of one cell, forward or backward. It knows nothing of the cells' equations.

The steps of a batch are packed rows: step 0 of all sequences, longest first, then step 1 of the sequences that have
one, and so on, without padding. Each worker (thread) computes some of the sequences for all steps and never waits for
another. Nothing is summed across sequences here, so no result depends on the number of workers.

`Step`, `Row` and `LoopPosition` turn names of buffers into addresses. The kinds of buffers are:

    packed       one row per valid step: gates, values saved for the gradient
    state        one row per sequence: the current state
    sum          one row per sequence, zero before the first step: a sum over its steps
    parameter    one row for all: a bias, the weight of a norm

The generated function takes the address of a list of 64-bit integers; `index_arguments` says what each of them is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from seqwise.kernels.recurrence.cell_spec import CellSpec
from seqwise.kernels.recurrence.cpu.code import Code, CompiledFunction, Int, Vec

# The first integers of a worker's list. `matmul` is the address of the compiled matrix product; `outputs` that of the
# outputs (forward) or of their gradients (backward), with the strides `step_stride` and `sequence_stride`. A worker
# computes every sequence whose index in the order by length is `worker` modulo `num_workers`.
HEADER = (
    *("steps", "worker", "num_workers", "reverse", "step_offsets", "sorted_indices", "units"),
    *("matmul", "outputs", "step_stride", "sequence_stride"),
)


@dataclass(frozen=True)
class Buffer:
    """What is known of a buffer when the loop is compiled: the kind of its rows, and their width.

    Rows have `blocks` times the units or, with `is_single`, one number. A buffer that is needed `only_for` "backward"
    or "record" has one row per worker when it is not needed.
    """

    kind: str
    blocks: int = 1
    is_single: bool = False
    only_for: str = ""

    def get_width(self, units: int) -> int:
        """Returns the width of a row in numbers."""
        return 1 if self.is_single else self.blocks * units


RecordedActivation = tuple[str, str, int, int]  # name, buffer, first block, end


class Equation:
    """The equation of a cell, and what `scan.py` needs to know of it. Blocks are `units` wide.

    The n-th vector parameter, a bias or the weight of a norm, is the buffer "parameter n" of the forward loop. In the
    backward loop that buffer is the sum of its gradient, unless the parameter is in `summed_gradients`; with
    `saves_parameters` its value is "forward parameter n".
    """

    blocks = 1  # of the projected input
    num_states = 1  # 2 for h and c
    saved_buffers: ClassVar[dict[str, Buffer]]  # buffers of both loops, and of the sums over all steps
    forward_only: ClassVar[dict[str, Buffer]]  # the other buffers of the forward loop
    backward_only: ClassVar[dict[str, Buffer]]
    # For each product, the blocks (first, end) of the recurrent weight that it uses.
    weight_blocks: tuple[tuple[int, int], ...] = ((0, 1),)
    # For each product: the buffer with the gradient of its result, the first block in it, and the factor's buffer.
    weight_gradients: tuple[tuple[str, int, str], ...] = (("grad_gates", 0, "previous_h"),)
    parameter_widths: tuple[int, ...] = ()  # of the vector parameters, in blocks
    saves_parameters = False
    # Vector parameters whose gradient is the sum of all packed rows: index → buffer, first block, end.
    summed_gradients: ClassVar[dict[int, tuple[str, int, int]]] = {}
    recorded_activations: tuple[RecordedActivation, ...] = ()

    def __init__(self, spec: CellSpec):
        self.activation, self.update_keeps = spec.activation, spec.update == "keeps"
        widths = dict(enumerate(self.parameter_widths))
        parameters = {n: Buffer("parameter", width) for n, width in widths.items()}
        self.forward_buffers = {**self.saved_buffers, **self.forward_only}
        self.forward_buffers |= {f"parameter {n}": buffer for n, buffer in parameters.items()}
        self.backward_buffers = {**self.saved_buffers, **self.backward_only}
        self.backward_buffers |= {
            f"parameter {n}": Buffer("sum", width) for n, width in widths.items() if n not in self.summed_gradients
        }
        if self.saves_parameters:
            self.backward_buffers |= {f"forward parameter {n}": buffer for n, buffer in parameters.items()}

    def forward(self, step: Step) -> None:
        """Generates one step of the forward loop."""
        raise NotImplementedError

    def backward(self, step: Step) -> None:
        """Generates one step of the backward loop."""
        raise NotImplementedError


def index_arguments(buffers: dict[str, Buffer], num_weights: int) -> dict[str, int]:
    """Returns the index of each name in a worker's list. A buffer has two integers: its address, then the stride of its
    rows."""
    indices = {name: index for index, name in enumerate(HEADER)}
    for name in buffers:
        indices[name] = len(HEADER) + 2 * (len(indices) - len(HEADER))
    first_weight = len(HEADER) + 2 * len(buffers)
    return indices | {f"packed weight {n}": first_weight + n for n in range(num_weights)}


def compile_loop(equation: Equation, precision: str, is_backward: bool) -> CompiledFunction:
    """Compiles the loop of the forward or backward pass over all steps, for one worker."""
    code, buffers = Code(precision), equation.backward_buffers if is_backward else equation.forward_buffers
    indices = index_arguments(buffers, len(equation.weight_blocks))
    with code.function("scan", 1) as (arguments,):
        values = {name: code.load_int(arguments, index) for name, index in indices.items()}
        row_strides = {name: code.load_int(arguments, indices[name] + 1) for name in buffers}
        with code.loop(0, values["steps"]) as iteration:
            last_step = values["steps"] - 1
            # The backward loop runs from the last step of the scan to its first.
            is_descending = values["reverse"] < 1 if is_backward else values["reverse"] >= 1
            t = code.select(is_descending, last_step - iteration, iteration)
            first_row = code.load_int(values["step_offsets"], t)
            num_active = code.load_int(values["step_offsets"], t + 1) - first_row  # sequences that have this step
            num_rows = (num_active - values["worker"] + values["num_workers"] - 1) // values["num_workers"]
            with code.builder.if_then(num_rows >= 1):
                step = Step(code, buffers, values, row_strides, t, first_row, num_rows)
                (equation.backward if is_backward else equation.forward)(step)
    return code.build()["scan"]


@dataclass
class Step:
    """One step in time, for the sequences of one worker that have this step."""

    code: Code
    buffers: dict[str, Buffer]
    values: dict[str, Int]  # the integers of the worker's list, by name
    row_strides: dict[str, Int]  # of each buffer
    time: Int
    first_row: Int  # of the step, among all packed rows
    num_rows: Int  # of this worker

    def __post_init__(self) -> None:
        self.units = self.values["units"]

    def get_address(self, name: str, row: Int | int) -> Int:
        """Returns the address of a row of a buffer, counted among the rows of this worker."""
        buffer, code = self.buffers[name], self.code
        if buffer.kind == "parameter":
            return self.values[name]
        index = self.values["worker"] + self.values["num_workers"] * row
        index = self.first_row + index if buffer.kind == "packed" else index
        return self.values[name] + index * self.row_strides[name] * code.size

    def multiply(
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
        """Computes result += left · weight for all rows; with `overwrite` result = left · weight. Sizes are in blocks.

        `weight` is the index of the weight among the equation's `weight_blocks`.
        """
        size, units, num_workers = self.code.size, self.units, self.values["num_workers"]
        address = self.get_address(result, 0) + units * (result_block * size)
        stride = self.row_strides[result] * num_workers
        self.code.call(
            self.values["matmul"],
            *(self.get_address(left, 0) + units * (left_block * size), self.row_strides[left] * num_workers),
            self.values[f"packed weight {weight}"],
            *(address, stride, self.num_rows, units * depth, units * width),
            *((0, 0) if overwrite else (address, stride)),
        )

    @contextmanager
    def loop_over_rows(self) -> Iterator[Row]:
        """Generates a loop over all rows."""
        with self.code.loop(0, self.num_rows) as row:
            yield Row(self, row)

    def loop_over_units(self) -> Iterator[LoopPosition]:
        """Generates a loop over all units of all rows."""
        with self.loop_over_rows() as row:
            yield from row.loop_over_units()


class Row:
    """The row of one sequence at one step, in every buffer."""

    def __init__(self, step: Step, index: Int):
        self.step, self.code = step, step.code
        self.addresses = {name: step.get_address(name, index) for name in step.buffers}
        values = step.values
        sequence = self.code.load_int(values["sorted_indices"], values["worker"] + values["num_workers"] * index)
        offset = step.time * values["step_stride"] + sequence * values["sequence_stride"]
        outputs_address = values["outputs"] + offset * self.code.size
        self.addresses |= {"outputs": outputs_address, "grad_outputs": outputs_address}  # forward, backward

    def loop_over_units(self) -> Iterator[LoopPosition]:
        """Generates a loop over all units of the row."""
        return (LoopPosition(self, unit) for unit in self.code.loop_over_vectors(self.step.units))

    def load_number(self, name: str) -> Vec:
        """Loads the number of an `is_single` buffer into every lane."""
        return self.code.broadcast(self.code.builder.load(self.code.compute_pointer(self.addresses[name])))

    def store_number(self, name: str, value: Vec) -> None:
        """Stores the first lane in an `is_single` buffer."""
        number = self.code.builder.extract_element(value.value, self.code.as_int(0).value)
        self.code.builder.store(number, self.code.compute_pointer(self.addresses[name]))


class LoopPosition:
    """A vector of units in a row, where the generated loop stands. Block b of a buffer begins at unit b · units."""

    def __init__(self, row: Row, unit: Int):
        self.row, self.unit, self.code = row, unit, row.code

    def load(self, name: str, block: int = 0) -> Vec:
        """Loads the units from a block of a buffer."""
        return self.code.load(self.row.addresses[name], self.unit + self.row.step.units * block)

    def store(self, value: Vec, name: str, block: int = 0) -> None:
        """Stores the units in a block of a buffer."""
        self.code.store(value, self.row.addresses[name], self.unit + self.row.step.units * block)

    def store_blocks(self, values: Sequence[Vec], name: str) -> None:
        """Stores the values in the first blocks of a buffer."""
        for block, value in enumerate(values):
            self.store(value, name, block)

    def add(self, value: Vec, name: str, block: int = 0) -> None:
        """Adds to the units in a block of a buffer."""
        self.store(self.load(name, block) + value, name, block)
