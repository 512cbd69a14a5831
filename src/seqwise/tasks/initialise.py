"""`--init RUN`: a run of classify or tag that begins with the encoder and the vocabulary of another run.

Training calls three functions in this order: `inherit_settings` before the data is read, `copy_vocabulary` for reading
it, `copy_weights` once the model is built. The module knows nothing of run folders, as `training/initialization.py`
does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from seqwise.config import RECURRENT, Settings
from seqwise.errors import RunError, UsageError
from seqwise.tasks.task import Preprocessor

SOURCES, TARGETS = ("language", "masked"), ("classify", "tag")

# What decides the shape of the weights, and what they mean. Regularisation is the new run's own affair.
TAKEN = {
    "text": ("tokenizer", "vocabulary", "lowercase"),
    "network": ("width", "depth", "embedding"),
    "recurrent": (
        "activation",
        "update",
        "reset",
        "layer_norm",
        "cell",
        "attention_span",
        "bidirectional",
        "concat_directions",
    ),
    "transformer": ("heads", "positions", "norm", "activation", "hidden"),
    "context": ("length",),
}


def inherit_settings(settings: Settings, source: Settings, name: str) -> tuple[Settings, list[str]]:
    """The settings with what must agree taken from the run called `name`, and the dotted names of what was taken.

    A setting counts as not set where it has its default. What was set otherwise must agree.
    """
    _require_partners(settings, source, name)
    chosen, defaults, taken, wrong = settings.model_copy(deep=True), Settings(), [], []

    def take(path: str, theirs: Any) -> None:
        section, _, key = path.rpartition(".")
        home, plain = (getattr(chosen, section), getattr(defaults, section)) if section else (chosen, defaults)
        mine = getattr(home, key)
        if mine == theirs or theirs is None:
            return
        if mine == getattr(plain, key):
            setattr(home, key, theirs)
            taken.append(path)
        else:
            wrong.append(f"--{path.replace('_', '-')} is {mine}, but {name} has {theirs}.")

    take("model", source.model)
    values = source.model_dump()  # None where a setting does not apply to that run
    for section, keys in TAKEN.items():
        for key in keys:
            take(f"{section}.{key}", values[section][key])
    if source.task == "language" and source.model in RECURRENT:
        take("recurrent.bidirectional", False)
    if source.model == "transformer" and source.transformer.positions == "learned":
        take("data.max_length", source.data.window)  # there are vectors for so many places
    if settings.task == "tag":
        take("tag.characters", 0)  # its encoder has read nothing but token vectors
    if wrong:
        raise UsageError("\n".join(wrong), repair="Leave these out: they are taken from that run.")
    return chosen, taken


def _require_partners(settings: Settings, source: Settings, name: str) -> None:
    if settings.task not in TARGETS:
        raise UsageError(
            f"--init starts a run of {' or '.join(TARGETS)}; received --task {settings.task}.", repair="Leave it out."
        )
    if source.task not in SOURCES or (source.task == "language" and source.model not in (*RECURRENT, "transformer")):
        what = f"{source.model} of the task {source.task}"
        raise UsageError(
            f"--init: {name} is a {what}, which has no encoder of texts.",
            repair="Name a run of --task masked, or of language with a recurrent model or a Transformer.",
        )


def copy_vocabulary(preprocessor: Preprocessor) -> Preprocessor:
    """The vocabulary without the facts: labels and tags are learned from the new data."""
    return Preprocessor({"text": preprocessor.tokenizer})


@torch.no_grad()
def copy_weights(model: nn.Module, weights: dict[str, Tensor], name: str) -> str:
    """Copy embedding and encoder into a new model, whole or not at all; returns what was done, as a sentence.

    The model calls them `embedding` and `encoder`; a language model calls its encoder `backbone`.
    """
    known = {f"encoder.{key.removeprefix('backbone.')}" if key.startswith("backbone.") else key: tensor
             for key, tensor in weights.items()}  # fmt: skip
    parameters = dict(model.named_parameters())
    wanted = {key: own for key, own in parameters.items() if key.startswith(("embedding.", "encoder."))}
    for key, own in wanted.items():
        if key not in known:
            raise RunError(f"--init: {name} has no {key}, which the model needs.", repair=_OTHER)
        if known[key].shape != own.shape:
            problem = (
                f"--init: {key} has shape {tuple(known[key].shape)} in {name}, the model needs {tuple(own.shape)}."
            )
            raise RunError(problem, repair=_OTHER)
    for key, own in wanted.items():
        own.copy_(known[key])
    copied = sum(own.numel() for own in wanted.values())
    rest = sum(own.numel() for own in parameters.values()) - copied
    return f"{copied:,} weights of embedding and encoder begin as in {name}; {rest:,} others begin anew."


_OTHER = "Leave out settings of the network, which are taken from that run, or name another run."
