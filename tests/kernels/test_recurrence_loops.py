"""Loop variables in Triton kernels that are copies of each other.

After `b = a`, Triton's compiler treats `b` as unchanged by a loop that contains `b = a` again, although `a` changes;
its interpreter does not. Kernels must not contain such loops.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import seqwise.kernels

FOLDER = Path(seqwise.kernels.__file__).parent
FILES = [*sorted(FOLDER.glob("recurrence/gpu/*.py")), FOLDER / "loss_triton.py"]


def find_copies(statements: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yields (a, b) for each assignment `a = b` of one name to another."""
    for assignment in (node for part in statements for node in ast.walk(part) if isinstance(node, ast.Assign)):
        target, value = assignment.targets[0], assignment.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=True))
        yield from ((a.id, b.id) for a, b in pairs if isinstance(a, ast.Name) and isinstance(b, ast.Name))


def find_repeated_copies(code: str) -> set[tuple[str, str]]:
    functions = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)]
    repeated: set[tuple[str, str]] = set()
    for function in functions:
        for index, loop in enumerate(function.body):
            if isinstance(loop, ast.For | ast.While):
                repeated |= set(find_copies(function.body[:index])) & set(find_copies(loop.body))
    return repeated


def test_a_copied_loop_variable_is_detected():
    assert find_repeated_copies("def kernel(a):\n    b, c = a, 1\n    for _ in range(3):\n        b, a = a, a + 1") == {
        ("b", "a")
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_loop_variable_is_a_copy_of_its_next_value(file: Path) -> None:
    assert not find_repeated_copies(file.read_text())
