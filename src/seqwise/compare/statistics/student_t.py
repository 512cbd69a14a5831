"""Student's t distribution, for estimates whose variance was itself estimated from few values.

Degrees of freedom may be fractions. This module knows nothing of seeds, examples or families.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

# Each with the degrees of freedom of its estimate.
VarianceComponents = Sequence[tuple[float, float]]

_TINY = 1e-300  # keeps the continued fraction from dividing by zero
_MIN_NORMAL_DEGREES = 1e6  # degrees of freedom from which t and the normal distribution agree to six digits


def compute_two_sided_p(t: float, degrees_of_freedom: float) -> float:
    """Returns the probability that |T| is at least |t|."""
    if math.isinf(t):
        return 0.0
    if degrees_of_freedom > _MIN_NORMAL_DEGREES:
        return math.erfc(abs(t) / math.sqrt(2))
    x = degrees_of_freedom / (degrees_of_freedom + t * t)
    return _compute_incomplete_beta(x, degrees_of_freedom / 2, 0.5)


def compute_t_quantile(confidence: float, degrees_of_freedom: float) -> float:
    """Returns the t with P(|T| ≤ t) = confidence: 1.96 for 95 % and many degrees of freedom, 4.30 for two."""
    return compute_weighted_quantile(confidence, [(1.0, degrees_of_freedom)])


def compute_weighted_p(t: float, components: VarianceComponents) -> float:
    """Returns the two-sided p of an estimate whose variance is a sum of components.

    It is the mean of the p-values with the degrees of freedom of each component, weighted by their variances, after
    Cochran & Cox (1950), who weight the quantiles. The single degrees of freedom of Welch and Satterthwaite are
    themselves estimated from the variances: where a component with two degrees of freedom comes out small by chance,
    they grow as if the component did not matter.

    In 150,000 simulations of normal values, for two families with seeds as noisy as each other or one ten times as
    steady, and from no noise of seeds to a hundred times the variance of 200 examples: with three or five seeds this
    has at most 1.1 times the nominal rate of false alarms at p < 0.05, 0.01, 0.005 and 0.001, Welch–Satterthwaite up to
    1.6, 3.5, 5 and 16 times. With two seeds, whose variance has one degree of freedom, it has up to 1.6 times the rate
    at p < 0.05 and 3.6 times at p < 0.005. Where the components are alike the test is conservative.
    """
    total = sum(variance for variance, _ in components)
    return sum(variance * compute_two_sided_p(t, degrees) for variance, degrees in components) / total


def compute_weighted_quantile(confidence: float, components: VarianceComponents) -> float:
    """Returns the t with `compute_weighted_p(t, components)` = 1 − confidence, by bisection."""
    p = 1 - confidence
    high = 1.0
    while compute_weighted_p(high, components) > p:
        high *= 2
    low = 0.0
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (middle, high) if compute_weighted_p(middle, components) > p else (low, middle)
    return (low + high) / 2


def _compute_incomplete_beta(x: float, a: float, b: float) -> float:
    """Returns the regularised incomplete beta function I_x(a, b) (DLMF 8.17)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # beyond this the fraction converges slowly, and its mirror image fast
        return 1 - _compute_incomplete_beta(1 - x, b, a)
    log_factor = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_factor) * _evaluate_continued_fraction(x, a, b) / a


def _evaluate_continued_fraction(x: float, a: float, b: float) -> float:
    """Evaluates 1 / (1 + d1 / (1 + d2 / (1 + …))) with the d of DLMF 8.17.22 by Lentz's method."""
    numerator, denominator, value = 1.0, 0.0, 1.0
    for number in range(10_000):
        half = number // 2
        if number == 0:
            term = 1.0
        elif number % 2 == 0:
            term = half * (b - half) * x / ((a + number - 1) * (a + number))
        else:
            term = -(a + half) * (a + b + half) * x / ((a + number - 1) * (a + number))
        denominator = 1 / (1 + term * denominator or _TINY)
        numerator = 1 + term / numerator or _TINY
        value *= numerator * denominator
        if number and abs(numerator * denominator - 1) < 1e-15:
            break
    return value - 1
