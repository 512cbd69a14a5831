"""numba's decorators for the compiled loops, SIMD values of sixteen floats, and rows of floats for them.

Compiled code is cached on disk, in a folder named after a digest of all sources in `vectors`: numba checks only the
file in which a function is defined and does not notice a change in a function that it inlines from another module.
Each file of the cache has a digest: a damaged one is compiled again, where numba would fail or execute it.

numba's automatic vectorisation depends on what LLVM can prove about loops and pointers; with SIMD values the loops are
vectorised explicitly, and LLVM maps them to the vector registers of the machine. Rows are float32, padded to a multiple
of `LANES`, each aligned to a cache line. Importing this module imports numba.
"""

from __future__ import annotations

import hashlib
import inspect
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config as numba_config
from numba import njit, types
from numba.core.caching import IndexDataCacheFile
from numba.extending import intrinsic, models, register_model

from seqwise.digests import DIGEST_BYTES, compute_digest
from seqwise.environment import get_cache_folder

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
    # The loops allocate nothing, so they need no reference counts. numba would update them for every array that an
    # inlined function receives or that is taken out of a tuple, which made CBOW up to 25 % slower.
    options["_nrt"] = False
    config: Any = numba_config
    previous_folder = config.CACHE_DIR  # restored below for other users of numba in this process
    try:
        config.CACHE_DIR = str(get_cache_folder() / "numba" / _SOURCES_DIGEST)
        compiled = njit(cache=True, **options)(function)
        compiled._cache._cache_file.__class__ = _CheckedCacheFile
        return compiled
    except (RuntimeError, OSError):  # the folder cannot be written
        return njit(**options)(function)
    finally:
        config.CACHE_DIR = previous_folder


class _CheckedCacheFile(IndexDataCacheFile):
    """numba's files of one function, an index and the compiled code, each with a digest at its end.

    numba stops reading before the digest. A damaged file counts as missing, so the function is compiled again.
    """

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        with super()._open_for_write(filepath) as file:
            buffer = io.BytesIO()
            yield buffer
            file.write(buffer.getvalue() + compute_digest(buffer.getvalue()).encode())

    def _load_index(self) -> dict[Any, str]:
        return super()._load_index() if _is_intact(Path(self._index_path)) else {}

    def _load_data(self, name: str) -> Any:
        if not _is_intact(Path(self._data_path(name))):
            raise FileNotFoundError(name)
        return super()._load_data(name)


def _is_intact(path: Path) -> bool:
    if not path.exists():
        return False
    content = path.read_bytes()
    size = len(content) - 2 * DIGEST_BYTES
    return size > 0 and compute_digest(content[:size]).encode() == content[size:]


def pad_width(width: int) -> int:
    """Returns the next multiple of `LANES`."""
    return -(-width // LANES) * LANES


def allocate_rows(num_rows: int, width: int) -> np.ndarray:
    """Returns zeros of shape (num_rows, padded width); each row starts at a cache line."""
    width = pad_width(width)
    buffer = np.zeros(num_rows * width + LANES, dtype=np.float32)
    start = (-buffer.ctypes.data // 4) % LANES
    return buffer[start : start + num_rows * width].reshape(num_rows, width)


def build_lane_masks() -> np.ndarray:
    """Returns a flat (17, 16) table: row n has n ones and then zeros, to mask the unused lanes of a SIMD value."""
    masks = allocate_rows(LANES + 1, LANES)
    masks[:] = np.tri(LANES + 1, LANES, -1)
    return masks.reshape(-1)


def fill_uniform(rows: np.ndarray, random: np.random.Generator) -> None:
    """Fills rows (N, D) with uniform values in ±1/2 divided by D, the initialisation of word2vec and GloVe."""
    for start in range(0, len(rows), CHUNK_ROWS):
        chunk = rows[start : start + CHUNK_ROWS]
        chunk[:] = (random.random(chunk.shape, dtype=np.float32) - 0.5) / rows.shape[1]


def remove_padding(matrix: np.ndarray, width: int) -> np.ndarray:
    """Returns the first `width` columns as a contiguous matrix in the same memory; overwrites `matrix`."""
    num_rows, flat = len(matrix), matrix.reshape(-1)
    for start in range(0, num_rows if width < matrix.shape[1] else 0, CHUNK_ROWS):
        chunk = matrix[start : start + CHUNK_ROWS, :width].copy()
        flat[start * width : start * width + chunk.size] = chunk.reshape(-1)
    return flat[: num_rows * width].reshape(num_rows, width)


_INT32 = ir.IntType(32)
_FLOATS, _INTEGERS = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(_INT32, LANES)


class _Lanes(types.Type):
    """numba's type of a SIMD value."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, lanes_type) -> None:
        super().__init__(manager, lanes_type, _FLOATS)


lanes = _Lanes()


def _declare_instruction(result_type: types.Type, *argument_types: types.Type | None) -> Callable[[Callable], Any]:
    """Returns a decorator that declares a function for compiled loops; the decorated function emits its LLVM code.

    An argument type is None for an array; the emitter receives a pointer to its data.
    """

    def declare(emit: Callable) -> Any:
        def define(typing_context, *arguments):
            types_of_call = (declared or received for declared, received in zip(argument_types, arguments))
            return result_type(*types_of_call), generate

        def generate(context, builder, signature, values):
            values = [
                value if declared else context.make_array(array_type)(context, builder, value).data
                for declared, array_type, value in zip(argument_types, signature.args, values)
            ]
            value = emit(builder, *values)
            return context.get_dummy_value() if result_type is types.void else value

        # numba requires a fixed number of parameters, the first of which is the typing context.
        names = ["typing_context", *(f"argument_{index}" for index in range(len(argument_types)))]
        parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        define.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return intrinsic(define)

    return declare


def _emit_pointer(builder, array, index):
    """Returns a pointer to the SIMD value at array[index]."""
    return builder.bitcast(builder.gep(array, [index]), _FLOATS.as_pointer())


@_declare_instruction(lanes, None, types.intp)
def load(builder, array, index):
    """Returns array[index : index + 16]; the index must be a multiple of 16."""
    value = builder.load(_emit_pointer(builder, array, index))
    value.align = CACHE_LINE
    return value


@_declare_instruction(types.void, None, types.intp, lanes)
def store(builder, array, index, value):
    """Sets array[index : index + 16] = value."""
    builder.store(value, _emit_pointer(builder, array, index)).align = CACHE_LINE


@_declare_instruction(types.void, None, types.intp)
def prefetch(builder, array, index):
    """Starts to load the cache line of array[index], which is needed soon."""
    byte = ir.IntType(8).as_pointer()
    function_type = ir.FunctionType(ir.VoidType(), [byte, _INT32, _INT32, _INT32])
    function = builder.module.declare_intrinsic("llvm.prefetch", [byte], function_type)
    pointer = builder.bitcast(_emit_pointer(builder, array, index), byte)
    builder.call(function, [pointer, _INT32(1), _INT32(3), _INT32(1)])  # for writing, highest locality, data cache


@_declare_instruction(lanes, types.float32)
def broadcast(builder, value):
    """Returns the same float in every lane."""
    undefined = ir.Constant(_FLOATS, ir.Undefined)
    lane_0 = builder.insert_element(undefined, value, _INT32(0))
    return builder.shuffle_vector(lane_0, undefined, ir.Constant(_INTEGERS, [0] * LANES))


@_declare_instruction(lanes, lanes)
def power_of_two(builder, whole):
    """Returns 2 to the power of whole numbers between −126 and 127, by setting the exponent bits of a float."""
    exponent = builder.add(builder.fptosi(whole, _INTEGERS), _INTEGERS([127] * LANES))
    return builder.bitcast(builder.shl(exponent, _INTEGERS([23] * LANES)), _FLOATS)


@_declare_instruction(lanes, lanes, lanes, lanes)
def select_negative(builder, value, below, otherwise):
    """Returns `below` where value < 0, else `otherwise`."""
    zero = ir.Constant(_FLOATS, [0.0] * LANES)
    return builder.select(builder.fcmp_ordered("<", value, zero), below, otherwise)


def _declare_arithmetic(name):
    """Declares an LLVM instruction on two values, lane by lane."""
    return _declare_instruction(lanes, lanes, lanes)(lambda builder, left, right: getattr(builder, name)(left, right))


def _declare_function(name, num_arguments):
    """Declares a vector function of LLVM, such as "floor"."""

    @_declare_instruction(lanes, *[lanes] * num_arguments)
    def function(builder, *arguments):
        full_name = f"llvm.{name}.v{LANES}f32"
        function_type = ir.FunctionType(_FLOATS, [_FLOATS] * num_arguments)
        existing = builder.module.globals.get(full_name)
        return builder.call(existing or ir.Function(builder.module, function_type, full_name), arguments)

    return function


def _declare_reduction(emit_operation):
    """Declares a function that combines the lanes: two halves are combined until one lane is left."""

    @_declare_instruction(types.float32, lanes)
    def reduction(builder, value):
        for width in (8, 4, 2, 1):
            undefined, indices = ir.Constant(value.type, ir.Undefined), ir.VectorType(_INT32, width)
            low = builder.shuffle_vector(value, undefined, ir.Constant(indices, list(range(width))))
            high = builder.shuffle_vector(value, undefined, ir.Constant(indices, list(range(width, 2 * width))))
            value = emit_operation(builder, low, high)
        return builder.extract_element(value, _INT32(0))

    return reduction


add, subtract, multiply, divide = map(_declare_arithmetic, ("fadd", "fsub", "fmul", "fdiv"))
maximum = _declare_function("maxnum", 2)
absolute, floor = _declare_function("fabs", 1), _declare_function("floor", 1)
fma = _declare_function("fmuladd", 3)  # x · y + z, one instruction where the machine has one
sum_lanes = _declare_reduction(lambda builder, low, high: builder.fadd(low, high))
max_lanes = _declare_reduction(
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
