"""`Exercise`: a solution in which some equations are left blank, the inputs it is tried on, and typical mistakes.

A solution is a file of this folder that needs NumPy only. The student gets it with `...` in place of the right-hand
sides that are marked `# blank`. A mistake is a change of the solution's source: an answer that agrees with the changed
solution, and not with the right one, has made that mistake.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

SOLUTIONS = Path(__file__).parent / "solutions"
BLANK = re.compile(r"^(?P<code>.*?)  # blank(?:: (?P<hint>.*))?$")
SMALL = 1e-6  # step of finite differences

Inputs = dict[str, Any]  # argument → array or number
Draw = Callable[[np.random.Generator], Inputs]


@dataclass(frozen=True)
class Mistake:
    """A change of the solution: `old` is replaced by `new`; `description` says what is wrong, as a sentence."""

    description: str
    old: str
    new: str


@dataclass(frozen=True)
class Exercise:
    """An exercise about a statement.

    outputs: names of what `solve` returns
    differences: output → the function of the solution, and the argument (or some of its rows) by which it is the
        derivative
    seeds: of the inputs that an answer is tried on
    steps: arguments with a row per time step, if an answer may be right for a single step and wrong for several
    """

    id: str
    title: str
    outputs: tuple[str, ...]
    draw: Draw
    mistakes: tuple[Mistake, ...]
    differences: Mapping[str, tuple[str, str] | tuple[str, str, slice]] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2)
    steps: tuple[str, ...] = ()

    @cached_property
    def source(self) -> str:
        """The text of the solution."""
        return (SOLUTIONS / f"{self.id.lower()}.py").read_text(encoding="utf-8")

    def build_template(self, file_name: str) -> str:
        """Returns the text of the file for the student."""
        _, _, body = self.source.partition('"""')
        text, _, code = body.partition('"""')
        heading = f"Exercise {self.id}: {text.strip()}"
        task = (
            "Replace each `...` in `solve` by the expression that its comment asks for; everything else is ready.\n"
            f"NumPy is all you need. Then run:  seqwise lab grade {file_name}"
        )
        lines = [_blank_line(line) for line in code.splitlines()]
        return f'"""{heading}\n\n{task}\n"""' + "\n".join(lines) + "\n"

    def load(self, mistake: Mistake | None = None) -> dict[str, Any]:
        """Returns the names that the solution defines, or those of the solution with a mistake."""
        source = self.source
        if mistake is not None:
            if source.count(mistake.old) != 1:
                raise ValueError(f"{self.id}: {mistake.old!r} occurs {source.count(mistake.old)} times")
            source = source.replace(mistake.old, mistake.new)
        names: dict[str, Any] = {}
        exec(compile(source, f"{self.id}.py", "exec"), names)
        return names

    def list_cases(self) -> list[Inputs]:
        """Returns the inputs that an answer is tried on."""
        return [self.draw(np.random.default_rng(seed)) for seed in self.seeds]

    def build_single_step(self) -> Inputs | None:
        """Returns the first inputs, cut to a single time step; None if the exercise has no time steps."""
        if not self.steps:
            return None
        inputs = self.list_cases()[0]
        return {name: value[:1] if name in self.steps else value for name, value in inputs.items()}

    def compute_outputs(self, inputs: Inputs, mistake: Mistake | None = None) -> list[np.ndarray]:
        """Returns the outputs of the solution, or of the solution with a mistake."""
        with np.errstate(all="ignore"):
            return to_arrays(self.load(mistake)["solve"](**inputs))

    def compute_differences(self, inputs: Inputs, output: str) -> np.ndarray | None:
        """Returns an output that is a derivative, by central differences; None if it is none.

        The derivative of a vector has a row per entry of the vector.
        """
        if output not in self.differences:
            return None
        name, argument, *rows = self.differences[output]
        function = self.load()[name]
        arguments = {key: inputs[key] for key in function.__code__.co_varnames[: function.__code__.co_argcount]}
        point = np.array(inputs[argument], dtype=np.float64)
        columns = []
        for index in np.ndindex(point.shape):
            values = []
            for sign in (1, -1):
                shifted = point.copy()
                shifted[index] += sign * SMALL
                values.append(np.asarray(function(**{**arguments, argument: shifted})))
            columns.append((values[0] - values[1]) / (2 * SMALL))
        derivative = np.stack(columns, axis=-1).reshape(*columns[0].shape, *point.shape)
        return derivative[rows[0]] if rows else derivative


def draw_arrays(**shapes: tuple[int, ...]) -> Draw:
    """Returns a function that draws normal arrays of these shapes."""
    return lambda random: {name: random.normal(size=shape) for name, shape in shapes.items()}


def to_arrays(value: Any) -> list[np.ndarray]:
    """Returns what `solve` returns as a list of arrays."""
    return [np.asarray(each, dtype=np.float64) for each in (value if isinstance(value, tuple) else (value,))]


def _blank_line(line: str) -> str:
    """Returns a line of the student's file: the right-hand side of a marked line is `...`."""
    match = BLANK.match(line)
    if match is None:
        return line
    code, hint = match["code"], match["hint"]
    indentation = code[: len(code) - len(code.lstrip())]
    statement = ast.parse(code.strip()).body[0]
    if isinstance(statement, ast.Return):
        code = f"{indentation}return ..."
    elif isinstance(statement, ast.Assign):
        code = f"{indentation}{ast.unparse(statement.targets[0])} = ..."
    elif isinstance(statement, ast.AugAssign):
        code = f"{indentation}{ast.unparse(statement.target)} += ..."
    else:
        code = f"{indentation}..."
    return f"{code}  # {hint}" if hint else code
