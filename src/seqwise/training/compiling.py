"""Stacks of Transformer layers through torch.compile. It knows no tasks."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import nn

from seqwise.errors import UsageError
from seqwise.layers.transformer import Stack, Through, through

REPAIR = "Leave --training.compile out."


def compile_layers(model: nn.Module, device: torch.device, **options: Any) -> None:
    """Let layers be compiled when training first calls them, once for all layers of a stack.

    Evaluation stays open, so that somebody can look inside. `options` are those of torch.compile.
    """
    stacks = _stacks(device, lambda: model)
    for stack in stacks:
        stack.through = torch.compile(_own_copy(), **options)


def check_can_compile(device: torch.device, build: Callable[[], nn.Module] | None) -> None:
    """Refuse what cannot be compiled, before anything is written; `build` is None where there is no network at all."""
    _stacks(device, build)


def _stacks(device: torch.device, build: Callable[[], nn.Module] | None) -> list[Stack]:
    if device.type != "cuda":
        raise UsageError("layers are compiled for GPUs only: on CPUs it was slower.", repair=REPAIR)
    found: list[Stack] = []
    if build is not None:
        with torch.device("meta"):  # a model that is only looked at needs no memory
            found = [module for module in build().modules() if isinstance(module, Stack)]
    if not found:
        raise UsageError(
            "there is nothing to compile: only layers of Transformers are; recurrent ones have kernels of their own.",
            repair=REPAIR,
        )
    return found


def _own_copy() -> Through:
    """`through` as a function with code of its own.

    The compiler counts graphs by code, and from the ninth on it leaves all calls open; an encoder and a decoder that
    shared them would soon be there.
    """
    return FunctionType(through.__code__.replace(), through.__globals__, through.__name__)
