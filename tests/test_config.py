"""Settings from files: every mistake is named."""

from __future__ import annotations

from datetime import date

import pytest

from seqwise import yaml_files
from seqwise.config import Settings, load_settings, parse_settings
from seqwise.errors import UsageError
from seqwise.resolved_settings import ResolvedSettings


def test_settings_survive_being_written_and_read(tmp_path):
    settings = parse_settings({"model": "gru", "network": {"width": 7}, "data": {"window": "full"}})
    path = tmp_path / "settings.yaml"
    path.write_text(settings.to_yaml())
    assert load_settings(path) == settings


def test_all_wrong_settings_are_reported_at_once_with_similar_names():
    with pytest.raises(UsageError) as excinfo:
        parse_settings({"network": {"widht": 3, "depth": 0}, "modl": "x", "data": {"window": 0}})
    lines = str(excinfo.value).splitlines()
    assert "network.depth: input should be greater than or equal to 1; received 0." in lines
    assert "network.widht: no such setting. Perhaps you meant 'width'." in lines
    assert "modl: no such setting. Perhaps you meant 'model'." in lines
    assert "data.window: input should be greater than or equal to 1 or 'full'; received 0." in lines


def test_every_wrong_setting_of_a_file_has_its_line(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("model: gru\nnetwork:\n  width: 8\n  widht: 9\nmodl: x\n\ntraining: {lr: 1, batch_size: 0}\n")
    with pytest.raises(UsageError) as excinfo:
        load_settings(path)
    assert str(excinfo.value).splitlines() == [
        f"{path}:4: network.widht: no such setting. Perhaps you meant 'width'.",
        f"{path}:5: modl: no such setting. Perhaps you meant 'model'.",
        f"{path}:7: training.batch_size: input should be greater than or equal to 1; received 0.",
        f"{path}:7: training.lr is training.learning_rate here: training: {{learning_rate: 1}}",
    ]


def test_a_wrong_setting_that_another_mapping_provides_has_the_line_of_its_section(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("network: &sizes {depth: 2, widht: 9}\n\nrecurrent:\n  <<: *sizes\n")
    with pytest.raises(UsageError, match=r"recurrent\.widht: no such setting") as excinfo:
        load_settings(path)
    assert [line.split(": ")[0] for line in str(excinfo.value).splitlines()] == [f"{path}:{n}" for n in (1, 3, 3)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"data": {"window": "abc"}}, "data.window: input should be a valid integer or 'full'; received 'abc'."),
        ({"data": {"window": 2.5}}, "data.window: input should be a valid integer or 'full'; received 2.5."),
        ({"network": 3}, "network: input should be a valid dictionary; received 3."),
    ],
)
def test_a_setting_of_the_wrong_type_is_one_sentence(values, message):
    with pytest.raises(UsageError) as excinfo:
        parse_settings(values)
    assert str(excinfo.value) == message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"network: [", "not valid YAML"),
        (b"- a\n- b\n", "expected a mapping of settings, found list"),
        (b"\xff\xfe\x00", "byte 0xFF at offset 0 is not UTF-8"),
    ],
)
def test_a_file_that_holds_no_settings_is_an_error(tmp_path, content, message):
    path = tmp_path / "settings.yaml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        load_settings(path)


def test_a_key_that_yaml_reads_as_a_boolean_is_named_as_it_is_written(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_text("model: lstm\non: 3\nnetwork:\n  width: 8\n  Yes: 4\n  1: 2\nrecurrent: {~: 5}\n")
    with pytest.raises(UsageError) as error:
        load_settings(path)
    assert [line.partition(" Choose from: ")[0] for line in str(error.value).splitlines()] == [
        f"{path}:2: on: no such setting.",
        f"{path}:5: network.Yes: no such setting.",
        f"{path}:6: network.1: no such setting.",
        f"{path}:7: recurrent.~: no such setting.",
    ]


@pytest.mark.parametrize("loader", [yaml_files._CLoader, None])
def test_keys_are_names_and_values_have_their_types(monkeypatch, loader):
    monkeypatch.setattr(yaml_files, "_CLoader", loader)
    text = "a: &x {on: on, 1.50: 1.50}\nb: {<<: *x, no: 2024-01-02, 'yes': ~}"
    merged = {"on": True, "1.50": 1.5}
    assert yaml_files.parse_yaml(text) == {"a": merged, "b": {**merged, "no": date(2024, 1, 2), "yes": None}}


def test_a_folder_or_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        load_settings(tmp_path)
    with pytest.raises(UsageError, match="does not exist"):
        load_settings(tmp_path / "none.yaml")


def test_an_empty_file_means_the_defaults(tmp_path):
    (tmp_path / "empty.yaml").write_text("")
    assert load_settings(tmp_path / "empty.yaml") == Settings()


def test_settings_of_a_run_are_checked_as_well():
    with pytest.raises(UsageError, match=r"data.window: input should be greater than or equal to 1 or 'full'"):
        parse_settings({"data": {"window": 0}}, settings_class=ResolvedSettings)
