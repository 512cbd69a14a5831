"""Sigmoid, tanh and ReLU for compiled equations, and their derivatives computed from the value.

Errors are below 3e-7 (float) and 1e-15 (double) of the value, also near zero; a sigmoid of less than −87 (−708) is 0.
NaN stays NaN.
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir

from seqwise.kernels.recurrence.cpu.code import INT32, INT64, Code, Vec

# precision → terms of the series, smallest exponent, bits of the fraction, bias of the exponent, log 2 in two parts
EXP_CONSTANTS: dict[str, tuple[int, float, int, int, float, float]] = {
    "float": (7, -87.0, 23, 127, 0.693359375, -2.12194440054690583e-4),
    "double": (14, -708.0, 52, 1023, 0.693147180369123816490, 1.90821492927058770002e-10),
}


def exponential(code: Code, x: Vec) -> tuple[Vec, Vec]:
    """e^x and e^x − 1 for x ≤ 0, each without a difference of nearly equal numbers; 0 and −1 for x below `minimum`.

    e^x = 2^whole · e^rest with |rest| ≤ log(2) / 2 and the Taylor series of e^rest − 1.
    """
    terms, minimum, fraction, bias, log2_high, log2_low = EXP_CONSTANTS[code.precision]
    original, x = x, x.select_less(minimum, minimum, x)
    # Added to a large number, x / log 2 is rounded to whole numbers, and its last bits are that whole number.
    large = 1.5 * 2.0**fraction
    shifted = code.fma(x, 1 / math.log(2), large)
    whole = Vec(code, code.builder.fsub(shifted.value, code.real(large).value))
    rest = code.fma(whole, -log2_low, code.fma(whole, -log2_high, x))
    series = code.real(1 / math.factorial(terms))
    for n in range(terms - 1, 0, -1):
        series = code.fma(series, rest, 1 / math.factorial(n))
    part = series * rest  # e^rest − 1
    integers: Any = ir.VectorType(INT32 if code.precision == "float" else INT64, code.lanes)
    bits = code.builder.bitcast(shifted.value, integers)
    exponent = code.builder.add(bits, integers([bias] * code.lanes))
    power = Vec(code, code.builder.bitcast(code.builder.shl(exponent, integers([fraction] * code.lanes)), code.vector))
    return original.select_less(minimum, 0.0, code.fma(power, part, power)), code.fma(power, part, power - 1.0)


def sigmoid(code: Code, x: Vec) -> Vec:
    small, _ = exponential(code, 0.0 - code.abs(x))
    above = 1.0 / (small + 1.0)
    return x.select_less(0.0, small * above, above)


def tanh(code: Code, x: Vec) -> Vec:
    """(1 − e) / (1 + e) with e = e^−2|x|, and the sign of x."""
    _, less = exponential(code, code.abs(x) * -2.0)
    value = less / (less + 2.0)  # of −|x|
    return x.select_less(0.0, value, 0.0 - value)


def activation(code: Code, name: str, x: Vec) -> Vec:
    if name == "identity":
        return x
    if name == "relu":
        return x.select_less(0.0, 0.0, x)
    return {"tanh": tanh, "sigmoid": sigmoid}[name](code, x)


def derivative(code: Code, name: str, y: Vec) -> Vec:
    """The derivative of the activation whose value is y."""
    if name == "identity":
        return code.real(1.0)
    if name == "relu":
        return (0.0 - y).select_less(0.0, 1.0, 0.0)
    return 1.0 - y * y if name == "tanh" else y * (1.0 - y)
