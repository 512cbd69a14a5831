"""Default rules: every setting that the user has not set is chosen from the data, the budget and the machine.

Each task has its own rules, `set_TASK_defaults` in `tasks/TASK/`; their numbers come from the searches in docs/log.md.
This module has what they share, and the rules of tasks without their own. The chosen values are logged and saved with
the run, and so are the reasons.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

from seqwise.budget import Budget
from seqwise.config import Settings
from seqwise.families import get_family
from seqwise.resolved_settings import ResolvedSettings
from seqwise.task_registry import find_task

DEFAULT_BUDGET = "10m"
SAME_WIDTH = "the width of the network"  # reason for the width of embeddings


class SetDefault(Protocol):
    """Sets a setting, given its dotted name, unless the user has set it. The reason is a clause for the user."""

    def __call__(self, name: str, value: Any, reason: str = "", /) -> None: ...


@dataclass(frozen=True)
class DefaultsContext:
    """The properties of the data and the machine on which the default rules depend."""

    num_tokens: int  # in the training split
    vocabulary_size: int
    cuda: bool
    cores: int
    processes: int = 1
    bfloat16: bool = False  # supported by the device itself, not emulated
    num_examples: int = 0  # in the training split: sentences, pairs, images or windows
    max_length: int = 0  # tokens of the longest example
    vector_width: int = 0  # width of the pretrained word vectors; 0: there are none
    is_comparison: bool = False  # several families are compared
    num_labels: int = 0  # of classify

    @property
    def machine(self) -> str:
        """The device in words."""
        return "a GPU" if self.cuda else "a CPU"


def resolve(settings: Settings, context: DefaultsContext) -> tuple[ResolvedSettings, dict[str, str]]:
    """Returns the settings with a value for each setting, and the reasons of those chosen here, by dotted name.

    For a family without gradients nothing is chosen: the settings below do not apply to it.
    """
    resolved = ResolvedSettings.from_settings(settings)
    reasons: dict[str, str] = {}

    def set_default(name: str, value: Any, reason: str = "", /) -> None:
        section_name, _, field = name.rpartition(".")
        section = getattr(resolved, section_name) if section_name else resolved
        if field not in section.model_fields_set:
            setattr(section, field, value)
            reasons[name] = reason

    if not get_family(resolved.model).has_gradients:
        return resolved, reasons
    set_default("budget", DEFAULT_BUDGET, "the default budget")
    if context.vector_width:
        set_default("network.embedding", context.vector_width, "the width of the word vectors")
    if resolved.training.optimizer == "adam":
        set_default("training.weight_decay", 1e-6, "adam divides this L2 gradient by the size of all gradients")
    if resolved.training.average_from < 1:
        set_default("training.ema", 0.0, "training.average_from averages the weights")
    find_task(resolved.task).set_defaults(resolved, context, set_default)
    set_default("training.ema", 0.0, "this task does not gain from averaged weights here")
    if not resolved.training.validate_every and not resolved.training.max_epochs:  # whose last validations are best
        set_default("training.patience", 8, "of 20 validations: a model that overfits does not recover")
    has_bfloat16 = context.cuda and context.bfloat16
    support = "the GPU computes it directly" if has_bfloat16 else f"{context.machine} without fast bfloat16"
    set_default("training.precision", "bfloat16" if has_bfloat16 else "float32", support)
    return resolved, reasons


def estimate_epochs(
    settings: ResolvedSettings, context: DefaultsContext, tokens_per_second: float | None = None
) -> float:
    """Returns the number of epochs that the budget allows; a time budget is converted by the speed of training."""
    budget, max_epochs = Budget.parse(settings.budget), settings.training.max_epochs or math.inf
    if budget.unit == "epochs":
        return min(budget.amount, max_epochs)
    num_tokens = budget.amount
    if budget.unit == "seconds":
        num_tokens *= estimate_tokens_per_second(settings, context) if tokens_per_second is None else tokens_per_second
    return min(num_tokens / max(1, context.num_tokens), max_epochs)


def estimate_tokens_per_second(settings: ResolvedSettings, context: DefaultsContext) -> float:
    """Returns the speed of training, estimated from the number of parameters and the floating-point operations."""
    width, depth = settings.network.width, settings.network.depth
    # A layer has 8 D² parameters (LSTM) or 12 D² (Transformer), 10 D² on average; a token takes 6 FLOPs for each.
    num_parameters = 10 * width * width * depth + width * context.vocabulary_size
    flops_per_second = 5e13 if context.cuda else 6e10 * context.cores  # reached by small models
    max_tokens_per_second = 1_000_000 if context.cuda else 40_000
    return min(flops_per_second / (6 * num_parameters), max_tokens_per_second)


def set_batch_size(batch_size: int, context: DefaultsContext, set_default: SetDefault, reason: str = "") -> None:
    """Sets the default batch size, rounded up to a multiple of the number of processes."""
    rounded = max(1, math.ceil(batch_size / context.processes)) * context.processes
    set_default("training.batch_size", rounded, reason)


def set_max_epochs(
    max_epochs: int, min_updates: int, settings: ResolvedSettings, context: DefaultsContext, set_default: SetDefault
) -> None:
    """Sets the number of epochs, but at least `min_updates`, after which training on little data ends.

    Only for budgets in time: how many epochs they have depends on the machine, and a faster one should not overfit
    more. In a comparison every family spends its budget. The batch size must be set.
    """
    if context.is_comparison or Budget.parse(settings.budget).unit != "seconds":
        return
    updates = max(1, context.num_examples // settings.training.batch_size)
    count = max(max_epochs, math.ceil(min_updates / updates))
    set_default("training.max_epochs", count, "with more, so little data would be memorised")


def set_transformer_defaults(
    settings: ResolvedSettings, set_default: SetDefault, head_width: int, feedforward_ratio: int = 4
) -> None:
    """Sets defaults: heads of about `head_width`; feed-forward layers `feedforward_ratio` times the network's width."""
    width = settings.network.width
    heads = choose_num_heads(width, max(1, head_width))
    set_default("transformer.heads", heads, f"heads of width {width // heads}")
    set_default("transformer.hidden", feedforward_ratio * width, f"{feedforward_ratio} times the width of the network")


def scale_learning_rate(settings: ResolvedSettings, rate: float, reference_size: int) -> float:
    """Returns `rate`, found at width × depth = `reference_size`, scaled by the inverse square root of the size."""
    size = settings.network.width * settings.network.depth
    return float(f"{rate * (reference_size / size) ** 0.5:.2g}")


def describe_epochs(epochs: float) -> str:
    """Returns why there is so much dropout."""
    return f"the budget allows about {epochs:.2g} epochs; more epochs need more dropout"


def describe_rate(settings: ResolvedSettings) -> str:
    """Returns why the learning rate is so large."""
    if not settings.training.is_adam:
        return f"for {settings.training.optimizer}"
    return f"found for {settings.model}, at width {settings.network.width} and depth {settings.network.depth}"


def choose_num_heads(width: int, head_width: int) -> int:
    """Returns the number of heads of about `head_width`, of even width (for rotary positions) where possible."""
    # if that number does not divide the width: 4, 2 or 1 heads
    return next((heads for heads in (width // head_width, 4, 2, 1) if heads and width % (2 * heads) == 0), 1)


def set_fallback_defaults(settings: ResolvedSettings, context: DefaultsContext, set_default: SetDefault) -> None:
    """Sets the defaults of a task without its own rules: a small network, since labelled examples are usually few."""
    is_transformer = settings.model == "transformer"
    set_default("network.width", 256 if context.cuda else 128, f"labelled examples are usually few; {context.machine}")
    set_default("network.depth", 2 if is_transformer else 1, "labelled examples are usually few")
    set_default("network.embedding", settings.network.width, SAME_WIDTH)
    set_default("network.dropout", 0.2, "labelled examples are usually few")
    if is_transformer:
        set_transformer_defaults(settings, set_default, 32)
    set_default("data.max_length", max(1, min(512, context.max_length)), "the longest training example, at most 512")
    set_default("data.max_tokens", 32_768 if context.cuda else 8_192, f"what {context.machine} reads at once")
    reason = f"an epoch of {context.num_examples:,} examples has at least 8 updates"
    set_batch_size(min(32, context.num_examples // 8), context, set_default, reason)
    set_default("training.learning_rate", 1e-3 if is_transformer else 3e-3, f"usual for {settings.model}")
    set_default("training.weight_decay", 0.01, "usual")
