"""Self-attention added to a recurrent state, h_t = RNN(x_t, h_{t−1}) + a_t, in two forms.

`AttentiveRecurrent` is the equation as written: a_t flows back into the next step, so it runs step by step.
`StateAttention` follows any recurrent layer, without feedback, so all steps run at once.

Both attend to at most `attention_span` earlier steps, whose keys and values are the state between segments. They know
nothing of heads or positions: the recurrent state itself encodes the time.
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
from seqwise.layers.scan import StepRecorder, select_state, zero_padding

SCORE = ScaledDot()

Memory = tuple[Tensor, Tensor, Tensor]
"""Keys (B, M, D), values (B, M, D) and a mask of the valid ones (B, M), the newest at the end."""


class AttentiveRecurrent(nn.Module):
    """h_t = RNN(x_t, h_{t−1}) + a_t, where RNN(…) is the query over h_{t−attention_span} … h_{t−1}.

    The state is (state of the cell, memory). At the first step there is nothing to attend to, and a is zero.
    """

    def __init__(self, cell: Cell, attention_span: int):
        super().__init__()
        self.name, self.units, self.attention_span = cell.name, cell.units, attention_span
        self.add_module(cell.name, cell)
        self.weight_query = nn.Parameter(xavier_(torch.empty(cell.units, cell.units)))
        self.weight_memory = nn.Parameter(xavier_(torch.empty(2 * cell.units, cell.units), blocks=2))  # key, value
        with torch.no_grad():
            # The values feed back into later states. With full Xavier a ReLU cell grew 200-fold over 400 steps.
            self.weight_memory[cell.units :] *= 0.5

    def forward(
        self, x: Tensor, state: tuple[State, Memory] | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, tuple[State, Memory]]:
        """x (B, T, D) → outputs (B, T, U), zero in the padding, and the state after each row's last valid step."""
        cell, steps = self.cell, x.shape[1]
        valid = valid_steps(x, cell.inputs, lengths)
        x = zero_padding(x, valid)
        cell_state, past = (cell.start(len(x), x), _empty_memory(x, self.units)) if state is None else state
        cell_recorder, recorder = StepRecorder(cell, steps), StepRecorder(self, steps)
        outputs, present = [], _empty_memory(x, self.units)
        for t, x_t in enumerate(cell.project(x).unbind(1)):
            h, *rest = cell.step(x_t, cell_state, cell.weight_hidden, cell_recorder.record)
            a = recorder.record("context", self._attend(h, past, present, steps, recorder))
            h = h + a
            outputs.append(h)
            key, value = F.linear(h, self.weight_memory)[:, None].chunk(2, dim=-1)
            present = _concat_memories(present, (key, value, torch.ones_like(h[:, :1], dtype=torch.bool)))
            cell_state = (h, *rest) if valid is None else select_state(valid[:, t], (h, *rest), cell_state)
        cell_recorder.finish(valid)
        recorder.finish(valid)
        new_state = cell_state, _select_newest(_concat_memories(past, present), lengths, steps, self.attention_span)
        return zero_padding(torch.stack(outputs, dim=1), valid), new_state

    def _attend(self, h: Tensor, past: Memory, present: Memory, steps: int, recorder: StepRecorder) -> Tensor:
        """a_t (B, U) over the states before this call (`past`) and of this call (`present`).

        It is `attend_with_weights`, with the weights recorded before they are used. The two memories stay separate
        because concatenating them would copy both at every step.
        """
        before, t = past[0].shape[1], present[0].shape[1]
        first = max(0, before + t - self.attention_span)  # columns count the states of `past`, then those of `present`
        old = tuple(part[:, first:] for part in past)
        new = tuple(part[:, max(0, t - self.attention_span) :] for part in present)
        query = F.linear(h, self.weight_query)[:, None]
        scores = torch.cat([SCORE(query, old[0]), SCORE(query, new[0])], dim=-1)[:, 0]
        weights = masked_softmax(scores, torch.cat([old[2], new[2]], dim=-1))  # zeros in a row without any past
        weights = recorder.record("weights", F.pad(weights, (first, steps - t)))[:, first : before + t]
        split = old[0].shape[1]
        return (weights[:, None, :split] @ old[1] + weights[:, None, split:] @ new[1])[:, 0]

    @property
    def cell(self) -> Cell:
        return self.get_submodule(self.name)  # type: ignore[return-value]


class StateAttention(nn.Module):
    """s → s + a, where a_t attends to s_{t−attention_span} … s_t. Parallel over time; the state is a memory."""

    def __init__(self, width: int, attention_span: int):
        super().__init__()
        self.units, self.attention_span = width, attention_span
        self.weight = nn.Parameter(xavier_(torch.empty(3 * width, width), blocks=3))  # query, key, value

    def forward(self, s: Tensor, past: Memory | None = None, lengths: Tensor | None = None) -> tuple[Tensor, Memory]:
        """s (B, T, D) → (B, T, D), zero in the padding, and the memory that later steps may attend to."""
        valid = valid_steps(s, self.units, lengths)
        s = zero_padding(s, valid)
        queries, keys, values = F.linear(s, self.weight).chunk(3, dim=-1)
        present = keys, values, torch.ones(s.shape[:2], dtype=torch.bool, device=s.device)
        memory = present if past is None else _concat_memories(past, present)
        mask = _window_mask(s.shape[1], memory[0].shape[1], self.attention_span, s.device)
        if past is not None:
            mask = mask & memory[2][:, None, :]  # (B, T, S)
        a = self._attend(queries, memory[0], memory[1], mask, valid)
        return zero_padding(s + a, valid), _select_newest(memory, lengths, s.shape[1], self.attention_span)

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, valid: Tensor | None) -> Tensor:
        """a (B, T, D), by the fused function unless a live recording needs the weights in the graph."""
        if is_recorded(self):
            visible = mask if valid is None else mask & valid[..., None]  # padding attends to nothing
            with torch.set_grad_enabled(torch.is_grad_enabled() and is_recorded_live(self)):
                context, weights = attend_with_weights(queries, keys, values, visible, SCORE)
            record_value(self, "weights", weights)
            if is_recorded_live(self):
                return context
        mask = mask if mask.dim() == 2 else mask[:, None]
        # One head, (B, 1, T, D), so that a kernel applies.
        return attend(queries[:, None], keys[:, None], values[:, None], mask, SCORE)[:, 0]


def _window_mask(steps: int, columns: int, attention_span: int, device: Any) -> Tensor:
    """The mask (T, S): step t, column S − T + t, attends to itself and the `attention_span` columns before it."""
    position = torch.arange(columns - steps, columns, device=device)[:, None]
    column = torch.arange(columns, device=device)
    return (column <= position) & (column >= position - attention_span)


def _empty_memory(like: Tensor, width: int) -> Memory:
    empty = like.new_zeros(len(like), 0, width)
    return empty, empty, torch.ones(len(like), 0, dtype=torch.bool, device=like.device)


def _concat_memories(old: Memory, new: Memory) -> Memory:
    keys, values, valid = (torch.cat(parts, dim=1) for parts in zip(old, new, strict=True))
    return keys, values, valid


def _select_newest(memory: Memory, lengths: Tensor | None, steps: int, max_columns: int) -> Memory:
    """The last `max_columns` valid columns of each row, aligned at the end so that distances in time stay the same."""
    keys, values, valid = memory
    columns = keys.shape[1]
    count = min(max_columns, columns)
    if lengths is None:
        return keys[:, columns - count :], values[:, columns - count :], valid[:, columns - count :]
    ends = columns - steps + lengths.to(keys.device)[:, None]
    source = ends - count + torch.arange(count, device=keys.device)  # (B, count); negative: no such column
    valid = valid.gather(1, source.clamp(min=0)) & (source >= 0)
    index = source.clamp(min=0)[..., None].expand(-1, -1, keys.shape[2])
    return keys.gather(1, index), values.gather(1, index), valid
