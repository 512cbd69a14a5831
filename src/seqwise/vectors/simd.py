"""SIMD values of sixteen floats for compiled loops. LLVM maps them to the vector registers of the machine.

numba's automatic vectorisation depends on what LLVM can prove about loops and pointers; with these operations the
loops are vectorised explicitly. Rows are flat float32 arrays, aligned to 64 bytes, whose width is a multiple of `LANES`
(`aligned_rows`). Importing this module imports numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

from seqwise.vectors.aligned_rows import CACHE_LINE, LANES
from seqwise.vectors.jit import inline_njit


def instruction(function: Callable) -> Any:
    """Declares a function that emits LLVM instructions.

    numba passes the first argument itself, which type checkers do not know; hence the untyped result.
    """
    return intrinsic(function)


_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_INTEGERS = ir.VectorType(ir.IntType(32), LANES)
_INT32 = ir.IntType(32)


class _Lanes(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Lanes")


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind) -> None:
        super().__init__(manager, kind, _FLOATS)


lanes = _Lanes()


def _emit_pointer(context, builder, signature, arguments):
    """Emits a pointer to the sixteen floats at array[index]."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.bitcast(builder.gep(array.data, [arguments[1]]), _FLOATS.as_pointer())


@instruction
def load(typing_context, array, index):
    """Returns array[index : index + 16]; the index must be a multiple of 16."""

    def emit(context, builder, signature, arguments):
        value = builder.load(_emit_pointer(context, builder, signature, arguments))
        value.align = CACHE_LINE
        return value

    return lanes(array, types.intp), emit


@instruction
def store(typing_context, array, index, value):
    """Sets array[index : index + 16] = value."""

    def emit(context, builder, signature, arguments):
        builder.store(arguments[2], _emit_pointer(context, builder, signature, arguments)).align = CACHE_LINE
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), emit


@instruction
def prefetch(typing_context, array, index):
    """Starts to load the cache line of array[index], which is needed soon."""

    def emit(context, builder, signature, arguments):
        byte = ir.IntType(8).as_pointer()
        pointer = builder.bitcast(_emit_pointer(context, builder, signature, arguments), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, _INT32, _INT32, _INT32])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        builder.call(function, [pointer, _INT32(1), _INT32(3), _INT32(1)])  # for writing, highest locality, data cache
        return context.get_dummy_value()

    return types.void(array, types.intp), emit


@instruction
def broadcast(typing_context, value):
    """Returns the same float in every lane."""

    def emit(context, builder, signature, arguments):
        empty = ir.Constant(_FLOATS, ir.Undefined)
        first = builder.insert_element(empty, arguments[0], _INT32(0))
        return builder.shuffle_vector(first, empty, ir.Constant(_INTEGERS, [0] * LANES))

    return lanes(types.float32), emit


def _declare_reduction(emit_operation):
    """Declares a function that combines the lanes: two halves are combined until one lane is left."""

    @instruction
    def reduction(typing_context, value):
        def emit(context, builder, signature, arguments):
            part, width = arguments[0], LANES
            while width > 1:
                width //= 2
                undefined, indices = ir.Constant(part.type, ir.Undefined), ir.VectorType(_INT32, width)
                low = builder.shuffle_vector(part, undefined, ir.Constant(indices, list(range(width))))
                high = builder.shuffle_vector(part, undefined, ir.Constant(indices, list(range(width, 2 * width))))
                part = emit_operation(builder, low, high)
            return builder.extract_element(part, _INT32(0))

        return types.float32(lanes), emit

    return reduction


def _emit_larger(builder, left, right):
    return builder.select(builder.fcmp_ordered(">", left, right), left, right)


lane_sum = _declare_reduction(lambda builder, left, right: builder.fadd(left, right))
lane_max = _declare_reduction(_emit_larger)


def _declare_arithmetic(name):
    """Declares an LLVM instruction on two values, lane by lane."""

    @instruction
    def operation(typing_context, left, right):
        def emit(context, builder, signature, arguments):
            return getattr(builder, name)(*arguments)

        return lanes(lanes, lanes), emit

    return operation


def _declare_function(name, count):
    """Declares a vector function of LLVM with `count` arguments; numba needs a signature of fixed length."""

    def emit(context, builder, signature, arguments):
        full = f"llvm.{name}.v{LANES}f32"
        kind = ir.FunctionType(_FLOATS, [_FLOATS] * count)
        function = builder.module.globals.get(full) or ir.Function(builder.module, kind, full)
        return builder.call(function, arguments)

    def unary(typing_context, x):
        return lanes(lanes), emit

    def binary(typing_context, x, y):
        return lanes(lanes, lanes), emit

    def ternary(typing_context, x, y, z):
        return lanes(lanes, lanes, lanes), emit

    return instruction((unary, binary, ternary)[count - 1])


add, subtract, multiply, divide = map(_declare_arithmetic, ("fadd", "fsub", "fmul", "fdiv"))
maximum = _declare_function("maxnum", 2)
absolute, floor = _declare_function("fabs", 1), _declare_function("floor", 1)
fma = _declare_function("fmuladd", 3)  # x · y + z, one instruction where the machine has one


@instruction
def power_of_two(typing_context, whole):
    """Returns 2 to the power of whole numbers between −126 and 127, by setting the exponent bits of a float."""

    def emit(context, builder, signature, arguments):
        number = builder.fptosi(arguments[0], _INTEGERS)
        shift_cosines = builder.shl(builder.add(number, _INTEGERS([127] * LANES)), _INTEGERS([23] * LANES))
        return builder.bitcast(shift_cosines, _FLOATS)

    return lanes(lanes), emit


@instruction
def select_negative(typing_context, value, below, otherwise):
    """Returns `below` where value < 0, else `otherwise`."""

    def emit(context, builder, signature, arguments):
        value, below, otherwise = arguments
        zero = ir.Constant(_FLOATS, [0.0] * LANES)
        return builder.select(builder.fcmp_ordered("<", value, zero), below, otherwise)

    return lanes(lanes, lanes, lanes), emit


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
