"""The run folder: what it refuses, and what it says about damage."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from pathlib import Path

import pytest
import yaml

from seqwise.cli.main import main
from seqwise.errors import RunError
from seqwise.training.run import Run

WORDS = [
    "--text.tokenizer",
    "characters",
    "--network.width",
    "8",
    "--budget",
    "2k-tokens",
    "--training.batch-size",
    "4",
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, book) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "finished"
    assert main(["train", str(book), *WORDS, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def copy(finished, tmp_path) -> Path:
    return shutil.copytree(finished, tmp_path / "copy")


def failure(capsys, *words: str | Path) -> tuple[int, list[str]]:
    """Exit status and the lines of the one error message."""
    capsys.readouterr()
    status = main([str(word) for word in words])
    said = capsys.readouterr().err
    assert said.count("error: ") == 1
    assert "Traceback" not in said
    return status, said[said.index("error: ") :].splitlines()


def test_a_folder_from_a_newer_version_is_refused_with_the_version(copy, capsys):
    content = yaml.safe_load((copy / "config.yaml").read_text())
    content["run"] |= {"format": 99, "seqwise": "9.0.0"}
    content["new_section"] = {"unheard_of": 1}
    (copy / "config.yaml").write_text(yaml.safe_dump(content))
    for words in (["train", "--resume", copy], ["predict", copy, "a"], ["evaluate", copy, "builtin:docs"]):
        status, said = failure(capsys, *words)
        assert status == 2
        assert said == [
            f"error: {copy / 'config.yaml'}: this run was written by Seqwise 9.0.0 in format 99; "
            "this version reads formats up to 1.",
            "Update with: pip install --upgrade seqwise",
        ]


def test_a_folder_that_is_no_run_is_refused_and_a_similar_one_suggested(copy, capsys):
    (copy.parent / "cop").mkdir()
    status, said = failure(capsys, "train", "--resume", copy.parent / "cop")
    assert status == 2
    assert said == [
        f"error: {copy.parent / 'cop'} is not a run: it has no config.yaml.",
        f"Perhaps you meant '{copy}'.",
    ]


@pytest.mark.parametrize(
    "harm",
    [
        "",
        "}{",
        "just words",
        "- a\n- b",
        "run: 3",
        "run: {format: many}",
        "run: {data: x}",
        "run: {format: 1}\nmodel: lstm",
        b"\xff\xfe\x00",
    ],
)
def test_a_damaged_settings_file_is_one_message(copy, capsys, harm):
    (copy / "config.yaml").write_bytes(harm if isinstance(harm, bytes) else harm.encode())
    status, said = failure(capsys, "train", "--resume", copy)
    assert status == 2
    assert said[0].startswith(f"error: {copy / 'config.yaml'}: ")
    assert said[1] == "Copy the folder again from where it was made, or train again."


def test_a_truncated_settings_file_is_refused(copy):
    """What is missing would otherwise be filled in by defaults."""
    whole = (copy / "config.yaml").read_text().rstrip("\n")
    for length in [*range(0, len(whole), 41), *range(len(whole) - 60, len(whole))]:
        (copy / "config.yaml").write_text(whole[:length])
        with pytest.raises(RunError):
            Run.open(copy)


def test_a_damaged_tokeniser_is_one_message(copy, capsys):
    path = copy / "tokenizer.json"
    os.truncate(path, path.stat().st_size // 2)
    status, said = failure(capsys, "predict", copy, "a")
    assert status == 2
    assert said[0].startswith(f"error: {path}: ")
    assert failure(capsys, "train", "--resume", copy)[0] == 2


def test_damaged_weights_are_named_and_come_back_from_the_newest_checkpoint(copy, capsys):
    path = copy / "model.safetensors"
    os.truncate(path, path.stat().st_size // 2)
    status, said = failure(capsys, "predict", copy, "a")
    assert status == 2
    assert said[0].startswith(f"error: {path}: the weights cannot be read: ")
    assert said[1].endswith(f"seqwise train --resume {copy}")
    assert main(["train", "--resume", str(copy)]) == 0
    assert "the newest are used instead" in capsys.readouterr().err
    assert main(["predict", str(copy), "a", "--max-length", "3"]) == 0


def test_data_that_changed_is_refused(finished, copy, book, capsys):
    content = yaml.safe_load((copy / "config.yaml").read_text())
    changed = copy.parent / "book.txt"
    changed.write_text(book.read_text().replace("small", "large"))
    content["run"]["data"] = str(changed)
    (copy / "config.yaml").write_text(yaml.safe_dump(content))
    status, said = failure(capsys, "train", "--resume", copy)
    assert status == 2
    assert said == [
        f"error: {changed} is not the data this run was started with.",
        "Put the original file back, or start a new run.",
    ]


def test_an_incomplete_line_of_metrics_is_skipped(copy):
    rows = Run.open(copy).metrics()
    with (copy / "metrics.jsonl").open("a") as file:
        file.write('{"step": 5000, "validation": {"loss": 1.0}')
    run = Run.open(copy)
    assert run.metrics() == rows
    run.drop_metrics_after(rows[-2]["step"])
    assert [json.loads(line) for line in (copy / "metrics.jsonl").read_text().splitlines()] == rows[:-1]


def test_a_run_is_never_overwritten(finished, book, tmp_path, capsys):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    status, said = failure(capsys, "train", book, *WORDS, "--out", finished)
    assert status == 2
    assert said == [
        f"error: {finished} already contains a run.",
        f"Resume it: seqwise train --resume {finished}",
        "Or name another folder with --out.",
    ]
    assert before == {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}


def test_a_folder_with_other_files_is_left_alone(book, tmp_path, capsys):
    (tmp_path / "README.md").write_text("mine")
    status, said = failure(capsys, "train", book, *WORDS, "--out", tmp_path)
    assert status == 2
    assert said[0] == f"error: {tmp_path} is not an empty folder."
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


@pytest.mark.parametrize("stopped", [lambda sizes: min(sizes) - 1, lambda sizes: max(sizes) - 1], ids=["all", "one"])
def test_a_run_folder_that_cannot_be_completed_is_removed(book, tmp_path, capsys, stopped):
    """A limit on file size stops the first files of the folder, as a full disk does."""
    main(["train", str(book), *WORDS, "--out", str(tmp_path / "first")])  # the tokens are cached now
    sizes = [(tmp_path / "first" / name).stat().st_size for name in ("config.yaml", "tokenizer.json", "env.json")]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (stopped(sizes), before[1]))
    try:
        status, said = failure(capsys, "train", book, *WORDS, "--out", tmp_path / "second")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert status == 1
    assert str(tmp_path / "second") in said[0]
    assert said[1] == "Free some space, or name a folder on another disk with --out."
    assert [path.name for path in tmp_path.iterdir()] == ["first"]
