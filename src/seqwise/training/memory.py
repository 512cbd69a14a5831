"""Micro-batches, for batches that do not fit into memory, and the last batch of a token budget.

Gradients of micro-batches add up, so the update stays the same except for rounding, and for dropout masks, which are
drawn for each micro-batch; an error is raised when one sequence alone does not fit. The last batch of a token budget
usually has more tokens than are left: training uses its first sequences, weights the loss of the next one by the
fraction of its tokens that the budget still covers, and skips the others.
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


class SequenceRange(NamedTuple):
    """The sequences `start` … `stop - 1` of a batch, and the weight of their loss."""

    start: int
    stop: int
    weight: float = 1.0


@dataclass(frozen=True)
class BatchShare:
    """The sequences of a batch that are trained on. Targets and tokens are counted over all processes."""

    ranges: tuple[SequenceRange, ...]  # of this process
    num_targets: float  # 1 instead of 0, because the loss is divided by it
    num_tokens: float
    is_partial: bool = False  # whether some sequences, or all of some processes, are left out


def limit_to_budget(batch: Batch, tokens_left: float, world: World) -> BatchShare:
    """Returns the share of a batch for which `tokens_left` suffices; the whole batch except at the end of a budget."""
    own_targets, own_tokens = (0, 0) if batch.is_filler else (batch.num_targets, batch.num_tokens)
    num_targets, num_tokens, num_fillers = world.sum(own_targets, own_tokens, batch.is_filler)
    if num_tokens <= tokens_left:
        whole_batch = () if batch.is_filler else (SequenceRange(0, batch.num_sequences),)
        return BatchShare(whole_batch, num_targets or 1.0, num_tokens, is_partial=num_fillers > 0)
    tokens_of_lower_ranks = sum(world.gather([own_tokens])[: world.rank])
    ranges = () if batch.is_filler else select_sequences(batch, tokens_left - tokens_of_lower_ranks)
    remaining_targets = sum(weight * batch.slice(start, stop).num_targets for start, stop, weight in ranges)
    (num_targets,) = world.sum(remaining_targets)
    return BatchShare(ranges, num_targets or 1.0, tokens_left, is_partial=True)


def select_sequences(batch: Batch, tokens_left: float) -> tuple[SequenceRange, ...]:
    """Returns the first sequences, up to `tokens_left`; the last one has the fraction of it that fits as its weight."""
    for index in range(batch.num_sequences):
        num_tokens = batch.slice(index, index + 1).num_tokens
        if num_tokens > tokens_left:
            complete = [SequenceRange(0, index)] if index else []
            partial = [SequenceRange(index, index + 1, tokens_left / num_tokens)] if tokens_left > 0 else []
            return (*complete, *partial)
        tokens_left -= num_tokens
    return (SequenceRange(0, batch.num_sequences),)


class MicroBatches:
    """Computes the gradients of a batch in as many micro-batches as memory requires.

    A batch that fits goes through `replay`, micro-batches through the function that `replay` wraps.
    """

    def __init__(
        self,
        replay: GraphReplay,
        parameters: Sequence[nn.Parameter],
        log: Callable[[str], None],
        num_micro_batches: int = 1,
    ):
        self.replay, self.parameters, self.log = replay, parameters, log
        self.device = parameters[0].device
        self.num_micro_batches = num_micro_batches  # per update

    def __call__(self, batch: Batch, state: ModelState, share: BatchShare, seed: int) -> tuple[Tensor, ModelState]:
        """Sets `.grad` to the gradients of the mean loss; returns the summed loss and the state after the batch."""
        while True:
            seed_dropout(seed, self.device)
            for parameter in self.parameters:
                parameter.grad = None
            try:
                with explain_out_of_memory(f"one sequence of {batch.length:,} steps does not fit into memory"):
                    if self.num_micro_batches == 1 and share.ranges == (SequenceRange(0, batch.num_sequences),):
                        return self.replay(batch, state, self._to_tensor(1 / share.num_targets))
                    return self._accumulate(batch, state, share)
            except MemoryLimitError:
                if self.num_micro_batches >= batch.num_sequences and not self.replay.holds_memory:
                    raise
            # Outside the handler, so that the tensors of the failed attempt are released first.
            self._use_less_memory(batch.num_sequences)

    def _accumulate(self, batch: Batch, state: ModelState, share: BatchShare) -> tuple[Tensor, ModelState]:
        loss_sum, states = torch.zeros((), dtype=torch.float64, device=self.device), []
        for start, stop, weight in split_ranges(share.ranges, math.ceil(batch.num_sequences / self.num_micro_batches)):
            micro_batch_state = map_state(lambda tensor: tensor[start:stop], state)  # noqa: B023 - called at once
            scale = self._to_tensor(weight / share.num_targets)
            loss, micro_batch_state = self.replay.compute(batch.slice(start, stop), micro_batch_state, scale)
            loss_sum += weight * loss
            states.append(micro_batch_state)
        return loss_sum, states[0] if len(states) == 1 else concat_states(states) if states else None

    def _use_less_memory(self, batch_size: int) -> None:
        """Frees the CUDA graphs, if there are any; otherwise doubles the number of micro-batches."""
        if self.replay.holds_memory:
            self.replay.release_memory()
        else:
            self.num_micro_batches = min(self.num_micro_batches * 2, batch_size)
            self.log(
                f"out of memory: the batch of {batch_size} sequences is now computed in {self.num_micro_batches} "
                "micro-batches, whose gradients are summed."
            )
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _to_tensor(self, value: float) -> Tensor:
        return torch.full((), value, dtype=torch.float64, device=self.device)


def split_ranges(ranges: Sequence[SequenceRange], size: int) -> Iterator[SequenceRange]:
    """Splits ranges of sequences at the multiples of `size`."""
    for start, stop, weight in ranges:
        while start < stop:
            end = min(stop, start - start % size + size)
            yield SequenceRange(start, end, weight)
            start = end


def seed_dropout(seed: int, device: torch.device) -> None:
    """Seeds the generators of the CPU and of the device, so that earlier attempts do not change the dropout masks."""
    # Not `torch.manual_seed`: for each type of device that is not in use, it stores a call stack as text.
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


@contextmanager
def explain_out_of_memory(problem: str) -> Iterator[None]:
    """Raises an out-of-memory error inside the block as a `MemoryLimitError` that says what does not fit."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # `torch.OutOfMemoryError` is a RuntimeError
        is_out_of_memory = isinstance(error, (torch.OutOfMemoryError, MemoryError))
        if not is_out_of_memory and "can't allocate memory" not in str(error):  # what the CPU allocator says
            raise
        fix = "Start again with a smaller --data.window, --network.width or --text.vocabulary."
        raise MemoryLimitError(f"{problem}.", fix=fix) from error
