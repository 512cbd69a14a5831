"""Lines of decimal numbers → float32, compiled. It knows nothing of words' text, and leaves unusual lines to others.

A number of at most 15 digits or so, times a power of ten up to 22, is exact in float64 (Clinger 1990), so what comes
out equals Python's float() to the last bit. A line with anything else (longer numbers, nan, words with blanks, too few
numbers) is reported, and read with care elsewhere.
"""

from __future__ import annotations

import numpy as np

from seqwise.vectors.jit import cached_njit

BLANK, TAB, RETURN, PLUS, MINUS, POINT, ZERO = 32, 9, 13, 43, 45, 46, 48
LETTER_E, SMALL_E = 69, 101
EXACT = 1 << 53  # whole numbers below this are exact in float64
POWERS = 10.0 ** np.arange(23)


@cached_njit
def parse_lines(data, starts, stops, powers, out, word_ends, usual):  # pragma: no cover - compiled
    """Fill the rows of `out` from the lines data[start:stop]; tells where words end and which lines were `usual`."""
    for row in range(len(starts)):
        at, stop = starts[row], stops[row]
        while at < stop and data[at] != BLANK and data[at] != TAB:
            at += 1
        word_ends[row] = at
        usual[row] = _parse_numbers(data, at, stop, powers, out[row]) and at > starts[row]


@cached_njit
def _parse_numbers(data, at, stop, powers, out):  # pragma: no cover - compiled
    """Whether data[at:stop] is exactly len(out) plain numbers, which are then in `out`."""
    for column in range(len(out)):
        while at < stop and (data[at] == BLANK or data[at] == TAB):
            at += 1
        negative = at < stop and data[at] == MINUS
        if at < stop and (data[at] == MINUS or data[at] == PLUS):
            at += 1
        mantissa, digits, scale = np.int64(0), 0, 0
        pointed = False
        while at < stop:
            byte = data[at]
            if ZERO <= byte <= ZERO + 9:
                mantissa = mantissa * 10 + (byte - ZERO)
                digits += 1
                scale -= 1 if pointed else 0
            elif byte == POINT and not pointed:
                pointed = True
            else:
                break
            at += 1
            if mantissa >= EXACT:
                return False
        if digits == 0:
            return False
        if at < stop and (data[at] == SMALL_E or data[at] == LETTER_E):
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
        if at < stop and data[at] != BLANK and data[at] != TAB and data[at] != RETURN:
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
    while at < stop and (data[at] == BLANK or data[at] == TAB or data[at] == RETURN):
        at += 1
    return at == stop
