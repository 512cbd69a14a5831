"""When memory runs out: recorded CUDA graphs are dropped, then batches are split into micro-batches.

Gradients of micro-batches add up, so the update stays the same except for rounding. An error is raised when one row
alone does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor, nn

from seqwise.backbones.states import ModelState, concat_states, map_state
from seqwise.data.batch import Batch
from seqwise.errors import MemoryLimitError
from seqwise.training.step import GradientFunction
from seqwise.training.token_budget import BatchShare, RowRange


class Replay(Protocol):
    """What this module needs of `replay.GraphReplay`."""

    def __call__(self, batch: Batch, state: ModelState, scale: Tensor, /) -> tuple[Tensor, ModelState]: ...

    @property
    def holds_memory(self) -> bool: ...

    def release_memory(self) -> None: ...


class MicroBatches:
    """Computes the gradients of a batch in as many micro-batches as memory requires.

    A batch that fits goes through `replay`, micro-batches through `forward_backward`.
    """

    def __init__(
        self,
        forward_backward: GradientFunction,
        replay: Replay,
        parameters: Sequence[nn.Parameter],
        note: Callable[[str], None],
        num_pieces: int = 1,
    ):
        self.forward_backward, self.replay, self.parameters, self.note = forward_backward, replay, parameters, note
        self.device = parameters[0].device
        self.num_pieces = num_pieces  # micro-batches per update

    def __call__(self, batch: Batch, state: ModelState, share: BatchShare, seed: int) -> tuple[Tensor, ModelState]:
        """Set `.grad` to the gradients of the mean loss; return the summed loss and the state after the batch."""
        while True:
            seed_dropout(seed, self.device)
            for parameter in self.parameters:
                parameter.grad = None
            try:
                with within_memory(f"one row of {batch.length:,} steps does not fit into memory"):
                    if self.num_pieces == 1 and share.ranges == (RowRange(0, batch.rows),):
                        return self.replay(batch, state, self._scalar(1 / share.num_targets))
                    return self._accumulate(batch, state, share)
            except MemoryLimitError:
                if self.num_pieces >= batch.rows and not self.replay.holds_memory:
                    raise
            # Outside the handler, so that the tensors of the failed attempt are released first.
            self._use_less_memory(batch.rows)

    def _accumulate(self, batch: Batch, state: ModelState, share: BatchShare) -> tuple[Tensor, ModelState]:
        loss_sum, states = torch.zeros((), dtype=torch.float64, device=self.device), []
        for start, stop, weight in split_ranges(share.ranges, math.ceil(batch.rows / self.num_pieces)):
            piece_state = map_state(lambda tensor: tensor[start:stop], state)  # noqa: B023 - used at once
            scale = self._scalar(weight / share.num_targets)
            loss, piece_state = self.forward_backward(batch.slice(start, stop), piece_state, scale)
            loss_sum += weight * loss
            states.append(piece_state)
        return loss_sum, states[0] if len(states) == 1 else concat_states(states) if states else None

    def _use_less_memory(self, num_rows: int) -> None:
        if self.replay.holds_memory:
            self.replay.release_memory()
        else:
            self.num_pieces = min(self.num_pieces * 2, num_rows)
            self.note(
                f"out of memory: the batch of {num_rows} rows is now computed in {self.num_pieces} pieces; "
                "the updates stay the same."
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
def within_memory(problem: str) -> Iterator[None]:
    """Turn an out-of-memory error inside the block into a `MemoryLimitError` that says what does not fit."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise MemoryLimitError(
            f"{problem}.",
            repair="Start again with a smaller --data.window, --network.width or --text.vocabulary.",
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out: CUDA has its own exception, the CPU allocator raises a plain RuntimeError."""
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)
