"""Attention: queries, keys, values, mask → context and, on request, weights.

`attend` returns the context, `attend_with_weights` the weights too. A score is a small module (queries, keys) →
(…, T, S). The dot products have a fused kernel that never forms the weights; for other scores, scores, weights and
context are computed one after the other. Masks are boolean, True means "may be attended to"; a query that may attend
to nothing gets zeros.

`MultiHeadAttention` adds the projections, rotary positions and cached keys and values. This module knows nothing of
the layers around it, nor of how long a cache may grow.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqwise.errors import UsageError
from seqwise.layers.initialise import xavier_
from seqwise.layers.positions import rotary as rotate
from seqwise.layers.positions import sines_and_cosines
from seqwise.layers.record import is_recorded, is_recorded_live, record_value

KeysValues = tuple[Tensor, Tensor]  # (B, H, S, K) each


class Dot(nn.Module):
    """score = q·k (Luong et al. 2015, eq. 8, "dot")."""

    def scale(self, width: int) -> float | None:
        """Returns the factor by which a fused kernel multiplies q·k; None where the score is no multiple of q·k."""
        return 1.0

    def prepare(self, keys: Tensor) -> Tensor:
        """Returns the part of the score that depends on keys alone, for decoders with the same keys at every step."""
        return keys

    def compare(self, queries: Tensor, prepared_keys: Tensor) -> Tensor:
        """Returns the score of prepared keys: `forward(q, k)` is `compare(q, prepare(k))`."""
        return self(queries, prepared_keys)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries @ keys.transpose(-2, -1)  # (…, T, S)


class ScaledDot(Dot):
    """score = q·k / √K: keeps the variance of the score at 1 for any width (Vaswani et al. 2017, eq. 1)."""

    def scale(self, width: int) -> float | None:
        return width**-0.5

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return (queries * queries.shape[-1] ** -0.5) @ keys.transpose(-2, -1)  # (…, T, S)


class General(nn.Module):
    """score = q·W k (Luong et al. 2015, eq. 8, "general"). Queries and keys may differ in width."""

    def __init__(self, width_q: int, width_k: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width_q, width_k))
        xavier_(self.weight)

    def scale(self, width: int) -> float | None:
        return None

    def prepare(self, keys: Tensor) -> Tensor:
        return F.linear(keys, self.weight)  # W k

    def compare(self, queries: Tensor, prepared_keys: Tensor) -> Tensor:
        return queries @ prepared_keys.transpose(-2, -1)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return queries @ self.weight @ keys.transpose(-2, -1)  # (…, T, S)


class Additive(nn.Module):
    """score = v·tanh(W q + U k) (Bahdanau et al. 2015, appendix A.1.2)."""

    def __init__(self, width_q: int, width_k: int, units: int):
        super().__init__()
        self.W = nn.Parameter(torch.empty(units, width_q))
        self.U = nn.Parameter(torch.empty(units, width_k))
        self.v = nn.Parameter(torch.empty(units))
        xavier_(self.W)
        xavier_(self.U)
        nn.init.normal_(self.v, std=units**-0.5)

    def scale(self, width: int) -> float | None:
        return None

    def prepare(self, keys: Tensor) -> Tensor:
        return F.linear(keys, self.U)

    def compare(self, queries: Tensor, prepared_keys: Tensor) -> Tensor:
        q = F.linear(queries, self.W)
        return torch.tanh(q.unsqueeze(-2) + prepared_keys.unsqueeze(-3)) @ self.v  # (…, T, S, units) → (…, T, S)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return self.compare(queries, self.prepare(keys))


Score = Dot | General | Additive
_SCALED_DOT = ScaledDot()


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    score: Score | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
) -> Tensor:
    """Returns the context (…, T, K) of queries (…, T, K) over keys and values (…, S, K).

    The score is the scaled dot product unless `score` is given. `mask` broadcasts to (…, T, S). `causal` has the effect
    of `causal_mask(T, S)` without forming it.
    """
    scale = (score or _SCALED_DOT).scale(keys.shape[-1])
    if scale is None:
        return attend_with_weights(queries, keys, values, mask, score, causal=causal, dropout=dropout)[0]
    mask, causal = _choose_kernel_mask(mask, causal, queries, keys)
    return F.scaled_dot_product_attention(queries, keys, values, mask, dropout, causal, scale=scale)


def attend_with_weights(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None = None,
    score: Score | None = None,
    *,
    causal: bool = False,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Returns the result of `attend`, and the weights (…, T, S) before dropout.

    Each row of weights sums to 1, or is 0 where the mask allows nothing.
    """
    scores = (score or _SCALED_DOT)(queries, keys)
    if causal:
        mask = _combine_masks(mask, causal_mask(queries.shape[-2], keys.shape[-2], device=queries.device))
    weights = masked_softmax(scores, mask)
    return F.dropout(weights, dropout) @ values, weights


def compute_weights_by_head(queries: Tensor, keys: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Returns the weights (B, H, T, S) of scaled dot-product attention, in hardly more memory than they occupy."""
    if causal:
        mask = _combine_masks(mask, causal_mask(queries.shape[-2], keys.shape[-2], device=queries.device))
    is_excluded = None if mask is None else ~mask
    weights = queries.new_empty(*queries.shape[:-1], keys.shape[-2])
    for head in range(queries.shape[1]):
        one = slice(head, head + 1)
        scores = _SCALED_DOT(queries[:, one], keys[:, one])
        if is_excluded is None:
            weights[:, one] = scores.softmax(-1)
        else:  # `masked_softmax`, in place
            weights[:, one] = scores.masked_fill_(is_excluded, torch.finfo(scores.dtype).min).softmax(-1)
            weights[:, one].masked_fill_(is_excluded, 0.0)
    return weights


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Returns the softmax over the last dimension where `mask` is True; zeros elsewhere, also in rows without True."""
    if mask is None:
        return scores.softmax(-1)
    # The smallest number instead of -inf: a row without any True stays finite, and so does its gradient.
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask, lowest).softmax(-1).masked_fill(~mask, 0.0)


def causal_mask(
    time: int, source: int | None = None, offset: int | None = None, device: torch.device | str | None = None
) -> Tensor:
    """Returns (T, S): query t attends to the keys 0 … t + offset, where `offset` keys precede the first query.

    By default there are as many keys as queries (`source`), and the last query is at the last key (`offset` S - T).
    """
    source = time if source is None else source
    offset = source - time if offset is None else offset
    return torch.ones(time, source, dtype=torch.bool, device=device).tril(offset)


def padding_mask(lengths: Tensor, source: int) -> Tensor:
    """Returns (B, 1, S): a sequence attends to its first `lengths` keys, in cross-attention to those of its source."""
    return sequence_mask(lengths, source).unsqueeze(1)


def sequence_mask(lengths: Tensor, steps: int) -> Tensor:
    """Returns (B, T): True for the first `lengths` steps of each sequence, which are not padding."""
    return torch.arange(steps, device=lengths.device) < lengths[:, None]


def _combine_masks(mask: Tensor | None, other: Tensor) -> Tensor:
    return other if mask is None else mask & other


def _choose_kernel_mask(mask: Tensor | None, causal: bool, queries: Tensor, keys: Tensor) -> tuple[Tensor | None, bool]:
    """Returns `mask` and `causal` for the fused kernel, which takes only one of them."""
    if not causal:
        return mask, False
    time, source = queries.shape[-2], keys.shape[-2]
    if mask is None and time == source:
        return None, True  # the kernel skips the upper triangle
    if mask is None and time == 1:
        return None, False  # a single newest query attends to everything
    return _combine_masks(mask, causal_mask(time, source, device=queries.device)), False


class MultiHeadAttention(nn.Module):
    """H attentions in parallel on D/H entries each (Vaswani et al. 2017, §3.2.2): self-attention, or over `memory`.

    Equal to `nn.MultiheadAttention` on the same weights. `dropout` acts on the attention weights; CPUs then lose the
    fused kernel. `rotary` rotates queries and keys of self-attention.

    The cache holds keys *before* rotation. At each use the keys in it are numbered from 0 and the new queries
    from where the new keys begin: only differences of positions matter, so they stay right when the oldest keys are
    dropped, and no position grows without bound.
    """

    def __init__(self, width: int, heads: int, dropout: float = 0.0, rotary: bool = False):
        super().__init__()
        if width % heads:
            multiple = 2 * heads if rotary else heads  # rotary positions need heads of even width
            raise UsageError(
                f"the width must be a multiple of the heads; received width {width} and {heads} heads.",
                fix=f"For example: --network.width {multiple * (width // multiple + 1)}",
            )
        self.width, self.heads, self.dropout, self.rotary = width, heads, dropout, rotary
        self.in_proj = nn.Linear(width, 3 * width)  # queries, keys, values, one below the other
        self.out_proj = nn.Linear(width, width)
        xavier_(self.in_proj.weight, blocks=3)
        xavier_(self.out_proj.weight)
        nn.init.zeros_(self.in_proj.bias)
        nn.init.zeros_(self.out_proj.bias)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: KeysValues | None = None,
        rotations: Tensor | None = None,
    ) -> tuple[Tensor, KeysValues]:
        """Returns the output (B, T, D) for x (B, T, D), and the keys and values that were attended to, before rotation.

        `mask` broadcasts to (B, T, S). In self-attention new keys are appended to those of the cache. With `memory`
        a cache holds the memory's keys and values, which need no second computation. `rotations`, from
        `compute_rotations`, are for compiled code that reads whole sequences.
        """
        if memory is None:
            queries, keys, values = self.project_self(x)
            if cache is not None:
                keys, values = torch.cat((cache[0], keys), -2), torch.cat((cache[1], values), -2)
        else:
            queries = self.project_queries(x)
            keys, values = self.project_memory(memory) if cache is None else cache
        keys_values = (keys, values)
        if self.rotary and memory is None:
            num_cached = keys.shape[-2] - queries.shape[-2]
            queries, keys = rotate(queries, num_cached, rotations), rotate(keys, 0, rotations)
        if mask is not None and mask.dim() > 2:
            mask = mask.unsqueeze(-3)  # (B, 1, T, S): the same for all heads
        context = self.attend(queries, keys, values, mask, causal)
        return self.project_output(context), keys_values

    def compute_rotations(self, x: Tensor) -> Tensor | None:
        """Returns the sines and cosines that rotate x (B, T, D) from position 0 on; None without rotary positions."""
        return sines_and_cosines(x.shape[1], self.width // self.heads, x) if self.rotary else None

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
        """Returns the context by the fused kernel; the weights are computed as well where they are recorded."""
        dropout = self.dropout if self.training else 0.0
        if not is_recorded(self):
            return attend(queries, keys, values, mask, causal=causal, dropout=dropout)
        record_value(self, "queries", queries)
        record_value(self, "keys", keys)
        if is_recorded_live(self):
            context, weights = attend_with_weights(queries, keys, values, mask, causal=causal, dropout=dropout)
            record_value(self, "weights", weights)
            return context
        with torch.no_grad():
            record_value(self, "weights", compute_weights_by_head(queries, keys, mask, causal))
        return attend(queries, keys, values, mask, causal=causal, dropout=dropout)

    def project_output(self, context: Tensor) -> Tensor:
        """Returns the output projection (B, T, D) of the heads' contexts (B, H, T, K), concatenated."""
        return self.out_proj(context.transpose(1, 2).flatten(2))

    def project_self(self, x: Tensor) -> tuple[Tensor, ...]:
        rows, time, width = x.shape
        stacked = self.in_proj(x).view(rows, time, 3, self.heads, width // self.heads)
        # Unbound before rotation: their gradients then join in one copy instead of two.
        return tuple(part.transpose(1, 2) for part in stacked.unbind(2))  # three of (B, H, T, K)

    def project_queries(self, x: Tensor) -> Tensor:
        width = self.width
        queries = F.linear(x, self.in_proj.weight[:width], self.in_proj.bias[:width])
        return queries.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, T, K)

    def project_memory(self, memory: Tensor) -> KeysValues:
        width = self.width
        stacked = F.linear(memory, self.in_proj.weight[width:], self.in_proj.bias[width:])
        keys, values = stacked.unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return keys, values  # (B, H, S, K) each
