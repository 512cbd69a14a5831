"""A form has every setting of the command line, and the command that it shows is exactly what runs."""

from __future__ import annotations

import random
import shlex
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from seqwise.applicability import check_effects, find_unused
from seqwise.cli.check import Check
from seqwise.cli.compare import Compare
from seqwise.cli.options import list_options, list_typed, parse
from seqwise.cli.train import Train
from seqwise.config import Settings
from seqwise.errors import UsageError
from seqwise.families import list_family_names
from seqwise.studio.forms import (
    OWN_OPTIONS,
    build_arguments,
    build_check_arguments,
    describe_form,
    format_command,
    list_fields,
    read_form,
)
from seqwise.task_registry import list_task_names

CLASSES = {"train": Train, "compare": Compare}
HOSTILE = (
    "--resume", "-x", "--", "--out=/etc", "; rm -rf ~", "$(id)", "`id`", "a b", "'\"", "None", "--help", "a\\b", "*",
    "<script>alert(1)</script>", "=", "--debug", "~", "#", "null", "日本",
)  # fmt: skip
# A valid value of settings for which the first choice or the smallest number would not do.
VALUES = {
    "budget": "3-epochs", "data.encoding": "UTF8", "forecast.quantiles": "0.1,0.9", "data.valid_fraction": "0.1",
    "data.test_fraction": "0.2", "models": "gru,lstm", "task": "language", "parameters": "300k",
}  # fmt: skip


def parse_command(text: str) -> Any:
    """Parses a command that the page shows as a shell and the command line would."""
    program, command, *words = shlex.split(text)
    assert program == "seqwise"
    spec: Any = {**CLASSES, "check": Check}[command]
    return parse(spec, words, prog=f"seqwise {command}", example="")


def get_value(parsed: Any, name: str) -> Any:
    return reduce(getattr, name.split("."), parsed if hasattr(parsed, name) else parsed.settings)


def choose_value(field: dict[str, Any]) -> str | bool:
    if field["name"] in VALUES:
        return VALUES[field["name"]]
    if field["kind"] == "bool":
        return not field["default"]
    if field["kind"] == "choice":
        return field["choices"][-1]
    limits = field["limits"]
    lowest = limits.get("ge", limits.get("gt", 0))
    return {"int": str(int(lowest) + 8), "float": str(lowest + 0.25), "text": "a word"}[field["kind"]]


def list_every_field() -> list[Any]:
    """The fields of trainings, and those that only comparisons have."""
    fields = {field["name"]: ("train", field) for field in list_fields("train")}
    others = {field["name"]: ("compare", field) for field in list_fields("compare") if field["name"] not in fields}
    return [pytest.param(*each, id=name) for name, each in {**fields, **others}.items()]


@pytest.mark.parametrize("command", CLASSES)
def test_every_option_of_the_command_line_has_a_field(command):
    fields = {f"--{each['name'].replace('_', '-')}" for each in list_fields(command)}
    options = {each.replace(".no-", ".") for each in list_options(CLASSES[command])}
    options = {each for each in options if not each.startswith("--no-")}
    own = {f"--{name}" for name in OWN_OPTIONS} | {"--help", "--view"}  # --view: in the help of another option
    assert fields - options == set()
    assert options - fields - own == set()


@pytest.mark.parametrize(("command", "field"), list_every_field())
def test_a_field_has_a_kind_and_help(command, field):
    assert len(field["help"]) > 10
    assert field["kind"] in ("bool", "int", "float", "choice", "text")
    assert (field["kind"] == "choice") <= (len(field["choices"]) > 1)


@pytest.mark.parametrize("task", list_task_names())
@pytest.mark.parametrize("command", CLASSES)
def test_defaults_that_are_typed_are_those_of_the_command_line(command, task):
    defaults = {field["name"]: field["default"] for field in list_fields(command)}
    form = read_form(command, {"data": "a.txt", **defaults, "task": task})
    assert form.problems == {}
    assert len(form.options) > 20
    parsed = parse_command(format_command(build_arguments(form, "runs/a")))
    assert {name: get_value(parsed, name) for name in defaults} == {**defaults, "task": task}


@pytest.mark.parametrize(("command", "field"), list_every_field())
def test_a_value_reaches_the_command_line(command, field):
    """With the settings that it needs to have an effect, each option is parsed as the value of the form."""
    value = choose_value(field)
    for task in list_task_names():
        for model in list_family_names():
            others = {"model": model} if command == "train" else {"models": model}
            form = read_form(command, {"data": "a.txt", "task": task, **others, field["name"]: value})
            if field["name"] in form.options:
                break
        else:
            continue
        break
    else:
        # It needs another setting, such as --network.output sampled.
        assert field["name"] in find_unused(Settings(task="caption", model="lstm"), [field["name"]])
        return
    assert set(form.problems) <= {"model", "models"}
    text = format_command(build_arguments(form, "runs/a"))
    parsed = parse_command(text)
    assert parsed.data == "a.txt"
    assert str(get_value(parsed, field["name"])) == str(form.options[field["name"]])


@pytest.mark.parametrize("seed", range(30))
def test_random_forms_parse_to_the_same_settings(seed):
    generator = random.Random(seed)
    command = generator.choice(list(CLASSES))
    fields = generator.sample(list_fields(command), 12)
    values = {each["name"]: choose_value(each) for each in fields}
    form = read_form(command, {"data": "some data.csv", **values})
    words = build_arguments(form, "runs/a b")
    parsed = parse_command(format_command(words))
    assert (parsed.data, parsed.out) == ("some data.csv", Path("runs/a b"))
    for name, value in form.options.items():
        assert str(get_value(parsed, name)) == str(value)
    models = parsed.models.split(",") if command == "compare" else [parsed.settings.model]
    # Raises an error if the command has a setting without an effect.
    check_effects([parsed.settings.model_copy(update={"model": each}) for each in models], list_typed(words[1:]))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_text_stays_a_value(hostile):
    names = ("data", "columns", "target", "init", "vectors", "forecast.time", "forecast.series")
    form = read_form("train", {"task": "forecast", **dict.fromkeys(names, hostile)})
    parsed = parse_command(format_command(build_arguments(form, "runs/a")))
    assert {name: get_value(parsed, name) for name in names} == dict.fromkeys(names, hostile)
    assert parsed.out == Path("runs/a")
    assert (parsed.resume, parsed.config, parsed.plot) == (None, None, None)


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize(
    ("command", "name"),
    [("train", "network.width"), ("train", "task"), ("train", "model"), ("train", "budget"), ("train", "data.window"),
     ("train", "text.lowercase"), ("compare", "models"), ("compare", "seeds"), ("compare", "match")],
)  # fmt: skip
def test_a_hostile_value_of_another_type_is_a_problem_of_its_field(command, name, hostile):
    form = read_form(command, {"data": "a.txt", name: hostile})
    assert list(form.problems) == [name]
    assert name not in form.options
    with pytest.raises(UsageError, match=name.replace(".", r"\.")):
        form.check()


@pytest.mark.parametrize("value", ["a\nb", "a\0b", "\x1b[31m", "\u202e", "\ud800", "x" * 1001, [1], {"a": 1}])
def test_control_characters_long_texts_and_lists_are_problems(value):
    assert list(read_form("train", {"data": "a.txt", "columns": value}).problems) == ["columns"]
    assert list(read_form("train", {"data": value}).problems) == ["data"]


@pytest.mark.parametrize(
    "name", ["out", "resume", "config", "plot", "settings", "network", "__class__", "text.", "json"]
)
def test_only_fields_are_accepted(name):
    with pytest.raises(UsageError, match="there is no setting"):
        read_form("train", {"data": "a.txt", name: "x"})


def test_numbers_become_those_of_the_command_line():
    form = read_form("train", {"data": "a", "network.width": " 12.0 ", "training.learning_rate": "1E-3"})
    assert build_arguments(form, "o") == [
        "train", "a", "--network.width", "12", "--training.learning-rate", "0.001", "--out", "o"
    ]  # fmt: skip


def test_switches_are_written_as_the_command_line_needs_them():
    values = {"text.lowercase": True, "network.tie_weights": "false", "recurrent.bidirectional": "true"}
    words = build_arguments(read_form("train", {"data": "a", **values}), "o")
    assert words[2:-2] == ["--text.lowercase", "--network.no-tie-weights", "--recurrent.bidirectional", "True"]


def test_settings_without_an_effect_are_left_out_with_the_reason():
    form = read_form("train", {"data": "a", "model": "lstm", "transformer.heads": "4", "network.width": "8"})
    assert "heads" not in format_command(build_arguments(form, "o"))
    assert "the model is lstm" in form.unused["transformer.heads"]
    assert "network.width" not in form.unused
    compared = read_form("compare", {"data": "a", "models": "lstm,transformer", "transformer.heads": "4"})
    assert compared.options["transformer.heads"] == 4


@pytest.mark.parametrize(
    ("data", "detected", "task"),
    [("builtin:sunspots", None, "forecast"), ("a.csv", "classify", "classify"), ("docs", None, None), ("a", "x", None)],
)
def test_the_task_of_the_data_decides_which_settings_have_an_effect(data, detected, task):
    form = read_form("train", {"data": data, "horizon": "5", "classify.pooling": "mean"}, detected)
    assert form.task == task
    assert ("horizon" in form.unused) == (task == "classify")
    assert ("classify.pooling" in form.unused) == (task == "forecast")


def test_a_family_without_a_model_for_the_task_is_a_problem():
    assert read_form("train", {"data": "a", "task": "classify", "model": "ngram"}).problems == {
        "model": "ngram has no model for the task classify."
    }
    assert list(read_form("compare", {"data": "a", "task": "tag", "models": "gru,ngram"}).problems) == ["models"]


def test_a_form_without_data_says_so():
    assert "builtin:docs" in read_form("train", {}).problems["data"]


@pytest.mark.parametrize("command", CLASSES)
def test_the_check_of_the_data_leaves_out_what_only_training_uses(command):
    values: dict[str, Any] = {"network.width": "8", "training.batch_size": "4", "seed": "3", "budget": "1m"}
    values |= {"text.tokenizer": "words", "task": "classify", "columns": "a,b", "data.on_empty": "drop"}
    values |= {"models": "gru", "seeds": "2"} if command == "compare" else {"model": "gru", "nproc": "2"}
    form = read_form(command, {"data": "-a.csv", **values})
    assert form.problems == {}
    words = build_check_arguments(form)
    parsed = parse_command(format_command(words))
    assert (parsed.data, parsed.json) == ("-a.csv", True)
    expected = {"text.tokenizer": "words", "task": "classify", "columns": "a,b", "data.on_empty": "drop"}
    assert {name: get_value(parsed, name) for name in expected} == expected
    assert sorted(list_typed(words[1:])) == sorted([*expected, "json"])


def test_the_form_lists_built_in_data_families_and_sections():
    form = describe_form("compare")
    assert {"builtin:docs", "builtin:sunspots"} <= {each["name"] for each in form["builtins"]}
    assert all(each["text"] for each in form["builtins"])
    assert form["families"] == list_family_names()
    assert form["sections"]["network"].startswith("Size and regularisation")
    assert {"model", "init"}.isdisjoint(each["name"] for each in form["fields"])
