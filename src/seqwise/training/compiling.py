"""torch.compile for stacks of Transformer layers. This module knows nothing of tasks."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import nn

from seqwise.errors import UsageError
from seqwise.layers.transformer import LayerFunction, Stack, call_layer

REPAIR = "Leave --training.compile out."


def compile_layers(model: nn.Module, device: torch.device, **options: Any) -> None:
    """Have layers compiled when training first calls them, once for all layers of a stack.

    Evaluation is not compiled, so that activations can be recorded. `options` are those of torch.compile.
    """
    stacks = _find_stacks(device, lambda: model)
    for stack in stacks:
        stack.compiled_layer = torch.compile(_copy_call_layer(), **options)


def check_can_compile(device: torch.device, build: Callable[[], nn.Module] | None) -> None:
    """Raise an error if nothing can be compiled, before anything is written; `build` is None without a network."""
    _find_stacks(device, build)


def _find_stacks(device: torch.device, build: Callable[[], nn.Module] | None) -> list[Stack]:
    if device.type != "cuda":
        raise UsageError("layers are compiled for GPUs only: on CPUs it was slower.", repair=REPAIR)
    stacks: list[Stack] = []
    if build is not None:
        with torch.device("meta"):  # without memory for the weights
            stacks = [module for module in build().modules() if isinstance(module, Stack)]
    if not stacks:
        raise UsageError(
            "there is nothing to compile: only Transformer layers are compiled; recurrent ones have their own kernels.",
            repair=REPAIR,
        )
    return stacks


def _copy_call_layer() -> LayerFunction:
    """Return a copy of `call_layer` with its own code object.

    The compiler counts graphs per code object and stops compiling after the eighth, which an encoder and a decoder
    that share one would soon reach.
    """
    return FunctionType(call_layer.__code__.replace(), call_layer.__globals__, call_layer.__name__)
