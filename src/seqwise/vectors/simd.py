"""Sixteen floats as one value in compiled loops. The compiler maps it to whatever vector registers the machine has.

numba's own vectorisation depends on what it can prove about loops and pointers; these loops say what they mean instead.
Rows are flat float32 arrays whose width is a multiple of `LANES` and whose memory begins at a multiple of 64 bytes
(`rows`). Importing this imports numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, register_model

from seqwise.vectors.compiled import inlined
from seqwise.vectors.rows import LANES, LINE


def instruction(function: Callable) -> Any:
    """A function that writes LLVM instructions. The compiler gives its first argument, which confuses type checkers."""
    return intrinsic(function)


_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_INTEGERS = ir.VectorType(ir.IntType(32), LANES)
_NUMBER = ir.IntType(32)


class _Lanes(types.Type):
    def __init__(self) -> None:
        super().__init__(name="Lanes")


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind) -> None:
        super().__init__(manager, kind, _FLOATS)


lanes = _Lanes()


def _address(context, builder, signature, arguments):
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.bitcast(builder.gep(array.data, [arguments[1]]), _FLOATS.as_pointer())


@instruction
def load(typing_context, array, place):
    """array[place : place + 16]; the place must be a multiple of 16."""

    def emit(context, builder, signature, arguments):
        value = builder.load(_address(context, builder, signature, arguments))
        value.align = LINE
        return value

    return lanes(array, types.intp), emit


@instruction
def store(typing_context, array, place, value):
    """array[place : place + 16] = value"""

    def emit(context, builder, signature, arguments):
        builder.store(arguments[2], _address(context, builder, signature, arguments)).align = LINE
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), emit


@instruction
def fetch(typing_context, array, place):
    """Ask memory for the line that holds array[place], which will be wanted soon."""

    def emit(context, builder, signature, arguments):
        byte = ir.IntType(8).as_pointer()
        pointer = builder.bitcast(_address(context, builder, signature, arguments), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, _NUMBER, _NUMBER, _NUMBER])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        builder.call(function, [pointer, _NUMBER(1), _NUMBER(3), _NUMBER(1)])  # to write, keep close, data
        return context.get_dummy_value()

    return types.void(array, types.intp), emit


@instruction
def spread(typing_context, value):
    """The same float in every lane."""

    def emit(context, builder, signature, arguments):
        empty = ir.Constant(_FLOATS, ir.Undefined)
        first = builder.insert_element(empty, arguments[0], _NUMBER(0))
        return builder.shuffle_vector(first, empty, ir.Constant(_INTEGERS, [0] * LANES))

    return lanes(types.float32), emit


@instruction
def total(typing_context, value):
    """The sum of the lanes: halves are added until one is left."""

    def emit(context, builder, signature, arguments):
        part, width = arguments[0], LANES
        while width > 1:
            width //= 2
            nothing, kind = ir.Constant(part.type, ir.Undefined), ir.VectorType(_NUMBER, width)
            low = builder.shuffle_vector(part, nothing, ir.Constant(kind, list(range(width))))
            high = builder.shuffle_vector(part, nothing, ir.Constant(kind, list(range(width, 2 * width))))
            part = builder.fadd(low, high)
        return builder.extract_element(part, _NUMBER(0))

    return types.float32(lanes), emit


def _arithmetic(name):
    """An instruction on two values, lane by lane."""

    @instruction
    def operation(typing_context, left, right):
        def emit(context, builder, signature, arguments):
            return getattr(builder, name)(*arguments)

        return lanes(lanes, lanes), emit

    return operation


def _function(name, count):
    """A function that LLVM knows for vectors of floats."""

    def call(builder, arguments):
        full = f"llvm.{name}.v{LANES}f32"
        kind = ir.FunctionType(_FLOATS, [_FLOATS] * count)
        function = builder.module.globals.get(full) or ir.Function(builder.module, kind, full)
        return builder.call(function, arguments)

    if count == 1:

        @instruction
        def operation(typing_context, x):
            return lanes(lanes), lambda context, builder, signature, arguments: call(builder, arguments)

    elif count == 2:

        @instruction
        def operation(typing_context, x, y):
            return lanes(lanes, lanes), lambda context, builder, signature, arguments: call(builder, arguments)

    else:

        @instruction
        def operation(typing_context, x, y, z):
            return lanes(lanes, lanes, lanes), lambda context, builder, signature, arguments: call(builder, arguments)

    return operation


add, subtract, multiply, divide = map(_arithmetic, ("fadd", "fsub", "fmul", "fdiv"))
larger, smaller = _function("maxnum", 2), _function("minnum", 2)
magnitude, floor = _function("fabs", 1), _function("floor", 1)
fma = _function("fmuladd", 3)  # x · y + z, in one instruction where the machine has one


@instruction
def power_of_two(typing_context, whole):
    """2 to the power of whole numbers between −126 and 127, by writing the exponent of a float."""

    def emit(context, builder, signature, arguments):
        number = builder.fptosi(arguments[0], _INTEGERS)
        shifted = builder.shl(builder.add(number, _INTEGERS([127] * LANES)), _INTEGERS([23] * LANES))
        return builder.bitcast(shifted, _FLOATS)

    return lanes(lanes), emit


@instruction
def select_negative(typing_context, value, below, otherwise):
    """`below` where value < 0, else `otherwise`."""

    def emit(context, builder, signature, arguments):
        value, below, otherwise = arguments
        zero = ir.Constant(_FLOATS, [0.0] * LANES)
        return builder.select(builder.fcmp_ordered("<", value, zero), below, otherwise)

    return lanes(lanes, lanes, lanes), emit


@inlined
def constant(value):
    return spread(np.float32(value))


@inlined
def exponential(x):
    """e to the power of x ≤ 0, relative error below 3e-7; below −87 it stays at e^−87, which is 1.6e-38.

    2^whole · e^rest with the Taylor series of e^rest, |rest| ≤ log(2) / 2.
    """
    x = larger(x, constant(-87.0))
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


@inlined
def sigmoid(x, small):
    """1 / (1 + e^−x), given small = e^−|x|: no difference of nearly equal numbers is taken."""
    one = constant(1.0)
    return divide(select_negative(x, small, one), add(one, small))


@inlined
def log_one_plus(small):
    """log(1 + e) for 0 ≤ e ≤ 1, absolute error below 2e-7.

    With u = e / (2 + e) ≤ 1/3 it is 2 (u + u³/3 + u⁵/5 + …).
    """
    u = divide(small, add(small, constant(2.0)))
    square = multiply(u, u)
    series = constant(2 / 13)
    series = fma(series, square, constant(2 / 11))
    series = fma(series, square, constant(2 / 9))
    series = fma(series, square, constant(2 / 7))
    series = fma(series, square, constant(2 / 5))
    series = fma(series, square, constant(2 / 3))
    series = fma(series, square, constant(2.0))
    return multiply(u, series)
