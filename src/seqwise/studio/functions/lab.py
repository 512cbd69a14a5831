"""Requests to run experiments of the lab. Parameters are checked here, before a worker process imports anything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from seqwise.errors import UsageError
from seqwise.lab.statements import Parameter, Statement, list_statements
from seqwise.studio.functions import Function, Request

if TYPE_CHECKING:
    from seqwise.studio.services import Services

MAX_FACTOR = 20  # a whole number may be so many times its default: a slip of the keyboard should not fill the memory
MAX_FLOAT = 1e6  # others decide neither about memory nor about time
MAX_ITEMS = 12  # of a list of numbers
Number = int | float
Text = Annotated[str, Field(max_length=200)]
Value = bool | Number | Text | Annotated[list[Number], Field(max_length=MAX_ITEMS)]


class RunExperimentRequest(Request):
    """Run an experiment with its usual parameters, or those of a quick run, except for those that are given."""

    id: Annotated[str, Field(pattern=r"^[A-H][0-9]{1,2}$")]
    is_quick: bool = True
    parameters: Annotated[dict[str, Value], Field(default_factory=dict, max_length=40)]

    def resolve(self, services: Services) -> dict[str, Any]:
        """Returns the id and the values of all parameters: runs with equal values have the same result."""
        statement = get_statement(self.id)
        return {"id": self.id, "parameters": complete_parameters(statement, self.is_quick, self.parameters)}


def get_statement(identifier: str) -> Statement:
    """Returns a statement by its id."""
    statement = list_statements().get(identifier)
    if statement is None:
        raise UsageError(f"there is no statement {identifier}.")
    return statement


def complete_parameters(statement: Statement, is_quick: bool, changed: dict[str, Any]) -> dict[str, Any]:
    """Returns the values of all parameters as JSON values; raises an error for a value that is not allowed."""
    known = {each.name: each for each in statement.parameters}
    for name in changed:
        if name not in known:
            raise UsageError(f"{statement.id} has no parameter {name[:50]!r}.")
    values = {name: parameter.default for name, parameter in known.items()}
    values |= (statement.quick if is_quick else {}) | changed
    return {name: _check(statement.id, known[name], value) for name, value in values.items()}


def compute_maximum(parameter: Parameter) -> float | None:
    """Returns the largest number that the studio accepts for a parameter; None for a text or a switch."""
    if parameter.kind in ("bool", "str"):
        return None
    if parameter.maximum is not None:
        return parameter.maximum
    if "float" in parameter.kind:
        return MAX_FLOAT
    defaults = parameter.default if isinstance(parameter.default, tuple) else (parameter.default,)
    return MAX_FACTOR * max(1.0, *map(abs, defaults))


def _check(identifier: str, parameter: Parameter, value: Any) -> Any:
    expected = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}
    element, _, rest = parameter.kind.removeprefix("tuple[").partition(",")
    if rest and isinstance(value, Sequence) and not isinstance(value, str) and value:
        return [_check_number(identifier, parameter, element, each) for each in value]
    if not rest and element in ("int", "float") and isinstance(value, (int, float)) and not isinstance(value, bool):
        return _check_number(identifier, parameter, element, value)
    if (parameter.kind == "bool" and isinstance(value, bool)) or (parameter.kind == "str" and isinstance(value, str)):
        return _check_text(identifier, parameter, value) if isinstance(value, str) else value
    noun = "a list of numbers" if rest else expected[parameter.kind]
    raise UsageError(f"{identifier}, {parameter.name}: expected {noun}; received {str(value)[:50]!r}.")


def _check_number(identifier: str, parameter: Parameter, kind: str, value: Any) -> Any:
    maximum, minimum = compute_maximum(parameter), -math.inf if parameter.minimum is None else parameter.minimum
    assert maximum is not None
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if isinstance(value, bool) or not isinstance(value, (int, float)) or (kind == "int" and not is_whole):
        noun = "a whole number" if kind == "int" else "a number"
        raise UsageError(f"{identifier}, {parameter.name}: expected {noun}; received {str(value)[:50]!r}.")
    if not minimum <= value <= maximum:
        limits = f"{minimum:g} to {maximum:g}" if minimum > -math.inf else f"at most {maximum:g}"
        fix = f"In a terminal there is no upper limit: seqwise lab run {identifier} --help"
        raise UsageError(f"{identifier}, {parameter.name}: expected {limits}; received {str(value)[:50]}.", fix=fix)
    return int(value) if kind == "int" else float(value)


def _check_text(identifier: str, parameter: Parameter, value: str) -> str:
    """Raises an error for a text that would be the path of a file: the studio reads the given folders only."""
    is_file = str(parameter.default).startswith("builtin:")
    if is_file and not value.startswith("builtin:"):
        fix = "Use a built-in text, such as builtin:docs, or run it in a terminal."
        raise UsageError(f"{identifier}, {parameter.name}: files are not read here.", fix=fix)
    return value


FUNCTIONS = {
    "run_experiment": Function(RunExperimentRequest, "lab:run_experiment", "lab", max_seconds=900.0, is_cached=True)
}
