"""Where a vector stands in its sequence: sinusoidal and learned positions are added, rotary ones turn.

Each takes the position of its first vector as `start`, so that decoding one token at a time gives the same result as
the whole sequence at once. This module knows nothing of attention.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn

from seqwise.errors import UsageError
from seqwise.layers.initialise import SHORT
from seqwise.layers.record import observe

BASE = 10000.0  # longest wavelength / 2π: Vaswani et al. 2017, §3.5; Su et al. 2021, §3.2.2


class Sinusoidal(nn.Module):
    """Adds sin and cos of the position at D/2 frequencies (Vaswani et al. 2017, §3.5). It has no weights."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        stop = start + x.shape[-2]
        positions = _sinusoids(_rounded_up(stop), self.width, x.dtype, x.device)[start:stop]  # (T, D)
        observe(self, "positions", positions)
        return x + positions

    def extra_repr(self) -> str:
        return f"{self.width}"


class Learned(nn.Module):
    """Adds one learned vector per position (Gehring et al. 2017, §3.1). It knows no position from `longest` on.

    Vectors start normal with standard deviation 0.02, as GPT-2's do and the token rows of our Transformers.
    """

    def __init__(self, width: int, longest: int):
        super().__init__()
        self.width, self.longest = width, longest
        self.weight = nn.Parameter(torch.empty(longest, width))
        nn.init.normal_(self.weight, std=SHORT)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        stop = start + x.shape[-2]
        if stop > self.longest:
            raise UsageError(
                f"learned positions reach up to {self.longest:,} tokens; position {stop - 1:,} was asked for.",
                repair="Shorten the input, train with a longer window, or use rotary or sinusoidal positions.",
            )
        positions = self.weight[start:stop]  # (T, D)
        observe(self, "positions", positions)
        return x + positions

    def extra_repr(self) -> str:
        return f"{self.width}, {self.longest}"


class Rotary(nn.Module):
    """`rotary` as a layer: turns queries or keys (…, T, K). It has no weights."""

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        turned = rotary(x, start)
        observe(self, "turned", turned)
        return turned


def rotary(x: Tensor, start: int = 0) -> Tensor:
    """Turn each pair of entries (2i, 2i+1) by the angle position · 10000^(-2i/K) (Su et al. 2021, eq. 34).

    The dot product of a turned query and a turned key depends on the difference of their positions only.
    A pair is a complex number and the turn one complex product: one pass over memory forwards and one backwards
    (measured on one core, B 16, T 256, K 64: attention takes 2–7 % longer, with separate sines and cosines 11–19 %).
    """
    if x.shape[-1] % 2:
        raise UsageError(
            f"rotary positions turn pairs of entries, but a head is {x.shape[-1]} wide.",
            repair="Choose width and heads such that width / heads is even.",
        )
    stop = start + x.shape[-2]
    exact = x if x.dtype == torch.float64 else x.float()  # complex numbers have no 16-bit kernels
    if torch.compiler.is_compiling():  # a compiler fuses sines and cosines into one pass, but no complex product
        table = _sines_and_cosines(_rounded_up(stop), x.shape[-1], exact.dtype, x.device)
        sine, cosine = table[:, start:stop]  # (T, K/2)
        even, odd = exact.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((even * cosine - odd * sine, even * sine + odd * cosine), -1).flatten(-2).to(x.dtype)
    turns = _turns(_rounded_up(stop), x.shape[-1], exact.dtype, x.device)[start:stop]  # (T, K/2)
    pairs = torch.view_as_complex(exact.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)


def _rounded_up(length: int) -> int:
    """The next power of two, so that growing sequences share few tables."""
    return max(256, 1 << (length - 1).bit_length())


def _angles(length: int, width: int, device: torch.device) -> Tensor:
    """(length, ⌈width/2⌉) in float64: in float32 an angle of 10,000 is already off by 0.001."""
    frequency = BASE ** (-torch.arange(0, width, 2, dtype=torch.float64, device=device) / width)
    return torch.arange(length, dtype=torch.float64, device=device)[:, None] * frequency


# The tables are shared by all layers. They are made outside inference mode because training may use them later.


@lru_cache(maxsize=32)
def _sinusoids(length: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False), torch.no_grad():
        angles = _angles(length, width, device)
        interleaved = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
        return interleaved[:, :width].to(dtype)


@lru_cache(maxsize=32)
def _turns(length: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False), torch.no_grad():
        angles = _angles(length, width, device)
        return torch.complex(angles.cos().to(dtype), angles.sin().to(dtype))


@torch.compiler.assume_constant_result
def _sines_and_cosines(length: int, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(2, length, width/2)"""
    turns = _turns(length, width, dtype, device)
    return torch.stack((turns.imag, turns.real))
