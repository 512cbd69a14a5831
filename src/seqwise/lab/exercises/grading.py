"""Grades a solved exercise: runs it in a child process with a time limit, and names what is wrong in its outputs.

An output is compared with the solution and, if it is a derivative, with central differences. A wrong output is compared
with the solutions that have a known mistake, then with the negated, transposed and scaled solution.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqwise.errors import UsageError
from seqwise.lab.exercises.catalogue import get_exercise
from seqwise.lab.exercises.exercise import Exercise

TOLERANCE = 1e-6  # relative error of an output
DIFFERENCE_TOLERANCE = 1e-4  # of central differences, whose own rounding is about 1e-9
MODULES = ("numpy", "math", "__future__", "typing", "collections", "itertools", "functools", "heapq")
SECONDS = 10.0
MAX_PRINTED = 2_000  # characters of what the file prints


@dataclass(frozen=True)
class OutputGrade:
    """The grade of one output: `problem` is "" if it is right."""

    name: str
    problem: str
    relative_error: float | None  # to the solution; None if it has another shape
    difference_error: float | None  # to central differences; None if it is no derivative


@dataclass(frozen=True)
class Grade:
    """The grades of all outputs of an exercise."""

    exercise: Exercise
    outputs: Sequence[OutputGrade]
    printed: str  # what the file printed

    @property
    def is_right(self) -> bool:
        return not any(output.problem for output in self.outputs)


def grade(path: Path, seconds: float = SECONDS) -> Grade:
    """Runs the file in a child process and returns its grade. Raises a `UsageError` if it cannot be graded."""
    exercise = read_exercise(path)
    cases = exercise.list_cases()
    with tempfile.TemporaryDirectory(prefix="seqwise-grade-") as name:
        folder = Path(name)
        for number, inputs in enumerate(cases):
            np.savez(folder / f"case-{number}.npz", **inputs)
        printed = _run_child(path, folder, seconds)
        answers = [_read_outputs(folder / f"outputs-{number}.npz", path) for number in range(len(cases))]
    return Grade(exercise, _compare(exercise, cases, answers, path), printed)


def read_exercise(path: Path) -> Exercise:
    """Returns the exercise that a file solves; raises an error if a part is missing or it imports other things."""
    if not path.is_file():
        raise UsageError("there is no such file.", fix="Write one: seqwise lab exercise B1", file=path)
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise UsageError(f"this is not valid Python: {error}.", file=path, line=line) from None
    heading = (ast.get_docstring(tree) or "").split(":")[0]
    if not heading.startswith("Exercise "):
        problem = 'the file must begin with """Exercise ID: …, as seqwise lab exercise writes it.'
        raise UsageError(problem, fix="Restore the first line.", file=path, line=1)
    exercise = get_exercise(heading.removeprefix("Exercise "))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
            if (module or "").split(".")[0] not in MODULES:
                problem = f"an exercise uses NumPy and math only; this line imports {module!r}."
                raise UsageError(
                    problem, fix="Remove the import and write the equation out.", file=path, line=node.lineno
                )
        if isinstance(node, ast.Constant) and node.value is Ellipsis:
            raise UsageError(
                "this line is still blank.", fix="Replace the ... by an expression.", file=path, line=node.lineno
            )
    if not any(isinstance(node, ast.FunctionDef) and node.name == "solve" for node in tree.body):
        raise UsageError("there is no function solve.", fix="Restore it from seqwise lab exercise.", file=path)
    return exercise


def _run_child(path: Path, folder: Path, seconds: float) -> str:
    """Runs the file; returns what it printed. Raises an error if it fails or takes too long."""
    child = Path(__file__).with_name("child.py")
    command = [sys.executable, "-I", str(child), str(path.resolve()), str(folder), str(seconds)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with (folder / "printed").open("wb") as printed:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            fix = "Look for a loop that does not end; --seconds allows more time."
            raise UsageError(f"the file was stopped after {seconds:g} seconds.", fix=fix, file=path) from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also processes that the file has started
            process.wait()
    text = (folder / "printed").read_text(encoding="utf-8", errors="replace")
    if process.returncode:
        _raise_failure(path, folder, process.returncode, text)
    return text[:MAX_PRINTED]


def _raise_failure(path: Path, folder: Path, status: int, text: str) -> None:
    """Raises an error that says why the file failed."""
    with suppress(OSError, ValueError):
        error = json.loads((folder / "error.json").read_text(encoding="utf-8"))
        message = f"{error['kind']}: {error['message']}".rstrip(": ")
        raise UsageError(f"the file failed with {message}.", file=path, line=error["line"])
    reason = f"signal {-status}" if status < 0 else f"status {status}"
    last = text.strip().splitlines()[-1][:200] if text.strip() else "it printed nothing"
    raise UsageError(f"the file ended with {reason} before it returned: {last}.", file=path)


def _read_outputs(path: Path, file: Path) -> list[np.ndarray]:
    if not path.exists():
        raise UsageError("the file ended before it returned.", fix="Remove calls that end the program.", file=file)
    with np.load(path) as stored:
        return list(stored.values())


# Comparison


def _compare(
    exercise: Exercise, cases: Sequence[dict], answers: Sequence[Sequence[np.ndarray]], path: Path
) -> list[OutputGrade]:
    names = exercise.outputs
    for answer in answers:
        if len(answer) != len(names):
            wanted = f"{len(names)} values ({', '.join(names)})" if len(names) > 1 else f"one value ({names[0]})"
            raise UsageError(f"solve must return {wanted}; it returned {len(answer)}.", file=path)
    expected = [exercise.compute_outputs(inputs) for inputs in cases]
    wrong = [
        (mistake.description, [exercise.compute_outputs(inputs, mistake) for inputs in cases])
        for mistake in exercise.mistakes
    ]
    grades = []
    for index, name in enumerate(names):
        own, right = [answer[index] for answer in answers], [values[index] for values in expected]
        error = _measure_error(own, right)
        known = [(text, [values[index] for values in outputs]) for text, outputs in wrong]
        differences = [exercise.compute_differences(inputs, name) for inputs in cases]
        difference_error = None
        if differences[0] is not None and error is not None:
            difference_error = _measure_error(own, [each for each in differences if each is not None])
        problem = "" if error is not None and error < TOLERANCE else _explain(own, right, known)
        if not problem and difference_error is not None and difference_error > DIFFERENCE_TOLERANCE:
            problem = "It does not agree with central differences."
        grades.append(OutputGrade(name, problem, error, difference_error))
    return grades


def _measure_error(values: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> float | None:
    """Returns the largest relative error over all cases; None if the shapes differ. NaN in both counts as equal."""
    if any(value.shape != other.shape for value, other in zip(values, others)):
        return None
    errors = []
    for value, other in zip(values, others):
        difference = np.where(np.isnan(value) & np.isnan(other), 0.0, np.abs(value - other))
        errors.append(float(difference.max(initial=0.0) / max(np.nanmax(np.abs(other), initial=0.0), 1e-12)))
    return max(errors) if np.isfinite(errors).all() else float("inf")


def _explain(
    values: Sequence[np.ndarray], right: Sequence[np.ndarray], known: Sequence[tuple[str, Sequence[np.ndarray]]]
) -> str:
    """Returns what is wrong with an output, as a sentence."""

    def agrees(others: Sequence[np.ndarray]) -> bool:
        error = _measure_error(values, others)
        return error is not None and error < TOLERANCE

    if agrees([-each for each in right]):
        return "The sign is reversed."
    for text, outputs in known:
        if _measure_error(outputs, right) != 0.0 and agrees(outputs):
            return text
    if not all(np.isfinite(value).all() for value in values):
        return "It has values that are not finite: look for a division by zero or a logarithm of zero."
    if all(each.ndim == 2 for each in right) and agrees([each.T for each in right]):
        return "The matrix is transposed."
    if any(value.shape != other.shape for value, other in zip(values, right)):
        return f"Expected the shape {right[0].shape}; received {values[0].shape}."
    ratios = [float((value * other).sum() / max((other * other).sum(), 1e-300)) for value, other in zip(values, right)]
    if agrees([ratio * other for ratio, other in zip(ratios, right)]):
        return f"It is {ratios[0]:.4g} times what it should be: look for a missing or additional factor."
    shares = [float(np.isclose(value, other, rtol=1e-6, atol=1e-9).mean()) for value, other in zip(values, right)]
    return f"{1 - min(shares):.0%} of its entries differ from the solution; no known mistake explains them."
