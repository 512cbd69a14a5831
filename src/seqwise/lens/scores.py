"""One attention weight, computed step by step from its query and its key. It knows nothing of figures.

score = q·k / √K              Transformer, attention over past states (Vaswani et al. 2017, eq. 1)
score = q·k, q·W k            Luong et al. 2015, eq. 8
score = v·tanh(W q + U k)     Bahdanau et al. 2015, appendix A.1.2
weight = exp(score) / Σ exp(score of each key that the query may attend to)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from seqwise.errors import UsageError
from seqwise.layers.attention import Additive, General, masked_softmax
from seqwise.lens.attention_layers import AttentionLayer
from seqwise.lens.subject import Subject

UNDERFLOW = -80.0  # a score so far below the largest one has weight 0 in 32 bits without being masked


@dataclass(frozen=True)
class QueryKeyPair:
    """A query, a key, and the row of scores and weights to which they belong. Arrays are over keys or dimensions."""

    query: int
    key: int
    equation: str  # of the score before scaling: "q·k", "q·W k", "v·tanh(W q + U k)"
    operands: dict[str, np.ndarray]  # the two vectors that are compared
    terms: np.ndarray  # whose sum is the score before scaling
    scale: float  # by which the sum is multiplied
    scores: np.ndarray  # (S,)
    is_allowed: np.ndarray  # (S,): False where the mask forbids the key
    weights: np.ndarray  # (S,), computed here
    recorded: np.ndarray  # (S,), as the model computed them

    def to_dict(self) -> dict[str, Any]:
        """Returns the numbers of the pair, and of its row."""
        product = float(self.terms.sum())
        return {
            "query": self.query, "key": self.key, "product": product, "scale": self.scale,
            "score": float(self.scores[self.key]), "is_allowed": bool(self.is_allowed[self.key]),
            "weight": float(self.weights[self.key]), "recorded": float(self.recorded[self.key]),
            "terms": self.terms, "scores": self.scores, "weights": self.weights,
        }  # fmt: skip


def compute_pair(subject: Subject, layer: AttentionLayer, head: int, query: int, key: int) -> QueryKeyPair:
    """Runs the model once more and computes a weight from the recorded query and keys of a head."""
    names = {layer.get_name(value): value for value in ("queries", "keys", "weights")}
    recording = subject.record(
        layer.get_name("*"), transform=lambda name, value: select_head(value, head) if name in names else None
    )
    values = {value: recording[name] for name, value in names.items() if name in recording}
    if len(values) < len(names):
        problem = f"{layer.label} has one learned query for all inputs, not one per token."
        raise UsageError(problem, fix="Leave out query and key.")
    values = {name: layer.order_steps(value, *([0, 1] if name == "weights" else [0])) for name, value in values.items()}
    q, keys, recorded = values["queries"][query], values["keys"], values["weights"][query]
    with torch.no_grad():
        equation, operands, terms, scale = compute_terms(layer, q, keys)
        scores = terms.sum(-1) * scale
    is_allowed = find_allowed(scores, recorded)
    weights = masked_softmax(scores, is_allowed)
    return QueryKeyPair(
        query,
        key,
        equation,
        {name: (vector if vector.dim() == 1 else vector[key]).numpy() for name, vector in operands.items()},
        terms[key].numpy(),
        scale,
        *(row.numpy() for row in (scores, is_allowed, weights, recorded)),
    )


def select_head(value: Tensor, head: int) -> Tensor:
    """Returns the values (T, ·) of one head, for the first sequence of a batch."""
    value = value[0]
    return (value if value.dim() == 2 else value[head]).double().cpu()


def compute_terms(layer: AttentionLayer, query: Tensor, keys: Tensor) -> tuple[str, dict[str, Tensor], Tensor, float]:
    """Returns the equation, the vectors compared, the terms (S, K) whose sum is the product, and its factor.

    The keys that a decoder records are already projected: W k or U k.
    """
    score = getattr(layer.module, "score", None)
    if isinstance(score, Additive):
        W, v = score.W.detach().double().cpu(), score.v.detach().double().cpu()
        projected = F.linear(query, W)
        return "v·tanh(W q + U k)", {"W q": projected, "U k": keys}, torch.tanh(projected + keys) * v, 1.0
    if score is not None:
        name = "W k" if isinstance(score, General) else "k"
        return f"q·{name}", {"q": query, name: keys}, query * keys, 1.0
    return "q·k", {"q": query, "k": keys}, query * keys, len(query) ** -0.5


def find_allowed(scores: Tensor, recorded: Tensor) -> Tensor:
    """Returns the keys (S,) that the mask allows: those with a weight, or with a score too low to have one."""
    has_weight = recorded > 0
    if not has_weight.any():
        return has_weight
    return has_weight | (scores - scores[has_weight].max() < UNDERFLOW)
