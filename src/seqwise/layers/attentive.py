"""Self-attention added to a recurrent state, h_t = RNN(x_t, h_{t−1}) + a_t, in two forms.

`AttentiveRecurrent` is the equation as written: a_t flows back into the next step, so it runs step by step.
`StateAttention` follows any recurrent layer, without feedback, so all steps run at once.

Both attend to at most `attention_span` earlier steps, whose keys and values are part of the state that is passed from
one segment of a sequence to the next. They know nothing of heads or positions: the recurrent state encodes the time.
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
from seqwise.layers.recurrent import build_step_mask
from seqwise.layers.scan import StepRecorder, select_state, zero_padding

SCORE = ScaledDot()

# Of earlier steps of the same sequence, the newest at the end: keys (B, S, D), values (B, S, D), is_valid (B, S).
Memory = tuple[Tensor, Tensor, Tensor]


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
        """Returns the outputs (B, T, U) of x (B, T, D), zero in the padding, and the state after each sequence's last
        valid step."""
        cell, steps = self.cell, x.shape[1]
        is_valid = build_step_mask(x, cell.inputs, lengths)
        x = zero_padding(x, is_valid)
        cell_state, past = (cell.start(len(x), x), _create_empty_memory(x, self.units)) if state is None else state
        cell_recorder, recorder = StepRecorder(cell, steps), StepRecorder(self, steps)
        outputs, present = [], _create_empty_memory(x, self.units)
        for t, x_t in enumerate(cell.project(x).unbind(1)):
            h, *rest = cell.step(x_t, cell_state, cell.weight_hidden, cell_recorder.record)
            a = recorder.record("context", self._attend(h, past, present, steps, recorder))
            h = h + a
            outputs.append(h)
            key, value = F.linear(h, self.weight_memory)[:, None].chunk(2, dim=-1)
            present = _concat_memories(present, (key, value, torch.ones_like(h[:, :1], dtype=torch.bool)))
            cell_state = (h, *rest) if is_valid is None else select_state(is_valid[:, t], (h, *rest), cell_state)
        cell_recorder.finish(is_valid)
        recorder.finish(is_valid)
        record_value(self, "keys", torch.cat([past[0], present[0]], dim=1))
        new_state = cell_state, _select_newest(_concat_memories(past, present), lengths, steps, self.attention_span)
        return zero_padding(torch.stack(outputs, dim=1), is_valid), new_state

    def _attend(self, h: Tensor, past: Memory, present: Memory, steps: int, recorder: StepRecorder) -> Tensor:
        """Returns a_t (B, U), which attends to the states before this call (`past`) and of this call (`present`).

        It is `attend_with_weights`, with the weights recorded before they are used. The two memories stay separate
        because concatenating them would copy both at every step.
        """
        num_past, t = past[0].shape[1], present[0].shape[1]
        first = max(0, num_past + t - self.attention_span)  # of the columns of `past`, then `present`
        past_keys, past_values, is_past_valid = (tensor[:, first:] for tensor in past)
        new_keys, new_values, is_new_valid = (tensor[:, max(0, t - self.attention_span) :] for tensor in present)
        query = recorder.record("queries", F.linear(h, self.weight_query))[:, None]
        scores = torch.cat([SCORE(query, past_keys), SCORE(query, new_keys)], dim=-1)[:, 0]
        # Zeros for a sequence that has nothing to attend to.
        weights = masked_softmax(scores, torch.cat([is_past_valid, is_new_valid], dim=-1))
        weights = recorder.record("weights", F.pad(weights, (first, steps - t)))[:, first : num_past + t]
        past_weights, new_weights = weights[:, None].split([past_keys.shape[1], new_keys.shape[1]], dim=-1)
        return (past_weights @ past_values + new_weights @ new_values)[:, 0]

    @property
    def cell(self) -> Cell:
        return self.get_submodule(self.name)  # type: ignore[return-value]


class StateAttention(nn.Module):
    """s + a, where a_t attends to s_{t−attention_span} … s_t. It is parallel over time; its state is a memory."""

    def __init__(self, width: int, attention_span: int):
        super().__init__()
        self.units, self.attention_span = width, attention_span
        self.weight = nn.Parameter(xavier_(torch.empty(3 * width, width), blocks=3))  # query, key, value

    def forward(self, s: Tensor, past: Memory | None = None, lengths: Tensor | None = None) -> tuple[Tensor, Memory]:
        """Returns s + a for s (B, T, D), zero in the padding, and the memory that later steps may attend to."""
        is_valid = build_step_mask(s, self.units, lengths)
        s = zero_padding(s, is_valid)
        queries, keys, values = F.linear(s, self.weight).chunk(3, dim=-1)
        present = keys, values, torch.ones(s.shape[:2], dtype=torch.bool, device=s.device)
        memory = present if past is None else _concat_memories(past, present)
        mask = _build_window_mask(s.shape[1], memory[0].shape[1], self.attention_span, s.device)
        if past is not None:
            mask = mask & memory[2][:, None, :]  # (B, T, S)
        a = self._attend(queries, memory[0], memory[1], mask, is_valid)
        return zero_padding(s + a, is_valid), _select_newest(memory, lengths, s.shape[1], self.attention_span)

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, is_valid: Tensor | None) -> Tensor:
        """Returns a (B, T, D), by the fused function unless a live recording needs the weights in the graph."""
        if is_recorded(self):
            visible = mask if is_valid is None else mask & is_valid[..., None]  # padding attends to nothing
            with torch.set_grad_enabled(torch.is_grad_enabled() and is_recorded_live(self)):
                context, weights = attend_with_weights(queries, keys, values, visible, SCORE)
            for name, value in (("queries", queries), ("keys", keys), ("weights", weights)):
                record_value(self, name, value)
            if is_recorded_live(self):
                return context
        mask = mask if mask.dim() == 2 else mask[:, None]
        # One head, (B, 1, T, D), so that a kernel applies.
        return attend(queries[:, None], keys[:, None], values[:, None], mask, SCORE)[:, 0]


def _build_window_mask(steps: int, columns: int, attention_span: int, device: Any) -> Tensor:
    """Returns the mask (T, S) by which step t, in column S − T + t, attends to itself and the `attention_span` columns
    before it."""
    position = torch.arange(columns - steps, columns, device=device)[:, None]
    column = torch.arange(columns, device=device)
    return (column <= position) & (column >= position - attention_span)


def _create_empty_memory(like: Tensor, width: int) -> Memory:
    empty = like.new_zeros(len(like), 0, width)
    return empty, empty, torch.ones(len(like), 0, dtype=torch.bool, device=like.device)


def _concat_memories(old: Memory, new: Memory) -> Memory:
    keys, values, is_valid = (torch.cat(pair, dim=1) for pair in zip(old, new, strict=True))
    return keys, values, is_valid


def _select_newest(memory: Memory, lengths: Tensor | None, steps: int, max_columns: int) -> Memory:
    """Returns the last `max_columns` valid columns of each sequence, aligned at the end, so that distances in time stay
    the same. The last `steps` columns are those of the current call."""
    keys, values, is_valid = memory
    columns = keys.shape[1]
    count = min(max_columns, columns)
    if lengths is None:
        return keys[:, columns - count :], values[:, columns - count :], is_valid[:, columns - count :]
    ends = columns - steps + lengths.to(keys.device)[:, None]
    column = ends - count + torch.arange(count, device=keys.device)  # (B, count); negative: no such column
    is_valid = is_valid.gather(1, column.clamp(min=0)) & (column >= 0)
    index = column.clamp(min=0)[..., None].expand(-1, -1, keys.shape[2])
    return keys.gather(1, index), values.gather(1, index), is_valid
