"""Forms from the typed settings: the fields of a form, and the command that a filled-in form stands for.

The same classes define the options of the command line, so a form has every option, with its help text and limits. What
a user types is validated field by field; settings without an effect for the task and the model are left out of the
command, as the command line would refuse them.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from seqwise.applicability import find_unused
from seqwise.budget import Budget
from seqwise.config import Settings, combine_settings
from seqwise.errors import UsageError
from seqwise.families import get_family, list_family_names
from seqwise.printable import make_printable
from seqwise.task_registry import list_task_names
from seqwise.tasks.guess import BUILTIN_DATA_TASKS

# Options of a command that are no fields: the page has its own, or they are for a terminal.
OWN_OPTIONS = ("data", "out", "resume", "config", "recipe", "plot", "json", "engine", "settings")
MAX_VALUE = 1_000  # characters of a value
MAX_NUMBER = 1_000  # of seeds, processes and other options that are not settings
BUILTIN_DATA = {
    "docs": "the Python language reference",
    "code": "source of Python's standard library",
    "modules": "docstrings and their modules",
    "dates": "written dates and their ISO form",
    "shapes": "drawn pictures with captions",
    "sunspots": "yearly numbers of sunspots",
}


_commands: dict[str, Any] = {}  # train, compare and check → the dataclass of its options


def register_commands(**commands: type) -> None:
    """Sets the dataclasses of the options of train, compare and check.

    The command line calls it when it starts the studio, which must not import the command line.
    """
    _commands.update(commands)
    list_fields.cache_clear()


# --- fields


def describe_form(command: str) -> dict[str, Any]:
    """Returns the fields of a command by section, those that come first, and what can be chosen."""
    return {
        "fields": list_fields(command),
        "main": _list_main(command),
        "families": list_family_names(),
        "sections": {
            name: inspect.getdoc(info.annotation)
            for name, info in Settings.model_fields.items()
            if _is_section(info.annotation)
        },
        "builtins": [
            {"name": f"builtin:{name}", "task": task, "text": BUILTIN_DATA.get(name, "")}
            for name, task in BUILTIN_DATA_TASKS.items()
        ],
    }


@cache
def list_fields(command: str = "train") -> list[dict[str, Any]]:
    """Returns every option of a command as a field: its name, kind, choices, limits, default and help text."""
    names = _list_without(command)
    settings = [each for each in list_setting_fields() if each["name"].partition(".")[0] not in names]
    main = _list_main(command)
    fields = [*_list_options(command), *settings]
    return sorted(fields, key=lambda each: main.index(each["name"]) if each["name"] in main else len(main))


@cache
def list_setting_fields() -> list[dict[str, Any]]:
    """Returns the fields of all settings, without the options that only a command has."""
    return list(_list_settings(Settings))


def _list_main(command: str) -> list[str]:
    """Returns the options on the page of `--help`, which come first."""
    return [name.replace("-", "_") for name in _commands[command].main_options]


def _list_without(command: str) -> tuple[str, ...]:
    """Returns the settings and sections that a command does not have."""
    return getattr(_commands[command], "without", ())


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _list_settings(model: type[BaseModel], prefix: str = "") -> Iterator[dict[str, Any]]:
    for name, info in model.model_fields.items():
        if _is_section(info.annotation):
            yield from _list_settings(info.annotation, f"{prefix}{name}.")  # type: ignore[arg-type]
        else:
            yield _describe_setting(prefix + name, info, name in getattr(model, "optional", ()))


def _describe_setting(name: str, info: FieldInfo, is_optional: bool) -> dict[str, Any]:
    described = _describe(name, info.annotation, info.default, info.description or "")
    limits = {
        key: getattr(rule, key) for rule in info.metadata for key in ("ge", "gt", "le", "lt") if hasattr(rule, key)
    }
    choices = {"task": list_task_names(), "model": list_family_names()}.get(name)
    if choices:
        described |= {"kind": "choice", "choices": choices}
    # What an empty field means, as the help of the command line says it.
    is_chosen = info.default is None and not is_optional and "unless set" not in described["help"]
    empty = "chosen automatically" if is_chosen else "none" if is_optional else ""
    return described | {"limits": limits, "empty": empty}


def _list_options(command: str) -> Iterator[dict[str, Any]]:
    """Yields the options of a command that are not settings."""
    spec = _commands[command]
    types, texts = get_type_hints(spec), _read_docstrings(spec)
    for each in dataclasses.fields(spec):
        if each.name not in OWN_OPTIONS:
            kind, default = types[each.name], each.default
            described = _describe(each.name, kind, default, texts.get(each.name, ""))
            limits = {"ge": 1, "le": MAX_NUMBER} if described["kind"] == "int" else {}
            section = "comparison" if command == "compare" and each.name not in ("models", "budget", "seeds") else ""
            yield described | {"limits": limits, "empty": "", "section": section}


def _read_docstrings(spec: type) -> dict[str, str]:
    """Returns the texts below the fields of a dataclass, which Python itself does not keep."""
    body = ast.parse(inspect.getsource(spec)).body[0].body  # type: ignore[attr-defined]
    return {
        node.target.id: inspect.cleandoc(text.value.value).replace("\n", " ")
        for node, text in pairwise(body)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


def _describe(name: str, annotation: Any, default: Any, text: str) -> dict[str, Any]:
    types = _list_types(annotation)
    choices = [value for each in types if get_origin(each) is Literal for value in get_args(each)]
    kind = "choice" if choices else next((each.__name__ for each in (bool, int, float) if each in types), "text")
    if choices and int in types:
        kind = "text"  # a number or one of a few words
    return {
        "name": name,
        "section": name.rpartition(".")[0],
        "kind": kind,
        "choices": choices,
        "default": default,
        "help": text,
    }


def _list_types(annotation: Any) -> list[Any]:
    """Returns the members of a union, without None and without what `Annotated` adds."""
    if get_origin(annotation) in (Union, UnionType):
        return [each for part in get_args(annotation) for each in _list_types(part)]
    if hasattr(annotation, "__metadata__"):
        return _list_types(get_args(annotation)[0])
    return [] if annotation is NoneType else [annotation]


# --- values


@dataclass(frozen=True)
class Form:
    """A form as the user filled it in."""

    command: str
    data: str
    options: dict[str, Any]  # by name, converted to their types; without those that have no effect
    problems: dict[str, str] = field(default_factory=dict)  # by name of the field
    unused: dict[str, str] = field(default_factory=dict)  # settings without an effect, each with the reason
    task: str | None = None  # that is set, or known from the data

    def check(self) -> None:
        """Raises an error that names every wrong field."""
        if self.problems:
            raise UsageError("\n".join(f"{name}: {problem}" for name, problem in self.problems.items()))


def read_form(command: str, values: Mapping[str, Any], detected_task: str | None = None) -> Form:
    """Reads `data` and options by dotted name; None and empty texts are not set.

    `detected_task` is the task that a check has found in the data, for a form in which it is not set.
    """
    if command not in ("train", "compare"):
        raise UsageError("expected the command train or compare.")
    fields = {each["name"]: each for each in list_fields(command)}
    options: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for name, value in values.items():
        if name != "data" and name not in fields:
            raise UsageError(f"there is no setting {make_printable(name[:100], is_line=True)!r}.")
        value = value.strip() if isinstance(value, str) else value
        if value is None or value == "":
            continue
        try:
            options[name] = _convert(command, name, value)
        except UsageError as error:
            problems[name] = error.problem.removeprefix(f"{name}: ")
    data = options.pop("data", "")
    if not data and "data" not in problems:
        problems["data"] = "name a file or folder, or built-in data such as builtin:docs."
    builtin = data.removeprefix("builtin:") if data.startswith("builtin:") else ""
    task = options.get("task") or BUILTIN_DATA_TASKS.get(builtin)
    task = task or (detected_task if detected_task in list_task_names() else None)
    unused = _find_unused(command, options, task)
    options = {name: options[name] for name in fields if name in options and name not in unused}
    problems |= _find_unsupported(options, task)
    return Form(command, data, options, problems, unused, task)


def _convert(command: str, name: str, value: Any) -> Any:
    """Returns a value as its type; raises an error if it is not valid."""
    if not isinstance(value, (str, int, float)) or len(str(value)) > MAX_VALUE:
        raise UsageError("expected a number or a short text.")
    if make_printable(str(value), is_line=True) != str(value):
        raise UsageError("expected a text without control characters.")
    if name == "budget":
        Budget.parse(str(value))
        return str(value)
    annotation = get_type_hints(_commands[command]).get(name)
    if name == "models":
        return _convert_models(str(value))
    if annotation is None:
        return reduce(getattr, name.split("."), combine_settings(None, {name: value}))
    if name == "data":
        return str(value)
    try:
        converted = TypeAdapter(annotation).validate_python(value)
    except ValidationError as error:
        raise UsageError(f"{error.errors()[0]['msg']}; received {value!r}.") from None
    if isinstance(converted, bool):
        return converted
    if isinstance(converted, int) and not 1 <= converted <= MAX_NUMBER:
        raise UsageError(f"expected a number from 1 to {MAX_NUMBER:,}; received {converted}.")
    return converted if isinstance(converted, int) else str(converted)


def _convert_models(text: str) -> str:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in list_family_names() and names != ["none"]:
            raise UsageError(f"there is no family {name!r}.")
    return ",".join(names)


def _find_unused(command: str, options: Mapping[str, Any], task: str | None) -> dict[str, str]:
    """Returns all settings that have no effect with any of the models, each with the reason."""
    names = [each["name"] for each in list_fields(command) if each["name"] not in _list_option_names(command)]
    values = {name: value for name, value in options.items() if name in names}
    settings = combine_settings(None, {**values, "task": task})
    models = (
        str(options.get("models") or _commands[command].models).split(",") if command == "compare" else [settings.model]
    )
    reasons = [find_unused(settings.model_copy(update={"model": model}), names) for model in models if model != "none"]
    return {name: reason for name, reason in (reasons or [{}])[0].items() if all(name in each for each in reasons)}


def _list_option_names(command: str) -> set[str]:
    return {each.name for each in dataclasses.fields(_commands[command])}


def _find_unsupported(options: Mapping[str, Any], task: str | None) -> dict[str, str]:
    """Returns the problem of a family that has no model for the task."""
    for name in ("model", "models"):
        for family in str(options.get(name) or "").split(","):
            if family in list_family_names() and task and not get_family(family).supports(task):
                return {name: f"{family} has no model for the task {task}."}
    return {}


# --- commands


def build_arguments(form: Form, out: str) -> list[str]:
    """Returns the words after `seqwise` that start what the form describes, saved in `out`."""
    return _join_arguments(form.command, form.data, {**form.options, "out": out})


def build_check_arguments(form: Form) -> list[str]:
    """Returns the words after `seqwise` that check the data of the form, without what only training uses."""
    ignored, other_options = _list_without("check"), _list_option_names(form.command)
    options = {
        name: value
        for name, value in form.options.items()
        if name.partition(".")[0] not in ignored and name not in other_options
    }
    return _join_arguments("check", form.data, {**options, "json": True})


def _join_arguments(command: str, data: str, options: Mapping[str, Any]) -> list[str]:
    """Returns the words of a command. A text that begins with a dash cannot become an option."""
    words = [word for name, value in options.items() for word in _format_option(name, value)]
    return [command, *words, "--", data] if data.startswith("-") else [command, data, *words]


def _format_option(name: str, value: Any) -> Sequence[str]:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool) and not _is_optional_switch(name):
        section, _, last = flag[2:].rpartition(".")
        return [flag if value else f"--{section}.no-{last}" if section else f"--no-{last}"]
    text = str(value)
    return [f"{flag}={text}"] if text.startswith("-") else [flag, text]


@cache
def _is_optional_switch(name: str) -> bool:
    """Returns whether a switch has a value, True or False, because a rule chooses it unless it is set."""
    return any(each["name"] == name and each["default"] is None for each in list_setting_fields())


def format_command(arguments: Sequence[str]) -> str:
    """Returns the command as the user would type it."""
    return shlex.join(["seqwise", *arguments])
