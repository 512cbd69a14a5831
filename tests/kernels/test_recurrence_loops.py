"""What a loop carries from turn to turn, in Triton. Its compiler takes a name for unchanged that is given, inside a
loop, the value of the very name whose value it had before; its interpreter does not. Kernels must not depend on it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import seqwise.kernels

FOLDER = Path(seqwise.kernels.__file__).parent
FILES = [*sorted(FOLDER.glob("recurrence/gpu/*.py")), FOLDER / "loss_triton.py"]


def copies(statements: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Names that are given the value of another, as they are."""
    for assigned in (node for part in statements for node in ast.walk(part) if isinstance(node, ast.Assign)):
        target, value = assigned.targets[0], assigned.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=True))
        yield from ((a.id, b.id) for a, b in pairs if isinstance(a, ast.Name) and isinstance(b, ast.Name))


def lost(code: str) -> set[tuple[str, str]]:
    functions = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)]
    found: set[tuple[str, str]] = set()
    for function in functions:
        for place, loop in enumerate(function.body):
            if isinstance(loop, ast.For | ast.While):
                found |= set(copies(function.body[:place])) & set(copies(loop.body))
    return found


def test_a_copied_loop_variable_is_detected():
    assert lost("def kernel(a):\n    b, c = a, 1\n    for _ in range(3):\n        b, a = a, a + 1") == {("b", "a")}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_loop_variable_is_a_copy_of_its_next_value(file: Path) -> None:
    assert not lost(file.read_text())
