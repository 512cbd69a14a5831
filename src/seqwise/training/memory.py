"""Micro-batches, for batches that do not fit into memory, and the last batch of a token budget.

Gradients of micro-batches add up, so the update stays the same except for rounding; an error is raised when one row
alone does not fit. The last batch of a token budget usually has more tokens than are left: its first rows are trained
on as far as the tokens suffice, the loss of the next row is weighted by the fraction of its tokens that is left, and
the other rows are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seqwise.backbones.states import ModelState, concat_states, map_state
from seqwise.data.batch import Batch
from seqwise.errors import MemoryLimitError
from seqwise.training.distribution import World
from seqwise.training.replay import GraphReplay


class RowRange(NamedTuple):
    """Rows `start` … `stop - 1` of a batch and the weight of their loss."""

    start: int
    stop: int
    weight: float = 1.0


@dataclass(frozen=True)
class BatchShare:
    """The part of a batch that is trained on. Targets and tokens are those of all processes together."""

    ranges: tuple[RowRange, ...]  # of this process
    num_targets: float  # at least 1: a batch may happen to have none
    num_tokens: float
    is_cut: bool = False


def limit_to_budget(batch: Batch, tokens_left: float, world: World) -> BatchShare:
    """Return the share of a batch for which `tokens_left` suffices; the whole batch except at the end of a budget."""
    num_targets, num_tokens = world.sum(batch.num_targets, batch.num_tokens)
    if num_tokens <= tokens_left:
        return BatchShare((RowRange(0, batch.rows),), num_targets or 1.0, num_tokens)
    tokens_of_earlier_ranks = sum(world.gather([batch.num_tokens])[: world.rank])
    ranges = select_rows(batch, tokens_left - tokens_of_earlier_ranks)
    own_targets = sum(weight * batch.slice(start, stop).num_targets for start, stop, weight in ranges)
    (num_targets,) = world.sum(own_targets)
    return BatchShare(ranges, num_targets or 1.0, tokens_left, is_cut=True)


def select_rows(batch: Batch, tokens_left: float) -> tuple[RowRange, ...]:
    """Return the rows for which the tokens suffice, the last of them with the fraction that is left as its weight."""
    for row in range(batch.rows):
        tokens = batch.slice(row, row + 1).num_tokens
        if tokens > tokens_left:
            complete = [RowRange(0, row)] if row else []
            partial = [RowRange(row, row + 1, tokens_left / tokens)] if tokens_left > 0 else []
            return (*complete, *partial)
        tokens_left -= tokens
    return (RowRange(0, batch.rows),)


class MicroBatches:
    """Computes the gradients of a batch in as many micro-batches as memory requires.

    A batch that fits goes through `replay`, micro-batches through the function that `replay` wraps.
    """

    def __init__(
        self,
        replay: GraphReplay,
        parameters: Sequence[nn.Parameter],
        note: Callable[[str], None],
        num_micro_batches: int = 1,
    ):
        self.replay, self.parameters, self.note = replay, parameters, note
        self.device = parameters[0].device
        self.num_micro_batches = num_micro_batches  # per update

    def __call__(self, batch: Batch, state: ModelState, share: BatchShare, seed: int) -> tuple[Tensor, ModelState]:
        """Set `.grad` to the gradients of the mean loss; return the summed loss and the state after the batch."""
        while True:
            seed_dropout(seed, self.device)
            for parameter in self.parameters:
                parameter.grad = None
            try:
                with explain_out_of_memory(f"one row of {batch.length:,} time steps does not fit into memory"):
                    if self.num_micro_batches == 1 and share.ranges == (RowRange(0, batch.rows),):
                        return self.replay(batch, state, self._scalar(1 / share.num_targets))
                    return self._accumulate(batch, state, share)
            except MemoryLimitError:
                if self.num_micro_batches >= batch.rows and not self.replay.holds_memory:
                    raise
            # Outside the handler, so that the tensors of the failed attempt are released first.
            self._use_less_memory(batch.rows)

    def _accumulate(self, batch: Batch, state: ModelState, share: BatchShare) -> tuple[Tensor, ModelState]:
        loss_sum, states = torch.zeros((), dtype=torch.float64, device=self.device), []
        for start, stop, weight in split_ranges(share.ranges, math.ceil(batch.rows / self.num_micro_batches)):
            micro_batch_state = map_state(lambda tensor: tensor[start:stop], state)  # noqa: B023 - used at once
            scale = self._scalar(weight / share.num_targets)
            loss, micro_batch_state = self.replay.compute(batch.slice(start, stop), micro_batch_state, scale)
            loss_sum += weight * loss
            states.append(micro_batch_state)
        return loss_sum, states[0] if len(states) == 1 else concat_states(states) if states else None

    def _use_less_memory(self, num_rows: int) -> None:
        if self.replay.holds_memory:
            self.replay.release_memory()
        else:
            self.num_micro_batches = min(self.num_micro_batches * 2, num_rows)
            self.note(
                f"out of memory: the batch of {num_rows} rows is now computed in {self.num_micro_batches} "
                "micro-batches; the updates stay the same."
            )
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _scalar(self, value: float) -> Tensor:
        return torch.full((), value, dtype=torch.float64, device=self.device)


def split_ranges(ranges: Sequence[RowRange], size: int) -> Iterator[RowRange]:
    """Split ranges of rows at the multiples of `size`."""
    for start, stop, weight in ranges:
        while start < stop:
            end = min(stop, start - start % size + size)
            yield RowRange(start, end, weight)
            start = end


def seed_dropout(seed: int, device: torch.device) -> None:
    """Seed the generators of the CPU and of the device, so that every attempt draws the same dropout masks."""
    # Not `torch.manual_seed`: for each type of device that is not in use, it stores a call stack as text.
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


@contextmanager
def explain_out_of_memory(problem: str) -> Iterator[None]:
    """Turn an out-of-memory error inside the block into a `MemoryLimitError` that says what does not fit."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # `torch.OutOfMemoryError` is a RuntimeError
        is_out_of_memory = isinstance(error, (torch.OutOfMemoryError, MemoryError))
        if not is_out_of_memory and "can't allocate memory" not in str(error):  # what the CPU allocator says
            raise
        repair = "Start again with a smaller --data.window, --network.width or --text.vocabulary."
        raise MemoryLimitError(f"{problem}.", repair=repair) from error
