"""Retired words stay out of identifiers; docs/glossary.md lists the words that are used instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "seqwise"

# Parts of an identifier that no longer occur: `of_gates` is `grad_gates`, `yardsticks` is `baselines`, and so on.
RETIRED = {
    *("yardstick", "yardsticks", "told", "tell", "heard", "hear", "begun", "given", "met", "kept", "manner", "ways"),
    *("standing", "shelf", "shelves", "parting", "parted", "undivided", "bury", "buried", "hire", "hired", "knock"),
    *("dismiss", "pace", "pacing", "rehearse", "rehearsed", "rehearsal", "slope", "slopes", "stretch", "stretches"),
    *("remedy", "mend", "mended", "whoever", "somebody", "nobody", "handed", "tries", "apart", "held", "learned"),
    *("gone", "lies", "yardsticks", "manners", "remedies", "dismissed", "standings"),
}
STANDARD_TERMS = ("held_out", "learned_positions", "LearnedPositions")  # in which a retired word is the field's own
RETIRED_PREFIXES = ("of_",)  # gradients: `grad_x`, not `of_x`


def identifiers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, name) of everything that a module names: functions, classes, parameters, variables, attributes."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def words(name: str) -> set[str]:
    """The lower-case words of `snake_case` and `CamelCase`."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def is_retired(name: str) -> bool:
    for term in STANDARD_TERMS:
        name = re.sub(term, "", name, flags=re.IGNORECASE)
    return bool(words(name) & RETIRED) or name.lstrip("_").startswith(RETIRED_PREFIXES)


def test_no_identifier_contains_a_retired_word():
    offenders = [
        f"{path.relative_to(PACKAGE)}:{line} {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for line, name in identifiers(ast.parse(path.read_text(encoding="utf-8")))
        if is_retired(name)
    ]
    assert offenders == []


def test_no_module_is_named_by_a_retired_word():
    assert [path for path in sorted(PACKAGE.rglob("*.py")) if is_retired(path.stem)] == []


def test_the_rule_detects_retired_words():
    tree = ast.parse("def told(of_gates):\n    self.kept, Shelf = 1, 2")
    retired = sorted(name for _, name in identifiers(tree) if is_retired(name))
    assert retired == ["Shelf", "kept", "of_gates", "told"]
    assert not is_retired("grad_gates")
    assert not is_retired("always")
    assert is_retired("held")
    assert not is_retired("HELD_OUT_FRACTION")
