"""Where a new run begins: from nothing, with `--init` from another run, or with `--vectors` from word vectors.

It knows nothing of training itself.
"""

from __future__ import annotations

from torch import nn

from seqwise.config import Settings
from seqwise.tasks.initialise import copy_weights, take_over, take_vocabulary
from seqwise.tasks.task import LogFunction, Preprocessor, Task
from seqwise.training.run import Run
from seqwise.training.word_vectors import check_vectors, start_rows


def inherit_from_run(settings: Settings, log: LogFunction) -> tuple[Settings, Preprocessor | None]:
    """The settings and the vocabulary to begin with; without `--init` the settings as they are, and None."""
    check_vectors(settings)
    if settings.init is None:
        return settings, None
    source = Run.open(settings.init)
    settings, taken = take_over(settings, source.settings, settings.init)
    source.load_weights()  # complains now about weights that are missing, not when the data has been read
    values = [f"{path.replace('_', '-')} {_value(settings, path)}" for path in taken]
    log(f"from {settings.init}: its vocabulary of {len(source.tokenizer):,}" + "".join(f", {each}" for each in values))
    return settings, take_vocabulary(source.preprocessor)


def initialize_weights(model: nn.Module, task: Task, run: Run, log: LogFunction) -> None:
    """Copy the weights that a new run begins with. A run that goes on has weights of its own."""
    settings, fresh = run.settings, not any(run.checkpoints.glob("step-*"))
    if settings.init and fresh:
        log(copy_weights(model, Run.open(settings.init).load_weights(), settings.init))
    if settings.vectors and (fresh or settings.network.freeze_embedding):
        start_rows(task.embeddings(model), run, fresh)


def _value(settings: Settings, path: str) -> object:
    home: object = settings
    for part in path.split("."):
        home = getattr(home, part)
    return home
