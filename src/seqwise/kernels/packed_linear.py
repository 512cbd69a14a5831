"""`PackedLinear`: a linear layer with a constant weight, rearranged for the processor. It knows nothing of modules.

A library for matrix products first rearranges both factors, at every call. If one weight is used step after step with
few rows each, that is a large part of the time. Here it is rearranged once, by oneDNN. Measured on one core with a
weight of 8,000 × 256: 320 rows 104 instead of 85 GFLOP/s, 20 rows 106 instead of 52, 5 rows 95 instead of 31. Sums are
computed in another order, so results differ by rounding.
"""

from __future__ import annotations

from array import array
from collections import deque
from functools import cache
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from seqwise.kernels.recurrence.availability import get_disabled_reason

MIN_SEQUENCES = 4  # number of sequences from which a packed copy is worth its cost
MAX_FEW_ROWS = 8  # rows up to which the compiled product is used: it reads the weight from the cache for every row
MIN_FEW_ROWS_SIZE = 2**20  # numbers of a weight from which it is used: compiling takes 0.15 s, smaller ones gain little
MIN_PART_SIZE = 2**17  # numbers of a weight that a thread takes at once
TRIAL_INTERVALS = (16, 256)  # calls between trials of the other number of threads: at first, and at most
NUM_TRIALS, NUM_TIMES = 3, 5  # calls of a trial, and measured times of which the median counts
ACTIVATIONS = {"none": lambda y: y, "relu": F.relu, "gelu": F.gelu}


class PackedLinear:
    """y = activation(W x + b) for a weight that does not change while this object exists.

    Each of `num_sequences` has one or more rows of x. Few sequences use the weight as it is, by a compiled product,
    many a packed copy. Both exist for float32 on CPUs and have no gradients; on other devices, or if gradients are
    enabled, it is the ordinary product.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, num_sequences: int, activation: str = "none"):
        self.weight, self.bias, self.activation, self.packed_weight = weight, bias, activation, None
        self.multiply_few_rows: FewRowsProduct | None = None
        is_plain = weight.dtype == torch.float32 and weight.device.type == "cpu"
        if not is_plain or torch.is_grad_enabled() or torch.is_autocast_enabled("cpu"):
            return
        if num_sequences >= MIN_SEQUENCES and _has_packed_linear():
            self.packed_weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), num_sequences)
        elif num_sequences < MIN_SEQUENCES and weight.numel() >= MIN_FEW_ROWS_SIZE and get_disabled_reason() is None:
            self.multiply_few_rows = build_few_rows_product(weight, bias)

    def __call__(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float32 and self.packed_weight is not None:
            return _PACKED_LINEAR(x, self.packed_weight, self.bias, self.activation, [], "none")
        if x.dtype == torch.float32 and self.multiply_few_rows is not None and x.numel() <= MAX_FEW_ROWS * x.shape[-1]:
            return ACTIVATIONS[self.activation](self.multiply_few_rows(x))
        return ACTIVATIONS[self.activation](F.linear(x, self.weight, self.bias))


class FewRowsProduct:
    """W x + b for a few rows, by a compiled function that reads the weight from memory once, on several threads.

    Measured on one core (Zen 4) with one row and a weight of 10,000 × 256: 0.17 ms instead of 0.27 by `F.linear`, which
    uses one thread in any case; 0.10 ms on two cores.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None):
        from seqwise.kernels.recurrence.cpu.code import get_vector_sizes
        from seqwise.kernels.recurrence.cpu.few_rows import compile_few_rows
        from seqwise.kernels.recurrence.cpu.threads import run_calls

        self.function, self.run_calls = compile_few_rows("float"), run_calls
        self.weight = weight.detach().contiguous()  # these tensors keep the addresses valid
        self.bias = self.weight.new_zeros(len(weight)) if bias is None else bias.detach().contiguous()
        width, depth = self.weight.shape
        lanes = get_vector_sizes()[0] // 4
        columns = max(1, MIN_PART_SIZE // (depth * lanes)) * lanes  # of one part of the product
        firsts = range(0, width, columns)
        self.parts = array("q", [value for first in firsts for value in (0, first, min(width, first + columns))])
        self.num_parts = len(firsts)
        self.thread_choice = get_thread_choice(torch.get_num_threads() if self.num_parts > 1 else 1, weight.numel())

    def __call__(self, x: Tensor) -> Tensor:
        x, (width, depth) = x.contiguous(), self.weight.shape
        result = x.new_empty(*x.shape[:-1], width)
        addresses = self.weight.data_ptr(), self.bias.data_ptr(), result.data_ptr()
        product = array("q", [x.data_ptr(), x.numel() // depth, depth, *addresses, width])
        parts = self.parts[:]  # of this call alone, since several threads may call
        parts[::3] = array("q", [product.buffer_info()[0]] * self.num_parts)
        start, threads = perf_counter(), self.thread_choice.choose()
        self.run_calls(self.function, parts, self.num_parts, threads)
        self.thread_choice.update(threads, perf_counter() - start)
        return result


class ThreadChoice:
    """Chooses one thread or all of them by measured times, which never changes a result.

    On a busy machine the other threads arrive late, and one thread is faster. Medians of the last times are compared,
    so that a single interruption changes nothing. The slower option is tried again after 16 calls, then after twice as
    many each time, at most 256.
    """

    def __init__(self, threads: int):
        self.options = (threads, 1)
        self.seconds: list[deque[float]] = [deque(maxlen=NUM_TIMES), deque(maxlen=NUM_TIMES)]  # of the last calls
        self.current, self.trials_left, self.calls_left, self.interval = 0, 0, 0, TRIAL_INTERVALS[0]

    def choose(self) -> int:
        """Returns the number of threads for the next call."""
        if self.options[0] == 1:
            return 1
        if self.trials_left > 0:  # a trial of the other option goes on
            self.trials_left -= 1
        elif self.calls_left > 0:
            self.calls_left -= 1
            self.current = self._find_faster()
        else:
            self.trials_left, self.calls_left = NUM_TRIALS - 1, self.interval
            self.interval = min(2 * self.interval, TRIAL_INTERVALS[1])
            self.current = 1 - self._find_faster()
        return self.options[self.current]

    def _find_faster(self) -> int:
        if not (self.seconds[0] and self.seconds[1]):
            return int(bool(self.seconds[0]))  # not measured yet, so that the first trials measure both
        medians = [sorted(seconds)[len(seconds) // 2] for seconds in self.seconds]
        return int(medians[1] < medians[0])

    def update(self, threads: int, seconds: float) -> None:
        """Takes the time of a call with this number of threads."""
        self.seconds[self.options.index(threads)].append(seconds)


@cache
def get_thread_choice(threads: int, size: int) -> ThreadChoice:
    """Returns the choice for weights of this size, which products share, so that a new one need not measure again."""
    return ThreadChoice(threads)


def build_few_rows_product(weight: Tensor, bias: Tensor | None) -> FewRowsProduct | None:
    """Returns the compiled product, or None if LLVM is missing or computes wrong results."""
    return FewRowsProduct(weight, bias) if _can_compile() else None


@cache
def _can_compile() -> bool:
    """Returns whether a small compiled product is correct."""
    try:
        with torch.inference_mode():
            x, weight = torch.ones(2, 5), torch.arange(15.0).view(3, 5) - 7
            return torch.allclose(FewRowsProduct(weight, None)(x), F.linear(x, weight), atol=1e-5)
    except (ImportError, OSError, RuntimeError, AttributeError, TypeError):
        return False


_PACKED_LINEAR: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)  # takes a packed weight and an activation


@cache
def _has_packed_linear() -> bool:
    """Returns whether this build of PyTorch has oneDNN's functions for packed weights, and they are correct."""
    try:
        with torch.inference_mode():
            x, weight = torch.ones(2, 4), torch.arange(12.0).view(3, 4) - 5
            packed_weight = torch.ops.mkldnn._reorder_linear_weight(weight, 2)
            return all(
                torch.allclose(
                    _PACKED_LINEAR(x, packed_weight, None, name, [], "none"), activate(F.linear(x, weight)), atol=1e-5
                )
                for name, activate in ACTIVATIONS.items()
            )
    except (AttributeError, RuntimeError):
        return False
