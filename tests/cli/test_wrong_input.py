"""Wrong input ends in one clear message: what is wrong, where, how to fix it. No files are left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from seqwise import environment

FILES = {
    "book.txt": b"",  # filled from the fixture
    "empty.txt": b"",
    "blank.txt": b" \n\n\t\n" * 50,
    "binary.txt": bytes(range(256)) * 40,
    "mixed.txt": "schön\n".encode() * 9 + "sch\xf6n\n".encode("latin1") + b"fine\n" * 300,
    "utf16.txt": ("the old gate\n" * 100).encode("utf-16")[:-1],
    "paper.pdf": b"%PDF-1.7\n",
    "short.txt": b"ab c\n",
    "shorter than a window.txt": b"the old gate of a state\n" * 5,
    "one.txt": b"a" * 5000 + b"\n",
    "bad.yaml": b"model: [lstm\n",
    "unknown.yaml": b"modle: lstm\nnetwork:\n  widht: 3\n",
    "list.yaml": b"- a\n",
    "values.yaml": b"data:\n  window: abc\nnetwork:\n  width: wide\n  depth: 0\n",
}
SMALL = ["--network.width", "16", "--network.depth", "1", "--budget", "500-tokens", "--training.batch-size", "4"]


@pytest.fixture
def workspace(tmp_path, book, monkeypatch) -> Path:
    """A working folder with all kinds of files, in which nothing else may appear."""
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    shutil.copy(book, tmp_path / "book.txt")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


DATA = {
    "bok.txt": "bok.txt: there is no such file or folder.\nPerhaps you meant 'book.txt'.",
    "nowhere/book.txt": "nowhere/book.txt: there is no such file, nor its folder.\nCheck the path.",
    "empty.txt": "empty.txt: the file is empty.\nGive a file with text in it.",
    "blank.txt": "blank.txt: the file is empty.\nGive a file with text in it.",
    "binary.txt": "binary.txt:1: this is a binary file, not text: byte 0x00 at offset 0.\nGive a text file",
    "mixed.txt": "mixed.txt:10: byte 0xF6 at offset 66 (line 10) is not UTF-8. 9 other characters are: the file is",
    "utf16.txt": "utf16.txt: the UTF-16 text is damaged: byte 0x0A at offset 2,600 cannot be decoded",
    "paper.pdf": "paper.pdf: PDF documents (.pdf) are not read.\nSeqwise reads .txt, .csv",
    "short.txt": "short.txt: the text is too short to split: 5 bytes.\nGive a longer text",
    "one.txt": "the training text has a vocabulary of one symbol ('a'): there is nothing to predict.\nGive a text",
    "folder": "folder: the folder is empty.\nSeqwise reads .txt, .csv",
    "bad.yaml": "bad.yaml: files ending in '.yaml' are not read.\nGive a .txt file",
    "builtin:doc": "there is no built-in data 'doc'.\nPerhaps you meant 'docs'.",
}
OPTIONS = {
    "--modle lstm": "unknown option '--modle'. Perhaps you meant '--model'.\nSee seqwise train --help.",
    "--model lstmm": "--model: expected one of feedforward, rnn, gru, lstm,",
    "--text.tokenizer word": "--text.tokenizer: expected one of bpe, characters, spaces, wordpiece, words; rec",
    "--task lang": "--task: expected one of caption, classify, forecast, language, masked, tag, translate; rec",
    "--budget 5": "the budget '5' is not understood. Perhaps you meant 5s or 5-tokens.\nWrite a time",
    "--budget=": "the budget '' is not understood.\nWrite a time",
    "--budget 0s": "the budget '0s' is empty.\nWrite a time",
    "--budget -5m": "the budget '-5m' is not understood.",
    "--config bad.yaml": "bad.yaml:2: not valid YAML: expected ',' or ']', but got '<stream end>'.",
    "--config unknown.yaml": "unknown.yaml:1: modle: no such setting. Perhaps you meant 'model'.\n"
    "unknown.yaml:3: network.widht: no such setting. Perhaps you meant 'width'.",
    "--config list.yaml": "list.yaml: expected a mapping of settings, found list.",
    "--config values.yaml": "values.yaml:2: data.window: input should be a valid integer or 'full'; received 'abc'.\n"
    "values.yaml:4: network.width: input should be a valid integer; received 'wide'.\n"
    "values.yaml:5: network.depth: input should be greater",
    "--config missing.yaml": "missing.yaml: the settings file does not exist.",
    "--seed -1": "--seed: input should be greater than or equal to 0; received -1.",
    "--network.width wide": "--network.width: expected INT; received 'wide'.",
    "--network.width 0 --network.dropout 1": "--network.width: input should be greater than or equal to 1; received 0.",
    "--network.width 1000000000": "--network.width: input should be less than or equal to 1000000; received ",
    "--network.width 1000000": "the model would have 8,000,0",
    "--training.batch-size 100000000": "the train text has ",
    "--data.window 100000000": "the train text has ",
    "--data.window 0": "--data.window: input should be greater than or equal to 1 or 'full'; received 0.",
    "--data.window -5": "--data.window: input should be greater than or equal to 1 or 'full'; received -5.",
    "--device tpu": "--device: expected one of auto, cpu, cuda; received 'tpu'.",
    "--model transformer --network.width 30 --transformer.heads 4": "the width must be a multiple of the heads",
    "--model transformer --network.width 36 --transformer.heads 4": "rotary positions rotate pairs of entries",
    "--model transformer --data.window full": "a Transformer needs a window of limited length.",
    "--network.output adaptive --text.tokenizer words --text.vocabulary 9": "the adaptive softmax needs a vocabulary",
    "--text.tokenizer bpe --text.vocabulary 20": "a bpe vocabulary of 20 is too small: this text needs at least 257.",
    "--text.tokenizer words --text.vocabulary 3": "a vocabulary of 3 has no room beside",
    "--model ngram --context.length 99": "--context.length: input should be less than or equal to 16; received 99.",
    "--resume book.txt": "expected either DATA or --resume RUN.",
    "--nproc 0": "--nproc: expected at least 1; received 0.",
}


def assert_error(workspace: Path, result, expected: str, status: int = 2) -> None:
    """One message with the given beginning, no traceback, no result, and nothing new in the folder."""
    *before, message = result.err.split("error: ")
    assert expected
    assert message.startswith(expected), result.err
    assert len(before) == 1
    assert "Traceback" not in result.err
    assert "unexpected" not in message
    assert result.out == ""
    assert result.status == status
    assert sorted(os.listdir(workspace)) == sorted([*FILES, "folder"])


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("command", ["train", "check"])
def test_data_that_cannot_be_read_is_an_error(seqwise_command, workspace, command, data):
    assert_error(workspace, seqwise_command(command, data), DATA[data])


@pytest.mark.parametrize("words", OPTIONS)
def test_invalid_options_are_an_error(seqwise_command, workspace, words):
    assert_error(workspace, seqwise_command("train", "book.txt", *words.split()), OPTIONS[words])


def test_a_text_shorter_than_one_window_is_an_error(seqwise_command, workspace):
    result = seqwise_command("train", "shorter than a window.txt", "--data.window", "512")
    assert_error(workspace, result, "the train text has ")
    assert "Give more text, or a smaller --data.window or --training.batch-size." in result.err


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("command", ["train", "evaluate", "predict"])
def test_a_missing_gpu_is_reported(seqwise_command, workspace, trained_run, command):
    first = [] if command == "train" else [trained_run()]
    result = seqwise_command(command, *first, "book.txt", "--device", "cuda")
    assert_error(workspace, result, "PyTorch finds no CUDA device here.\nLeave out --device")


def test_bfloat16_on_a_cpu_without_support_is_an_error(seqwise_command, workspace, monkeypatch):
    monkeypatch.setattr(environment, "probe_cpu_bfloat16", lambda: False)
    result = seqwise_command("train", "book.txt", "--device", "cpu", "--training.precision", "bfloat16")
    assert_error(workspace, result, "bfloat16 does not work on this CPU: a test in a child process failed.\nLeave out")


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_a_missing_run_is_reported(seqwise_command, workspace, trained_run, command):
    run = trained_run()
    result = seqwise_command(command, f"{run}m", "book.txt")
    assert_error(workspace, result, f"{run}m is not a run: it does not exist.\nPerhaps you meant '{run}'.")
    assert_error(workspace, seqwise_command(command, "book.txt", "book.txt"), "book.txt is not a run")


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_a_run_without_weights_is_an_error(seqwise_command, workspace, trained_run, tmp_path_factory, command):
    run = tmp_path_factory.mktemp("copy") / "run"
    shutil.copytree(trained_run(), run, ignore=shutil.ignore_patterns("model.safetensors"))
    result = seqwise_command(command, run, "book.txt")
    assert_error(workspace, result, f"{run} has no weights yet")
    assert f"seqwise train --resume {run}" in result.err


def test_a_run_with_damaged_weights_or_tokeniser_is_an_error(seqwise_command, workspace, trained_run, tmp_path_factory):
    run = tmp_path_factory.mktemp("copy") / "run"
    shutil.copytree(trained_run(), run)
    weights = run / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    assert_error(workspace, seqwise_command("evaluate", run, "book.txt"), f"{weights}: the weights cannot be read")
    (run / "tokenizer.json").write_text("{}")
    assert_error(
        workspace, seqwise_command("evaluate", run, "book.txt"), f"{run / 'tokenizer.json'}: this is not a tokeniser"
    )


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["book.txt", "--split", "nonsense"], "--split: expected one of all, test, train, valid; received 'nonsense'."),
        (["short.txt", "--split", "test"], "short.txt: the text is too short to split: 5 bytes."),
        (["bok.txt"], DATA["bok.txt"]),
        (["empty.txt"], DATA["empty.txt"]),
        (["mixed.txt"], DATA["mixed.txt"]),
        (
            ["book.txt", "--dynamic", "--dynamic-rate", "-1"],
            "--dynamic-rate: expected a finite number, at least 0; received -1.",
        ),
        ([], "DATA is missing: the data to evaluate on; received "),
    ],
)
def test_inputs_that_cannot_be_evaluated_are_an_error(seqwise_command, workspace, trained_run, words, expected):
    assert_error(workspace, seqwise_command("evaluate", trained_run(), *words), expected)


def test_dynamic_evaluation_of_an_ngram_model_is_an_error(seqwise_command, workspace, trained_run):
    result = seqwise_command("evaluate", trained_run("ngram"), "book.txt", "--dynamic")
    assert_error(workspace, result, "an n-gram model cannot be evaluated dynamically.\nLeave out --dynamic.")


def test_unusual_paths_are_accepted(seqwise_command, workspace, book):
    for name in ("with blank.txt", "größe 日本.txt", "-dash.txt"):
        shutil.copy(book, workspace / name)
        out = f"run of {name}"
        end = ["--", name] if name.startswith("-") else [name]
        assert seqwise_command("train", *SMALL, "--out", out, *end).status == 0
        assert seqwise_command("evaluate", out, f"./{name}").status == 0


def test_commands_work_in_a_terminal_without_unicode(trained_run):
    """The messages are the same, and what cannot be shown becomes a question mark."""
    script = [sys.executable, "-m", "seqwise", "predict", str(trained_run())]
    plain = {**os.environ, "PYTHONIOENCODING": "ascii", "OMP_NUM_THREADS": "1"}
    result = subprocess.run([*script, "thé", "--max-length", "2"], env=plain, capture_output=True, check=False)
    assert result.returncode == 0
    assert result.stdout.startswith(b"th?")
    result = subprocess.run([*script, "the", "--device", "tpu"], env=plain, capture_output=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith(b"error: --device: expected one of auto, cpu, cuda; received 'tpu'.")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("width: 16\n", "width: 1000000\n", "model.safetensors: the weights do not fit the model: "),
        (
            "width: 16\n",
            "width: 1000000000\n",
            "config.yaml:{line}: network.width: input should be less than or equal to 1000000",
        ),
        (
            "depth: 1\n",
            "depth: 100000000\n",
            "config.yaml:{line}: network.depth: input should be less than or equal to 1000;",
        ),
    ],
)
def test_sizes_in_a_run_folder_that_are_not_those_of_its_weights_take_no_memory(
    seqwise_command, trained_run, tmp_path, monkeypatch, old: str, new: str, problem: str
):
    folder = shutil.copytree(trained_run(), tmp_path / "run")
    config = folder / "config.yaml"
    line = config.read_text().partition(old)[0].count("\n") + 1
    config.write_text(config.read_text().replace(old, new))
    allocate = torch.empty

    def allocate_little(*size: Any, **options: Any) -> torch.Tensor:
        tensor = allocate(*size, device="meta", **{name: options[name] for name in options if name != "device"})
        is_meta = torch.get_default_device().type == "meta" or str(options.get("device")) == "meta"
        assert is_meta or tensor.numel() < 10**7
        return tensor if is_meta else allocate(*size, **options)

    monkeypatch.setattr(torch, "empty", allocate_little)
    result = seqwise_command("predict", folder, "the old")
    assert result.status == 2
    assert result.err.startswith(f"error: {folder}/{problem.format(line=line)}")
