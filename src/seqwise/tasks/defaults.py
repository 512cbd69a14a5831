"""Default rules: every setting that the user leaves open is chosen from the data, the budget and the machine.

Each task has its own rules, `fill_NAME` in `tasks/NAME/`. This module has the parts they share, and the rules of tasks
without their own. The numbers come from the searches in docs/log.md. The values are printed and saved with the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seqwise.budget import Budget
from seqwise.config import Settings
from seqwise.families import get_family
from seqwise.resolved_settings import ResolvedSettings
from seqwise.task_registry import find_task

DEFAULT_BUDGET = "10m"

Fill = Callable[[str, Any], None]


@dataclass(frozen=True)
class DefaultsContext:
    """What the default rules depend on: the data and the machine."""

    tokens: int  # in the training split
    vocabulary: int
    cuda: bool
    cores: int
    processes: int = 1
    bfloat16: bool = False  # supported by the device itself, not emulated
    examples: int = 0  # in the training split: sentences, pairs, images or windows
    max_length: int = 0  # tokens of the longest example
    vector_width: int = 0  # of the pretrained word vectors; 0: none


def resolve(settings: Settings, context: DefaultsContext) -> tuple[ResolvedSettings, list[str]]:
    """Returns the settings with every gap filled, and the dotted names of the settings that were chosen here."""
    resolved = ResolvedSettings.from_settings(settings)
    names: list[str] = []

    def fill(path: str, value: Any) -> None:
        section, _, key = path.rpartition(".")
        target = getattr(resolved, section) if section else resolved
        if key not in target.model_fields_set:
            setattr(target, key, value)
            names.append(path)

    if not get_family(resolved.model).has_gradients:
        return resolved, names  # these settings do not apply to it
    fill("budget", DEFAULT_BUDGET)
    if context.vector_width:
        fill("network.embedding", context.vector_width)
    find_task(resolved.task).fill_defaults(resolved, context, fill)
    fill("training.ema", 0.0)  # unless the rules of the task have set it
    if not resolved.training.validate_every:
        fill("training.patience", 8)  # of NUM_VALIDATIONS in training/loop.py; a model that overfits does not recover
    fill("training.precision", "bfloat16" if context.cuda and context.bfloat16 else "float32")
    return resolved, names


def estimate_epochs(settings: ResolvedSettings, context: DefaultsContext) -> float:
    """Returns the number of epochs that the budget allows; for a time budget, estimated from the size of the model."""
    budget = Budget.parse(settings.budget)
    if budget.unit == "epochs":
        return budget.amount
    tokens = budget.amount
    if budget.unit == "seconds":
        width, depth = settings.network.width, settings.network.depth
        # A layer has 8 D² parameters (LSTM) or 12 D² (Transformer), 10 D² on average; a token takes 6 FLOPs for each.
        num_parameters = 10 * width * width * depth + width * context.vocabulary
        flops_per_second = 5e13 if context.cuda else 6e10 * context.cores  # that small models reach
        max_tokens_per_second = 1_000_000 if context.cuda else 40_000
        tokens = budget.amount * min(flops_per_second / (6 * num_parameters), max_tokens_per_second)
    return tokens / max(1, context.tokens)


def fill_batch_size(batch_size: int, context: DefaultsContext, fill: Fill) -> None:
    """Sets the batch size, rounded up to a multiple of the number of processes."""
    fill("training.batch_size", max(1, math.ceil(batch_size / context.processes)) * context.processes)


def fill_transformer(settings: ResolvedSettings, fill: Fill, head_width: int, feedforward_ratio: int = 4) -> None:
    """Sets heads of about `head_width`, and feed-forward layers `feedforward_ratio` times as wide as the network."""
    width = settings.network.width
    fill("transformer.heads", choose_num_heads(width, max(1, head_width)))
    fill("transformer.hidden", feedforward_ratio * width)


def scale_learning_rate(settings: ResolvedSettings, rate: float, reference_size: int) -> float:
    """Returns `rate`, found at width × depth = `reference_size`, scaled by the inverse square root of the size."""
    size = settings.network.width * settings.network.depth
    return float(f"{rate * (reference_size / size) ** 0.5:.2g}")


def choose_num_heads(width: int, head_width: int) -> int:
    """Returns the number of heads of about `head_width`, of even width (for rotary positions) where possible."""
    # if that number does not divide the width: 4, 2 or 1 heads
    return next((heads for heads in (width // head_width, 4, 2, 1) if heads and width % (2 * heads) == 0), 1)


def fill_common(settings: ResolvedSettings, context: DefaultsContext, fill: Fill) -> None:
    """Fills the settings of a task without its own rules: a small network, since labelled examples are usually few."""
    is_transformer = settings.model == "transformer"
    fill("network.width", 256 if context.cuda else 128)
    fill("network.depth", 2 if is_transformer else 1)
    fill("network.embedding", settings.network.width)
    fill("network.dropout", 0.2)
    if is_transformer:
        fill_transformer(settings, fill, 32)
    fill("data.max_length", max(1, min(512, context.max_length)))
    fill("data.max_tokens", 32_768 if context.cuda else 8_192)
    fill_batch_size(min(32, context.examples // 8), context, fill)
    fill("training.learning_rate", 1e-3 if is_transformer else 3e-3)
    fill("training.weight_decay", 0.01)
