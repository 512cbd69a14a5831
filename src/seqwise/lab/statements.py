"""The statements of the lab and their parameters, read from the source files without importing them.

An experiment's texts, limits and defaults are constants in its class, so a list of all 90 takes a fraction of a second
and no PyTorch. A test compares the list with the classes.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from seqwise.lab.catalogue import find_modules

ParameterKind = Literal["int", "float", "bool", "str", "tuple[int, ...]", "tuple[float, ...]"]
MAX_SEED = 2**31 - 1


@dataclass(frozen=True)
class Parameter:
    """A field of an experiment, with its limits: None if it has none."""

    name: str
    kind: ParameterKind
    default: Any
    text: str  # what it is
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True)
class Statement:
    """What is known of an experiment before it is run. It does not reveal the verdict."""

    id: str
    claim: str
    equation: str
    measurement: str
    seconds: float  # expected time on two cores
    quick: dict[str, Any]  # parameters of a quick run
    parameters: tuple[Parameter, ...]


@cache
def list_statements() -> dict[str, Statement]:
    """Returns all statements by id, in the order of the textbook."""
    return {identifier: _read_statement(identifier, module) for identifier, module in find_modules().items()}


def _read_statement(identifier: str, module: str) -> Statement:
    for name in _read_module(module).classes:
        content = _read_class(module, name)
        if content.values.get("id") == identifier:
            values = content.values
            texts = {key: values[key] for key in ("id", "claim", "equation", "measurement", "seconds")}
            parameters = tuple(_build_parameter(each, values) for each in content.fields.values())
            return Statement(**texts, quick=dict(values.get("quick", {})), parameters=parameters)
    raise LookupError(f"{module} has no experiment {identifier}")


def _build_parameter(parameter: Parameter, values: dict[str, Any]) -> Parameter:
    """Returns a parameter with the limits of its experiment, as `Experiment.__post_init__` applies them."""
    name, kind = parameter.name, parameter.kind
    if kind not in ("int", "float"):
        return parameter
    minimum = values.get("minimums", {}).get(name, 0 if name == "seed" else 1 if kind == "int" else None)
    maximum = values.get("maximums", {}).get(name, MAX_SEED if name == "seed" else None)
    return Parameter(name, kind, parameter.default, parameter.text, minimum, maximum)


@dataclass
class _Module:
    classes: dict[str, ast.ClassDef]
    imports: dict[str, tuple[str, str]]  # name → module, and its name there
    constants: dict[str, Any]


@dataclass
class _Class:
    values: dict[str, Any] = field(default_factory=dict)  # class variables that are constants
    fields: dict[str, Parameter] = field(default_factory=dict)


@cache
def _read_module(module: str) -> _Module:
    spec = find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    found = _Module({}, {}, {})
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found.classes[node.name] = node
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.imports |= {each.asname or each.name: (node.module, each.name) for each in node.names}
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = _evaluate(node.value, {})
            if value is not None:
                found.constants[node.targets[0].id] = value
    return found


def _read_class(module: str, name: str) -> _Class:
    """Returns the constants and fields of a class, with those of its bases as far as `Experiment`."""
    source, result = _read_module(module), _Class()
    node = source.classes[name]
    for base in node.bases:
        base_name = base.id if isinstance(base, ast.Name) else ""
        place = (module, base_name) if base_name in source.classes else source.imports.get(base_name)
        if place is not None and place[0].startswith("seqwise.lab"):
            inherited = _read_class(*place)
            result.values |= inherited.values
            result.fields |= inherited.fields
    for statement, following in zip(node.body, [*node.body[1:], None]):
        _add(result, statement, following, source.constants)
    return result


def _add(result: _Class, statement: ast.stmt, following: ast.stmt | None, constants: dict[str, Any]) -> None:
    """Adds what a line of a class defines; a field is explained by the text that follows it."""
    if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        result.values[statement.targets[0].id] = _evaluate(statement.value, constants)
    elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        result.values[statement.target.id] += _evaluate(statement.value, constants)
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        name, kind = statement.target.id, ast.unparse(statement.annotation)
        value = None if statement.value is None else _evaluate(statement.value, constants)
        if kind.startswith("ClassVar"):
            result.values[name] = value
        else:
            text = following.value.value if _is_text(following) else ""  # type: ignore[union-attr]
            result.fields[name] = Parameter(name, kind, value, " ".join(text.split()))  # type: ignore[arg-type]


def _is_text(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _evaluate(node: ast.expr, constants: dict[str, Any]) -> Any:
    """Returns the value of a constant expression, in which constants of the module may occur; otherwise None."""
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.Dict):
        keys = [key for key in node.keys if key is not None]
        return {_evaluate(key, constants): _evaluate(value, constants) for key, value in zip(keys, node.values)}
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
