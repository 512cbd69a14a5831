"""Self-attention added to a recurrent state, h_t = RNN(x_t, h_{t−1}) + a_t, in two forms.

`AttentiveRecurrent` is the equation as written: a_t flows back into the next step, so it runs step by step.
`StateAttention` stands behind any recurrent layer without feedback, so all steps run at once.

Both look back at most `memory` steps and carry the keys and values of those steps over a cut. They know nothing of
heads or positions: the recurrent state itself tells the time.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqwise.layers.attention import ScaledDot, attend, attend_with_weights, masked_softmax
from seqwise.layers.cells import Cell, State
from seqwise.layers.initialise import xavier_
from seqwise.layers.record import is_recorded, is_recorded_live, record_value
from seqwise.layers.recurrent import valid_steps
from seqwise.layers.scan import StepRecorder, choose, zero_padding

SCORE = ScaledDot()

Memory = tuple[Tensor, Tensor, Tensor]
"""Keys (B, M, D), values (B, M, D) and which of them are there (B, M), the newest at the end."""


class AttentiveRecurrent(nn.Module):
    """h_t = RNN(x_t, h_{t−1}) + a_t, where RNN(…) itself asks the past states h_{t−memory} … h_{t−1}.

    The state is (state of the cell, memory). At the first step there is no past, and a is zero.
    """

    def __init__(self, cell: Cell, memory: int):
        super().__init__()
        self.name, self.units, self.memory = cell.name, cell.units, memory
        self.add_module(cell.name, cell)
        self.weight_query = nn.Parameter(xavier_(torch.empty(cell.units, cell.units)))
        self.weight_memory = nn.Parameter(xavier_(torch.empty(2 * cell.units, cell.units), blocks=2))  # key, value
        with torch.no_grad():
            # The values feed back into later states. With full Xavier a ReLU cell grew 200-fold over 400 steps.
            self.weight_memory[cell.units :] *= 0.5

    def forward(
        self, x: Tensor, state: tuple[State, Memory] | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, tuple[State, Memory]]:
        """x (B, T, D) → outputs (B, T, U), zero in the padding, and the state after each row's last real step."""
        cell, steps = self.cell, x.shape[1]
        real = valid_steps(x, cell.inputs, lengths)
        x = zero_padding(x, real)
        inner, past = (cell.start(len(x), x), _nothing(x, self.units)) if state is None else state
        inside, outside = StepRecorder(cell, steps), StepRecorder(self, steps)
        outputs, here = [], _nothing(x, self.units)
        for t, x_t in enumerate(cell.project(x).unbind(1)):
            h, *rest = cell.step(x_t, inner, cell.weight_hidden, inside.record)
            a = outside.record("context", self._context(h, past, here, steps, outside))
            h = h + a
            outputs.append(h)
            here = self._remember(h, here)
            inner = (h, *rest) if real is None else choose(real[:, t], (h, *rest), inner)
        inside.close(real)
        outside.close(real)
        after = inner, _newest(_join(past, here), lengths, steps, self.memory)
        return zero_padding(torch.stack(outputs, dim=1), real), after

    def _context(self, h: Tensor, past: Memory, here: Memory, steps: int, tape: StepRecorder) -> Tensor:
        """a_t (B, U): `attend_with_weights`, with a look at the weights before they are used.

        Carried and new states stay apart, because joining them would copy both at every step.
        """
        before, t = past[0].shape[1], here[0].shape[1]
        first = max(0, before + t - self.memory)  # columns count the carried states, then those of this call
        old, new = tuple(part[:, first:] for part in past), tuple(part[:, max(0, t - self.memory) :] for part in here)
        query = F.linear(h, self.weight_query)[:, None]
        scores = torch.cat([SCORE(query, old[0]), SCORE(query, new[0])], dim=-1)[:, 0]
        weights = masked_softmax(scores, torch.cat([old[2], new[2]], dim=-1))  # a row without any past gets zeros
        weights = tape.record("weights", F.pad(weights, (first, steps - t)))[:, first : before + t]
        split = old[0].shape[1]
        return (weights[:, None, :split] @ old[1] + weights[:, None, split:] @ new[1])[:, 0]

    def _remember(self, h: Tensor, here: Memory) -> Memory:
        key, value = F.linear(h, self.weight_memory)[:, None].chunk(2, dim=-1)
        return _join(here, (key, value, torch.ones_like(h[:, :1], dtype=torch.bool)))

    @property
    def cell(self) -> Cell:
        return self.get_submodule(self.name)  # type: ignore[return-value]


class StateAttention(nn.Module):
    """s → s + a, where a_t is attention of s_t over s_{t−memory} … s_t. Parallel over time; the carry is a memory."""

    def __init__(self, width: int, memory: int):
        super().__init__()
        self.units, self.memory = width, memory
        self.weight = nn.Parameter(xavier_(torch.empty(3 * width, width), blocks=3))  # query, key, value

    def forward(self, s: Tensor, carry: Memory | None = None, lengths: Tensor | None = None) -> tuple[Tensor, Memory]:
        """s (B, T, D) → (B, T, D), zero in the padding, and what the next steps may look back at."""
        real = valid_steps(s, self.units, lengths)
        s = zero_padding(s, real)
        queries, keys, values = F.linear(s, self.weight).chunk(3, dim=-1)
        there = torch.ones(s.shape[:2], dtype=torch.bool, device=s.device)
        memory = (keys, values, there) if carry is None else _join(carry, (keys, values, there))
        mask = _window(s.shape[1], memory[0].shape[1], self.memory, s.device)
        if carry is not None:
            mask = mask & memory[2][:, None, :]  # (B, T, S)
        a = self._context(queries, memory[0], memory[1], mask, real)
        return zero_padding(s + a, real), _newest(memory, lengths, s.shape[1], self.memory)

    def _context(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, real: Tensor | None) -> Tensor:
        """a (B, T, D). The fused function, unless the weights are to be part of the result."""
        if is_recorded(self):
            visible = mask if real is None else mask & real[..., None]  # padding looks at nothing
            with torch.set_grad_enabled(torch.is_grad_enabled() and is_recorded_live(self)):
                context, weights = attend_with_weights(queries, keys, values, visible, SCORE)
            record_value(self, "weights", weights)
            if is_recorded_live(self):
                return context
        mask = mask if mask.dim() == 2 else mask[:, None]
        heads = [part[:, None] for part in (queries, keys, values)]  # one head, (B, 1, T, D): only so there is a kernel
        return attend(heads[0], heads[1], heads[2], mask, SCORE)[:, 0]


def _window(steps: int, columns: int, memory: int, device: Any) -> Tensor:
    """(T, S): step t, which stands in column S − T + t, sees itself and `memory` columns before it."""
    here = torch.arange(columns - steps, columns, device=device)[:, None]
    column = torch.arange(columns, device=device)
    return (column <= here) & (column >= here - memory)


def _nothing(like: Tensor, width: int) -> Memory:
    empty = like.new_zeros(len(like), 0, width)
    return empty, empty, torch.ones(len(like), 0, dtype=torch.bool, device=like.device)


def _join(old: Memory, new: Memory) -> Memory:
    keys, values, there = (torch.cat(parts, dim=1) for parts in zip(old, new, strict=True))
    return keys, values, there


def _newest(memory: Memory, lengths: Tensor | None, steps: int, most: int) -> Memory:
    """The last `most` columns that are real. Shorter rows move to the right, so that distances stay true."""
    keys, values, there = memory
    columns = keys.shape[1]
    kept = min(most, columns)
    if lengths is None:
        return keys[:, columns - kept :], values[:, columns - kept :], there[:, columns - kept :]
    ends = columns - steps + lengths.to(keys.device)[:, None]
    source = ends - kept + torch.arange(kept, device=keys.device)  # (B, kept); negative: there was none
    there = there.gather(1, source.clamp(min=0)) & (source >= 0)
    wide = source.clamp(min=0)[..., None].expand(-1, -1, keys.shape[2])
    return keys.gather(1, wide), values.gather(1, wide), there
