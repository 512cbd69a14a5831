"""Rejects settings that cannot work, before anything is written. The module knows nothing of any particular model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import nn

from seqwise import environment
from seqwise.errors import UsageError
from seqwise.families import get_family, list_families_for
from seqwise.resolved_settings import ResolvedSettings

COPIES_PER_WEIGHT = 4  # float32 numbers in training: the weight, its gradient and the two moments of Adam

Model = TypeVar("Model", bound=nn.Module)


def check_precision(settings: ResolvedSettings) -> None:
    """Rejects bfloat16 on a CPU without it.

    Some processors advertise bfloat16 and kill the process at its first matrix product, so a child process tries it.
    """
    is_on_cpu = settings.device == "cpu" or (settings.device == "auto" and not torch.cuda.is_available())
    if is_on_cpu and settings.training.precision == "bfloat16" and not environment.probe_cpu_bfloat16():
        raise UsageError(
            "bfloat16 does not work on this CPU: a test in a child process failed.",
            fix="Leave out --training.precision, or set it to float32.",
        )


def check_family(settings: ResolvedSettings) -> None:
    """Rejects a family that has no model for the task."""
    family = get_family(settings.model)
    if not family.supports(settings.task):
        raise UsageError(
            f"the family {family.name} cannot do the task {settings.task}: it {family.description}.",
            fix=f"Choose another --model: {', '.join(list_families_for(settings.task))}.",
        )


def check_output(settings: ResolvedSettings, supported: Sequence[str]) -> None:
    """Rejects a kind of softmax that the task does not support."""
    output = settings.network.output
    if output not in supported:
        expected = f"the task {settings.task} has the {' or '.join(supported)} softmax only"
        raise UsageError(f"{expected}; received --network.output {output}.", fix="Leave out --network.output.")


def check_memory(build: Callable[[], Model], settings: ResolvedSettings) -> Model:
    """Returns the model on the meta device, which allocates no memory; rejects one too large to train here."""
    model: Model | None = None
    try:
        with torch.device("meta"):
            model = build()
        num_weights = sum(parameter.numel() for parameter in model.parameters())
        size = f"{num_weights:,} weights, which take {4 * COPIES_PER_WEIGHT * num_weights / 1e9:,.0f} GB to train"
    except RuntimeError:  # the bytes of a matrix overflow int64
        num_weights, size = 2**60, "more weights than any machine holds"
    available = (environment.get_gpu() or {}).get("memory") if settings.device != "cpu" else None
    available = available or environment.get_memory()[0]
    if model is None or (available is not None and 4 * COPIES_PER_WEIGHT * num_weights > available):
        limit = "" if available is None else f"; there are {available / 1e9:,.0f} GB"
        raise UsageError(
            f"the model would have {size}{limit}.",
            fix="Choose a smaller --network.width or --network.depth, or a smaller --text.vocabulary.",
        )
    return model
