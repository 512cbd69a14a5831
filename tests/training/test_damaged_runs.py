"""Damaged files of a run folder: each command names the file, or continues without what is damaged; no traceback."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from short_runs import OPTIONS, train

import seqwise
from seqwise.cli.main import main
from seqwise.errors import RunError
from seqwise.lens.training import training
from seqwise.tasks.init_from_run import copy_weights
from seqwise.training.checkpoints import get_weights, load_weights, read_weights, save_weights
from seqwise.training.run import Run
from seqwise.training.training_run import open_training

ROW = {
    "step": 7, "epoch": 0, "tokens": 10, "loss": 1.0, "gradient_norm": 1.0, "learning_rate": 0.1, "seconds": 1.0,
    "tokens_per_second": 10.0, "progress": 0.5, "validation": None, "best": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory, book) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    assert train(book, *OPTIONS, "--budget", "2k-tokens", "--data.valid-fraction", "0.005", "--out", folder) == 0
    return folder


@pytest.fixture
def run_copy(finished_run, tmp_path) -> Path:
    return Path(shutil.copytree(finished_run, tmp_path / "copy"))


def flip_bit(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 16
    path.write_bytes(content)


def fail(capsys, *arguments: object) -> str:
    """Runs a command that fails with status 2; returns its error message."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    stderr = capsys.readouterr().err
    assert stderr.count("error: ") == 1
    assert "Traceback" not in stderr
    return stderr[stderr.index("error: ") :]


COMMANDS = {
    "predict": lambda run, book: ["predict", run, "a"],
    "evaluate": lambda run, book: ["evaluate", run, book],
    "inspect": lambda run, book: ["inspect", run, "--view", "health"],
    "init": lambda run, book: ["train", book, "--task", "classify", "--init", run, "--out", run.parent / "new"],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_flipped_bit_is_named_by_every_command_that_reads_the_file(command, name, run_copy, book, capsys):
    flip_bit(run_copy / name, (run_copy / name).stat().st_size - 40)
    message = fail(capsys, *COMMANDS[command](run_copy, book))
    assert message.startswith(f"error: {run_copy / name}: the ")
    assert "does not match its digest" in message or "damaged" in message


def test_a_flipped_bit_of_the_training_summary_is_named(run_copy, book, capsys):
    flip_bit(run_copy / "training_summary.safetensors", -3)
    message = fail(capsys, "evaluate", run_copy, book)
    assert "training_summary.safetensors: the file is damaged: it does not match its digest." in message


def test_resuming_replaces_damaged_best_weights_by_the_newest(run_copy, capsys):
    flip_bit(run_copy / "model.safetensors", -3)
    assert train("--resume", run_copy) == 0
    assert "are missing or damaged; the newest are used instead." in capsys.readouterr().err
    assert main(["predict", str(run_copy), "a", "--max-length", "3"]) == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(value, run_copy, book, capsys):
    weights = Run.open(run_copy).read_weights()
    name = list(weights)[1]
    weights[name].view(-1)[0] = value
    Run.open(run_copy).save_weights(weights)
    for command in ("predict", "evaluate", "inspect"):
        message = fail(capsys, *COMMANDS[command](run_copy, book))
        assert f"model.safetensors: the weights {name} hold infinite numbers or nan." in message


def test_weights_of_another_run_that_are_not_finite_are_not_copied():
    model = torch.nn.ModuleDict({"embedding": torch.nn.Linear(1, 2)})
    weights = {"embedding.weight": torch.ones(2, 1), "embedding.bias": torch.tensor([1.0, float("inf")])}
    with pytest.raises(RunError, match=r"embedding\.bias of RUN holds infinite numbers or nan"):
        copy_weights(model, weights, "RUN")
    assert not torch.equal(model["embedding"].weight, torch.ones(2, 1)), "completely or not at all"


def test_a_buffer_such_as_a_mask_may_hold_infinite_numbers(tmp_path):
    model = torch.nn.Linear(1, 2)
    model.register_buffer("mask", torch.tensor([0.0, float("-inf")]))
    save_weights(tmp_path / "model.safetensors", get_weights(model))
    load_weights(model, read_weights(tmp_path / "model.safetensors", ""), "file")
    model.mask[0] = float("nan")
    save_weights(tmp_path / "model.safetensors", get_weights(model))
    with pytest.raises(RunError, match="the weights mask hold infinite numbers or nan"):
        read_weights(tmp_path / "model.safetensors", "")


def build_header(header: object, data: bytes = bytes(16)) -> bytes:
    content = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(content).to_bytes(8, "little") + content + data


def describe(dtype: str = "F32", shape: object = (4,), offsets: object = (0, 16)) -> dict:
    return {"w": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


HEADERS = {
    "empty": b"",
    "eight bytes": bytes(8),
    "a length of 2^63": (1 << 63).to_bytes(8, "little") + b"{}",
    "a length beyond the file": (1 << 20).to_bytes(8, "little") + b"{}",
    "a list": build_header([]),
    "nested": build_header(b"[" * 100_000),
    "a huge shape": build_header(describe(shape=(1 << 40, 1 << 40))),
    "a negative shape": build_header(describe(shape=(-4,))),
    "offsets beyond the file": build_header(describe(offsets=(0, 1 << 50))),
    "overlapping offsets": build_header({**describe(), "v": describe()["w"]}),
    "an unknown type": build_header(describe("F33")),
    "a type of 4 bits": build_header(describe("F4", (32,))),
    "a type of 8 bits": build_header(describe("F8_E4M3", (16,))),
    "metadata of numbers": build_header({**describe(), "__metadata__": {"blake2b": 3}}),
    "metadata as a list": build_header({**describe(), "__metadata__": []}),
    "a short digest": build_header({**describe(), "__metadata__": {"blake2b": "00"}}),
    "another digest": build_header({**describe(), "__metadata__": {"blake2b": "0" * 32}}),
    "other weights": build_header(describe()),
}


@pytest.mark.parametrize("name", HEADERS)
def test_an_absurd_weights_file_is_named(name, run_copy, capsys):
    (run_copy / "model.safetensors").write_bytes(HEADERS[name])
    assert fail(capsys, "predict", run_copy, "a").startswith(f"error: {run_copy / 'model.safetensors'}: the weights ")


def test_weights_of_another_type_are_refused(run_copy, capsys):
    weights = {name: tensor.long() for name, tensor in Run.open(run_copy).read_weights().items()}
    save_file(weights, run_copy / "model.safetensors")
    message = fail(capsys, "predict", run_copy, "a")
    assert "has type torch.int64, the model needs torch.float32." in message


LINES = {
    "not objects": ["3", "null", "[]", '"text"', "[[]]", "true"],
    "without a step": ['{"loss": 1.0}', "{}"],
    "wrong steps": [json.dumps({**ROW, "step": step}) for step in ("7", -1, None, True, [], 1.5, 10**400)],
    "missing numbers": [json.dumps({key: ROW[key] for key in ROW if key != name}) for name in list(ROW)[2:9]],
    "texts": [json.dumps({**ROW, name: "much"}) for name in list(ROW)[2:9]],
    "huge": [json.dumps({**ROW, "tokens": 10**400})],
    "wrong validations": [
        json.dumps({**ROW, "validation": value}) for value in (3, [1], "x", {"a": 1}, {"loss": "x"}, {"loss": [1]})
    ],
    "wrong notes": [json.dumps({**ROW, "notes": notes}) for notes in ("x", [3], {"a": 1}, 5)],
    "wrong ends": [json.dumps({**ROW, "ended": ended}) for ended in (3, [], {"a": 1})],
    "nested": ["[" * 100_000, '{"a":' * 100_000],
    "not text": ["\x00\x01", "\ufffd"],
}


@pytest.mark.parametrize("name", LINES)
def test_damaged_lines_of_metrics_are_skipped_by_all_readers(name, run_copy):
    file = run_copy / "metrics.jsonl"
    rows = Run.open(run_copy).read_metrics()
    lines = file.read_text().splitlines()
    file.write_text("\n".join([*LINES[name], *lines, *LINES[name]]) + "\n")
    trained = seqwise.load(run_copy)
    assert trained.run.read_metrics() == rows
    assert "validation" in repr(trained)
    assert next(iter(training(trained).data.values()))["step"].tolist() == [row["step"] for row in rows]
    assert open_training(Run.open(run_copy)).ended, "the curve and the card are written again"
    assert Run.open(run_copy).read_metrics() == rows


WATCHED = {"step": 1, "tokens": 1, "layers": {"a": {"weight_norm": 1.0}}, "gates": {"a": {"f": [0.1, 0.2]}}}


@pytest.mark.parametrize(
    "row",
    [
        3,
        {},
        WATCHED,
        {**WATCHED, "dead_units": 3},
        {**WATCHED, "dead_units": {"a": "x"}},
        {**WATCHED, "dead_units": {}, "layers": {"a": 1}},
        {**WATCHED, "dead_units": {}, "gates": {"a": {"f": [0.1, 0.2, 0.3]}}},
    ],
)
def test_damaged_lines_of_watched_layers_are_skipped(row, run_copy):
    good = {**WATCHED, "dead_units": {"a": 0.5}}
    (run_copy / "watch.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(good)}\n")
    assert Run.open(run_copy).read_layers() == [good]


@pytest.mark.parametrize(
    "content",
    ["", "3", "[]", "null", "{}", "[" * 100_000, '{"seconds": 3, "validation": null}',
     '{"seconds": {"a": "b"}, "validation": null}', '{"seconds": {}, "validation": []}',
     '{"seconds": {}, "validation": {"loss": "x"}}', '{"seconds": {}, "validation": null, "step": "x"}',
     '{"seconds": {}, "validation": null, "unknown": 1}', '{"seconds": {}, "validation": null, "final": "x"}'],
)  # fmt: skip
def test_a_damaged_summary_or_environment_is_replaced(content, run_copy, finished_run):
    (run_copy / "summary.json").write_text(content)
    assert Run.open(run_copy).load_summary() is None
    assert train("--resume", run_copy) == 0
    validation = Run.open(finished_run).load_summary().validation
    assert Run.open(run_copy).load_summary().validation == validation
    (run_copy / "env.json").write_text(content)
    Run.open(run_copy).update_environment(added=1)
    assert json.loads((run_copy / "env.json").read_text())["added"] == 1


@pytest.mark.parametrize("content", ["", "3", "[]", "null", "[" * 100_000, '"x"'])
def test_a_damaged_preprocessor_is_named(content, run_copy):
    (run_copy / "task.json").write_text(content)
    with pytest.raises(RunError, match=r"task\.json: the file is damaged"):
        _ = Run.open(run_copy).preprocessor
    (run_copy / "task.json").unlink()
    (run_copy / "tokenizer.json").write_text(content)
    with pytest.raises(seqwise.errors.DataError, match=r"tokenizer\.json: the tokeniser file is damaged"):
        _ = Run.open(run_copy).preprocessor


def test_a_folder_with_finite_weights_of_all_types_is_read(tmp_path):
    tensors = {"half": torch.ones(2).half(), "brain": torch.ones(2).bfloat16(), "count": torch.ones(2).long()}
    save_file(tensors, tmp_path / "model.safetensors")
    assert read_weights(tmp_path / "model.safetensors", "").keys() == tensors.keys()
