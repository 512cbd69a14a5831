"""Where a new run begins: from nothing, or with `--init` from another run. It knows nothing of training itself."""

from __future__ import annotations

from torch import nn

from seqwise.config import Settings
from seqwise.tasks.initialise import copy_weights, take_over, take_vocabulary
from seqwise.tasks.task import Learned, Say
from seqwise.training.run import Run


def begin_from(settings: Settings, say: Say) -> tuple[Settings, Learned | None]:
    """The settings and the vocabulary to begin with; without `--init` the settings as they are, and None."""
    if settings.init is None:
        return settings, None
    source = Run.open(settings.init)
    settings, taken = take_over(settings, source.settings, settings.init)
    source.load_weights()  # complains now about weights that are missing, not when the data has been read
    values = [f"{path.replace('_', '-')} {_value(settings, path)}" for path in taken]
    say(f"from {settings.init}: its vocabulary of {len(source.tokenizer):,}" + "".join(f", {each}" for each in values))
    return settings, take_vocabulary(source.learned)


def begin_weights(model: nn.Module, run: Run, say: Say) -> None:
    """Copy the weights that a new run begins with. A run that goes on has weights of its own."""
    init = run.settings.init
    if init is not None and not any(run.checkpoints.glob("step-*")):
        say(copy_weights(model, Run.open(init).load_weights(), init))


def _value(settings: Settings, path: str) -> object:
    home: object = settings
    for part in path.split("."):
        home = getattr(home, part)
    return home
