"""Three ways to divide an answer among the positions of an input. They know nothing of models, tokens or figures.

The answer is a number f(x) of the vectors x (T, D) of the input, in most tasks a log-probability. With a baseline b,
the contribution of position t is

    gradient × input         Σ_d x_td ∂f/∂x_td
    integrated gradients     Σ_d (x_td − b_td) ∫₀¹ ∂f(b + α (x − b))/∂x_td dα
    leave-one-out            f(x) − f(x with position t replaced)

Integrated gradients are complete (Sundararajan, Taly & Yan 2017, proposition 1): they sum to f(x) − f(b). The integral
is computed by Gauss–Legendre quadrature, with twice as many points until the sum is right to `TOLERANCE`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqwise.errors import UsageError

TOLERANCE = 0.01  # of the completeness error
MIN_POINTS, MAX_POINTS = 8, 512  # at which integrated gradients evaluate the gradient
NEGLIGIBLE = 1e-3  # a change of the answer below this share of Σ|contributions| is not used as a denominator

Score = Callable[[Tensor], Tensor]  # vectors (T, D) → the answer as a scalar


@dataclass(frozen=True)
class IntegratedGradients:
    """Contributions (T,) of integrated gradients and how exact they are."""

    contributions: np.ndarray
    num_points: int
    error: float  # |Σ contributions − (f(x) − f(b))| / |f(x) − f(b)|


def compute_gradient(score: Score, vectors: Tensor) -> Tensor:
    """Returns ∂f/∂x, of the shape of x."""
    with torch.enable_grad():
        leaf = vectors.detach().clone().requires_grad_()
        value = score(leaf)
        gradient = torch.autograd.grad(value, leaf, allow_unused=True)[0] if value.requires_grad else None
    if gradient is None:
        raise UsageError("the answer is not computed from the vectors of the input.")
    return gradient


def multiply_gradient_by_input(score: Score, vectors: Tensor) -> np.ndarray:
    """Returns the contributions (T,) by gradient × input."""
    return _sum_entries(vectors * compute_gradient(score, vectors))


def integrate_gradients(score: Score, vectors: Tensor, baseline: Tensor) -> IntegratedGradients:
    """Returns the contributions by integrated gradients, with as many points as their sum needs to be right."""
    with torch.no_grad():
        change = float(score(vectors)) - float(score(baseline))
    num_points = MIN_POINTS
    while True:
        contributions = _sum_entries((vectors - baseline) * _average_gradient(score, vectors, baseline, num_points))
        error = compute_completeness_error(contributions, change)
        if error <= TOLERANCE or num_points >= MAX_POINTS:
            return IntegratedGradients(contributions, num_points, error)
        num_points *= 2


def compute_completeness_error(contributions: np.ndarray, change: float) -> float:
    """Returns |Σ contributions − change| / |change|; where contributions cancel, relative to their size instead."""
    scale = max(abs(change), NEGLIGIBLE * float(np.abs(contributions).sum()))
    return abs(float(contributions.sum()) - change) / scale if scale else 0.0


def _average_gradient(score: Score, vectors: Tensor, baseline: Tensor, num_points: int) -> Tensor:
    """Returns the mean gradient on the straight line from the baseline to the vectors."""
    nodes, weights = np.polynomial.legendre.leggauss(num_points)  # on −1 … 1
    total = torch.zeros_like(vectors, dtype=torch.float64)
    for node, weight in zip((nodes + 1) / 2, weights / 2):
        total += float(weight) * compute_gradient(score, baseline + float(node) * (vectors - baseline)).double()
    return total


@torch.no_grad()
def leave_one_out(score: Score, vectors: Tensor, replacement: Tensor) -> np.ndarray:
    """Returns how much the answer falls (T,) when one position has the vector of `replacement` (T, D) instead."""
    full, contributions = float(score(vectors)), []
    for position in range(len(vectors)):
        changed = vectors.clone()
        changed[position] = replacement[position]
        contributions.append(full - float(score(changed)))
    return np.array(contributions)


def _sum_entries(products: Tensor) -> np.ndarray:
    return products.double().sum(-1).cpu().numpy()
