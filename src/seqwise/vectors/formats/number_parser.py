"""A compiled parser of lines with a word and decimal numbers. It leaves unusual lines to its caller.

A number of at most 15 digits or so, times a power of ten with an exponent up to 22, is exact in float64 (Clinger 1990),
so the result equals Python's float() bit for bit. A line with anything else (longer numbers, nan, words with spaces,
too few numbers) is reported as not parsed.
"""

from __future__ import annotations

import numpy as np

from seqwise.vectors.jit import cached_njit

SPACE, TAB, RETURN, PLUS, MINUS, POINT, ZERO = 32, 9, 13, 43, 45, 46, 48
UPPER_E, LOWER_E = 69, 101
MAX_EXACT = 1 << 53  # whole numbers below this are exact in float64
POWERS = 10.0 ** np.arange(23)


@cached_njit
def parse_lines(data, starts, stops, powers, out, word_ends, is_parsed):  # pragma: no cover - compiled
    """Fills the rows of `out` from the lines data[start:stop]; sets `word_ends` and `is_parsed` for each line."""
    for row in range(len(starts)):
        position, stop = starts[row], stops[row]
        while position < stop and data[position] != SPACE and data[position] != TAB:
            position += 1
        word_ends[row] = position
        is_parsed[row] = _parse_numbers(data, position, stop, powers, out[row]) and position > starts[row]


@cached_njit
def _parse_numbers(data, position, stop, powers, out):  # pragma: no cover - compiled
    """Returns whether data[position:stop] is exactly len(out) plain numbers, and writes them to `out`."""
    for column in range(len(out)):
        while position < stop and (data[position] == SPACE or data[position] == TAB):
            position += 1
        is_negative = position < stop and data[position] == MINUS
        if position < stop and (data[position] == MINUS or data[position] == PLUS):
            position += 1
        mantissa, digits, scale = np.int64(0), 0, 0  # the number is mantissa · 10^scale
        has_point = False
        while position < stop:
            byte = data[position]
            if ZERO <= byte <= ZERO + 9:
                mantissa = mantissa * 10 + (byte - ZERO)
                digits += 1
                scale -= 1 if has_point else 0
            elif byte == POINT and not has_point:
                has_point = True
            else:
                break
            position += 1
            if mantissa >= MAX_EXACT:
                return False
        if digits == 0:
            return False
        if position < stop and (data[position] == LOWER_E or data[position] == UPPER_E):
            position += 1
            sign = 1
            if position < stop and (data[position] == MINUS or data[position] == PLUS):
                sign = -1 if data[position] == MINUS else 1
                position += 1
            exponent, exponent_start = 0, position
            while position < stop and ZERO <= data[position] <= ZERO + 9 and exponent < 1000:
                exponent = exponent * 10 + (data[position] - ZERO)
                position += 1
            if position == exponent_start:
                return False
            scale += sign * exponent
        if position < stop and data[position] != SPACE and data[position] != TAB and data[position] != RETURN:
            return False
        if mantissa == 0:
            value = 0.0
        elif -22 <= scale <= 0:
            value = mantissa / powers[-scale]
        elif 0 < scale <= 22:
            value = mantissa * powers[scale]
        else:
            return False
        out[column] = -value if is_negative else value
    while position < stop and (data[position] == SPACE or data[position] == TAB or data[position] == RETURN):
        position += 1
    return position == stop
