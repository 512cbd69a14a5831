"""`Subject`: a model with one input, as every view reads it.

    open_subject(seqwise.load("runs/lstm"), "the cat sat")    # a trained run and a text
    open_subject(lstm, x)                                     # any module of seqwise.layers and its inputs

It knows nothing of views or figures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.errors import DataError, UsageError, check_type, suggest
from seqwise.layers.record import Recording, Transform, record
from seqwise.tasks.inspection import InspectedInput
from seqwise.tasks.token_decoder import TokenDecoder
from seqwise.training.api import TrainedModel

CHOOSING_SHARE = 0.2  # of a view's time, about: choosing the text that is shown
NUM_CANDIDATES = 64  # validation examples of which one is chosen
MAX_TEXT_TOKENS = 20_000  # of a text of the user
MIN_TOKENS, MAX_TOKENS = 8, 40  # of an example that is chosen, if one has such a length

TASKS_WITH_SHARED_TEXT = ("language", "classify", "tag", "translate")  # a text of an example is that example again

_chosen_examples: WeakKeyDictionary[TrainedModel, InspectedInput] = WeakKeyDictionary()


@dataclass(frozen=True)
class Subject:
    """What a view looks at. `call` runs the model once on its input and returns its outputs."""

    name: str  # such as "ptb (lstm)"
    module: nn.Module
    call: Callable[[], Any]
    tokens: Sequence[str]  # one per position of the input
    outputs: Sequence[str] = ()  # one per position of a decoder
    inspected: InspectedInput | None = None
    trained: TrainedModel | None = None

    @property
    def position_name(self) -> str:
        """What one position of the input is, such as "token"."""
        return "token" if self.inspected is None else self.inspected.position_name

    @property
    def position_plural(self) -> str:
        """The plural of `position_name`."""
        noun, *rest = self.position_name.split(" ", 1)
        return " ".join([f"{noun}es" if noun.endswith("ch") else f"{noun}s", *rest])

    def record(self, pattern: str = "*", live: bool = False, transform: Transform | None = None) -> Recording:
        """Runs the model once in evaluation mode and returns its interior values; the model stays as it was.

        live, transform: as of `seqwise.layers.record.record`; with `live` gradients flow through the values
        """
        with (
            evaluation_mode(self.module),
            torch.set_grad_enabled(live),
            record(self.module, pattern, live=live, transform=transform) as values,
        ):
            self.call()
        return values

    def record_each(self, patterns: Sequence[str]) -> list[Recording]:
        """Runs the model once and returns a recording for each pattern; values that match none are not computed."""
        with evaluation_mode(self.module), torch.no_grad(), ExitStack() as stack:
            recordings = [stack.enter_context(record(self.module, pattern)) for pattern in patterns]
            self.call()
        return recordings

    def name_positions(self, path: str, count: int) -> list[str]:
        """Returns names for the positions of a layer's values: tokens of the input, or of the output in a decoder."""
        for names in (self.tokens, self.outputs):
            if len(names) == count and not (names is self.tokens and self.is_in_decoder(path)):
                return list(names)
        return [str(position) for position in range(count)]

    def runs(self, path: str) -> bool:
        """Whether a layer runs on this input: of the decoders of several targets, only that of the target does."""
        first, *others = path.split(".")
        target = getattr(self.inspected and self.inspected.batch, "first_target", None)
        if first != "decoders" or not others or target is None:
            return True
        return len(self.module.decoders) == 1 or others[0] == str(target)  # type: ignore[arg-type]

    def is_in_decoder(self, path: str) -> bool:
        """Whether a layer reads the output so far."""
        return bool(self.outputs) and path.split(".")[0] in ("decoder", "decoders")


def open_subject(
    model: TrainedModel | nn.Module,
    inputs: Any = None,
    progress: ProgressCallback = no_progress,
    target: str | None = None,
) -> Subject:
    """Returns a model with its input: a text, None for a validation example, or tensors for a plain module.

    progress: called while the validation example is chosen
    target: the language of a translator that has several; the first unless set
    """
    if isinstance(model, TrainedModel):
        inspected = choose_example(model, progress, target) if inputs is None else inspect_text(model, inputs, target)
        return build_subject(model, inspected)
    check_target(model, target)
    check_type("model", model, nn.Module, "a trained model (seqwise.load) or a torch.nn.Module")
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    if not any(isinstance(argument, Tensor) for argument in arguments):
        problem = f"expected tensors with which the {type(model).__name__} is called, received {type(inputs).__name__}."
        raise UsageError(problem, fix="Pass a tensor, or a tuple of the arguments.")
    first = next(argument for argument in arguments if isinstance(argument, Tensor))
    shape = first.shape[-2:-1] if first.is_floating_point() else first.shape[-1:]  # vectors (B, T, D) or ids (B, T)
    tokens = [str(position) for position in range(shape[0] if shape else 1)]
    call = model.decode if isinstance(model, TokenDecoder) else model
    return Subject(type(model).__name__, model, lambda: call(*arguments), tokens)


def open_subject_or_model(trained: TrainedModel, text: str | None, progress: ProgressCallback = no_progress) -> Subject:
    """Returns a run with its input, or without one if no text is given and the data of the run cannot be read."""
    try:
        return open_subject(trained, text, progress)
    except DataError:
        if text is not None:
            raise
        return Subject(name_run(trained), trained.model, lambda: None, (), trained=trained)


def build_subject(model: TrainedModel, inspected: InspectedInput) -> Subject:
    """Returns a trained model with one of its inputs."""
    module: nn.Module = model.model
    tokens, outputs = inspected.tokens, inspected.outputs
    name = f"{name_run(model)}, target {inspected.target}" if inspected.target else name_run(model)
    return Subject(name, module, lambda: module(inspected.batch), tokens, outputs, inspected, model)


def open_subjects(models: Any, inputs: Any = None, progress: ProgressCallback = no_progress) -> list[Subject]:
    """Returns each of one or several models with the same input, under different names.

    Without an input, runs of the same task read the example that is chosen for the first one, where they can: one that
    is longer than a model reads at once was truncated, and is refused as a text.
    """
    several = list_models(models)
    first = open_subject(several[0], inputs, progress)
    subjects = [first, *(_open_next(model, first, inputs, progress) for model in several[1:])]
    return [replace(subject, name=name) for subject, name in zip(subjects, name_models(several))]


def _open_next(model: Any, first: Subject, inputs: Any, progress: ProgressCallback) -> Subject:
    """Returns another model with the input of the first one, or, without an input, its own example if need be."""
    if inputs is None and first.inspected is not None and first.trained is not None:
        task = first.trained.settings.task
        if task in TASKS_WITH_SHARED_TEXT and isinstance(model, TrainedModel) and model.settings.task == task:
            with suppress(UsageError):
                return open_subject(model, first.inspected.text)
    return open_subject(model, inputs, progress)


def list_models(models: Any) -> list[Any]:
    """Returns one model, or several, as a list; raises an error for an empty one."""
    several = list(models) if isinstance(models, Sequence) else [models]
    if not several:
        raise UsageError("expected a model or several, received none.", fix='Pass seqwise.load("runs/…").')
    return several


def name_models(models: Sequence[TrainedModel | nn.Module]) -> list[str]:
    """Returns different names of runs and plain modules; modules have the name of their class."""
    runs = [model for model in models if isinstance(model, TrainedModel)]
    if len(runs) == len(models):
        return name_runs(runs)
    names = [name_run(model) if isinstance(model, TrainedModel) else type(model).__name__ for model in models]
    return names if len(set(names)) == len(names) else [f"{name} {i}" for i, name in enumerate(names, start=1)]


def name_run(model: TrainedModel, num_folders: int = 1) -> str:
    """Returns a short name of a run: the last of its folders, and its family where they do not contain it."""
    parts = model.run.folder.resolve().parts
    num_folders += re.fullmatch(r"seed-\d+|lr-\d+", parts[-1]) is not None  # a trial of a comparison: lstm/seed-1
    name = "/".join(parts[-num_folders:])
    return name if model.settings.model in name else f"{name} ({model.settings.model})"


def name_runs(models: Sequence[TrainedModel]) -> list[str]:
    """Returns different names of several runs: with as many of their folders as it takes."""
    for num_folders in range(1, 1 + max((len(model.run.folder.resolve().parts) for model in models), default=0)):
        names = [name_run(model, num_folders) for model in models]
        if len(set(names)) == len(names):
            return names
    return [f"{name_run(model)} {number}" for number, model in enumerate(models, start=1)]  # one run, several times


def check_target(model: Any, target: str | None) -> None:
    """Raises an error for a target language that the model does not translate into."""
    if target is None:
        return
    check_type("target", target, str, "the name of a target language")
    attributes = model.run.preprocessor.attributes if isinstance(model, TrainedModel) else {}
    names: Sequence[str] = attributes.get("targets", ())
    if not names:
        raise UsageError("target: the model is no translator, so it has no target.", fix="Leave out the target.")
    if target not in names:
        problem = f"the run does not translate into {target!r}; its targets are {', '.join(names)}."
        raise UsageError(problem, fix=suggest(target, names))


def inspect_text(model: TrainedModel, text: str, target: str | None = None) -> InspectedInput:
    """Returns a text as the model reads it; `target` is the language of a translator that has several."""
    check_type("text", text, str, "a text")
    check_target(model, target)
    if not text.strip():
        raise UsageError("the text is empty.", fix="Pass a text, or none: then a validation example is chosen.")
    with evaluation_mode(model.model), torch.no_grad():
        inspected = model.task.inspect_text(replace(model.bundle, target=target), text)
    if len(inspected.tokens) > MAX_TEXT_TOKENS:
        problem = f"the text has {len(inspected.tokens):,} tokens; a view shows at most {MAX_TEXT_TOKENS:,}."
        raise UsageError(problem, fix="Pass a part of it.")
    return inspected


def inspect_split(
    model: TrainedModel, count: int, data: str | None = None, progress: ProgressCallback = no_progress
) -> list[InspectedInput]:
    """Returns at most `count` examples, evenly spread over the validation split of the run's data, or of other data."""
    read = model.task.inspect_split
    # A task that a user has written may lack the parameter `progress`.
    options = {"progress": progress} if "progress" in signature(read).parameters else {}
    with evaluation_mode(model.model), torch.no_grad():
        return read(model.bundle, data or model.run.metadata.data, "valid", count, **options)


def choose_example(
    model: TrainedModel, progress: ProgressCallback = no_progress, target: str | None = None
) -> InspectedInput:
    """Returns a typical example of the validation split: of those of moderate length, the one with the median loss.

    It is chosen once for each model, and is the same for each target of a translator.
    """
    check_target(model, target)
    if model not in _chosen_examples:
        _chosen_examples[model] = find_typical_example(model, progress)
    example = _chosen_examples[model]
    if target is None or target == (example.target or target):
        return example
    return replace(inspect_text(model, example.text, target), description=example.description)


def get_chosen_example(model: TrainedModel) -> InspectedInput | None:
    """Returns the example that was chosen for a model, so that it can be named; None if there was a text."""
    return _chosen_examples.get(model)


def find_typical_example(model: TrainedModel, progress: ProgressCallback = no_progress) -> InspectedInput:
    """Reads the validation split and returns a typical example."""
    try:
        examples = inspect_split(model, NUM_CANDIDATES, progress=progress)
    except DataError as error:
        problem = f"no validation example can be chosen: the data of the run cannot be read. {error.problem}"
        raise DataError(problem, fix="Pass a text to look at, or put the data back.", file=error.file) from None
    suitable = [example for example in examples if MIN_TOKENS <= len(example.tokens) <= MAX_TOKENS] or list(examples)
    with evaluation_mode(model.model), torch.no_grad():
        losses = [compute_mean_loss(model.model, example) for example in suitable]
    return suitable[int(np.argsort(losses, kind="stable")[len(losses) // 2])]


def compute_mean_loss(model: nn.Module, example: InspectedInput) -> float:
    """Returns the loss per target of an example."""
    loss, _ = model(example.batch)
    return float(loss.total) / max(1, loss.count)


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Switches dropout off inside the block, for the module and each of its parts; restores every flag afterwards."""
    training = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, flag in training:
            part.training = flag
