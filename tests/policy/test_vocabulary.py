"""Names that the project no longer uses stay out of identifiers; docs/glossary.md lists the terms in use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from package_sources import get_relative_name, list_sources, parse_source

# Parts of an identifier that no longer occur: `of_gates` is `grad_gates`, `yardsticks` is `baselines`, and so on.
RETIRED = {
    *("yardstick", "yardsticks", "told", "tell", "heard", "hear", "begun", "given", "met", "kept", "manner", "ways"),
    *("standing", "shelf", "shelves", "parting", "parted", "undivided", "bury", "buried", "hire", "hired", "knock"),
    *("dismiss", "pace", "pacing", "rehearse", "rehearsed", "rehearsal", "slope", "slopes", "stretch", "stretches"),
    *("remedy", "mend", "mended", "whoever", "somebody", "nobody", "handed", "tries", "apart", "held", "learned"),
    *("gone", "lies", "yardsticks", "manners", "remedies", "dismissed", "standings"),
    *("facts", "inward", "outward"),
}
STANDARD_TERMS = ("held_out", "learned_positions", "LearnedPositions")  # which contain a retired word
RETIRED_PREFIXES = ("of_",)  # gradients: `grad_x`, not `of_x`


def list_identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields (line, name) of all functions, classes, parameters, variables and attributes that a module defines."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def split_words(name: str) -> set[str]:
    """Returns the lower-case words of a name in `snake_case` or `CamelCase`."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def is_retired(name: str) -> bool:
    for term in STANDARD_TERMS:
        name = re.sub(term, "", name, flags=re.IGNORECASE)
    return bool(split_words(name) & RETIRED) or name.lstrip("_").startswith(RETIRED_PREFIXES)


def test_no_identifier_contains_a_retired_word():
    offenders = [
        f"{get_relative_name(path)}:{line} {name}"
        for path in list_sources()
        for line, name in list_identifiers(parse_source(path))
        if is_retired(name)
    ]
    assert offenders == []


def test_no_module_is_named_by_a_retired_word():
    assert [path for path in list_sources() if is_retired(path.stem)] == []


def test_the_rule_detects_retired_words():
    tree = ast.parse("def told(of_gates):\n    self.kept, Shelf = 1, 2")
    retired = sorted(name for _, name in list_identifiers(tree) if is_retired(name))
    assert retired == ["Shelf", "kept", "of_gates", "told"]
    assert not is_retired("grad_gates")
    assert not is_retired("always")
    assert is_retired("held")
    assert not is_retired("HELD_OUT_FRACTION")
