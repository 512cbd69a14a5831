"""Polynomials in the lengths and the width of a model: how a cost grows.

    M  length of the source, or of the only sequence
    N  length of the target
    k  width of the model

A coefficient includes the model's own width; the power of k says how it changes if all layers become wider together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Powers = tuple[int, int, int]  # of M, N and k
SUPERSCRIPTS = ("", "", "²", "³", "⁴")


@dataclass(frozen=True)
class Polynomial:
    """A sum of terms; powers of (M, N, k) → coefficient."""

    terms: Mapping[Powers, float]

    def __add__(self, other: Polynomial | float) -> Polynomial:
        terms = dict(self.terms)
        for powers, value in to_polynomial(other).terms.items():
            terms[powers] = terms.get(powers, 0.0) + value
        return Polynomial({powers: value for powers, value in terms.items() if value})

    __radd__ = __add__

    def __mul__(self, other: Polynomial | float) -> Polynomial:
        result = ZERO
        for (m, n, k), value in self.terms.items():
            for (m2, n2, k2), value2 in to_polynomial(other).terms.items():
                result = result + Polynomial({(m + m2, n + n2, k + k2): value * value2})
        return result

    __rmul__ = __mul__

    def evaluate(self, source: float, target: float, scale: float = 1.0) -> float:
        """Returns the value at M = source and N = target, with all widths multiplied by `scale`."""
        return sum(value * source**m * target**n * scale**k for (m, n, k), value in self.terms.items())

    def select(self, degree: int) -> Polynomial:
        """Returns the terms whose powers of M and N sum to `degree`."""
        return Polynomial({powers: value for powers, value in self.terms.items() if powers[0] + powers[1] == degree})

    def format(self, width: int) -> str:
        """Returns the formula, such as "24·M·k² + 4·M²·k"; the coefficients are divided by the powers of the width."""
        if not self.terms:
            return "0"
        ordered = sorted(self.terms.items(), key=lambda item: (item[0][0] + item[0][1], item[0]))
        text = " + ".join(_format_term(powers, value / width ** powers[2]) for powers, value in ordered)
        return text.replace("+ -", "− ")


def _format_term(powers: Powers, coefficient: float) -> str:
    number = (
        f"{coefficient:,.0f}" if abs(coefficient) >= 1000 or coefficient == int(coefficient) else f"{coefficient:.3g}"
    )
    symbols = [f"{symbol}{SUPERSCRIPTS[power]}" for symbol, power in zip("MNk", powers) if power]
    return "·".join([number, *symbols] if number != "1" or not symbols else symbols)


def to_polynomial(value: Polynomial | float) -> Polynomial:
    """Returns a number as a constant polynomial."""
    return value if isinstance(value, Polynomial) else Polynomial({(0, 0, 0): value} if value else {})


ZERO = Polynomial({})
M, N = Polynomial({(1, 0, 0): 1.0}), Polynomial({(0, 1, 0): 1.0})


def build_term(coefficient: float, power: int) -> Polynomial:
    """Returns a number, of weights or of values, that grows with this power of the width; with power 0, a constant."""
    return Polynomial({(0, 0, power): float(coefficient)} if coefficient else {})
