"""Command-line options from typed settings: `parse` fills a dataclass, whose docstrings are the help text.

tyro parses; this module converts its errors to `UsageError` (problem, then fix) and validates settings models as a
whole. A command with subcommands dispatches them itself: unions of types are not supported. `seqwise/foreign_names.py`
has the names that other tools use for our options, `help_page.py` the layout of `--help`.
"""

from __future__ import annotations

import dataclasses
import io
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from difflib import get_close_matches
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, get_args

import tyro
from pydantic import BaseModel, ValidationError
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from seqwise.applicability import reset_unused
from seqwise.cli.console import warn, write
from seqwise.cli.help_page import PAGE_WIDTH, format_examples, format_help
from seqwise.cli.switches import normalize_switches
from seqwise.config import RENAMED_SETTINGS, Settings, describe_errors, load_settings
from seqwise.errors import UsageError
from seqwise.families import list_family_names
from seqwise.foreign_names import find_our_option
from seqwise.task_registry import list_task_names

Spec = TypeVar("Spec")  # the dataclass of a command's options, or a settings model

# What the help says about the default None: nothing, if the text of the option already explains it.
UNSET = tyro.conf.arg(help_behavior_hint="")
NONE = tyro.conf.arg(help_behavior_hint="(default: none)")
CHOSEN_BY_RULE = tyro.conf.arg(help_behavior_hint="(default: chosen automatically)")


def parse(spec: type[Spec], argv: Sequence[str], *, prog: str, example: str, default: Spec | None = None) -> Spec:
    """Returns an instance of the dataclass or settings model `spec` with the values in `argv`.

    `--help` prints the main options, then the lines of `example`, and raises `SystemExit(0)`; `--help-all` prints all
    options. Invalid input raises `UsageError`, with all wrong values at once. `default` provides values for missing
    options, such as settings read from a file. Class variables of `spec`:

    main_options: options on the page of `--help`, if there are too many for one page
    without: settings and sections that are not options of this command
    refused: the problem and the fix for some of those, if they are typed
    new_names: old name of an option → new name
    rest: the field for all positional arguments, also for those after options
    """
    argv = _replace_old_names(spec, argv)
    words = normalize_switches(spec, _before_dashes(argv))
    argv = [*words, *argv[len(_before_dashes(argv)) :]]
    for name in list_typed(words):
        if refusal := getattr(spec, "refused", {}).get(name.partition(".")[0]):
            raise UsageError(refusal[0].format(f"--{name.replace('_', '-')}"), fix=refusal[1])
    if "--help-all" in words:
        try:
            _run_tyro(spec, ["--help"], prog, default)
        except SystemExit:
            write(format_examples(example))
            raise
    if not {"--help", "-h"}.isdisjoint(words):
        write(format_help(_capture_help(spec), prog, getattr(spec, "main_options", ())))
        write(format_examples(example))
        raise SystemExit(0)
    message = io.StringIO()
    problem = ""
    try:
        with _set_width(10_000), redirect_stderr(message):
            parsed, unknown = _run_tyro(spec, argv, prog, default)
        if unknown:
            problem = _describe_unknown_options(argv, spec)
            rest = getattr(spec, "rest", None)
            if not problem and rest:  # tyro reads positional arguments only up to the first option after them
                setattr(parsed, rest, (*getattr(parsed, rest), *unknown))
            elif not problem:
                problem = f"unexpected argument {unknown[0]!r}."
    except SystemExit:
        # An unknown option often causes tyro's first error, such as a missing value.
        problem = _describe_unknown_options(argv, spec) or _describe_tyro_error(message.getvalue(), argv)
    if problem:
        raise UsageError(problem, fix=f"See {prog} --help.")
    return _validate(parsed)


def _replace_old_names(spec: type, argv: Sequence[str]) -> list[str]:
    """Returns `argv` with the new names of renamed options, after a deprecation warning for each old one.

    Settings know their old names; those of other options are in the class variable `new_names` of `spec`.
    """
    settings = {f"--{old}": f"--{new}" for old, new in RENAMED_SETTINGS.items()}
    new_names = {**settings, **getattr(spec, "new_names", {})}
    new_names = {old.replace("_", "-"): new.replace("_", "-") for old, new in new_names.items()}
    words = list(argv)
    for index, word in enumerate(_before_dashes(argv)):
        name, equals, value = word.partition("=")
        option = name.replace("_", "-").replace(".no-", ".")
        if option in new_names:
            new = new_names[option].replace(".", ".no-") if ".no-" in name else new_names[option]
            warn(f"{name} is now called {new}; the old name works until version 0.3.")
            words[index] = f"{new}{equals}{value}"
    return words


def list_options(spec: type) -> list[str]:
    """Returns every option of `spec` as it is typed on the command line, such as `--training.learning-rate`.

    A switch has two forms: `--text.lowercase` and `--text.no-lowercase`.
    """
    return [name for names in find_options(_capture_help(spec)) for name in names]


def find_options(page: str) -> list[list[str]]:
    """Returns the names of each option on tyro's page of all options: two for a switch, otherwise one."""
    lines = re.findall(r"^\W*((?:-h, )?--[a-z][\w.-]*(?:, --[a-z][\w.-]*)?)", page, flags=re.MULTILINE)
    return [re.findall(r"--[a-z][\w.-]*", line) for line in lines]


def list_typed(argv: Sequence[str]) -> list[str]:
    """Returns the dotted names of the options in `argv`: network.tie_weights for --network.no-tie-weights."""
    names = [word[2:].partition("=")[0] for word in _before_dashes(argv) if re.match(r"--[a-z]", word)]
    names = [name.replace("-", "_").replace(".no_", ".") for name in names]
    return list(dict.fromkeys(RENAMED_SETTINGS.get(name, name) for name in names))


def read_config(argv: Sequence[str], models: Sequence[str | None]) -> Settings | None:
    """Returns the settings of `--config FILE`; None without a file.

    A file with every section was saved by Seqwise, and has settings that were chosen for its own model: those that none
    of `models` uses are reset. In any other file a setting without an effect is an error, as on the command line.
    """
    path = find_value(argv, "--config")
    if path is None:
        return None
    settings = load_settings(path)
    sections = [name for name in Settings.model_fields if isinstance(getattr(settings, name), BaseModel)]
    if settings.model_fields_set.issuperset(sections):
        values = {"task": find_value(argv, "--task") or settings.task}
        used_by = [settings.model_copy(update=values | {"model": model or settings.model}) for model in models]
        reset_unused(settings, used_by)
    return settings


def _capture_help(spec: type) -> str:
    """Returns tyro's page of all options."""
    page = io.StringIO()
    with suppress(SystemExit), _set_width(PAGE_WIDTH), redirect_stdout(page):
        _run_tyro(spec, ["--help"])
    return _strip_colours(page.getvalue())


def _run_tyro(spec: type, argv: Sequence[str], prog: str = "", default: Any = None) -> tuple[Any, list[str]]:
    registry = ConstructorRegistry()
    registry.struct_rule(partial(_list_settings, without=getattr(spec, "without", ())))
    return tyro.cli(
        spec,
        args=list(argv),
        prog=prog,
        default=tyro.MISSING_NONPROP if default is None else default,
        return_unknown_args=True,
        config=(tyro.conf.PositionalMetavarFromFieldName, tyro.conf.DisallowNone),
        registry=registry,
    )


def _list_settings(info: StructTypeInfo, without: Sequence[str] = ()) -> StructConstructorSpec | None:
    """Returns the settings of a model as options for tyro, and how to build the model; None for any other class.

    The model is built without validation: `_validate` validates the whole tree afterwards, so that a message names the
    full option and reports every wrong value, not only those of the first section.
    """
    model = info.type
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return None

    def construct(**values: Any) -> BaseModel:
        return model.model_construct(**values)

    construct.__doc__ = model.__doc__
    fields = []
    for name, field in model.model_fields.items():
        value = tyro.MISSING_NONPROP if field.is_required() else field.get_default(call_default_factory=True)
        if isinstance(info.default, BaseModel):
            value = getattr(info.default, name)
        kind: Any = field.annotation
        if model is Settings and name == "task":
            kind = Literal[tuple(list_task_names())] | None
        elif model is Settings and name == "model":
            kind = Literal[tuple(list_family_names())]
        if value is None:
            kind = Annotated[kind, _get_default_hint(name, model)]
        if bool in get_args(field.annotation):  # an explicit True or False, because the default may be either
            kind = Annotated[kind, tyro.conf.FlagConversionOff]
        if name in without:
            kind = Annotated[kind, tyro.conf.Suppress]
        fields.append(StructFieldSpec(name=name, type=kind, default=value, helptext=field.description))
    return StructConstructorSpec(instantiate=construct, fields=tuple(fields))


def _get_default_hint(name: str, model: type[BaseModel]) -> Any:
    """Returns what the help says about the default of a setting that is not set."""
    if name in getattr(model, "optional", ()):
        return NONE
    description = model.model_fields[name].description or ""
    return UNSET if "unless set" in description else CHOSEN_BY_RULE


def _validate(parsed: Any) -> Any:
    """Returns the same value with every settings model inside it validated."""
    if isinstance(parsed, BaseModel):
        try:
            return type(parsed).model_validate(parsed.model_dump(warnings=False))
        except ValidationError as error:
            raise UsageError(describe_errors(error, type(parsed), lambda name: f"--{name.replace('_', '-')}")) from None
    if dataclasses.is_dataclass(parsed):
        for field in dataclasses.fields(parsed):
            value = getattr(parsed, field.name)
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"--{field.name.replace('_', '-')}: expected a finite number; received {value}.")
            if isinstance(value, BaseModel):
                object.__setattr__(parsed, field.name, _validate(value))
    return parsed


def _describe_unknown_options(words: Sequence[str], spec: type) -> str:
    """Returns a sentence for each unknown option; empty if there is none."""
    known, sentences = list_options(spec), []
    for word in _before_dashes(words):
        name = word.partition("=")[0]
        option = name.lstrip("-").replace("_", "-")
        if not re.match(r"--?[a-zA-Z]", word) or name.replace("_", "-") in known:
            continue
        if answer := find_our_option(option, find_value(words, name.replace("_", "-")), known):
            sentences.append(answer)
            continue
        # `--batch` for `--training.batch-size` is the most frequent mistake; otherwise the most similar name.
        candidates = [each for each in known if re.search(rf"\.{re.escape(option)}(-|$)", each)]
        candidates += [f"--{each}" for each in get_close_matches(option, [each[2:] for each in known], n=1)]
        sentences.append(f"unknown option {name!r}.{f' Perhaps you meant {candidates[0]!r}.' if candidates else ''}")
    return "\n".join(sentences)


def _before_dashes(words: Sequence[str]) -> Sequence[str]:
    """Returns the words before a bare --, after which there are no options."""
    return words[: list(words).index("--")] if "--" in words else words


@contextmanager
def _set_width(width: int) -> Iterator[None]:
    """Sets the width of tyro's output, which it reads from the environment."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(width)
    try:
        yield
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before


def _strip_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def _describe_tyro_error(message: str, argv: Sequence[str]) -> str:
    """Returns tyro's error message as one sentence. Unknown messages are returned without title and frame.

    There is no frame if standard output is not UTF-8.
    """
    rows = [line.strip("│").strip() for line in _strip_colours(message).splitlines()[1:] if not line.startswith("╰")]
    rows = [row for row in rows if row.strip("─-") and not row.startswith("For full helptext")]
    text = "\n".join(rows) or "the arguments could not be read."
    if choice := re.match(r"invalid choice '(.*)' for argument '(.*)'\. Expected one of \((.*)\)", text):
        names = re.findall(r"'([^']*)'", choice[3])
        if "None" in names:  # an option without a default: tyro lists its choices in an arbitrary order
            names = sorted({*names} - {"None"})
        close = get_close_matches(choice[1], names, n=1, cutoff=0.5)
        suggestion = f" Perhaps you meant {close[0]!r}." if close else ""
        return f"{choice[2]}: expected one of {', '.join(names)}; received {choice[1]!r}.{suggestion}"
    if wrong := re.match(r"Error parsing (\S+): .*Argument helptext:\n(?:--\S+ )?(\S+)", text, flags=re.DOTALL):
        value = find_value(argv, wrong[1])
        return f"{wrong[1]}: expected {wrong[2]}{'' if value is None else f'; received {value!r}'}."
    if option := re.match(r"Missing value for argument '(.*)'", text):
        return f"{option[1]}: a value is missing."
    if missing := re.match(r"Missing from [^\n]*:\n(\S+)[^\n]*\n([^\n]*?)\s*\(required\)", text):
        return f"{missing[1]} is missing: {missing[2]}"
    return text


def find_value(argv: Sequence[str], option: str) -> str | None:
    """Returns the value of an option as it was typed, the last one if there are several; None if there is none."""
    found = None
    for word, following in zip(argv, [*argv[1:], None]):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") == option:
            found = value if equals else following
    return found
