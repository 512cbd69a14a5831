"""States → scores of tags, one per position: independent, or as a whole sequence (linear-chain CRF).

A head knows nothing of what its tags mean. `decoding/viterbi.py` finds the best sequence, by `scores` and `links`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.heads.steps import valid_steps
from seqwise.layers.initialise import xavier_
from seqwise.layers.record import record_value

Links = tuple[Tensor, Tensor, Tensor]  # from tag to tag (K, K), as the first tag (K,), as the last (K,)


class IndependentTags(nn.Module):
    """P(y | x) = Π_t softmax(W h_t + b)[y_t]: each tag for itself."""

    def __init__(self, width: int, tags: int):
        super().__init__()
        self.output = nn.Linear(width, tags)
        xavier_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def scores(self, vectors: Tensor) -> Tensor:
        """States (B, T, D) → scores (B, T, K) in at least single precision."""
        scores = self.output(vectors)
        scores = scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores
        record_value(self, "scores", scores)
        return scores

    def losses(self, vectors: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """-log P of the tags (B, T) of each row, (B,)."""
        scores = self.scores(vectors)
        each = F.cross_entropy(scores.flatten(0, 1), tags.flatten(), reduction="none").view_as(tags)
        return each.masked_fill(~valid_steps(tags, lengths), 0.0).sum(dim=1)

    def links(self) -> Links:
        """What the tags before and behind add to a score: nothing."""
        zero = self.output.bias.new_zeros(self.output.out_features, dtype=torch.float32)
        return zero.expand(len(zero), -1), zero, zero


class LinearChain(IndependentTags):
    """P(y | x) = exp s(x, y) / Z(x): the sequence as a whole (Lafferty et al. 2001; Lample et al. 2016, section 2.2).

    s(x, y) = begin[y_1] + Σ_t scores[t, y_t] + Σ_t links[y_{t-1}, y_t] + end[y_T]
    Z(x)    = Σ over all sequences y of exp s(x, y)
    """

    def __init__(self, width: int, tags: int):
        super().__init__(width, tags)
        self.link = nn.Parameter(torch.zeros(tags, tags))
        self.begin = nn.Parameter(torch.zeros(tags))
        self.end = nn.Parameter(torch.zeros(tags))

    def losses(self, vectors: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """log Z(x) - s(x, y) of each row, (B,)."""
        scores = self.scores(vectors)
        return log_partition(scores, lengths, self.links()) - path_score(scores, tags, lengths, self.links())

    def links(self) -> Links:
        return self.link, self.begin, self.end


def path_score(scores: Tensor, tags: Tensor, lengths: Tensor, links: Links) -> Tensor:
    """s(x, y) of each row, (B,)."""
    link, begin, end = links
    real = valid_steps(tags, lengths)
    at = scores.gather(2, tags[..., None]).squeeze(2).masked_fill(~real, 0.0)
    steps = link[tags[:, :-1], tags[:, 1:]].masked_fill(~real[:, 1:], 0.0)
    last = tags.gather(1, (lengths - 1)[:, None]).squeeze(1)
    return begin[tags[:, 0]] + at.sum(dim=1) + steps.sum(dim=1) + end[last]


def log_partition(scores: Tensor, lengths: Tensor, links: Links) -> Tensor:
    """log Z(x) of each row, (B,): the forward algorithm, in logarithms, so that nothing over- or underflows.

    α_1[j] = begin[j] + scores[1, j]
    α_t[j] = scores[t, j] + log Σ_i exp(α_{t-1}[i] + link[i, j])
    log Z  = log Σ_i exp(α_T[i] + end[i])
    """
    link, begin, end = links
    real = valid_steps(scores, lengths)
    steps = scores.unbind(1)
    alpha = begin + steps[0]  # (B, K)
    into = link.T  # sums run over the last dimension, which is the fast one
    for t in range(1, len(steps)):
        after = torch.logsumexp(alpha[:, None, :] + into, dim=2) + steps[t]
        alpha = torch.where(real[:, t, None], after, alpha)
    return torch.logsumexp(alpha + end, dim=1)
