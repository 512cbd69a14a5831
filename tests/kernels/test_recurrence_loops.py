"""No loop of a Triton kernel repeats an assignment `target = source` of one variable to another made before the loop.

Triton's compiler treats `target` as unchanged by such a loop, although `source` changes in it. The interpreter, which
tests use on a CPU, runs the code as written, so other tests do not detect the error.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import seqwise.kernels

FOLDER = Path(seqwise.kernels.__file__).parent
FILES = [*sorted(FOLDER.glob("recurrence/gpu/*.py")), FOLDER / "loss_triton.py"]


def find_name_assignments(statements: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yields (target, source) for each assignment of one variable to another, also inside of tuples."""
    nodes = (node for statement in statements for node in ast.walk(statement))
    for assignment in (node for node in nodes if isinstance(node, ast.Assign)):
        target, value = assignment.targets[0], assignment.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=True))
        yield from ((a.id, b.id) for a, b in pairs if isinstance(a, ast.Name) and isinstance(b, ast.Name))


def find_assignments_repeated_in_loops(code: str) -> set[tuple[str, str]]:
    """Returns (target, source) of assignments that are made before a loop and inside it, at any depth of nesting."""
    repeated: set[tuple[str, str]] = set()
    for block in (node.body for node in ast.walk(ast.parse(code)) if isinstance(getattr(node, "body", None), list)):
        for index, loop in enumerate(block):
            if isinstance(loop, ast.For | ast.While):
                repeated |= set(find_name_assignments(block[:index])) & set(find_name_assignments(loop.body))
    return repeated


TOP_LEVEL_LOOP = """
def kernel(a):
    b, c = a, 1
    for _ in range(3):
        b, a = a, a + 1
"""
NESTED_LOOP = """
def kernel(a):
    for _ in range(2):
        b, c = a, 1
        for _ in range(3):
            b, a = a, a + 1
"""


@pytest.mark.parametrize("code", [TOP_LEVEL_LOOP, NESTED_LOOP])
def test_an_assignment_repeated_in_a_loop_is_detected(code: str) -> None:
    assert find_assignments_repeated_in_loops(code) == {("b", "a")}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_loop_repeats_an_assignment_made_before_it(file: Path) -> None:
    assert not find_assignments_repeated_in_loops(file.read_text())
