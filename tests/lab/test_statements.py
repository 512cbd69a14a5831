"""The list of statements, which is read from the source files, says the same as the classes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields

import pytest

from seqwise.lab import get_experiment, list_ids
from seqwise.lab.page.build import split_command
from seqwise.lab.statements import MAX_SEED, list_statements


def test_there_are_90_statements_in_the_order_of_the_textbook():
    assert list(list_statements()) == list_ids()
    assert len(list_statements()) == 90


@pytest.mark.parametrize("identifier", list_ids())
def test_a_statement_agrees_with_its_class(identifier: str):
    statement, kind = list_statements()[identifier], get_experiment(identifier)
    for name in ("id", "claim", "equation", "measurement", "seconds", "quick"):
        assert getattr(statement, name) == getattr(kind, name)
    assert [(each.name, each.default) for each in statement.parameters] == [
        (each.name, each.default) for each in fields(kind)
    ]
    assert [each.kind for each in statement.parameters] == [each.type for each in fields(kind)]
    for parameter in statement.parameters:
        assert len(parameter.text) > 3  # every parameter is explained
        if parameter.kind in ("int", "float"):
            usual = 0 if parameter.name == "seed" else 1 if parameter.kind == "int" else None
            assert parameter.minimum == kind.minimums.get(parameter.name, usual)
            assert parameter.maximum == kind.maximums.get(
                parameter.name, MAX_SEED if parameter.name == "seed" else None
            )


def test_statements_are_listed_without_torch():
    code = "import sys; from seqwise.lab.statements import list_statements as list_all; list_all()"
    code += "; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("identifier", list_ids())
def test_a_suggested_command_is_known(identifier: str):
    parameters = {each.name: each.default for each in list_statements()[identifier].parameters}
    command, _ = split_command(get_experiment(identifier).try_next, parameters)
    options = [word[2:].replace("-", "_") for word in command.split() if word.startswith("--")]
    assert {option for option in options if option.removeprefix("no_") not in {*parameters, "quick"}} == set()
