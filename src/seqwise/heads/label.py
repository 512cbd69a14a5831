"""The label head: the states of a sequence → one vector → a score per label. It knows nothing of what made the states.

A row of length 0 pools to zeros, so that its scores are the biases alone.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.errors import UsageError, nearest
from seqwise.heads.steps import valid_steps
from seqwise.layers.attention import masked_softmax
from seqwise.layers.initialise import xavier_
from seqwise.layers.record import record_value


class LastPooling(nn.Module):
    """The state after the last step; of the last `backwards` entries, which read from the end, that at the first."""

    def __init__(self, width: int, backwards: int = 0):
        super().__init__()
        self.width, self.backwards = width, backwards

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        last = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, states.shape[2])
        pooled = states.gather(1, last).squeeze(1)  # (B, D)
        if self.backwards:
            ahead = self.width - self.backwards
            pooled = torch.cat([pooled[:, :ahead], states[:, 0, ahead:]], dim=-1)
        return pooled.masked_fill(lengths[:, None] == 0, 0.0)


class MeanPooling(nn.Module):
    """The mean of the states of the real steps."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        total = states.masked_fill(~valid_steps(states, lengths)[..., None], 0.0).sum(1)
        return total / lengths.clamp(min=1)[:, None].to(states.dtype)


class MaxPooling(nn.Module):
    """The largest value of each entry over the real steps."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        lowest = torch.finfo(states.dtype).min
        pooled = states.masked_fill(~valid_steps(states, lengths)[..., None], lowest).amax(1)
        return pooled.masked_fill(lengths[:, None] == 0, 0.0)


class AttentionPooling(nn.Module):
    """A mean whose weights are learned (Yang et al. 2016, eq. 5-7).

    u_t = tanh(W h_t + b),  a = softmax over t of (u_t · c),  s = sum of a_t h_t
    """

    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.W = nn.Parameter(torch.empty(width, width))
        self.b = nn.Parameter(torch.zeros(width))
        self.c = nn.Parameter(torch.zeros(width))  # of zeros: it begins as the plain mean
        xavier_(self.W)

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        u = torch.tanh(F.linear(states, self.W, self.b))
        weights = masked_softmax(u @ self.c, valid_steps(states, lengths))  # (B, T)
        record_value(self, "weights", weights)
        return (weights[:, None] @ states).squeeze(1)


POOLINGS: dict[str, type[nn.Module]] = {
    "last": LastPooling,
    "mean": MeanPooling,
    "max": MaxPooling,
    "attention": AttentionPooling,
}


def build_pooling(kind: str, width: int, backwards: int = 0) -> nn.Module:
    """The pooling of a name; `backwards` entries of the states were read from the end."""
    if kind not in POOLINGS:
        raise UsageError(f"there is no pooling {kind!r}.", repair=nearest(kind, POOLINGS))
    return LastPooling(width, backwards) if kind == "last" else POOLINGS[kind](width)


class Label(nn.Module):
    """Pooling, dropout, one linear layer.

    `weights` (K,) says how much an example of each label counts in the loss; their mean over the training examples
    should be 1, so that the loss stays comparable.
    """

    weights: Tensor

    def __init__(self, pooling: nn.Module, labels: int, dropout: float = 0.0, weights: Tensor | None = None):
        super().__init__()
        width: int = pooling.width  # type: ignore[assignment]
        self.pooling, self.dropout = pooling, nn.Dropout(dropout)
        self.output = nn.Linear(width, labels)
        xavier_(self.output.weight)
        nn.init.zeros_(self.output.bias)
        self.register_buffer("weights", torch.ones(labels) if weights is None else weights.float(), persistent=False)

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Scores (B, K); their softmax is the probability of each label."""
        pooled = self.pooling(states, lengths)
        record_value(self, "pooled", pooled)
        scores = self.output(self.dropout(pooled))
        record_value(self, "scores", scores)
        return scores

    def losses(self, scores: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Negative log likelihood of each target (B,), times the weight of its label.

        With `smoothing` the target is 1 − smoothing on the true label, and the rest spread over all alike
        (Szegedy et al. 2016, section 7).
        """
        logs = scores.to(torch.promote_types(scores.dtype, torch.float32)).log_softmax(-1)
        true = logs.gather(1, targets[:, None]).squeeze(1)
        return -((1 - smoothing) * true + smoothing * logs.mean(-1)) * self.weights[targets]


def balanced(counts: Tensor) -> Tensor:
    """Weights (K,) by which all labels weigh alike: N / (K · count). Their mean over the examples is 1."""
    counts = counts.double()
    return (counts.sum() / (len(counts) * counts.clamp(min=1))).float()
