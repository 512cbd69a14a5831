"""Command-line options from typed settings: `parse` fills a dataclass, whose docstrings are the help text.

tyro parses; this module converts its errors to `UsageError` (problem, then fix) and validates settings models as a
whole. A command with subcommands dispatches them itself: unions of types are not supported.
"""

from __future__ import annotations

import dataclasses
import difflib
import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, get_args

import tyro
from pydantic import BaseModel, ValidationError
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from seqwise.cli.console import warn, write
from seqwise.config import Mistake, Settings, mistakes, renamed_settings
from seqwise.errors import UsageError, suggest
from seqwise.task_registry import task_names

Spec = TypeVar("Spec")

# For options whose help text explains the default better than "(default: None)".
UNSET = tyro.conf.arg(help_behavior_hint="")
_BY_RULE = tyro.conf.arg(help_behavior_hint="(default: chosen automatically)")

_CONFIG = (tyro.conf.FlagCreatePairsOff, tyro.conf.PositionalMetavarFromFieldName, tyro.conf.DisallowNone)


def parse(
    spec: type[Spec],
    argv: Sequence[str],
    *,
    prog: str,
    example: str,
    description: str | None = None,
    default: Spec | None = None,
) -> Spec:
    """Fill the dataclass or settings model `spec` from `argv`.

    `--help` prints the options, then `example`, and raises `SystemExit(0)`. Invalid input raises `UsageError`, with all
    wrong values at once. `default` provides values for missing options, such as settings read from a file. A class
    variable `without` names settings that are not options of this command.
    """
    argv = _with_new_names(spec, argv)
    if _asks_for_help(argv):
        try:
            _read(spec, ["--help"], prog, description, default)
        except SystemExit:
            write(f"\nexample:\n  {example}")
            raise
    mistakes = io.StringIO()
    try:
        with _columns(10_000), redirect_stderr(mistakes):
            parsed, unknown = _read(spec, argv, prog, description, default)
    except SystemExit:
        # An unknown option often causes tyro's first error, such as a missing value.
        problem = _unknown_options(argv, options(spec)) or _sentence(mistakes.getvalue(), argv)
        raise UsageError(problem, repair=f"See {prog} --help.") from None
    if unknown:
        problem = _unknown_options(unknown, options(spec)) or f"unexpected argument {unknown[0]!r}."
        raise UsageError(problem, repair=f"See {prog} --help.")
    return _validated(parsed)


def _with_new_names(spec: type, argv: Sequence[str]) -> list[str]:
    """`argv` with the new names of renamed options, and a deprecation note for each old one.

    Settings know their old names; other options are listed in the class variable `renamed` of `spec`.
    """
    settings = {f"--{old}": f"--{new}" for old, new in renamed_settings(Settings).items()}
    renamed = {**settings, **getattr(spec, "renamed", {})}
    renamed = {old.replace("_", "-"): new.replace("_", "-") for old, new in renamed.items()}
    words = list(argv)
    for place, word in enumerate(_before_dashes(argv)):
        name, equals, value = word.partition("=")
        switch = name.replace("_", "-").replace(".no-", ".")
        if switch in renamed:
            new = renamed[switch].replace(".", ".no-") if ".no-" in name else renamed[switch]
            warn(f"{name} is now called {new}; the old name works until version 0.3.")
            words[place] = f"{new}{equals}{value}"
    return words


def options(spec: type) -> list[str]:
    """Every option of `spec` as it is typed on the command line, such as `--training.learning-rate`."""
    page = io.StringIO()
    with suppress(SystemExit), _columns(80), redirect_stdout(page):  # a wider page would have two columns
        _read(spec, ["--help"], "", None, None)
    return re.findall(r"^\W*(?:-h, )?(--[a-z][\w.-]*)", _bare(page.getvalue()), flags=re.MULTILINE)


def _read(spec: type, argv: Sequence[str], prog: str, description: str | None, default: Any) -> tuple[Any, list[str]]:
    registry = ConstructorRegistry()
    registry.struct_rule(partial(_model_rule, without=getattr(spec, "without", ())))
    return tyro.cli(
        spec,
        args=list(argv),
        prog=prog,
        description=description,
        default=tyro.MISSING_NONPROP if default is None else default,
        return_unknown_args=True,
        config=_CONFIG,
        registry=registry,
    )


def _model_rule(info: StructTypeInfo, without: Sequence[str] = ()) -> StructConstructorSpec | None:
    """Build settings models without validation. `_validated` validates the whole tree afterwards, so that a message
    names the full option and reports every wrong value, not only those of the first section."""
    model = info.type
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return None

    def unchecked(**values: Any) -> BaseModel:
        return model.model_construct(**values)

    unchecked.__doc__ = model.__doc__
    fields = []
    for name, field in model.model_fields.items():
        value = tyro.MISSING_NONPROP if field.is_required() else field.get_default(call_default_factory=True)
        if isinstance(info.default, BaseModel):
            value = getattr(info.default, name)
        kind: Any = field.annotation
        if model is Settings and name == "task":
            kind = Literal[tuple(task_names())] | None
        if value is None:
            kind = Annotated[kind, _BY_RULE]
        if bool in get_args(field.annotation):  # an explicit True or False, because the default may be either
            kind = Annotated[kind, tyro.conf.FlagConversionOff]
        if name in without:
            kind = Annotated[kind, tyro.conf.Suppress]
        fields.append(StructFieldSpec(name=name, type=kind, default=value, helptext=field.description))
    return StructConstructorSpec(instantiate=unchecked, fields=tuple(fields))


def _validated(parsed: Any) -> Any:
    """The same value with every settings model inside it validated."""
    if isinstance(parsed, BaseModel):
        try:
            return type(parsed).model_validate(parsed.model_dump(warnings=False))
        except ValidationError as error:
            raise UsageError("\n".join(map(_wrong_value, mistakes(error, type(parsed))))) from None
    if dataclasses.is_dataclass(parsed):
        for field in dataclasses.fields(parsed):
            value = getattr(parsed, field.name)
            if isinstance(value, BaseModel):
                object.__setattr__(parsed, field.name, _validated(value))
    return parsed


def _wrong_value(mistake: Mistake) -> str:
    option = "--" + ".".join(mistake.place).replace("_", "-")
    return f"{option}: {mistake.text}; received {mistake.value!r}."


def _unknown_options(words: Sequence[str], known: Sequence[str]) -> str:
    """A sentence for each unknown option; empty if there is none."""
    names = [word.partition("=")[0] for word in _before_dashes(words) if re.match(r"--?[a-zA-Z]", word)]
    wrong = [name for name in names if name.replace("_", "-") not in known]
    return "\n".join(f"unknown option {name!r}.{_suggestion(name, known)}" for name in wrong)


def _suggestion(name: str, known: Sequence[str]) -> str:
    # `--batch` for `--training.batch-size` is the commonest slip; otherwise the closest spelling.
    word = name.lstrip("-").replace("_", "-")
    inside = [option for option in known if re.search(rf"\.{re.escape(word)}(-|$)", option)]
    close = difflib.get_close_matches(word, [option[2:] for option in known], n=1)
    found = inside or [f"--{option}" for option in close]
    return f" Perhaps you meant {found[0]!r}." if found else ""


def _before_dashes(words: Sequence[str]) -> Sequence[str]:
    return words[: list(words).index("--")] if "--" in words else words


def _asks_for_help(argv: Sequence[str]) -> bool:
    return not {"--help", "-h"}.isdisjoint(_before_dashes(argv))


@contextmanager
def _columns(width: int) -> Iterator[None]:
    """Set the width of tyro's output, which it reads from the environment."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(width)
    try:
        yield
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before


def _bare(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def _sentence(box: str, argv: Sequence[str]) -> str:
    """tyro's error message as one sentence. Unknown messages are returned without title and frame.

    There is no frame if standard output is not UTF-8.
    """
    rows = [line.strip("│").strip() for line in _bare(box).splitlines()[1:] if not line.startswith("╰")]
    rows = [row for row in rows if row.strip("─-") and not row.startswith("For full helptext")]
    text = "\n".join(rows) or "the arguments could not be read."
    if choice := re.match(r"invalid choice '(.*)' for argument '(.*)'\. Expected one of \((.*)\)", text):
        names = re.findall(r"'([^']*)'", choice[3])
        if "None" in names:  # an option that may be left out; tyro names its choices in the order of a hash
            names = sorted({*names} - {"None"})
        return f"{choice[2]}: expected one of {', '.join(names)}; received {choice[1]!r}. {suggest(choice[1], names)}"
    if wrong := re.match(r"Error parsing (\S+): .*Argument helptext:\n(?:--\S+ )?(\S+)", text, flags=re.DOTALL):
        return f"{wrong[1]}: expected {wrong[2]}{_received(wrong[1], argv)}."
    if absent := re.match(r"Missing value for argument '(.*)'", text):
        return f"{absent[1]}: a value is missing."
    if missing := re.match(r"Missing from [^\n]*:\n(\S+)[^\n]*\n([^\n]*?)\s*\(required\)", text):
        return f"{missing[1]} is missing: {missing[2]}"
    return text


def value_of(argv: Sequence[str], option: str) -> str | None:
    """The value of an option that is needed before the others are parsed."""
    for word, following in zip(argv, [*argv[1:], ""]):
        name, equals, value = word.partition("=")
        if name == option:
            return value if equals else following or None
    return None


def _received(option: str, argv: Sequence[str]) -> str:
    for word, following in zip(argv, [*argv[1:], ""]):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") == option:
            return f"; received {(value if equals else following)!r}"
    return ""
