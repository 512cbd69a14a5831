"""Parsing and checks of arguments that commands share. It knows nothing of vectors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from seqwise.cli.options import parse
from seqwise.errors import UsageError

Spec = TypeVar("Spec")


def parse_words(spec: type[Spec], argv: Sequence[str], *, prog: str, example: str) -> Spec:
    """Calls `parse` for a command with words as arguments, which may start with a dash like an option."""
    try:
        return parse(spec, argv, prog=prog, example=example)
    except UsageError as error:
        unknown = re.match(r"unknown option '(.+?)'\.", error.problem)
        if unknown is None:
            raise
        repair = f"{error.repair}\nIf it is a word, put -- before it, after all options: {prog} FILE -- {unknown[1]}"
        raise UsageError(error.problem, repair=repair) from None


def check_number(n: int) -> None:
    if n < 1:
        raise UsageError(f"--n: expected at least 1; received {n}.")
