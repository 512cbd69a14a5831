"""`--init RUN`: initialises a run of classify or tag with the encoder and the vocabulary of another run, the source.

Training calls three functions in this order: `inherit_settings` and `copy_vocabulary` before the data is read,
`copy_weights` after the model is built. The module knows nothing of run folders, which `training/initialization.py`
reads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from seqwise.config import Settings
from seqwise.errors import RunError, UsageError
from seqwise.families import RECURRENT_FAMILIES
from seqwise.layers.old_names import use_current_names
from seqwise.tasks.task import Preprocessor

TARGET_TASKS = ("classify", "tag")
DIFFERENT_NETWORK_FIX = "Leave out settings of the network, which are taken from that run, or name another run."

# Settings that determine the shape and meaning of the weights. The new run has its own regularisation.
INHERITED_SETTINGS = {
    "text": ("tokenizer", "vocabulary", "lowercase"),
    "network": ("width", "depth", "embedding"),
    "recurrent": (
        *("activation", "update", "reset", "layer_norm", "cell", "attention_span"),
        *("bidirectional", "concat_directions", "cap_input_gate", "sum_layers", "last_width"),
    ),
    "transformer": ("heads", "positions", "norm", "activation", "hidden"),
    "context": ("length",),
}


def inherit_settings(settings: Settings, source: Settings, name: str) -> tuple[Settings, list[str]]:
    """Returns the settings with the `INHERITED_SETTINGS` of the source, and the dotted names of those that were copied.

    `name` is the source's folder. A setting with its default value is replaced; any other must agree with the source.
    """
    if settings.task not in TARGET_TASKS:
        problem = f"--init starts a run of {' or '.join(TARGET_TASKS)}; received --task {settings.task}."
        raise UsageError(problem, fix="Leave out --init.")
    has_encoder = source.task == "masked" or (
        source.task == "language" and source.model in (*RECURRENT_FAMILIES, "transformer")
    )
    if not has_encoder:
        problem = f"--init: {name} has the model {source.model} of the task {source.task}, which has no text encoder."
        fix = "Name a run of --task masked, or of language with a recurrent model or a Transformer."
        raise UsageError(problem, fix=fix)
    result, defaults = settings.model_copy(deep=True), Settings()
    inherited_names: list[str] = []
    conflicts: list[str] = []

    def inherit(setting: str, value: Any) -> None:
        section_name, _, field = setting.rpartition(".")
        section, default_section = result, defaults
        if section_name:
            section, default_section = getattr(result, section_name), getattr(defaults, section_name)
        own_value = getattr(section, field)
        if own_value == value or value is None:
            return
        if own_value == getattr(default_section, field):
            setattr(section, field, value)
            inherited_names.append(setting)
        else:
            conflicts.append(f"--{setting.replace('_', '-')} is {own_value}, but {name} has {value}.")

    inherit("model", source.model)
    values = source.model_dump()  # None for a setting that does not apply to the source
    for section, keys in INHERITED_SETTINGS.items():
        for key in keys:
            inherit(f"{section}.{key}", values[section][key])
    if source.task == "language" and source.model in RECURRENT_FAMILIES:
        inherit("recurrent.bidirectional", False)
    if source.model == "transformer" and source.transformer.positions == "learned":
        inherit("data.max_length", source.data.window)  # there are position vectors for this many tokens
    if settings.task == "tag":
        inherit("tag.characters", 0)  # the source's encoder reads token vectors only
        inherit("tag.features", 0)
    if conflicts:
        raise UsageError("\n".join(conflicts), fix="Leave these out: they are taken from that run.")
    return result, inherited_names


def copy_vocabulary(preprocessor: Preprocessor) -> Preprocessor:
    """Returns a preprocessor with the same vocabulary and no labels or tags, which come from the new data."""
    return Preprocessor({"text": preprocessor.tokenizer})


@torch.no_grad()
def copy_weights(model: nn.Module, weights: dict[str, Tensor], name: str) -> str:
    """Copies embedding and encoder into a new model, completely or not at all; returns a sentence for the log.

    The encoder is called `encoder` in the new model, but `backbone` in a language model.
    """
    source = {f"encoder.{key.removeprefix('backbone.')}" if key.startswith("backbone.") else key: tensor
              for key, tensor in weights.items()}  # fmt: skip
    parameters = dict(model.named_parameters())
    source = use_current_names(source, parameters)
    targets = {key: parameter for key, parameter in parameters.items() if key.startswith(("embedding.", "encoder."))}
    for key, target in targets.items():
        if key not in source:
            raise RunError(f"--init: {name} has no {key}, which the model needs.", fix=DIFFERENT_NETWORK_FIX)
        if source[key].shape != target.shape:
            shapes = f"shape {tuple(source[key].shape)} in {name}, the model needs {tuple(target.shape)}"
            raise RunError(f"--init: {key} has {shapes}.", fix=DIFFERENT_NETWORK_FIX)
        if not bool(source[key].isfinite().all()):
            raise RunError(f"--init: {key} of {name} holds infinite numbers or nan.", fix="Train that run again.")
    for key, target in targets.items():
        target.copy_(source[key])
    num_copied = sum(target.numel() for target in targets.values())
    num_others = sum(parameter.numel() for parameter in parameters.values()) - num_copied
    report = f"{num_copied:,} weights of embedding and encoder are copied from {name}"
    return f"{report}; {num_others:,} others start at random."
