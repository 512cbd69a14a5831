"""Prepares a model for training: initial weights from a run (`--init`) or word vectors (`--vectors`), compilation.

This module knows nothing of the training loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from types import FunctionType
from typing import Any

import torch
from torch import nn

from seqwise.callbacks import LogFunction
from seqwise.config import Settings
from seqwise.errors import UsageError
from seqwise.layers.transformer import Stack, call_layer
from seqwise.tasks.init_from_run import copy_vocabulary, copy_weights, inherit_settings
from seqwise.tasks.task import Preprocessor, Task
from seqwise.training.run import Run
from seqwise.training.word_vectors import check_vectors, initialize_embeddings


def inherit_from_run(settings: Settings, log: LogFunction) -> tuple[Settings, Preprocessor | None]:
    """Returns the settings completed by those of the run that `--init` names, and its vocabulary.

    Without `--init` these are `settings` and None.
    """
    check_vectors(settings)
    if settings.init is None:
        return settings, None
    source = Run.open(settings.init)
    settings, inherited = inherit_settings(settings, source.settings, settings.init)
    source.read_weights()  # raises an error if they are missing, before the data is read
    values = [f"its vocabulary of {len(source.preprocessor.tokenizer):,}", *format_settings(settings, inherited)]
    log(f"from {settings.init}: {', '.join(values)}")
    return settings, copy_vocabulary(source.preprocessor)


def initialize_weights(model: nn.Module, task: Task, run: Run, log: LogFunction) -> None:
    """Copies the initial weights into the model of a new run, and freezes word vectors if the settings say so.

    A resumed run loads its weights from a checkpoint; its word vectors are frozen again.
    """
    settings, is_new = run.settings, not any(run.checkpoints.glob("step-*"))
    if settings.init and is_new:
        log(copy_weights(model, Run.open(settings.init).read_weights(), settings.init))
    if settings.vectors and (is_new or settings.network.freeze_embedding):
        initialize_embeddings(task.embeddings(model), run, is_new)


def format_settings(settings: Settings, names: Iterable[str]) -> list[str]:
    """Returns each setting as text, such as `network.width 128`, given their dotted names."""
    return [f"{name.replace('_', '-')} {attrgetter(name)(settings)}" for name in names]


def compile_layers(model: nn.Module, device: torch.device, **options: Any) -> None:
    """Compiles Transformer layers, once for all layers of a stack, when training first calls them.

    Evaluation is not compiled, so that activations can be recorded. `options` are passed to torch.compile.
    """
    for stack in find_compilable_stacks(device, lambda: model):
        # Each stack has a copy of `call_layer` with its own code object: the compiler compiles at most eight graphs per
        # code object, which an encoder and a decoder that share one would soon reach.
        function = FunctionType(call_layer.__code__.replace(), call_layer.__globals__, call_layer.__name__)
        stack.compiled_layer = torch.compile(function, **options)


def find_compilable_stacks(device: torch.device, build: Callable[[], nn.Module] | None) -> list[Stack]:
    """Returns the stacks of Transformer layers; raises an error if there are none.

    `build` returns the model; it is None for an n-gram model, which has no layers.
    """
    problem = (
        "there is nothing to compile: only Transformer layers are compiled; recurrent ones have their own kernels."
    )
    stacks: list[Stack] = []
    if device.type != "cuda":
        problem = "layers are compiled for GPUs only: on CPUs it was slower."
    elif build is not None:
        with torch.device("meta"):  # without memory for the weights
            stacks = [module for module in build().modules() if isinstance(module, Stack)]
    if not stacks:
        raise UsageError(problem, fix="Leave --training.compile out.")
    return stacks
