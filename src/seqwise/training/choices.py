"""Which settings of a run were chosen by rule, and why: `choices.json`, which explains a run to its user.

Some settings are chosen while the data is read, such as the kind of tokeniser; the others by the default rules
(`seqwise/tasks/defaults.py`). Values are in config.yaml. The device is chosen here, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from typing import Any

import torch
from pydantic import BaseModel

from seqwise import environment
from seqwise.budget import Budget
from seqwise.config import Settings
from seqwise.errors import UsageError
from seqwise.tasks.defaults import DefaultsContext
from seqwise.tasks.task import Task

# Setting that is chosen while the data is read → the beginning of the message that says why.
MESSAGES = {
    "text.tokenizer": "tokeniser: ",
    "tag.crf": "chosen by rule: tag.crf True, because ",
    "forecast.season": "season: ",
}
# The same, for settings without a message.
REASONS = {
    "text.vocabulary": "the tokens of the training split, up to the limit of the tokeniser",
    "text.min_count": "rarer words occur too seldom to learn a meaning",
    "data.max_length": "the longest training example, up to a limit",
    "horizon": "one season, or 10 steps without one, at most a tenth of training",
    "forecast.lookback": "the longer of 3.5 horizons and 3 seasons, at most a third of training",
    "forecast.splits": "the usual shares for series",
    "forecast.quantiles": "the usual quantiles",
}
FROM_DATA = "from the data"
# Settings with which a run may differ from its recipe and still be compared with it.
NOT_COMPARED = ("seed", "device", "training.watch", "training.save_every", "data.max_text_mb", "data.max_expansion")


def explain_reading(requested: Settings, prepared: Settings, messages: Sequence[str]) -> dict[str, str]:
    """Returns the reasons for settings that were chosen while the data was read, by dotted name.

    requested: the settings of the user
    prepared: the settings after the data was read
    messages: that were logged meanwhile
    """
    before = dict(list_values(requested))
    source = f"from the run {requested.init}" if requested.init else FROM_DATA
    choices = {}
    for name, value in list_values(prepared):
        if value is not None and value != before.get(name):
            start = MESSAGES.get(name)
            found = [message.removeprefix(start) for message in messages if start and message.startswith(start)]
            choices[name] = found[0].rstrip(".") if found else REASONS.get(name, source)
    return choices


def list_values(settings: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the dotted name and the value of each setting."""
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from list_values(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def list_set(settings: BaseModel, prefix: str = "") -> Iterator[str]:
    """Yields the dotted names of the settings that were set, whatever their value."""
    for name in sorted(settings.model_fields_set):
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from list_set(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def describe_call(data: object, recipe: str | None = None, overrides: Mapping[str, Any] | None = None) -> str:
    """Returns how a run was started from Python: its data, if that is a path, a recipe, and settings by dotted name."""
    path = repr(str(data)) if isinstance(data, str | PathLike) else "..."
    keywords = [f"{name}={value!r}" for name, value in (("recipe", recipe), ("settings", overrides)) if value]
    return f"seqwise.train({', '.join([path, *keywords])})  # in Python"


def list_overrides(settings: Settings, recipe: Settings) -> dict[str, Any]:
    """Returns the settings that differ from those of a recipe, by dotted name. `1-epoch` and `1-epochs` do not."""
    values = dict(list_values(recipe))
    if settings.budget and recipe.budget and Budget.parse(settings.budget) == Budget.parse(recipe.budget):
        values["budget"] = settings.budget
    return {name: value for name, value in list_values(settings) if value != values[name]}


def build_defaults_context(task: Task, device: torch.device, processes: int, vector_width: int = 0) -> DefaultsContext:
    """Returns the context of the default rules; `vector_width` is the width of the word vectors, if there are any."""
    cuda = device.type == "cuda"
    return DefaultsContext(
        **asdict(task.size()),
        cuda=cuda,
        cores=environment.count_cpus(),
        processes=processes,
        vector_width=vector_width,
        bfloat16=cuda and torch.cuda.is_bf16_supported(including_emulation=False),
    )


def choose_device(settings: Settings) -> torch.device:
    """Returns the device of the settings; for "auto" the GPU if there is one."""
    if settings.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise UsageError("PyTorch finds no CUDA device here.", fix="Leave out --device, or see: seqwise doctor")
    return torch.device(settings.device)
