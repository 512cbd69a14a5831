"""The model families and their properties, by name; `register` adds your own.

    SEQWISE_FAMILIES=mgu=my_cell.py#MinimalGatedCell seqwise train data.csv --model mgu

It knows nothing of layers: `backbones/encoder.py` builds the network of a family, `tasks/language/ngram.py` the
n-gram model.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from seqwise.errors import UsageError, suggest
from seqwise.user_files import add_file, get_files_by_name, import_item

FAMILY_FILES = "SEQWISE_FAMILIES"  # environment variable; see user_files.py
NAME_PATTERN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,58}[A-Za-z0-9_-])?")  # run folders are named after it


@dataclass(frozen=True)
class ModelFamily:
    """A model architecture and its properties."""

    name: str
    is_recurrent: bool = False
    has_gradients: bool = True  # trained by gradient descent; others are fitted in one pass and do not depend on a seed
    tasks: tuple[str, ...] = ()  # the supported tasks; empty: all
    description: str = ""  # what its model does: the end of a sentence that begins with "it"
    # User-defined families: (inputs, units) → cell if it is recurrent, otherwise (inputs, settings) → network.
    build: Callable[..., Any] | None = None

    def supports(self, task: str) -> bool:
        """Returns whether there is a model of the family for a task."""
        return not self.tasks or task in self.tasks


MODEL_FAMILIES = {
    family.name: family
    for family in (
        ModelFamily("feedforward"),
        ModelFamily("rnn", is_recurrent=True),
        ModelFamily("gru", is_recurrent=True),
        ModelFamily("lstm", is_recurrent=True),
        ModelFamily("attentive-rnn", is_recurrent=True),
        ModelFamily("transformer"),
        ModelFamily(
            "ngram", has_gradients=False, tasks=("language",), description="predicts the next token from n-gram counts"
        ),
    )
}
BUILTIN_FAMILIES = tuple(MODEL_FAMILIES)
RECURRENT_FAMILIES = [family.name for family in MODEL_FAMILIES.values() if family.is_recurrent]

Model = TypeVar("Model", bound=Callable[..., Any])


def register(model: Model, name: str | None = None) -> Model:
    """Adds a user-defined model as a family, for `--model` and `--models`. Returns the model, as a decorator does.

    `model` is a subclass of `seqwise.layers.cells.Cell`, or a class or function that takes (inputs, settings) and
    returns an `nn.Module` from vectors (B, T, inputs) to (B, T, width). The name is by default the attribute `name` of
    the class, or its `__name__`.
    """
    if not (inspect.isclass(model) or inspect.isfunction(model)):
        problem = f"model: expected a name, a class or a function; received {_describe(model)}."
        raise UsageError(problem, fix="Pass the class, not an instance: it is built with the sizes of the settings.")
    name = name or _get_default_name(model)
    if not NAME_PATTERN.fullmatch(name) or name in BUILTIN_FAMILIES:
        problem = "is built in" if name in BUILTIN_FAMILIES else "cannot name a folder of runs"
        fix = 'Choose another: seqwise.families.register(model, name="my-model")'
        raise UsageError(f"the name {name!r} {problem}.", fix=fix)
    is_cell = inspect.isclass(model) and hasattr(model, "step") and hasattr(model, "blocks")
    MODEL_FAMILIES[name] = ModelFamily(name, is_recurrent=is_cell, build=model)
    if is_cell and name not in RECURRENT_FAMILIES:
        RECURRENT_FAMILIES.append(name)
    add_file(FAMILY_FILES, name, model)
    return model


def get_model_name(model: str | Callable[..., Any]) -> str:
    """Returns the name of a family; a class or function is registered first."""
    if isinstance(model, str):
        return model
    registered = next((name for name, family in MODEL_FAMILIES.items() if family.build is model), None)
    return registered or _get_default_name(register(model))


def _get_default_name(model: Callable[..., Any]) -> str:
    return str(getattr(model, "name", None) or model.__name__)


def _describe(model: object) -> str:
    return f"an instance of {type(model).__name__}" if hasattr(model, "forward") else repr(model)


def list_family_names() -> list[str]:
    """Returns the names of all families, built-in and user-defined."""
    return list(dict.fromkeys([*MODEL_FAMILIES, *get_files_by_name(FAMILY_FILES)]))


def check_family_name(name: str) -> str:
    """Returns the name if there is such a family; raises ValueError otherwise."""
    if name not in list_family_names():
        raise ValueError(f"there is no such family. {suggest(name, list_family_names())}")
    return get_family(name).name


def check_importable(name: str) -> None:
    """Raises an error if other processes cannot import a user-defined model."""
    is_user_defined = name in MODEL_FAMILIES and MODEL_FAMILIES[name].build is not None
    if is_user_defined and name not in get_files_by_name(FAMILY_FILES):
        problem = f"the processes of a comparison cannot import the model {name!r}: it is not defined in a file."
        raise UsageError(problem, fix="Define it at the top level of a .py file, and import it from there.")


def get_family(name: str) -> ModelFamily:
    """Returns the family called `name`; imports the file of a user-defined one."""
    if name not in MODEL_FAMILIES and name in get_files_by_name(FAMILY_FILES):
        model = import_item(FAMILY_FILES, name)
        if name not in MODEL_FAMILIES and model is not None:
            register(model, name)
    if name not in MODEL_FAMILIES:
        raise UsageError(f"there is no model family {name!r}.", fix=suggest(name, MODEL_FAMILIES))
    return MODEL_FAMILIES[name]


def list_families_for(task: str) -> list[str]:
    """Returns the names of the families that support a task."""
    return [name for name in list_family_names() if get_family(name).supports(task)]
