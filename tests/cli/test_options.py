"""Options from typed settings: each kind of mistake has one clear message."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
import tyro
from pydantic import BaseModel, ConfigDict, Field

from seqwise.cli.options import list_options, parse
from seqwise.errors import UsageError


class Inner(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)

    learning_rate: float | None = Field(None, gt=0)
    """Peak learning rate."""
    batch_size: int = Field(8, ge=1)
    """Rows per update."""
    tied: bool = True
    """Share the matrix."""
    crf: bool | None = None
    """Score whole sequences."""


class Outer(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)

    model: Literal["rnn", "lstm"] = "lstm"
    """Model family."""
    window: int | Literal["full"] | None = None
    """Tokens per window."""
    training: Inner = Inner()


@dataclass
class Command:
    """Do something."""

    data: tyro.conf.Positional[str]
    """File or folder."""
    settings: Annotated[Outer, tyro.conf.arg(name="")] = field(default_factory=Outer)
    json: bool = False
    """Print one JSON document."""
    on_empty: str = "drop"
    """What to do with empty lines."""


def parse_command(*words: str, default: Command | None = None) -> Command:
    return parse(Command, words, prog="seqwise probe", example="seqwise probe text.txt", default=default)


def get_error_message(*words: str) -> str:
    with pytest.raises(UsageError) as excinfo:
        parse_command(*words)
    return str(excinfo.value)


def test_values_arrive_with_their_types():
    command = parse_command(
        "a.txt", "--json", "--training.learning-rate", "1e-3", "--training.no-tied", "--window", "full"
    )
    assert command.data == "a.txt"
    assert command.json is True
    assert command.on_empty == "drop"
    assert command.settings == Outer(window="full", training=Inner(learning_rate=0.001, tied=False))


def test_underscores_and_equal_signs_are_accepted():
    assert parse_command("a.txt", "--training.learning_rate=0.5").settings.training.learning_rate == 0.5
    assert parse_command("a.txt", "--on_empty", "keep").on_empty == "keep"


def test_missing_options_have_their_defaults():
    file = Command(data=tyro.MISSING, settings=Outer(model="rnn", training=Inner(batch_size=3)))
    command = parse_command("a.txt", "--training.learning-rate", "2", default=file)
    assert command.settings == Outer(model="rnn", training=Inner(batch_size=3, learning_rate=2.0))


@pytest.mark.parametrize("is_tied", [True, False])
def test_a_switch_has_both_forms_whatever_its_default(is_tied: bool):
    """Settings from a file may have either value, so that both `--tied` and `--no-tied` must be accepted."""
    file = Command(data=tyro.MISSING, settings=Outer(training=Inner(tied=is_tied)))
    assert parse_command("a.txt", default=file).settings.training.tied is is_tied
    assert parse_command("a.txt", "--training.tied", default=file).settings.training.tied is True
    assert parse_command("a.txt", "--training.no-tied", default=file).settings.training.tied is False


SWITCHES = [
    (["--training.tied"], True),
    (["--training.tied", "True"], True),
    (["--training.tied=true"], True),
    (["--training.no-tied"], False),
    (["--training.no_tied"], False),
    (["--training.tied", "False"], False),
    (["--training.tied", "false"], False),
    (["--training.tied=False"], False),
    (["--training.no-tied", "True"], False),
    (["--training.no-tied=false"], True),
]


@pytest.mark.parametrize("name", ["tied", "crf"])  # with a default, and without
@pytest.mark.parametrize(("words", "is_on"), SWITCHES)
def test_a_boolean_setting_is_a_switch_or_has_a_value(name: str, words: list[str], is_on: bool):
    words = [word.replace("tied", name) for word in words]
    for argv in (["a.txt", *words], [*words, "a.txt"], [*words, "--on-empty", "keep", "a.txt"]):
        command = parse_command(*argv)
        assert command.data == "a.txt"
        assert getattr(command.settings.training, name) is is_on


@pytest.mark.parametrize("name", ["tied", "crf"])
@pytest.mark.parametrize(
    ("words", "value"), [(["a", "--training.tied=maybe_1"], "maybe_1"), (["--training.tied", "no", "a"], "no")]
)
def test_a_wrong_value_of_a_boolean_setting_is_named(name: str, words: list[str], value: str):
    assert get_error_message(*(word.replace("tied", name) for word in words)) == (
        f"--training.{name}: expected True or False; received {value!r}.\n"
        f"Write --training.{name} True or --training.{name} False."
    )


def test_a_file_after_a_switch_is_an_argument_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "No").touch()
    command = parse_command("--training.tied", "No")
    assert (command.data, command.settings.training.tied) == ("No", True)


@pytest.mark.parametrize("option", ["--no-training.tied", "--no-training.crf"])
def test_a_section_has_no_opposite(option: str):
    assert "unknown option" in get_error_message("a", option)


def test_the_last_of_several_values_of_a_boolean_setting_counts():
    assert parse_command("a", "--training.tied", "False", "--training.tied").settings.training.tied is True
    assert parse_command("a", "--training.crf", "--training.no-crf").settings.training.crf is False


def test_a_word_after_a_switch_of_the_command_or_after_two_dashes_is_not_its_value():
    command = parse_command("--json", "True")
    assert (command.data, command.json) == ("True", True)
    assert parse_command("--training.no-tied", "--", "True").data == "True"


def test_a_command_may_exclude_settings():
    class Narrow(Command):
        without = ("model",)

    assert "--model" not in list_options(Narrow)
    assert "--window" in list_options(Narrow)
    default = Narrow("a.txt", settings=Outer(model="rnn"))
    assert parse(Narrow, ["b.txt"], prog="", example="", default=default).settings.model == "rnn"
    with pytest.raises(UsageError, match="unknown option '--model'"):
        parse(Narrow, ["b.txt", "--model", "rnn"], prog="", example="")


def test_words_after_two_dashes_are_not_options():
    assert parse_command("--json", "--", "--help").data == "--help"


def test_help_ends_with_the_example(capsys):
    with pytest.raises(SystemExit) as stop:
        parse_command("--help")
    assert stop.value.code == 0
    page = capsys.readouterr().out
    assert page.startswith("usage: seqwise probe")
    assert "DATA" in page
    assert "Peak learning rate." in page
    assert page.endswith("example:\n  seqwise probe text.txt\n")


def test_options_are_listed_by_name_and_switches_in_both_forms():
    assert sorted(list_options(Command)) == [
        *("--help", "--json", "--model", "--no-json", "--on-empty"),
        *("--training.batch-size", "--training.crf", "--training.learning-rate", "--training.no-tied"),
        *("--training.tied", "--window"),
    ]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a", "--modle", "rnn"], "unknown option '--modle'. Perhaps you meant '--model'."),
        (["--modle", "a"], "unknown option '--modle'. Perhaps you meant '--model'."),
        (["a", "--batch", "3"], "unknown option '--batch'. Perhaps you meant '--training.batch-size'."),
        (["a", "--learning_rate=3"], "--learning-rate is --training.learning-rate here: --training.learning-rate 3"),
        (["a", "--xyzzy"], "unknown option '--xyzzy'."),
        (["a", "-model", "rnn"], "unknown option '-model'. Perhaps you meant '--model'."),
        (["a", "b"], "unexpected argument 'b'."),
        (["--json"], "DATA is missing: File or folder."),
        (["a", "--on-empty"], "--on-empty: a value is missing."),
        (["a", "--model", "lstn"], "--model: expected one of rnn, lstm; received 'lstn'. Perhaps you meant 'lstm'."),
        (["a", "--model", "xyzzy"], "--model: expected one of rnn, lstm; received 'xyzzy'."),
        (["a", "--training.batch-size=many"], "--training.batch-size: expected INT; received 'many'."),
        (["a", "--window", "wide"], "--window: expected INT|{full}; received 'wide'."),
    ],
)
def test_a_usage_error_says_what_is_wrong_and_refers_to_help(words: list[str], expected: str):
    assert get_error_message(*words) == f"{expected}\nSee seqwise probe --help."


def test_all_values_out_of_range_are_reported_at_once():
    assert get_error_message("a", "--training.learning-rate", "-1", "--training.batch-size", "0").splitlines() == [
        "--training.learning-rate: input should be greater than 0; received -1.0.",
        "--training.batch-size: input should be greater than or equal to 1; received 0.",
    ]


@pytest.mark.parametrize(("words", "value"), [(["False"], False), (["True"], True), ([], None)])
def test_a_setting_chosen_by_rule_can_be_set_explicitly(words, value):
    from seqwise.cli.train import Train

    argv = ["data.txt", *(["--tag.crf", *words] if words else [])]
    assert parse(Train, argv, prog="seqwise train", example="").settings.tag.crf is value
