"""Settings files that are nested, endless or no files, and settings far beyond any machine: an error at once that names
the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seqwise.budget import Budget
from seqwise.compare.plan.plan import Plan
from seqwise.compare.plan.variants import _read_variants
from seqwise.config import MAX_WIDTH, Settings, load_settings, parse_settings
from seqwise.errors import RunError, UsageError
from seqwise.resolved_settings import ResolvedSettings
from seqwise.training.run import Run

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefghijkl", "bcdefghijklm")
)
FILES = {
    "no time": ("seed: !!timestamp abc", "a value does not have the type that is written before it"),
    "no truth value": ("seed: !!bool abc", "a value does not have the type that is written before it"),
    "no integer": ("seed: !!int ''", "a value does not have the type that is written before it"),
    "deep list": ("model: " + "[" * 600 + "]" * 600, "the values are nested too deeply"),
    "deep mapping": ("network: " + "{a: " * 600 + "1" + "}" * 600, "the values are nested too deeply"),
    "billion laughs": (LAUGHS, "the aliases (*) stand for more than 1,000,000 values"),
    "alias of itself": ("network: &a [*a]\n", "the values are recursive: an alias (*) is inside its own value"),
    "long number": ("seed: " + "9" * 5000, "Exceeds the limit"),
    "wrong date": ("seed: 2024-13-45\n", "month must be in 1..12"),
    "large file": ("# " + "x" * 10_000_000, "the file has more than 10 MB"),
    "Latin-1": ("model: lstm  # sch\xf6n", "byte 0xF6 at offset 18 is not UTF-8"),
    "NUL": ("model: \x00", "unacceptable character"),
}


@pytest.fixture(params=FILES.values(), ids=FILES)
def wrong_file(request, tmp_path: Path) -> tuple[Path, str]:
    """A settings file and the start of what is wrong with it."""
    content, problem = request.param
    path = tmp_path / "settings.yaml"
    path.write_bytes(content.encode("latin-1"))
    return path, problem


def test_a_settings_file_may_contain_anything(wrong_file: tuple[Path, str]):
    path, problem = wrong_file
    with pytest.raises(UsageError) as excinfo:
        load_settings(path)
    assert str(excinfo.value).startswith(f"{path}: not valid YAML: {problem}")
    assert len(str(excinfo.value)) < 400


def test_a_file_of_variants_may_contain_anything(wrong_file: tuple[Path, str]):
    path, problem = wrong_file
    with pytest.raises(UsageError) as excinfo:
        list(_read_variants(path))
    assert str(excinfo.value).startswith(f"{path}")
    assert problem in str(excinfo.value)


def test_the_settings_of_a_run_or_a_comparison_may_contain_anything(wrong_file: tuple[Path, str]):
    path, _ = wrong_file
    for name, open_folder in (("config.yaml", Run.open), ("compare.yaml", Plan.open)):
        file = path.rename(path.with_name(name))
        with pytest.raises(RunError) as excinfo:
            open_folder(path.parent)
        assert str(excinfo.value).startswith(str(file))
        path = file


def test_a_named_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path):
    path = tmp_path / "settings.yaml"
    os.mkfifo(path)
    with pytest.raises(UsageError, match="this is a pipe or a device, not a file"):
        load_settings(path)
    with pytest.raises(UsageError, match="this is a pipe or a device, not a file"):
        list(_read_variants(path))


def test_a_pipe_of_the_shell_is_read():
    reader, writer = os.pipe()
    with open(writer, "w") as file:
        file.write("model: gru\n")
    assert load_settings(f"/dev/fd/{reader}").model == "gru"
    os.close(reader)


EXTREMES = {
    "network.width": 10**9,
    "network.depth": 10**8,
    "network.embedding": 10**9,
    "transformer.heads": 10**9,
    "transformer.hidden": 10**12,
    "network.samples": 10**9,
    "tag.characters": 10**9,
    "caption.blocks": 10**8,
    "training.batch_size": 10**12,
    "training.accumulate": 10**12,
    "data.window": 10**12,
    "data.max_length": 10**30,
    "text.vocabulary": 10**12,
    "forecast.lookback": 10**12,
    "network.dropout": float("nan"),
    "training.learning_rate": float("inf"),
    "training.weight_decay": float("nan"),
    "training.clip_threshold": float("inf"),
    "seed": 2**70,
}


@pytest.mark.parametrize("settings_class", [Settings, ResolvedSettings])
@pytest.mark.parametrize(("name", "value"), EXTREMES.items(), ids=EXTREMES)
def test_an_extreme_setting_is_named_with_its_file(name: str, value: float, settings_class: type[Settings]):
    section, _, key = name.rpartition(".")
    values = {section: {key: value}} if section else {key: value}
    with pytest.raises(UsageError) as excinfo:
        parse_settings(values, "a.yaml", settings_class)
    assert str(excinfo.value).startswith(f"a.yaml: {name}: input should be ")


@pytest.mark.parametrize(
    "text", ["9" * 400 + "s", "9" * 400 + "-tokens", "1" + "0" * 30 + "-tokens", "9" * 20 + "-epochs"]
)
def test_a_budget_without_end_is_refused(text: str):
    with pytest.raises(UsageError, match=r"the budget '\d{1,40}.*' is too large"):
        Budget.parse(text)


def test_the_largest_width_has_a_feed_forward_sublayer_four_times_as_wide():
    settings = ResolvedSettings.model_validate({"network": {"width": MAX_WIDTH}})
    assert settings.transformer.hidden == 4 * MAX_WIDTH
    assert (
        ResolvedSettings.model_validate({"transformer": {"hidden": 4 * MAX_WIDTH}}).transformer.hidden == 4 * MAX_WIDTH
    )
