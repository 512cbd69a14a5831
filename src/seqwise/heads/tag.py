"""Tag heads: states → one tag score per position, as independent tags or as a linear-chain CRF.

A head knows nothing of what its tags mean. `decoding/viterbi.py` finds the best tag sequence from `scores` and
`transitions`. K is the number of tags.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.layers.attention import sequence_mask
from seqwise.layers.initialise import xavier_
from seqwise.layers.record import record_value

# Transition scores: `transition` from tag to tag (K, K), `start` of the first tag (K,), `end` of the last tag (K,).
Transitions = tuple[Tensor, Tensor, Tensor]

EXCLUDED = -1e9  # the score of a tag that is excluded: finite, so that gradients are too


class IndependentTagHead(nn.Module):
    """P(y | x) = Π_t softmax(W h_t + b)[y_t]: the tags are independent of each other."""

    def __init__(self, width: int, num_tags: int):
        super().__init__()
        self.output = nn.Linear(width, num_tags)
        xavier_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def scores(self, states: Tensor) -> Tensor:
        """Returns scores (B, T, K) of states (B, T, D), in at least single precision."""
        scores = self.output(states)
        scores = scores.float() if scores.dtype in (torch.bfloat16, torch.float16) else scores
        record_value(self, "scores", scores)
        return scores

    def losses(self, states: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """Returns -log P of the tags (B, T) of each sequence, (B,)."""
        scores = self.scores(states)
        losses = F.cross_entropy(scores.flatten(0, 1), tags.flatten(), reduction="none").view_as(tags)
        return losses.masked_fill(~sequence_mask(lengths, tags.shape[1]), 0.0).sum(dim=1)

    def transitions(self) -> Transitions:
        """Returns zeros: neighbouring tags do not influence each other."""
        zero = self.output.bias.new_zeros(self.output.out_features, dtype=torch.float32)
        return zero.expand(len(zero), -1), zero, zero


class LinearChainCRF(IndependentTagHead):
    """P(y | x) = exp s(x, y) / Z(x) of a whole sequence (Lafferty et al. 2001; Lample et al. 2016, section 2.2).

    s(x, y) = start[y_1] + Σ_t scores[t, y_t] + Σ_t transition[y_{t-1}, y_t] + end[y_T]
    Z(x)    = Σ over all sequences y of exp s(x, y)
    """

    def __init__(self, width: int, num_tags: int):
        super().__init__(width, num_tags)
        self.transition_scores = nn.Parameter(torch.zeros(num_tags, num_tags))
        self.start_scores = nn.Parameter(torch.zeros(num_tags))
        self.end_scores = nn.Parameter(torch.zeros(num_tags))

    def losses(self, states: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """Returns log Z(x) - s(x, y) of each sequence, (B,)."""
        scores, transitions = self.scores(states), self.transitions()
        log_z = compute_log_partition(scores, lengths, transitions)
        return log_z - compute_path_score(scores, tags, lengths, transitions)

    def transitions(self) -> Transitions:
        return self.transition_scores, self.start_scores, self.end_scores


def compute_path_score(scores: Tensor, tags: Tensor, lengths: Tensor, transitions: Transitions) -> Tensor:
    """Returns s(x, y) of each sequence, (B,)."""
    transition, start, end = transitions
    mask = sequence_mask(lengths, tags.shape[1])
    tag_scores = scores.gather(2, tags[..., None]).squeeze(2).masked_fill(~mask, 0.0)
    transition_scores = transition[tags[:, :-1], tags[:, 1:]].masked_fill(~mask[:, 1:], 0.0)
    last_tags = tags.gather(1, (lengths - 1)[:, None]).squeeze(1)
    return start[tags[:, 0]] + tag_scores.sum(dim=1) + transition_scores.sum(dim=1) + end[last_tags]


def compute_log_partition(scores: Tensor, lengths: Tensor, transitions: Transitions) -> Tensor:
    """Returns log Z(x) of each sequence, (B,), by the forward algorithm in log space, which does not overflow.

    α_1[j] = start[j] + scores[1, j]
    α_t[j] = scores[t, j] + log Σ_i exp(α_{t-1}[i] + transition[i, j])
    log Z  = log Σ_i exp(α_T[i] + end[i])
    """
    transition, start, end = transitions
    mask = sequence_mask(lengths, scores.shape[1])
    steps = scores.unbind(1)
    alpha = start + steps[0]  # (B, K)
    transposed = transition.T  # the sum over i runs over the last dimension, which is contiguous
    for t in range(1, len(steps)):
        updated = torch.logsumexp(alpha[:, None, :] + transposed, dim=2) + steps[t]
        alpha = torch.where(mask[:, t, None], updated, alpha)
    return torch.logsumexp(alpha + end, dim=1)


def compute_log_marginal(scores: Tensor, lengths: Tensor, transitions: Transitions, position: int, tag: int) -> Tensor:
    """Returns log P(y_t = tag | x) of each sequence, (B,): log Z over the sequences with this tag, minus log Z."""
    is_excluded = torch.zeros(scores.shape[1:], dtype=torch.bool, device=scores.device)
    is_excluded[position] = True
    is_excluded[position, tag] = False
    with_tag = scores.masked_fill(is_excluded, EXCLUDED)
    return compute_log_partition(with_tag, lengths, transitions) - compute_log_partition(scores, lengths, transitions)


def compute_marginals(scores: Tensor, lengths: Tensor, transitions: Transitions) -> Tensor:
    """Returns P(y_t = k | x) of all positions and tags, (B, T, K): the derivative of log Z by the score of each."""
    with torch.enable_grad():
        scores = scores.detach().requires_grad_()
        log_z = compute_log_partition(scores, lengths, tuple(each.detach() for each in transitions))  # type: ignore[arg-type]
        return torch.autograd.grad(log_z.sum(), scores)[0]
