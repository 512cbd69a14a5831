"""Grades a solved exercise: runs it in a child process with a time limit, and names what is wrong in its outputs.

An output is compared with the solution and, if it is a derivative, with central differences. A wrong output is compared
with the negated solution and with the solutions that have a known mistake, then with the other outputs and with the
transposed and scaled solution. If nothing explains it, a recurrent network is also tried on a single time step.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
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
    printed: str  # what the file printed for the first inputs

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
        single = exercise.build_single_step()
        if single is not None:
            np.savez(folder / "single.npz", **single)
        printed = _run_child(path, folder, seconds)
        answers = [_read_outputs(folder / f"outputs-{number}.npz", path) for number in range(len(cases))]
        single_answer = None
        if (folder / "single-outputs.npz").exists():
            single_answer = _read_outputs(folder / "single-outputs.npz", path)
    return Grade(exercise, _compare(exercise, cases, answers, path, single_answer), printed)


def read_exercise(path: Path) -> Exercise:
    """Returns the exercise that a file solves; raises an error if a part is missing or it imports other things."""
    if path.is_dir():
        raise UsageError("this is a folder; name a file, such as b1.py.", file=path)
    if not path.is_file():
        raise UsageError("there is no such file.", fix="Write one: seqwise lab exercise B1", file=path)
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError) as error:
        line, reason = getattr(error, "lineno", None), getattr(error, "msg", str(error))
        raise UsageError(f"this is not valid Python: {reason}.", file=path, line=line) from None
    except (MemoryError, RecursionError):  # which of them depends on the version of Python
        problem = "an expression of the file is nested too deeply."
        raise UsageError(problem, fix="Divide it into several lines.", file=path) from None
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
        line = error["line"]
        if error["prints_too_much"]:
            raise UsageError("the file prints too much.", fix="Remove the print.", file=path, line=line)
        message = f"{error['kind']}: {error['message']}".rstrip(": ")
        lines = path.read_text(encoding="utf-8").splitlines()
        code = f"This line failed: {lines[line - 1].strip()}" if line and line <= len(lines) else ""
        raise UsageError(f"the file failed with {message}.", fix=code, file=path, line=line)
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
    exercise: Exercise,
    cases: Sequence[dict],
    answers: Sequence[Sequence[np.ndarray]],
    path: Path,
    single_answer: Sequence[np.ndarray] | None = None,
) -> list[OutputGrade]:
    """Returns the grades of the answers; `single_answer` is that for a single time step, if there is one."""
    names = exercise.outputs
    for answer in answers:
        if len(answer) != len(names):
            wanted = f"{len(names)} values ({', '.join(names)})" if len(names) > 1 else f"one value ({names[0]})"
            raise UsageError(f"solve must return {wanted}; it returned {len(answer)}.", file=path)
    own = _group(answers)
    right = _group([exercise.compute_outputs(inputs) for inputs in cases])
    errors = [_measure_error(values, others) for values, others in zip(own, right)]
    is_wrong = [error is None or error >= TOLERANCE for error in errors]
    problems = [""] * len(names)
    if any(is_wrong):
        wrong = [
            (mistake.description, _group([exercise.compute_outputs(inputs, mistake) for inputs in cases]))
            for mistake in exercise.mistakes
        ]
        is_later_wrong = all(is_wrong) and _is_single_step_right(exercise, single_answer)
        for index in np.flatnonzero(is_wrong):
            known = [(text, outputs[index]) for text, outputs in wrong]
            others = {names[i]: right[i] for i in np.flatnonzero(is_wrong) if i != index}
            problems[index] = _explain(own[index], right[index], known, others, is_later_wrong)
    grades = []
    for name, values, error, problem in zip(names, own, errors, problems):
        differences = [exercise.compute_differences(inputs, name) for inputs in cases]
        difference_error = None
        if differences[0] is not None and error is not None:
            difference_error = _measure_error(values, [each for each in differences if each is not None])
        if not problem and difference_error is not None and difference_error > DIFFERENCE_TOLERANCE:
            problem = "It does not agree with central differences."
        grades.append(OutputGrade(name, problem, error, difference_error))
    return grades


def _group(answers: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """Returns, for each output, its values in all cases."""
    return [list(values) for values in zip(*answers)]


def _is_single_step_right(exercise: Exercise, answer: Sequence[np.ndarray] | None) -> bool:
    """Says whether the answer for a single time step is right."""
    inputs = exercise.build_single_step()
    if inputs is None or answer is None or len(answer) != len(exercise.outputs):
        return False
    return all(_agree([value], [right]) for value, right in zip(answer, exercise.compute_outputs(inputs)))


def _measure_error(values: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> float | None:
    """Returns the largest relative error over all cases; None if the shapes differ. NaN in both counts as equal."""
    if any(value.shape != other.shape for value, other in zip(values, others)):
        return None
    errors = []
    for value, other in zip(values, others):
        difference = np.where(np.isnan(value) & np.isnan(other), 0.0, np.abs(value - other))
        errors.append(float(difference.max(initial=0.0) / max(np.nanmax(np.abs(other), initial=0.0), 1e-12)))
    return max(errors) if np.isfinite(errors).all() else float("inf")


def _agree(values: Sequence[np.ndarray], others: Sequence[np.ndarray]) -> bool:
    error = _measure_error(values, others)
    return error is not None and error < TOLERANCE


def _explain(
    values: Sequence[np.ndarray],
    right: Sequence[np.ndarray],
    known: Sequence[tuple[str, Sequence[np.ndarray]]],
    others: Mapping[str, Sequence[np.ndarray]],
    is_later_wrong: bool,
) -> str:
    """Returns what is wrong with an output, as a sentence.

    known: a mistake's description, and the output with this mistake
    others: the right values of the other wrong outputs
    is_later_wrong: the answer is right for a single time step
    """
    if _agree(values, [-each for each in right]):
        return "The sign is reversed."
    for text, outputs in known:
        if _measure_error(outputs, right) != 0.0 and _agree(values, outputs):
            return text
    for name, outputs in others.items():
        if _agree(values, outputs):
            return f"This is {name}: the outputs are exchanged."
    if not all(np.isfinite(value).all() for value in values):
        return "It has values that are not finite: look for a division by zero or a logarithm of zero."
    if all(each.ndim == 2 for each in right) and _agree(values, [each.T for each in right]):
        return "The matrix is transposed."
    for value, other in zip(values, right):
        if value.shape != other.shape:
            if value.ndim == 1 and len({each.shape for each in right}) > 1:  # the length is part of the answer
                return f"Expected {other} for one of the inputs; received {value}. No known mistake explains it."
            return f"Expected the shape {other.shape}; received {value.shape}."
    factor = _find_factor(values, right)
    if factor is not None:
        return f"It is {factor:.4g} times what it should be: look for a missing or additional factor."
    if is_later_wrong:
        return "It is right for a single time step; look at what a step sends back through time."
    return _describe_difference(values, right)


def _find_factor(values: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> float | None:
    """Returns the factor by which arrays differ from the right ones, the same in all cases; None if there is none.

    A scalar always has a factor, which says nothing.
    """
    if any(each.size < 2 for each in right):
        return None
    products = sum(float((value * other).sum()) for value, other in zip(values, right))
    factor = products / max(sum(float((other * other).sum()) for other in right), 1e-300)
    return factor if factor and _agree(values, [factor * other for other in right]) else None


def _describe_difference(values: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> str:
    """Returns how much an output differs that no known mistake explains."""
    if all(each.ndim == 0 for each in right):
        value, other = next((value, other) for value, other in zip(values, right) if not _agree([value], [other]))
        return f"Expected {other:.6g} for one of the inputs; received {value:.6g}. No known mistake explains it."
    shares = [float(np.isclose(value, other, rtol=1e-6, atol=1e-9).mean()) for value, other in zip(values, right)]
    return f"{1 - min(shares):.0%} of its entries differ from the solution; no known mistake explains them."
