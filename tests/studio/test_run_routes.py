"""What the page of a run gets: settings with their origins, parameters, checkpoints, samples, notes and commands."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from seqwise.config import Settings
from seqwise.page.figures import to_plain
from seqwise.studio import run_files
from seqwise.studio.catalogue import Catalogue
from seqwise.studio.functions import get_functions
from seqwise.studio.routes.run import describe_run
from seqwise.studio.run_files import list_checkpoints, list_environment, list_settings, read_parameters, read_samples

COMMAND = "seqwise train book.txt --model gru --network.width=16 --training.compile"
CARD = "# gru, language\n\nUse it:\n\n```\nseqwise predict runs/elsewhere 'the cat'\n```\n"


def write_weights(path: Path) -> None:
    tensors = {
        "__metadata__": {"digest": "x"},
        "embedding.weight": {"dtype": "F32", "shape": [10, 4], "data_offsets": [0, 160]},
        "backbone.layer.weight": {"dtype": "F32", "shape": [4, 4], "data_offsets": [160, 224]},
        "backbone.layer.bias": {"dtype": "F32", "shape": [4], "data_offsets": [224, 240]},
    }
    header = json.dumps(tensors).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(240))


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A run as its files, without training."""
    folder = tmp_path / "runs/small"
    (folder / "checkpoints/step-20").mkdir(parents=True)
    (folder / "checkpoints/step-20/manifest.json").write_text("{}")
    (folder / "checkpoints/step-20/tensors.safetensors").write_bytes(bytes(100))
    (folder / "checkpoints/step-30").mkdir()  # without its manifest, which is written last
    lines = [
        "task: language", "model: gru", "budget: 10m", "seed: 0",
        "network: {width: 16, depth: 1, dropout: 0.1}", "recurrent: {update: keeps}",
        "transformer: {positions: rotary}", "training: {learning_rate: 0.006, compile: true}",
        f"run: {{data: book.txt, command: '{COMMAND}'}}",
    ]  # fmt: skip
    (folder / "config.yaml").write_text("\n".join(lines))
    (folder / "README.md").write_text(CARD)
    (folder / "env.json").write_text(
        json.dumps({"cpu": {"name": "AMD", "count": 2}, "gpu": None, "memory": {"total": 25e9}})
    )
    rows = [
        {"step": 1, "tokens": 64, "seconds": 0.5, "loss": 3.0},
        {
            "step": 10,
            "tokens": 640,
            "seconds": 5.0,
            "loss": 2.0,
            "validation": {"loss": 2.5},
            "notes": ["<b>out of memory</b>"],
        },
        {"step": 20, "tokens": 1280, "seconds": 9.0, "loss": float("nan"), "validation": {"loss": 2.6}},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_weights(folder / "model.safetensors")
    return folder


def open_run(folder: Path) -> dict:
    catalogue = Catalogue([folder.parent])
    catalogue.refresh()
    identifier = f"{folder.parent.name}/{folder.name}"
    return to_plain(describe_run(catalogue.get(identifier), catalogue.get_curve(identifier)))


def get_settings(folder: Path) -> dict[str, dict]:
    return {row["name"]: row for row in open_run(folder)["settings"]}


def test_a_run_is_described_by_its_files(run_folder):
    run = open_run(run_folder)
    assert run["best_step"] == 10
    assert run["notes"] == [{"step": 10, "tokens": 640, "seconds": 5, "text": "<b>out of memory</b>"}]
    assert run["metrics"] == ["loss"]
    assert run["card"] == CARD
    assert run["commands"]["train"] == COMMAND
    assert run["commands"]["predict"] == f"seqwise predict {run_folder} 'the cat'"
    assert json.loads(json.dumps(run, allow_nan=False)) == run
    assert [(each["step"], each["bytes"]) for each in run["checkpoints"]] == [(20, 102)]


def test_the_origin_of_settings_of_earlier_versions_follows_from_the_command(run_folder):
    settings = get_settings(run_folder)
    assert settings["network.width"]["origin"] == "set"
    assert settings["training.compile"]["origin"] == "set"
    assert settings["network.dropout"]["origin"] == "chosen"
    assert settings["network.dropout"]["reason"] == ""
    assert settings["recurrent.update"]["origin"] == "default"
    assert (settings["task"]["origin"], settings["task"]["reason"]) == ("chosen", "detected in the data")


def test_reasons_are_those_of_the_run(run_folder):
    (run_folder / "choices.json").write_text(json.dumps({"network.dropout": "few epochs", "network.depth": ""}))
    settings = get_settings(run_folder)
    assert (settings["network.dropout"]["origin"], settings["network.dropout"]["reason"]) == ("chosen", "few epochs")
    assert settings["network.depth"]["origin"] == "chosen"
    assert settings["training.learning_rate"]["origin"] == "set", "there are choices, and this is none"


def test_settings_without_effect_are_marked(run_folder):
    settings = get_settings(run_folder)
    assert settings["recurrent.update"]["is_used"]
    assert not settings["transformer.positions"]["is_used"]
    assert not settings["horizon"]["is_used"]
    assert len(settings) > 80, "all settings can be shown"
    assert {name.partition(".")[0] for name in settings} == set(Settings.model_fields)


def test_parameters_are_counted_by_the_header_of_the_weights(run_folder):
    parameters = read_parameters(run_folder)
    assert parameters is not None
    assert parameters["total"] == 60
    assert parameters["parts"] == [{"name": "embedding", "count": 40}, {"name": "backbone", "count": 20}]
    assert parameters["types"] == ["float32"]


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 8, struct.pack("<Q", 5) + b"[1,2]", struct.pack("<Q", 12) + b'{"a": {"b":1}']
)
def test_damaged_weights_have_no_parameters(run_folder, content):
    (run_folder / "model.safetensors").write_bytes(content)
    assert read_parameters(run_folder) is None
    assert open_run(run_folder)["parameters"] is None


def test_links_out_of_the_folder_are_not_followed(run_folder, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text('{"step": 1, "seconds": 1, "cost": 0, "samples": []}\n')
    for name in ("README.md", "env.json", "samples.jsonl", "choices.json", "model.safetensors"):
        (run_folder / name).unlink(missing_ok=True)
        (run_folder / name).symlink_to(secret)
    run = open_run(run_folder)
    assert (run["card"], run["environment"], run["samples"], run["parameters"]) == ("", [], [], None)


def test_samples_are_read_newest_first_and_limited(run_folder, monkeypatch):
    sample = {"input": "a", "output": "b", "expected": "c"}
    rows = [{"step": step, "seconds": 1.0, "cost": 0.1, "samples": [sample]} for step in range(1, 8)]
    lines = [*map(json.dumps, rows), '{"step": 9, "samples": [{"input": 1}]}', '{"step": 10, "sam']
    (run_folder / "samples.jsonl").write_text("\n".join(lines))
    assert [row["step"] for row in read_samples(run_folder)] == [7, 6, 5, 4, 3, 2, 1]
    monkeypatch.setattr(run_files, "MAX_SAMPLES", 3)
    assert [row["step"] for row in read_samples(run_folder)] == [7, 6, 5, 1]
    monkeypatch.setattr(run_files, "MAX_SAMPLES_BYTES", 10)
    assert read_samples(run_folder) == []


def test_the_machine_is_described_in_words(run_folder):
    assert list_environment(run_folder) == [("cpu", "AMD, count 2"), ("memory", "total 25.0 GB")]
    (run_folder / "env.json").write_text("[" * 100_000)
    assert list_environment(run_folder) == []


def test_settings_of_a_damaged_run_are_listed_nevertheless(tmp_path):
    settings = {"model": "gru", "network": 3, "run": [], "training": {"clip": {"a": 1}}, "seed": [1]}
    rows = list_settings(settings, tmp_path)
    assert len(list_settings({**settings, "model": {}, "task": 3.5}, tmp_path)) == len(rows)
    assert {row["name"]: row["value"] for row in rows}["seed"] == "[1]"
    assert list_checkpoints(tmp_path) == []


def test_a_request_for_health_is_checked():
    request = get_functions()["check_health"].request
    assert request.model_validate({"run": "runs/a"}).quick is True  # type: ignore[attr-defined]
    for values in ({}, {"run": "a", "quick": "yes"}, {"run": "a" * 2_000}, {"run": "a", "view": "health"}):
        with pytest.raises(ValueError, match="validation error"):
            request.model_validate(values)
