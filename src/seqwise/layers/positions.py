"""Position encodings: sinusoidal and learned vectors are added to the inputs, rotary ones rotate queries and keys.

Each takes the position of its first vector as `start`, so that decoding one token at a time gives the same result as
the whole sequence at once. This module knows nothing of attention.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from seqwise.errors import UsageError
from seqwise.layers.initialise import EMBEDDING_STD
from seqwise.layers.record import record_value

BASE = 10000.0  # longest wavelength / 2π: Vaswani et al. 2017, §3.5; Su et al. 2021, §3.2.2


class SinusoidalPositions(nn.Module):
    """Adds sin and cos of the position at D/2 frequencies (Vaswani et al. 2017, §3.5). It has no weights."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        stop = start + x.shape[-2]
        table = _look_up(_interleave_sine_cosine, start, stop, self.width, x.dtype, x.device)
        positions = table[:, : self.width]  # (T, D)
        record_value(self, "positions", positions)
        return x + positions

    def extra_repr(self) -> str:
        return f"{self.width}"


class LearnedPositions(nn.Module):
    """Adds one learned vector per position, for sequences up to `max_length` (Gehring et al. 2017, §3.1).

    Initial vectors are normal with standard deviation 0.02, as in GPT-2, and as the token vectors of our Transformers.
    """

    def __init__(self, width: int, max_length: int):
        super().__init__()
        self.width, self.max_length = width, max_length
        self.weight = nn.Parameter(torch.empty(max_length, width))
        nn.init.normal_(self.weight, std=EMBEDDING_STD)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        stop = start + x.shape[-2]
        if stop > self.max_length:
            raise UsageError(
                f"learned positions reach up to {self.max_length:,} tokens; received position {stop - 1:,}.",
                fix="Shorten the input, train with a longer window, or use rotary or sinusoidal positions.",
            )
        positions = self.weight[start:stop]  # (T, D)
        record_value(self, "positions", positions)
        return x + positions

    def extra_repr(self) -> str:
        return f"{self.width}, {self.max_length}"


class Rotary(nn.Module):
    """`rotary` as a layer: rotates queries or keys (…, T, K). It has no weights."""

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        rotated = rotary(x, start)
        record_value(self, "rotated", rotated)
        return rotated


def rotary(x: Tensor, start: int = 0, rotations: Tensor | None = None) -> Tensor:
    """Rotates each pair of entries (2i, 2i+1) by the angle position · 10000^(-2i/K) (Su et al. 2021, eq. 34).

    The dot product of a rotated query and a rotated key depends only on the difference of their positions.
    A pair is a complex number and the rotation one complex product: one pass over memory forward and one backward
    (measured on one core, B 16, T 256, K 64: attention takes 2–7 % longer, with separate sines and cosines 11–19 %).

    `torch.compile` fuses sines and cosines with other operations, but not a complex product; and it cannot look up a
    table without a graph for every length of the table. So compiled code gets the `rotations` of these positions from
    `sines_and_cosines`, or computes them.
    """
    if x.shape[-1] % 2:
        raise UsageError(
            f"rotary positions rotate pairs of entries, but a head is {x.shape[-1]} wide.",
            fix="Choose width and heads such that width / heads is even.",
        )
    stop = start + x.shape[-2]
    x_float = x if x.dtype == torch.float64 else x.float()  # complex numbers have no 16-bit kernels
    if rotations is None and torch.compiler.is_compiling():
        rotations = _look_up(_stack_sine_cosine, start, stop, x.shape[-1], x_float.dtype, x.device)
    if rotations is not None:
        sine, cosine = rotations.unbind(1)  # (T, K/2) each
        even, odd = x_float.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1).flatten(-2).to(x.dtype)
    factors = _look_up(_to_complex, start, stop, x.shape[-1], x_float.dtype, x.device)  # (T, K/2)
    pairs = torch.view_as_complex(x_float.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * factors).flatten(-2).to(x.dtype)


def sines_and_cosines(time: int, width: int, like: Tensor) -> Tensor:
    """Returns the `rotations` (T, 2, K/2) of the first T positions, in the dtype of `like`, at least float32."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    return _look_up(_stack_sine_cosine, 0, time, width, dtype, like.device)


EncodeFunction = Callable[[Tensor, torch.dtype], Tensor]  # angles (T, K/2) → a table with a row per position


def _interleave_sine_cosine(angles: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns (T, K), sine and cosine in turns."""
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2).to(dtype)


def _stack_sine_cosine(angles: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns (T, 2, K/2), sines and cosines."""
    return torch.stack((angles.sin(), angles.cos()), 1).to(dtype)


def _to_complex(angles: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns (T, K/2), the complex numbers of these angles on the unit circle."""
    return torch.complex(angles.cos().to(dtype), angles.sin().to(dtype))


def _look_up(
    encode: EncodeFunction, start: int, stop: int, width: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Returns the encoding of the positions from `start` to before `stop`, from a table unless the code is compiled."""
    if torch.compiler.is_compiling():
        return encode(_compute_angles(start, stop, width, device), dtype)
    length = max(256, 1 << (stop - 1).bit_length())  # a power of two, so that growing sequences share few tables
    return _build_table(encode, length, width, dtype, device)[start:stop]


@cache
def _build_table(encode: EncodeFunction, length: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Returns the encoding of the first `length` positions, which all layers share.

    It is created outside inference mode because training may use it later, and never freed: CUDA graphs
    (`training/replay.py`) read it at its address.
    """
    with torch.inference_mode(False), torch.no_grad():
        return encode(_compute_angles(0, length, width, device), dtype)


def _compute_angles(start: int, stop: int, width: int, device: torch.device) -> Tensor:
    """Returns angles (stop − start, ⌈width/2⌉) in float64: in float32 an angle of 10,000 is already off by 0.001."""
    frequency = BASE ** (-torch.arange(0, width, 2, dtype=torch.float64, device=device) / width)
    return torch.arange(start, stop, dtype=torch.float64, device=device)[:, None] * frequency
