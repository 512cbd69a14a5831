"""Attention and Transformer layers in plain Python floats and loops, for comparison "by hand".

Rows of vectors are lists of lists. A weight is (outputs, inputs). Nothing here uses PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Callable

Vectors = list[list[float]]


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def linear(x: Vectors, weight: Vectors, bias: list[float] | None = None) -> Vectors:
    return [[dot(row, vector) + (bias[i] if bias else 0.0) for i, row in enumerate(weight)] for vector in x]


def add(a: Vectors, b: Vectors) -> Vectors:
    return [[x + y for x, y in zip(p, q, strict=True)] for p, q in zip(a, b, strict=True)]


def softmax(scores: list[float]) -> list[float]:
    total = sum(math.exp(score) for score in scores)
    return [math.exp(score) / total for score in scores]


def log_softmax(scores: list[float]) -> list[float]:
    return [math.log(p) for p in softmax(scores)]


def norm(x: Vectors, weight: list[float], bias: list[float]) -> Vectors:
    rows = []
    for vector in x:
        mean = sum(vector) / len(vector)
        root = math.sqrt(sum((v - mean) ** 2 for v in vector) / len(vector) + 1e-5)
        rows.append([w * (v - mean) / root + b for v, w, b in zip(vector, weight, bias, strict=True)])
    return rows


def relu(x: float) -> float:
    return max(x, 0.0)


def gelu(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def attend(q: Vectors, k: Vectors, v: Vectors, score: Callable, causal: bool = False) -> Vectors:
    context = []
    for t, query in enumerate(q):
        visible = range(t + 1 if causal else len(k))
        weights = softmax([score(query, k[s]) for s in visible])
        context.append([sum(w * v[s][i] for w, s in zip(weights, visible, strict=True)) for i in range(len(v[0]))])
    return context


def rotate(x: Vectors) -> Vectors:
    """Applies rotary positions: pair (2i, 2i+1) of the vector at t is rotated by t · 10000^(-2i/K)."""
    rows = []
    for t, vector in enumerate(x):
        row = []
        for i in range(0, len(vector), 2):
            angle = t * 10000 ** (-i / len(vector))
            a, b = vector[i : i + 2]
            row += [a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)]
        rows.append(row)
    return rows
