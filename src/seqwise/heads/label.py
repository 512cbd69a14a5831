"""The label head: the states of a sequence → one vector → a score per label. It knows nothing of the encoder.

A sequence of length 0 pools to zeros, so that its scores are the biases alone. K is the number of labels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.errors import UsageError, suggest
from seqwise.layers.attention import masked_softmax, sequence_mask
from seqwise.layers.initialise import xavier_
from seqwise.layers.record import record_value


class Pooling(nn.Module):
    """The base of all poolings: `forward` turns states (B, T, D) and lengths (B,) into one vector each, (B, D)."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width


class LastPooling(Pooling):
    """The state of the last step that each direction reads: the backward direction, the last `backward_width` entries,
    reads the first step last."""

    def __init__(self, width: int, backward_width: int = 0):
        super().__init__(width)
        self.backward_width = backward_width

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        last_step = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, states.shape[2])
        pooled = states.gather(1, last_step).squeeze(1)  # (B, D)
        if self.backward_width:
            forward_width = self.width - self.backward_width
            pooled = torch.cat([pooled[:, :forward_width], states[:, 0, forward_width:]], dim=-1)
        return pooled.masked_fill(lengths[:, None] == 0, 0.0)


class MeanPooling(Pooling):
    """The mean of the states of the valid steps."""

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        total = states.masked_fill(~sequence_mask(lengths, states.shape[1])[..., None], 0.0).sum(1)
        return total / lengths.clamp(min=1)[:, None].to(states.dtype)


class MaxPooling(Pooling):
    """The largest value of each entry over the valid steps."""

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        lowest = torch.finfo(states.dtype).min
        pooled = states.masked_fill(~sequence_mask(lengths, states.shape[1])[..., None], lowest).amax(1)
        return pooled.masked_fill(lengths[:, None] == 0, 0.0)


class AttentionPooling(Pooling):
    """A weighted mean with learned weights (Yang et al. 2016, eq. 5-7).

    u_t = tanh(W h_t + b),  a = softmax over t of (u_t · c),  s = sum of a_t h_t
    """

    def __init__(self, width: int):
        super().__init__(width)
        self.W = nn.Parameter(torch.empty(width, width))
        self.b = nn.Parameter(torch.zeros(width))
        self.c = nn.Parameter(torch.zeros(width))  # zeros: initially the plain mean
        xavier_(self.W)

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        u = torch.tanh(F.linear(states, self.W, self.b))
        weights = masked_softmax(u @ self.c, sequence_mask(lengths, states.shape[1]))  # (B, T)
        record_value(self, "weights", weights)
        return (weights[:, None] @ states).squeeze(1)


POOLINGS = {"last": LastPooling, "mean": MeanPooling, "max": MaxPooling, "attention": AttentionPooling}


def build_pooling(kind: str, width: int, backward_width: int = 0) -> Pooling:
    """Returns a pooling layer; the last `backward_width` entries of the states belong to the backward direction."""
    if kind not in POOLINGS:
        raise UsageError(f"there is no pooling {kind!r}.", fix=suggest(kind, POOLINGS))
    return LastPooling(width, backward_width) if kind == "last" else POOLINGS[kind](width)


class LabelHead(nn.Module):
    """Pooling, dropout, one linear layer.

    `weights` (K,) are the class weights of the loss; their mean over the training examples should be 1, so that the
    loss stays comparable.
    """

    weights: Tensor

    def __init__(self, pooling: Pooling, labels: int, dropout: float = 0.0, weights: Tensor | None = None):
        super().__init__()
        self.pooling, self.dropout = pooling, nn.Dropout(dropout)
        self.output = nn.Linear(pooling.width, labels)
        xavier_(self.output.weight)
        nn.init.zeros_(self.output.bias)
        self.register_buffer("weights", torch.ones(labels) if weights is None else weights.float(), persistent=False)

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Returns scores (B, K); their softmax is the probability of each label."""
        pooled = self.pooling(states, lengths)
        record_value(self, "pooled", pooled)
        scores = self.output(self.dropout(pooled))
        record_value(self, "scores", scores)
        return scores

    def losses(self, scores: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor:
        """Returns the negative log likelihood of each target (B,), times the weight of its label.

        With `smoothing` the target is 1 − smoothing on the true label, and the rest is uniform (Szegedy et al. 2016,
        section 7).
        """
        log_probabilities = scores.to(torch.promote_types(scores.dtype, torch.float32)).log_softmax(-1)
        target_log_probabilities = log_probabilities.gather(1, targets[:, None]).squeeze(1)
        smoothed = (1 - smoothing) * target_log_probabilities + smoothing * log_probabilities.mean(-1)
        return -smoothed * self.weights[targets]


def compute_balanced_weights(counts: Tensor) -> Tensor:
    """Returns class weights (K,) that make all labels count equally: N / (K · count). Their mean over examples is 1."""
    counts = counts.double()
    return (counts.sum() / (len(counts) * counts.clamp(min=1))).float()
