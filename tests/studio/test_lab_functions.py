"""Runs of experiments from the studio: parameters are checked before anything is computed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest
from async_calls import run_async
from pydantic import ValidationError

from seqwise.errors import UsageError
from seqwise.lab import get_experiment
from seqwise.lab.page.build import split_command
from seqwise.lab.statements import Parameter, list_statements
from seqwise.studio.functions import Function, get_functions
from seqwise.studio.functions.lab import FUNCTIONS, MAX_FACTOR, RunExperimentRequest, compute_maximum
from seqwise.studio.routes.lab import _describe_lab
from seqwise.studio.work.lab import run_experiment
from seqwise.studio.worker import Cancelled, Context
from seqwise.studio.workers import Worker, Workers

SERVICES: Any = SimpleNamespace()


def resolve(identifier: str, *, is_quick: bool = False, **parameters: Any) -> dict[str, Any]:
    request = RunExperimentRequest.model_validate({"id": identifier, "is_quick": is_quick, "parameters": parameters})
    return request.resolve(SERVICES)


def test_all_parameters_are_part_of_a_run_so_that_equal_runs_are_equal():
    values = resolve("C2", coupling=0)
    assert values == {
        "id": "C2",
        "parameters": {"seed": 0, "units": 10, "radius": 0.9, "coupling": 0.0, "steps": 300},
    }
    assert resolve("C2", coupling=0.0, units=10.0) == values
    quick = list_statements()["C10"].quick
    assert resolve("C10", is_quick=True)["parameters"]["steps"] == quick["steps"]
    assert resolve("C10", **{**quick, "lags": list(quick["lags"])}) == resolve("C10", is_quick=True)


@pytest.mark.parametrize(
    ("identifier", "parameters", "problem"),
    [
        ("C2", {"units": 0}, "C2, units: expected 1 to 200; received 0."),
        ("C2", {"units": 10 * MAX_FACTOR + 1}, "C2, units: expected 1 to 200; received 201."),
        ("C2", {"units": 10**400}, "expected 1 to 200"),
        ("C2", {"units": 2.5}, "C2, units: expected a whole number; received '2.5'."),
        ("C2", {"units": True}, "C2, units: expected a whole number"),
        ("C2", {"units": "many"}, "C2, units: expected a whole number"),
        ("C2", {"units": [1, 2]}, "C2, units: expected a whole number"),
        ("C2", {"radius": float("nan")}, "C2, radius: expected 0.01 to 1e+06"),
        ("C2", {"radius": float("inf")}, "C2, radius: expected 0.01 to 1e+06"),
        ("C2", {"seed": -1}, "C2, seed: expected 0 to"),
        ("C2", {"width": 1}, "C2 has no parameter 'width'."),
        ("C3", {"norms": 2}, "C3, norms: expected a list of numbers"),
        ("C3", {"norms": []}, "C3, norms: expected a list of numbers"),
        ("C3", {"norms": [1, 1e9]}, "C3, norms: expected at most 1e+06"),
        ("H13", {"text": "/etc/passwd"}, "H13, text: files are not read here."),
        ("H13", {"text": "corpus.txt"}, "H13, text: files are not read here."),
        ("C99", {}, "there is no statement C99."),
    ],
)
def test_a_parameter_that_is_not_allowed_is_refused(identifier: str, parameters: dict[str, Any], problem: str):
    with pytest.raises(UsageError) as error:
        resolve(identifier, **parameters)
    assert problem in error.value.problem


@pytest.mark.parametrize(
    "values",
    [
        {"id": "../C2"},
        {"id": "C2", "is_quick": "yes"},
        {"id": "C2", "parameters": {"units": None}},
        {"id": "C2", "parameters": {"units": {"a": 1}}},
        {"id": "C3", "parameters": {"norms": list(range(13))}},
        {"id": "E5", "parameters": {"tasks": "a" * 201}},
        {"id": "C2", "parameters": {f"name{index}": 1 for index in range(41)}},
        {"id": "C2", "other": 1},
    ],
)
def test_a_malformed_request_is_refused(values: dict[str, Any]):
    with pytest.raises(ValidationError):
        RunExperimentRequest.model_validate(values)


def find_value(parameter: Parameter, words: list[str]) -> Any:
    """Returns the value that follows an option of a command."""
    start = words.index("--" + parameter.name.replace("_", "-")) + 1
    numbers = [word for word in words[start:] if not word.startswith("--")]
    if parameter.kind.startswith("tuple"):
        return [float(number) for number in numbers]
    return numbers[0] if parameter.kind == "str" else float(numbers[0])


@pytest.mark.parametrize("identifier", list(list_statements()))
def test_every_suggested_command_is_within_the_limits(identifier: str):
    statement = list_statements()[identifier]
    defaults = {each.name: each.default for each in statement.parameters}
    words = split_command(get_experiment(identifier).try_next, defaults)[0].split()
    changed = {
        each.name: find_value(each, words)
        for each in statement.parameters
        if "--" + each.name.replace("_", "-") in words
    }
    if not str(changed.get("text", "builtin:")).startswith("builtin:"):
        pytest.skip("it reads a file")
    assert resolve(identifier, **changed)["id"] == identifier


def test_the_list_has_chapters_statements_and_limits_but_no_verdict():
    lab = _describe_lab()
    assert [len(chapter["statements"]) for chapter in lab["chapters"]] == [6, 9, 11, 11, 6, 20, 11, 16]
    first = lab["chapters"][2]["statements"][1]
    assert set(first) == {"id", "claim", "equation", "measurement", "seconds", "quick", "parameters"}
    assert first["parameters"][1]["maximum"] == compute_maximum(list_statements()["C2"].parameters[1]) == 200


def test_an_experiment_runs_in_stages_and_returns_what_the_page_shows():
    events: list[dict[str, Any]] = []
    record = run_experiment(Context(events.append), **resolve("C2", coupling=0.25))
    assert [event["emitted"]["stage"] for event in events] == ["loading", "running"]
    assert record["verdict"] == "holds if"
    assert record["size"] == "changed"
    assert record["parameters"]["coupling"] == 0.25
    assert record["command"] == "seqwise lab run C2 --coupling 0"
    assert [figure["kind"] for figure in record["figures"]] == ["LineChart"]
    assert run_experiment(Context(events.append), **resolve("C2"))["size"] == "full"


def test_a_cancelled_experiment_is_not_run():
    context = Context(lambda event: None)
    context.cancelled.add(context.request)
    with pytest.raises(Cancelled):
        run_experiment(context, **resolve("C2"))


# --- results that are remembered


class CountingWorker(Worker):
    """A worker that computes nothing and counts its calls."""

    num_calls = 0

    async def call(self, function: Function, arguments: dict[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        CountingWorker.num_calls += 1
        yield {"emitted": 1}
        yield {"error": {"problem": "no"}} if arguments.get("fails") else {"result": {"id": arguments["id"]}}


def call_all(function: Function, several: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    monkeypatch.setattr("seqwise.studio.workers.Worker", CountingWorker)
    CountingWorker.num_calls = 0
    workers = Workers()

    async def collect() -> list[list[Any]]:
        return [[event async for event in workers.call(function, arguments)] for arguments in several]

    return run_async(collect())


def test_a_result_is_remembered_by_its_arguments(monkeypatch: pytest.MonkeyPatch):
    first, other, again = call_all(FUNCTIONS["run_experiment"], [{"id": "C2"}, {"id": "C3"}, {"id": "C2"}], monkeypatch)
    assert first == [{"emitted": 1}, {"result": {"id": "C2"}}]
    assert other[-1] == {"result": {"id": "C3"}}
    assert again == [{"result": {"id": "C2"}}]
    assert CountingWorker.num_calls == 2


def test_errors_and_results_of_other_functions_are_not_remembered(monkeypatch: pytest.MonkeyPatch):
    call_all(FUNCTIONS["run_experiment"], 2 * [{"id": "C2", "fails": True}], monkeypatch)
    assert CountingWorker.num_calls == 2
    call_all(get_functions()["predict"], 2 * [{"id": "C2"}], monkeypatch)
    assert CountingWorker.num_calls == 2


def test_the_results_that_are_remembered_have_a_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("seqwise.studio.workers.MAX_CACHE_BYTES", 60)
    calls = [{"id": "C2"}, {"id": "C3"}, {"id": "C4"}, {"id": "C2"}]
    call_all(FUNCTIONS["run_experiment"], calls, monkeypatch)
    assert CountingWorker.num_calls == 4
