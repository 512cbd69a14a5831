"""Compiled parser of lines of decimal numbers. It knows nothing of words, and leaves unusual lines to its caller.

A number of at most 15 digits or so, times a power of ten up to 22, is exact in float64 (Clinger 1990), so the
result equals Python's float() bit for bit. A line with anything else (longer numbers, nan, words with spaces, too few
numbers) is reported as not parsed.
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
    """Fills the rows of `out` from the lines data[start:stop], and sets where words end and which lines `is_parsed`."""
    for row in range(len(starts)):
        at, stop = starts[row], stops[row]
        while at < stop and data[at] != SPACE and data[at] != TAB:
            at += 1
        word_ends[row] = at
        is_parsed[row] = _parse_numbers(data, at, stop, powers, out[row]) and at > starts[row]


@cached_njit
def _parse_numbers(data, at, stop, powers, out):  # pragma: no cover - compiled
    """Returns whether data[at:stop] is exactly len(out) plain numbers, and writes them to `out`."""
    for column in range(len(out)):
        while at < stop and (data[at] == SPACE or data[at] == TAB):
            at += 1
        negative = at < stop and data[at] == MINUS
        if at < stop and (data[at] == MINUS or data[at] == PLUS):
            at += 1
        mantissa, digits, scale = np.int64(0), 0, 0
        has_point = False
        while at < stop:
            byte = data[at]
            if ZERO <= byte <= ZERO + 9:
                mantissa = mantissa * 10 + (byte - ZERO)
                digits += 1
                scale -= 1 if has_point else 0
            elif byte == POINT and not has_point:
                has_point = True
            else:
                break
            at += 1
            if mantissa >= MAX_EXACT:
                return False
        if digits == 0:
            return False
        if at < stop and (data[at] == LOWER_E or data[at] == UPPER_E):
            at += 1
            sign = 1
            if at < stop and (data[at] == MINUS or data[at] == PLUS):
                sign = -1 if data[at] == MINUS else 1
                at += 1
            exponent, first = 0, at
            while at < stop and ZERO <= data[at] <= ZERO + 9 and exponent < 1000:
                exponent = exponent * 10 + (data[at] - ZERO)
                at += 1
            if at == first:
                return False
            scale += sign * exponent
        if at < stop and data[at] != SPACE and data[at] != TAB and data[at] != RETURN:
            return False
        if mantissa == 0:
            value = 0.0
        elif -22 <= scale <= 0:
            value = mantissa / powers[-scale]
        elif 0 < scale <= 22:
            value = mantissa * powers[scale]
        else:
            return False
        out[column] = -value if negative else value
    while at < stop and (data[at] == SPACE or data[at] == TAB or data[at] == RETURN):
        at += 1
    return at == stop
