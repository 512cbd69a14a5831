"""The arguments of views: which runs and texts a view reads, and its options, from the signature of its function.

`seqwise inspect` and the studio call the views through it. Importing it imports neither a view nor PyTorch.
"""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from seqwise.errors import UsageError, suggest
from seqwise.lens import VIEWS

if TYPE_CHECKING:
    from seqwise.lens.subject import Subject
    from seqwise.lens.view import View

Kind = Literal["choice", "switch", "whole", "number", "text"]
Value = bool | int | float | str

NUMBERED = ("layer", "query", "key", "answer")  # options that take a number or a name
SAMPLED = ("horizon", "neighbours", "senses", "states")  # without a text they show many examples, not one
# Options that a form does not offer: callbacks and tensors, files of the machine, what never ends, and what
# `seqwise inspect` does not have either.
INTERNAL = ("progress", "features", "data", "watch", "baseline", "max_units")
CHOICES = {"split": ("train", "valid", "all")}  # the test split needs other data
MINIMUMS = {
    **dict.fromkeys(("head", "top", "beam", "max_length", "max_examples", "max_context", "num_targets"), 1),
    **dict.fromkeys(("unit", "seed"), 0),
}
_KINDS: dict[type, Kind] = {bool: "switch", int: "whole", float: "number"}


@dataclass(frozen=True)
class Signature:
    """What a view reads: one run or several, no text, one or several; and its options."""

    takes_runs: bool
    takes_text: bool
    takes_texts: bool
    options: tuple[str, ...]
    names: tuple[str, ...]  # of all parameters

    @classmethod
    def of(cls, view: str) -> Signature:
        """Returns the signature of a view: its arguments are `model` or `models`, then `text`, `texts` or nothing."""
        parameters = inspect.signature(get_view(view)).parameters.values()
        options = tuple(each.name for each in parameters if each.kind is each.KEYWORD_ONLY)
        first, *rest = (each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD)
        return cls(first == "models", bool(rest), rest == ["texts"], options, tuple(each.name for each in parameters))


@dataclass(frozen=True)
class Option:
    """An option of a view, as a form shows it."""

    name: str
    kind: Kind
    default: Value | None
    choices: tuple[str, ...]
    minimum: int | None
    help: str

    def convert(self, value: Any) -> Value:
        """Returns a value with the type of the option; raises an error if it has another one."""
        expected = ""
        if self.kind == "choice" and value not in self.choices:
            expected = f"one of {', '.join(self.choices)}"
        elif self.kind == "switch" and not isinstance(value, bool):
            expected = "true or false"
        elif self.kind == "whole" and (not isinstance(value, int) or isinstance(value, bool)):
            expected = "a whole number"
        elif self.kind == "number" and (not isinstance(value, (int, float)) or isinstance(value, bool)):
            expected = "a number"
        elif self.kind == "text" and not isinstance(value, (str, int)):
            expected = "a number or a name" if self.name in NUMBERED else "a text"
        elif self.minimum is not None and value < self.minimum:
            expected = f"at least {self.minimum}"
        if expected:
            raise UsageError(f"{self.name}: expected {expected}; received {value!r}.")
        if self.kind == "text":
            return convert_number(str(value)) if self.name in NUMBERED else str(value)
        return value


def get_view(name: str) -> Callable[..., View]:
    """Returns the function of a view."""
    return getattr(import_module(VIEWS[name][0]), name)


def explain_inapplicable(name: str, subject: Subject) -> str | None:
    """Returns why a view does not apply to a model with its input, or None."""
    return import_module(VIEWS[name][0]).explain_inapplicable(subject)


def convert_number(value: str) -> int | str:
    """Returns the number of a layer, token or answer as a number; a name stays a name."""
    return int(value) if value.isdecimal() else value


@cache
def list_options(view: str) -> tuple[Option, ...]:
    """Returns the options of a view that a form offers, in the order of its function."""
    function = get_view(view)
    types, helps = get_type_hints(function), _read_help(inspect.getdoc(function) or "")
    parameters = inspect.signature(function).parameters.values()
    return tuple(
        _describe_option(each.name, types[each.name], each.default, helps.get(each.name, ""))
        for each in parameters
        if each.kind is each.KEYWORD_ONLY and each.name not in INTERNAL
    )


def _describe_option(name: str, annotation: Any, default: Any, text: str) -> Option:
    members = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    choices = CHOICES.get(name, next((get_args(each) for each in members if get_origin(each) is Literal), ()))
    kind: Kind = "text" if str in members else next((_KINDS[each] for each in members if each in _KINDS), "text")
    return Option(name, "choice" if choices else kind, default, tuple(choices), MINIMUMS.get(name), text)


def _read_help(docstring: str) -> dict[str, str]:
    """Returns name → text of the lines "name: text" of a docstring, up to the description of `data`."""
    helps: dict[str, str] = {}
    names: list[str] = []
    for line in docstring.partition("\n`data`")[0].splitlines():
        match = re.match(r"(\w+(?:, \w+)*): (.+)", line)
        if match:
            names = match[1].split(", ")
            helps |= dict.fromkeys(names, match[2])
        elif line.startswith(" ") and names:
            helps |= {name: f"{helps[name]} {line.strip()}" for name in names}
        else:
            names = []
    return {name: text.replace("`", "") for name, text in helps.items()}


def convert_options(view: str, values: Mapping[str, Any]) -> dict[str, Value]:
    """Returns the options of a view from the values of a form; raises an error for an unknown one or a wrong type."""
    options = {option.name: option for option in list_options(view)}
    for name in values:
        if name not in options:
            problem = f"{name[:100]!r} has no effect on the view {view}; its options: {', '.join(options) or 'none'}."
            raise UsageError(problem, fix=suggest(name, list(options)) or "Leave it out.")
    return {name: options[name].convert(value) for name, value in values.items()}


def build_command(folders: Sequence[str], texts: Sequence[str], view: str, values: Mapping[str, Value]) -> str:
    """Returns the command that shows a view of runs; a text that begins with a dash cannot become an option."""
    words = [*folders, *texts]
    options = ["--view", view]
    for name, value in values.items():
        flag = name.replace("_", "-")
        options += [f"--{flag}" if value else f"--no-{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    if any(word.startswith("-") for word in words):
        return shlex.join(["seqwise", "inspect", *options, "--", *words])
    return shlex.join(["seqwise", "inspect", *words, *options])
