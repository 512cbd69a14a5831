"""Stacks of Transformer layers through torch.compile. It knows no tasks."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from seqwise.errors import UsageError
from seqwise.layers.transformer import Decoder, Encoder, through

REPAIR = "Leave --training.compile out."


def compile_layers(model: nn.Module, device: torch.device, **options: Any) -> None:
    """Let layers be compiled when training first calls them, once for all layers of a stack.

    Evaluation stays open, so that somebody can look inside. `options` are those of torch.compile.
    """
    if device.type != "cuda":
        raise UsageError("layers are compiled for GPUs only: on CPUs it was slower.", repair=REPAIR)
    stacks = [module for module in model.modules() if isinstance(module, Encoder | Decoder)]
    if not stacks:
        raise UsageError(
            "there is nothing to compile: only layers of Transformers are; recurrent ones have kernels of their own.",
            repair=REPAIR,
        )
    for stack in stacks:
        stack.through = torch.compile(through, **options)
