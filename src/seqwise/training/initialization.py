"""The start of a new run: random weights, with `--init` those of another run, with `--vectors` word vectors.

This module knows nothing of the training loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from torch import nn

from seqwise.config import Settings
from seqwise.tasks.initialise import copy_vocabulary, copy_weights, inherit_settings
from seqwise.tasks.task import LogFunction, Preprocessor, Task
from seqwise.training.run import Run
from seqwise.training.word_vectors import check_vectors, initialize_embeddings


def inherit_from_run(settings: Settings, log: LogFunction) -> tuple[Settings, Preprocessor | None]:
    """Return settings and vocabulary with those of the run in `--init`; without it, the settings and None."""
    check_vectors(settings)
    if settings.init is None:
        return settings, None
    source = Run.open(settings.init)
    settings, inherited = inherit_settings(settings, source.settings, settings.init)
    source.load_weights()  # raises an error about missing weights before the data is read
    values = [f"its vocabulary of {len(source.tokenizer):,}", *list_values(settings, inherited)]
    log(f"from {settings.init}: {', '.join(values)}")
    return settings, copy_vocabulary(source.preprocessor)


def initialize_weights(model: nn.Module, task: Task, run: Run, log: LogFunction) -> None:
    """Copy the initial weights into the model of a new run. A resumed run loads its own from the checkpoint."""
    settings, is_new = run.settings, not any(run.checkpoints.glob("step-*"))
    if settings.init and is_new:
        log(copy_weights(model, Run.open(settings.init).load_weights(), settings.init))
    if settings.vectors and (is_new or settings.network.freeze_embedding):
        initialize_embeddings(task.embeddings(model), run, is_new)


def list_values(settings: Settings, paths: Iterable[str]) -> list[str]:
    """Return the name of each setting, as an option, with its value."""
    return [f"{path.replace('_', '-')} {attrgetter(path)(settings)}" for path in paths]
