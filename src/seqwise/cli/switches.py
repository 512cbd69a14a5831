"""`normalize_switches`: boolean settings may be typed as switches or with a value, whatever their default is.

`--a.flag` or `--a.flag True`, and `--a.no-flag` or `--a.flag False`. tyro accepts only the switches of a setting that
has a default, and only the values of one that has none. The module knows nothing of commands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args, get_type_hints

from pydantic import BaseModel

from seqwise.errors import UsageError

BOOLEANS = {"true": True, "false": False}  # in upper or lower case
WRONG_BOOLEANS = ("yes", "no", "on", "off", "1", "0", "none")  # a mistake rather than the name of a file


def normalize_switches(spec: type, words: Sequence[str]) -> list[str]:
    """Returns the words of a command line with each boolean setting of `spec` in the form that tyro knows.

    A word other than True or False after a switch is an argument: `--a.flag data.txt`.
    """
    switches = find_switches(spec)
    remaining, normalized = list(words), []
    while remaining:
        word = remaining.pop(0)
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        option = name if name in switches else re.sub(r"^(--(?:[^.]+\.)*)no-(?=[^.]+$)", r"\1", name)
        if option not in switches:
            normalized.append(word)
            continue
        following = remaining[0].lower() if remaining else ""
        if equals or following in BOOLEANS or (following in WRONG_BOOLEANS and not Path(remaining[0]).exists()):
            value = value if equals else remaining.pop(0)
        else:
            value = "True"
        if value.lower() not in BOOLEANS:
            fix = f"Write {option} True or {option} False."
            raise UsageError(f"{option}: expected True or False; received {value!r}.", fix=fix)
        is_on = BOOLEANS[value.lower()] == (option == name)
        normalized += _format_switch(option, is_on, switches[option])
    return normalized


def find_switches(spec: type) -> dict[str, bool]:
    """Returns the options of the boolean settings of a command, and whether tyro reads a value after each.

    `spec` is the dataclass of its options, which has settings models; `without` names settings that are not options.
    """
    kinds = [kind for kind in get_type_hints(spec).values() if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return dict(switch for kind in kinds for switch in _list_switches(kind, getattr(spec, "without", ())))


def _list_switches(model: type[BaseModel], without: Sequence[str], prefix: str = "--") -> Iterator[tuple[str, bool]]:
    for name, field in model.model_fields.items():
        kind, option = field.annotation, prefix + name.replace("_", "-")
        if name in without:
            continue
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _list_switches(kind, without, f"{option}.")
        elif kind is bool or bool in get_args(kind):
            yield option, kind is not bool  # with a value if there is no default


def _format_switch(option: str, is_on: bool, has_value: bool) -> list[str]:
    """Returns a switch as tyro reads it."""
    if has_value:
        return [option, str(is_on)]
    section, dot, name = option.removeprefix("--").rpartition(".")
    return [option if is_on else f"--{section}{dot}no-{name}"]
