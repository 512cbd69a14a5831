"""Where a vector stands in its sequence: sinusoidal and learned positions are added, rotary ones turn.

Each takes the position of its first vector as `start`, so that decoding one token at a time gives the same result as
the whole sequence at once. This module knows nothing of attention.
"""

from __future__ import annotations

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
        if torch.compiler.is_compiling():
            positions = _interleaved(_angles(start, stop, self.width, x.device), self.width, x.dtype)
        else:
            positions = _sinusoids(_rounded_up(stop), self.width, x.dtype, x.device)[start:stop]  # (T, D)
        record_value(self, "positions", positions)
        return x + positions

    def extra_repr(self) -> str:
        return f"{self.width}"


class LearnedPositions(nn.Module):
    """Adds one learned vector per position (Gehring et al. 2017, §3.1). It knows no position from `longest` on.

    Vectors start normal with standard deviation 0.02, as GPT-2's do and the token rows of our Transformers.
    """

    def __init__(self, width: int, longest: int):
        super().__init__()
        self.width, self.longest = width, longest
        self.weight = nn.Parameter(torch.empty(longest, width))
        nn.init.normal_(self.weight, std=EMBEDDING_STD)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        stop = start + x.shape[-2]
        if stop > self.longest:
            raise UsageError(
                f"learned positions reach up to {self.longest:,} tokens; position {stop - 1:,} was asked for.",
                repair="Shorten the input, train with a longer window, or use rotary or sinusoidal positions.",
            )
        positions = self.weight[start:stop]  # (T, D)
        record_value(self, "positions", positions)
        return x + positions

    def extra_repr(self) -> str:
        return f"{self.width}, {self.longest}"


class Rotary(nn.Module):
    """`rotary` as a layer: turns queries or keys (…, T, K). It has no weights."""

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        turned = rotary(x, start)
        record_value(self, "turned", turned)
        return turned


def rotary(x: Tensor, start: int = 0, turns: Tensor | None = None) -> Tensor:
    """Turn each pair of entries (2i, 2i+1) by the angle position · 10000^(-2i/K) (Su et al. 2021, eq. 34).

    The dot product of a turned query and a turned key depends on the difference of their positions only.
    A pair is a complex number and the turn one complex product: one pass over memory forwards and one backwards
    (measured on one core, B 16, T 256, K 64: attention takes 2–7 % longer, with separate sines and cosines 11–19 %).

    A compiler fuses sines and cosines with their neighbours, but no complex product; and it cannot look up a table
    without a graph for every length of it. So compiled code is handed `turns` of these positions from
    `sines_and_cosines`, or computes them.
    """
    if x.shape[-1] % 2:
        raise UsageError(
            f"rotary positions turn pairs of entries, but a head is {x.shape[-1]} wide.",
            repair="Choose width and heads such that width / heads is even.",
        )
    stop = start + x.shape[-2]
    exact = x if x.dtype == torch.float64 else x.float()  # complex numbers have no 16-bit kernels
    if turns is None and torch.compiler.is_compiling():
        angles = _angles(start, stop, x.shape[-1], x.device)
        turns = torch.stack((angles.sin(), angles.cos()), 1).to(exact.dtype)
    if turns is not None:
        sine, cosine = turns.unbind(1)  # (T, K/2) each
        even, odd = exact.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1).flatten(-2).to(x.dtype)
    rotations = _turns(_rounded_up(stop), x.shape[-1], exact.dtype, x.device)[start:stop]  # (T, K/2)
    pairs = torch.view_as_complex(exact.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * rotations).flatten(-2).to(x.dtype)


def sines_and_cosines(time: int, width: int, like: Tensor) -> Tensor:
    """(T, 2, K/2): the `turns` of the first T positions for heads of some width, as exact as those of `like` need."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    return _sines_and_cosines(_rounded_up(time), width, dtype, like.device)[:time]


def _rounded_up(length: int) -> int:
    """The next power of two, so that growing sequences share few tables."""
    return max(256, 1 << (length - 1).bit_length())


def _angles(start: int, stop: int, width: int, device: torch.device) -> Tensor:
    """(stop − start, ⌈width/2⌉) in float64: in float32 an angle of 10,000 is already off by 0.001."""
    frequency = BASE ** (-torch.arange(0, width, 2, dtype=torch.float64, device=device) / width)
    return torch.arange(start, stop, dtype=torch.float64, device=device)[:, None] * frequency


def _interleaved(angles: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)[:, :width].to(dtype)


# The tables are shared by all layers. They are made outside inference mode because training may use them later, and are
# kept for good: recorded gradients (`training/replay.py`) read them where they are. Few, since lengths are rounded up.


@cache
def _sinusoids(length: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False), torch.no_grad():
        return _interleaved(_angles(0, length, width, device), width, dtype)


@cache
def _turns(length: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False), torch.no_grad():
        angles = _angles(0, length, width, device)
        return torch.complex(angles.cos().to(dtype), angles.sin().to(dtype))


@cache
def _sines_and_cosines(length: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(length, 2, width/2): the first rows of it have the same strides, however many."""
    with torch.inference_mode(False), torch.no_grad():
        turns = _turns(length, width, dtype, device)
        return torch.stack((turns.imag, turns.real), 1)
