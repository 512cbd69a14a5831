"""What compiled loops share: numba's decorators, SIMD values of sixteen floats, and rows of floats for them.

Compiled code is cached on disk, in a folder named after a digest of all sources in `vectors`: numba checks only the
file in which a function is defined and does not notice a change in a function that it inlines from another module.

numba's automatic vectorisation depends on what LLVM can prove about loops and pointers; with SIMD values the loops are
vectorised explicitly, and LLVM maps them to the vector registers of the machine. Rows are float32, padded to a multiple
of `LANES`, each aligned to a cache line. Importing this module imports numba.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config as numba_config
from numba import njit, types
from numba.extending import intrinsic, models, register_model

from seqwise.environment import cache_folder

LANES = 16  # floats in one SIMD value
CACHE_LINE = 64  # bytes, which is also the size of one SIMD value
CHUNK_ROWS = 4096  # rows initialised or moved at once, which bounds the memory for temporary arrays

_SOURCES = b"\0".join(file.read_bytes() for file in sorted(Path(__file__).parent.rglob("*.py")))
_SOURCES_DIGEST = hashlib.blake2b(_SOURCES, digest_size=8).hexdigest()

# Marks a function that numba inlines into the compiled functions that call it.
inline_njit: Any = njit(inline="always", error_model="numpy")


def cached_njit(function: Callable | None = None, fastmath: bool = False) -> Any:
    """Compiles a function that releases the GIL; a decorator with or without arguments.

    With `fastmath` the compiler may reorder sums and assumes that no value is nan or inf. If the cache folder cannot be
    written, every process compiles again.
    """
    if function is None:
        return lambda function: cached_njit(function, fastmath)
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    # The loops allocate nothing, so they need no reference counts, which numba otherwise updates for every array that
    # an inlined function receives or that is taken out of a tuple: this made CBOW up to 25 % slower.
    options["_nrt"] = False
    config: Any = numba_config
    previous_folder = config.CACHE_DIR  # other users of numba in this process keep theirs
    try:
        config.CACHE_DIR = str(cache_folder() / "numba" / _SOURCES_DIGEST)
        return njit(cache=True, **options)(function)
    except (RuntimeError, OSError):  # the folder cannot be written
        return njit(**options)(function)
    finally:
        config.CACHE_DIR = previous_folder


def pad_width(width: int) -> int:
    """Returns the next multiple of `LANES`."""
    return -(-width // LANES) * LANES


def allocate_rows(rows: int, width: int) -> np.ndarray:
    """Returns zeros of shape (rows, padded width); each row starts at a cache line."""
    width = pad_width(width)
    buffer = np.zeros(rows * width + LANES, dtype=np.float32)
    start = (-buffer.ctypes.data // 4) % LANES
    return buffer[start : start + rows * width].reshape(rows, width)


def build_lane_masks() -> np.ndarray:
    """Returns a flat (17, 16) table: row n has n ones and then zeros, to mask the unused lanes of a SIMD value."""
    masks = allocate_rows(LANES + 1, LANES)
    masks[:] = np.tri(LANES + 1, LANES, -1)
    return masks.reshape(-1)


def fill_uniform(rows: np.ndarray, random: np.random.Generator) -> None:
    """Fills rows (N, D) with uniform values in ±1/2 divided by D, the initialisation of word2vec and GloVe."""
    for start in range(0, len(rows), CHUNK_ROWS):
        part = rows[start : start + CHUNK_ROWS]
        part[:] = (random.random(part.shape, dtype=np.float32) - 0.5) / rows.shape[1]


def remove_padding(matrix: np.ndarray, width: int) -> np.ndarray:
    """Returns the first `width` columns as a contiguous matrix in the same memory; overwrites `matrix`."""
    rows, flat = len(matrix), matrix.reshape(-1)
    for start in range(0, rows if width < matrix.shape[1] else 0, CHUNK_ROWS):
        part = matrix[start : start + CHUNK_ROWS, :width].copy()
        flat[start * width : start * width + part.size] = part.reshape(-1)
    return flat[: rows * width].reshape(rows, width)


_INT32 = ir.IntType(32)
_FLOATS, _INTEGERS = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(_INT32, LANES)


class _Lanes(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Lanes")


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind) -> None:
        super().__init__(manager, kind, _FLOATS)


lanes = _Lanes()


def _instruction(result: types.Type, *kinds: types.Type | None) -> Callable[[Callable], Any]:
    """Declares a function of compiled loops; the decorated function emits its LLVM instructions.

    `kinds` are the types of its arguments, None for an array, of which the emitter receives a pointer to the data.
    """

    def declare(emit: Callable) -> Any:
        def define(typing_context, *arguments):
            return result(*(kind or argument for kind, argument in zip(kinds, arguments))), generate

        def generate(context, builder, signature, values):
            pairs = zip(kinds, signature.args, values)
            values = [
                value if kind else context.make_array(argument)(context, builder, value).data
                for kind, argument, value in pairs
            ]
            value = emit(builder, *values)
            return context.get_dummy_value() if result is types.void else value

        # numba requires a fixed number of parameters, the first of which is the typing context.
        names = ["typing_context", *(f"argument_{number}" for number in range(len(kinds)))]
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        define.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return intrinsic(define)

    return declare


def _emit_pointer(builder, array, index):
    return builder.bitcast(builder.gep(array, [index]), _FLOATS.as_pointer())


@_instruction(lanes, None, types.intp)
def load(builder, array, index):
    """Returns array[index : index + 16]; the index must be a multiple of 16."""
    value = builder.load(_emit_pointer(builder, array, index))
    value.align = CACHE_LINE
    return value


@_instruction(types.void, None, types.intp, lanes)
def store(builder, array, index, value):
    """Sets array[index : index + 16] = value."""
    builder.store(value, _emit_pointer(builder, array, index)).align = CACHE_LINE


@_instruction(types.void, None, types.intp)
def prefetch(builder, array, index):
    """Starts to load the cache line of array[index], which is needed soon."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _INT32, _INT32, _INT32])
    function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
    pointer = builder.bitcast(_emit_pointer(builder, array, index), byte)
    builder.call(function, [pointer, _INT32(1), _INT32(3), _INT32(1)])  # for writing, highest locality, data cache


@_instruction(lanes, types.float32)
def broadcast(builder, value):
    """Returns the same float in every lane."""
    undefined = ir.Constant(_FLOATS, ir.Undefined)
    first = builder.insert_element(undefined, value, _INT32(0))
    return builder.shuffle_vector(first, undefined, ir.Constant(_INTEGERS, [0] * LANES))


@_instruction(lanes, lanes)
def power_of_two(builder, whole):
    """Returns 2 to the power of whole numbers between −126 and 127, by setting the exponent bits of a float."""
    exponent = builder.add(builder.fptosi(whole, _INTEGERS), _INTEGERS([127] * LANES))
    return builder.bitcast(builder.shl(exponent, _INTEGERS([23] * LANES)), _FLOATS)


@_instruction(lanes, lanes, lanes, lanes)
def select_negative(builder, value, below, otherwise):
    """Returns `below` where value < 0, else `otherwise`."""
    zero = ir.Constant(_FLOATS, [0.0] * LANES)
    return builder.select(builder.fcmp_ordered("<", value, zero), below, otherwise)


def _declare_arithmetic(name):
    """Declares an LLVM instruction on two values, lane by lane."""
    return _instruction(lanes, lanes, lanes)(lambda builder, left, right: getattr(builder, name)(left, right))


def _declare_function(name, count):
    """Declares a vector function of LLVM with `count` arguments."""

    @_instruction(lanes, *[lanes] * count)
    def function(builder, *arguments):
        full_name = f"llvm.{name}.v{LANES}f32"
        kind = ir.FunctionType(_FLOATS, [_FLOATS] * count)
        return builder.call(
            builder.module.globals.get(full_name) or ir.Function(builder.module, kind, full_name), arguments
        )

    return function


def _declare_reduction(emit_operation):
    """Declares a function that combines the lanes: two halves are combined until one lane is left."""

    @_instruction(types.float32, lanes)
    def reduction(builder, part):
        for width in (8, 4, 2, 1):
            undefined, indices = ir.Constant(part.type, ir.Undefined), ir.VectorType(_INT32, width)
            low = builder.shuffle_vector(part, undefined, ir.Constant(indices, list(range(width))))
            high = builder.shuffle_vector(part, undefined, ir.Constant(indices, list(range(width, 2 * width))))
            part = emit_operation(builder, low, high)
        return builder.extract_element(part, _INT32(0))

    return reduction


add, subtract, multiply, divide = map(_declare_arithmetic, ("fadd", "fsub", "fmul", "fdiv"))
maximum = _declare_function("maxnum", 2)
absolute, floor = _declare_function("fabs", 1), _declare_function("floor", 1)
fma = _declare_function("fmuladd", 3)  # x · y + z, one instruction where the machine has one
lane_sum = _declare_reduction(lambda builder, low, high: builder.fadd(low, high))
lane_max = _declare_reduction(
    lambda builder, low, high: builder.select(builder.fcmp_ordered(">", low, high), low, high)
)


@inline_njit
def constant(value):
    """Returns a Python number in every lane."""
    return broadcast(np.float32(value))


@inline_njit
def exponential(x):
    """Returns e^x for x ≤ 0 with a relative error below 3e-7; below −87 it returns e^−87, which is 1.6e-38.

    2^whole · e^rest with the Taylor series of e^rest, |rest| ≤ log(2) / 2.
    """
    x = maximum(x, constant(-87.0))
    whole = floor(fma(x, constant(1.4426950408889634), constant(0.5)))
    rest = fma(whole, constant(-0.6931471805599453), x)
    series = constant(1 / 5040)
    series = fma(series, rest, constant(1 / 720))
    series = fma(series, rest, constant(1 / 120))
    series = fma(series, rest, constant(1 / 24))
    series = fma(series, rest, constant(1 / 6))
    series = fma(series, rest, constant(1 / 2))
    series = fma(series, rest, constant(1.0))
    series = fma(series, rest, constant(1.0))
    return multiply(series, power_of_two(whole))


@inline_njit
def sigmoid(x, exp):
    """Returns 1 / (1 + e^−x), given exp = e^−|x|; no difference of nearly equal numbers is taken."""
    one = constant(1.0)
    return divide(select_negative(x, exp, one), add(one, exp))


@inline_njit
def log1p(x):
    """Returns log(1 + x) for 0 ≤ x ≤ 1 with an absolute error below 2e-7.

    With u = x / (2 + x) ≤ 1/3 it is 2 (u + u³/3 + u⁵/5 + …).
    """
    u = divide(x, add(x, constant(2.0)))
    square = multiply(u, u)
    series = constant(2 / 13)
    series = fma(series, square, constant(2 / 11))
    series = fma(series, square, constant(2 / 9))
    series = fma(series, square, constant(2 / 7))
    series = fma(series, square, constant(2 / 5))
    series = fma(series, square, constant(2 / 3))
    series = fma(series, square, constant(2.0))
    return multiply(u, series)
